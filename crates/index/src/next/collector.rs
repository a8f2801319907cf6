//! Collects the index blocks of an sstable while it is written (NEXT, Algorithm 1).
//!
//! The secondary keys of all versions are noted as they come. When the data blocks are written, the notes are sorted and
//! packed into index blocks, the last, partial one too, which the paper's algorithm forgets.

use bolide_base::TreeId;
use bolide_table::{BlockHandle, MAX_META_BLOCK_BYTES};

use super::directory::{self, DirectoryBuilder};
use super::index_block::{Entry, IndexBlockBuilder};
use super::key_filter::FilterBuilder;
use super::secondary_key_sort::Notes;
use crate::attribute;
use crate::in_sstable::SstableIndexBase;
use crate::in_sstable::collector::{Keys, SstableCollector, SstableIndex, Summaries, Version};
use crate::in_sstable::secondary_keys::SecondaryKeys;
use crate::in_sstable::zone::{lower_bound, upper_bound};
use crate::path::AttributePath;
use crate::space::packer;
use crate::space::rect_block::RectEntry;
use crate::spec::GlobalIndexUse;

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
    pub(super) fn new(index: &SstableIndexBase) -> Self {
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
            notes: Notes::default(),
            data_blocks: 0,
            data_bytes: self.has_filter.then_some(0),
            gave_up: false,
            key: Vec::new(),
        })
    }
}

/// What was collected.
struct Collected {
    id: TreeId,
    delta: Option<f64>,
    block_bytes: usize,
    /// Keys are rectangles.
    is_spatial: bool,
    notes: Notes,
    data_blocks: u64,
    /// What these take in the file; `None` where there is to be no filter.
    data_bytes: Option<u64>,
    /// The sstable is to be read as one without the index.
    gave_up: bool,
    /// Scratch memory.
    key: Vec<u8>,
}

impl Collected {
    fn note(&mut self, key: &[u8], entry: Entry) {
        if !self.notes.add(key, entry) {
            self.give_up();
        }
    }

    fn note_all(&mut self, keys: &SecondaryKeys<'_>, entry: Entry) {
        let count = keys.count();
        let mut key = std::mem::take(&mut self.key);
        for ordinal in 0..count {
            keys.write(ordinal, &mut key);
            self.note(&key, Entry { repeated: count > 1, ..entry });
        }
        self.key = key;
    }

    /// Packs rectangles.
    fn finish_space(&self, notes: &Notes, blocks: &mut Vec<(String, Vec<u8>)>, summaries: &mut Summaries) {
        let (mut entries, mut opaque) = (Vec::with_capacity(notes.len()), Vec::new());
        for (key, Entry { sequence, block, entry, repeated }) in notes.iter() {
            let rect = attribute::decode_rect(key);
            let to = if rect.is_some() { &mut entries } else { &mut opaque };
            to.push(RectEntry { rect: rect.unwrap_or_default(), sequence, block, entry, repeated });
        }
        let packed = packer::pack(entries, opaque, self.block_bytes, self.delta, self.data_blocks);
        let named =
            (0..).zip(packed.blocks).map(|(number, bytes)| (directory::block_name(self.id, number), bytes));
        let written: Vec<_> = named.chain([(directory::name(self.id), packed.directory)]).collect();
        if written.iter().all(|(_, bytes)| bytes.len() <= MAX_META_BLOCK_BYTES) {
            let bytes = written.iter().map(|(_, bytes)| bytes.len()).sum();
            summaries.0.add(self.id, bytes, None, notes.len() == 0);
            blocks.extend(written);
        }
    }

    /// Forgets everything.
    fn give_up(&mut self) {
        self.gave_up = true;
        self.notes = Notes::default();
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
            Keys::Known(keys) => match keys.only() {
                Some(key) => self.note(key, entry),
                None => self.note_all(keys, entry),
            },
            Keys::Opaque => self.note(&[], entry),
            Keys::Unmerged => self.give_up(),
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
        let mut notes = std::mem::take(&mut self.notes);
        if self.is_spatial {
            return self.finish_space(&notes, blocks, summaries);
        }
        let is_empty = notes.len() == 0;
        let mut packed = Packer::new(self.id, self.delta, self.block_bytes);
        let mut filter = FilterBuilder::default();
        let mut bounds: Option<[&[u8]; 2]> = None;
        notes.visit_sorted(|key, is_other, entry| {
            packed.add(key, is_other, entry);
            if is_other {
                filter.add(key);
                bounds = Some([bounds.map_or(key, |[first, _]| first), key]);
            }
        });
        // The empty key, of records that cannot be looked into, is the first one.
        let bounds = bounds.filter(|[first, _]| !first.is_empty());
        let zone = bounds.map(|[first, last]| (lower_bound(first).to_vec(), upper_bound(last)));
        let Some(mut written) = packed.finish(self.data_blocks) else { return };
        let filter = self.data_bytes.and_then(|bytes| filter.finish(bytes));
        let filter = filter.filter(|filter| filter.len() <= MAX_META_BLOCK_BYTES);
        written.extend(filter.map(|filter| (directory::filter_name(self.id), filter)));
        let bytes = written.iter().map(|(_, bytes)| bytes.len()).sum();
        summaries.0.add(self.id, bytes, zone, is_empty);
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

    /// Adds an entry of the key before, or of a larger one if that `is_other`.
    fn add(&mut self, key: &[u8], is_other: bool, entry: Entry) {
        let is_other_sort =
            is_other && self.current.keys() > 0 && self.current.key(0).is_empty() != key.is_empty();
        if is_other_sort || self.current.estimated_bytes() >= self.full_bytes {
            self.finish_block();
        }
        match is_other {
            true => self.current.add(key, entry),
            false => self.current.add_to_last(key, entry),
        }
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
