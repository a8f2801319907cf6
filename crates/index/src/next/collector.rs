//! Collects the index blocks of an sstable while it is written (NEXT, Algorithm 1).
//!
//! The secondary keys of all versions are noted as they come. When the data blocks are written, the notes are sorted and
//! packed into index blocks, the last, partial one too, which the paper's algorithm forgets.

use bolide_base::TreeId;
use bolide_table::{BlockHandle, MAX_META_BLOCK_BYTES};

use super::directory::{self, DirectoryBuilder};
use super::index_block::{Entry, IndexBlockBuilder};
use super::key_filter::FilterBuilder;
use crate::attribute;
use crate::in_table::InTable;
use crate::in_table::collector::{Keys, SstableCollector, SstableIndex, Summaries, Version};
use crate::in_table::zone::{lower_bound, upper_bound};
use crate::path::AttributePath;
use crate::space::packer;
use crate::space::rect_block::RectEntry;
use crate::spec::GlobalIndexUse;

/// Bytes of secondary keys of one sstable, at most; one with more is read as one without the index.
const MAX_KEY_BYTES: usize = 1 << 30;

/// An index as far as sstables carry it.
#[derive(Debug)]
pub(super) struct Member {
    id: TreeId,
    delta: Option<f64>,
    block_bytes: usize,
    attributes: Vec<AttributePath>,
    /// Sstables are to have filters.
    has_filter: bool,
}

impl Member {
    pub(super) fn new(index: &InTable) -> Self {
        let spec = &index.spec;
        let (delta, block_bytes) = (spec.delta(), spec.block_bytes() as usize);
        let has_filter = spec.global() != GlobalIndexUse::Off;
        Self { id: index.id, delta, block_bytes, attributes: spec.attributes().to_vec(), has_filter }
    }
}

impl SstableIndex for Member {
    fn attributes(&self) -> &[AttributePath] {
        &self.attributes
    }

    fn collector(&self) -> Box<dyn SstableCollector> {
        Box::new(Collected {
            id: self.id,
            delta: self.delta,
            block_bytes: self.block_bytes,
            is_spatial: self.attributes.first().is_some_and(AttributePath::is_spatial),
            keys: Vec::new(),
            notes: Vec::new(),
            data_blocks: 0,
            data_bytes: self.has_filter.then_some(0),
            gave_up: false,
            key: Vec::new(),
        })
    }
}

/// A version and a secondary key of it.
#[derive(Debug, Clone, Copy)]
struct Note {
    /// The first bytes of the key as a number that orders like them.
    head: u64,
    /// Where the key lies.
    at: u32,
    len: u32,
    entry: Entry,
}

/// What was collected.
struct Collected {
    id: TreeId,
    delta: Option<f64>,
    block_bytes: usize,
    /// Keys are rectangles.
    is_spatial: bool,
    /// The keys of all notes.
    keys: Vec<u8>,
    notes: Vec<Note>,
    data_blocks: u64,
    /// What these take in the file; `None` where there is to be no filter.
    data_bytes: Option<u64>,
    /// The sstable is to be read as one without the index.
    gave_up: bool,
    /// Scratch memory.
    key: Vec<u8>,
}

impl Collected {
    fn note(&mut self, entry: Entry) {
        let (at, len) = (self.keys.len(), self.key.len());
        if at + len > MAX_KEY_BYTES {
            self.gave_up = true;
            return;
        }
        let mut head = [0; size_of::<u64>()];
        for (to, from) in head.iter_mut().zip(&self.key) {
            *to = *from;
        }
        self.keys.extend_from_slice(&self.key);
        self.notes.push(Note { head: u64::from_be_bytes(head), at: at as u32, len: len as u32, entry });
    }

    /// Packs rectangles.
    fn finish_space(
        &self,
        keys: &[u8],
        notes: &[Note],
        blocks: &mut Vec<(String, Vec<u8>)>,
        summaries: &mut Summaries,
    ) {
        let (mut entries, mut opaque) = (Vec::with_capacity(notes.len()), Vec::new());
        for note in notes {
            let key = keys.get(note.at as usize..).and_then(|rest| rest.get(..note.len as usize));
            let rect = key.and_then(attribute::decode_rect);
            let Entry { sequence, block, entry, repeated } = note.entry;
            let to = if rect.is_some() { &mut entries } else { &mut opaque };
            to.push(RectEntry { rect: rect.unwrap_or_default(), sequence, block, entry, repeated });
        }
        let packed = packer::pack(entries, opaque, self.block_bytes, self.delta, self.data_blocks);
        let named =
            (0..).zip(packed.blocks).map(|(number, bytes)| (directory::block_name(self.id, number), bytes));
        let written: Vec<_> = named.chain([(directory::name(self.id), packed.directory)]).collect();
        if written.iter().all(|(_, bytes)| bytes.len() <= MAX_META_BLOCK_BYTES) {
            let bytes = written.iter().map(|(_, bytes)| bytes.len()).sum();
            summaries.0.add(self.id, bytes, None, notes.is_empty());
            blocks.extend(written);
        }
    }

    /// Forgets everything.
    fn give_up(&mut self) {
        self.gave_up = true;
        (self.keys, self.notes) = (Vec::new(), Vec::new());
    }
}

impl SstableCollector for Collected {
    fn add(&mut self, version: &Version<'_>) {
        if self.gave_up {
            return;
        }
        let Ok(block) = u32::try_from(version.block) else { return self.give_up() };
        let entry = Entry { sequence: version.sequence, block, entry: version.entry, repeated: false };
        match &version.keys {
            Keys::Known(keys) => {
                let count = keys.count();
                for ordinal in 0..count {
                    keys.write(ordinal, &mut self.key);
                    self.note(Entry { repeated: count > 1, ..entry });
                }
            }
            Keys::Opaque => {
                self.key.clear();
                self.note(entry);
            }
            Keys::Unmerged => self.gave_up = true,
        }
        if self.gave_up {
            self.give_up();
        }
    }

    fn finish_block(&mut self, handle: BlockHandle) {
        self.data_blocks += 1;
        if let Some(bytes) = &mut self.data_bytes {
            *bytes += u64::from(handle.bytes);
        }
    }

    fn finish(&mut self, blocks: &mut Vec<(String, Vec<u8>)>, summaries: &mut Summaries) {
        if self.gave_up {
            return;
        }
        let keys = std::mem::take(&mut self.keys);
        let mut notes = std::mem::take(&mut self.notes);
        if self.is_spatial {
            return self.finish_space(&keys, &notes, blocks, summaries);
        }
        let key = |note: &Note| keys.get(note.at as usize..).and_then(|rest| rest.get(..note.len as usize));
        notes.sort_unstable_by(|left, right| {
            let by_key = left.head.cmp(&right.head).then_with(|| key(left).cmp(&key(right)));
            by_key.then_with(|| right.entry.sequence.cmp(&left.entry.sequence))
        });
        let mut packed = Packer::new(self.id, self.delta, self.block_bytes);
        let (mut filter, mut before) = (FilterBuilder::default(), &[][..]);
        for note in &notes {
            let key = key(note).unwrap_or_default();
            packed.add(key, note.entry);
            if key != std::mem::replace(&mut before, key) {
                filter.add(key);
            }
        }
        let is_opaque = notes.first().is_some_and(|note| note.len == 0);
        let zone = notes.first().zip(notes.last()).filter(|_| !is_opaque).map(|(first, last)| {
            let [first, last] = [first, last].map(|note| key(note).unwrap_or_default());
            (lower_bound(first).to_vec(), upper_bound(last))
        });
        let Some(mut written) = packed.finish(self.data_blocks) else { return };
        let filter = self.data_bytes.and_then(|bytes| filter.finish(bytes));
        let filter = filter.filter(|filter| filter.len() <= MAX_META_BLOCK_BYTES);
        written.extend(filter.map(|filter| (directory::filter_name(self.id), filter)));
        let bytes = written.iter().map(|(_, bytes)| bytes.len()).sum();
        summaries.0.add(self.id, bytes, zone, notes.is_empty());
        blocks.extend(written);
    }
}

/// Packs sorted entries into index blocks.
struct Packer {
    id: TreeId,
    delta: Option<f64>,
    blocks: Vec<(String, Vec<u8>)>,
    directory: DirectoryBuilder,
    current: IndexBlockBuilder,
    /// Length of a block, about.
    block_bytes: usize,
    /// How many estimated bytes make that.
    full_bytes: usize,
}

impl Packer {
    fn new(id: TreeId, delta: Option<f64>, block_bytes: usize) -> Self {
        let (blocks, directory) = (Vec::new(), DirectoryBuilder::default());
        let current = IndexBlockBuilder::default();
        Self { id, delta, blocks, directory, current, block_bytes, full_bytes: block_bytes }
    }

    fn add(&mut self, key: &[u8], entry: Entry) {
        let keys = self.current.keys();
        let is_other_sort = keys > 0 && self.current.key(0).is_empty() != key.is_empty();
        if is_other_sort || self.current.estimated_bytes() >= self.full_bytes {
            self.finish_block();
        }
        self.current.add(key, entry);
    }

    fn finish_block(&mut self) {
        if self.current.keys() == 0 {
            return;
        }
        let estimated = self.current.estimated_bytes();
        self.directory.add(&self.current, self.delta);
        let bytes = self.current.finish();
        // What keys have in common is not estimated: it is likely to be the same in the next block.
        let wanted = self.block_bytes;
        self.full_bytes = (estimated * wanted / bytes.len().max(1)).clamp(wanted / 2, 4 * wanted);
        self.blocks.push((directory::block_name(self.id, self.blocks.len()), bytes));
    }

    /// All meta blocks; `None` where one is too long.
    fn finish(mut self, data_blocks: u64) -> Option<Vec<(String, Vec<u8>)>> {
        self.finish_block();
        let directory = self.directory.finish(data_blocks);
        self.blocks.push((directory::name(self.id), directory));
        let fits = self.blocks.iter().all(|(_, bytes)| bytes.len() <= MAX_META_BLOCK_BYTES);
        fits.then_some(self.blocks)
    }
}
