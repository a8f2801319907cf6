//! A change of the durable state, and its encoding as one manifest record.
//!
//! ```text
//! edit      := operation*
//! operation := tag u8, fields:
//!    1 next file number        number
//!    2 next tree id            number
//!    3 last sequence           sequence
//!    4 WAL floor               number of the oldest WAL segment that is needed
//!    5 seal WAL                number, length
//!    6 create tree             tree, options bytes, descriptor bytes
//!    7 drop tree               tree
//!    8 set descriptor          tree, descriptor bytes
//!    9 set options             tree, options bytes
//!   10 tree log floor          tree, number
//!   11 add sstable             tree, level, run, meta
//!   12 remove sstable          tree, number
//!   13 add range tombstone     tree, sequence, start bytes, end bytes
//!   14 remove range tombstone  the same
//!   15 add sstable             tree, level, run, meta, attachment bytes (at least one, at most 64 KiB)
//!   16 set kept root           tree, count, numbers of files ascending, root bytes (at most 64 KiB)
//!   17 note written            tree, bytes written to its files, beyond those noted before
//!   18 add boundary            tree, level, key bytes
//!   19 remove boundary         the same
//!   20 set retained            tree, segment, start, end: 0, 0, 0 for none
//!   21 add view                tree, number, file bytes, flags (bit 0: serves point reads), count, sstables ascending
//!   22 remove view             tree, number
//!   23 start WAL               number, tag (8 bytes)
//!   24 note cut tail           segment, start, end, how the writer ended (1 byte: 0 process, 1 machine)
//!   25 forget cut tail         segment
//! ```
//!
//! Numbers, sequences, trees, levels, runs and lengths are varints; `bytes` is a length as a varint, then
//! the bytes; `meta` is that of [`TableMeta`]. The format version and the feature bits of the file say
//! what a reader must know, so an unknown tag within a known version is damage.
//!
//! Operations apply together. Removals of sstables come before additions whatever their order here, so
//! that a file may move to another level in one edit.

use bolide_base::coding::{Decoder, put_bytes, put_u64, put_varint};
use bolide_base::limits::MAX_TREE_KEY_BYTES;
use bolide_base::{MAX_SEQUENCE, SequenceNumber, TreeId};

use super::LEVELS;
use super::retained_log::RetainedLog;
use super::table_meta::{MAX_ATTACHMENT_BYTES, TableMeta, decode_key};
use super::view_meta::{MAX_VIEW_TABLES, ViewMeta};
use super::wal_segment::CutTail;
use crate::external_tree::ExternalRoot;
use crate::range_tombstones::RangeTombstone;

/// The longest options or descriptor of a tree, in bytes (1 MiB).
const MAX_DESCRIPTOR_BYTES: usize = 1 << 20;

/// The longest root of a kept tree in bytes, and the most files of one.
const MAX_KEPT_ROOT: usize = 64 << 10;

/// One step of a [`VersionEdit`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EditOperation {
    /// The smallest file number that was never handed out.
    NextFileNumber(u64),
    /// The smallest tree id that was never handed out.
    NextTreeId(TreeId),
    /// Every durable write has this sequence number or a smaller one.
    LastSequence(SequenceNumber),
    /// WAL segments below this number are no longer needed.
    WalFloor(u64),
    /// A WAL segment is there, durably, and writes follow.
    StartWal {
        /// The segment.
        number: u64,
        /// The tag of the file.
        tag: u64,
    },
    /// Recovery cut off the end of a WAL segment.
    NoteCutTail(CutTail),
    /// The file with the cut tail of this WAL segment is gone.
    ForgetCutTail(u64),
    /// The records of a WAL segment end at this length, and all are durable.
    SealWal {
        /// The segment.
        number: u64,
        /// The end of its records in bytes.
        len: u64,
    },
    /// A new tree.
    CreateTree {
        /// Its id, never used before.
        tree: TreeId,
        /// Its encoded settings.
        options: Vec<u8>,
        /// What the layer above keeps with it.
        descriptor: Vec<u8>,
    },
    /// The tree and all its sstables are gone.
    DropTree {
        /// Its id.
        tree: TreeId,
    },
    /// The layer above keeps something else with the tree.
    SetDescriptor {
        /// The tree.
        tree: TreeId,
        /// What it keeps.
        descriptor: Vec<u8>,
    },
    /// The tree has other settings.
    SetOptions {
        /// The tree.
        tree: TreeId,
        /// Its encoded settings.
        options: Vec<u8>,
    },
    /// WAL segments below this number hold nothing that this tree lacks on disk.
    TreeLogFloor {
        /// The tree.
        tree: TreeId,
        /// The number of the segment.
        number: u64,
    },
    /// An sstable joins a run.
    AddTable {
        /// The tree.
        tree: TreeId,
        /// The level of the run.
        level: usize,
        /// The id of the run.
        run: u64,
        /// The sstable.
        meta: TableMeta,
    },
    /// An sstable leaves its run.
    RemoveTable {
        /// The tree.
        tree: TreeId,
        /// The number of its file.
        number: u64,
    },
    /// A range of keys was deleted.
    AddRangeTombstone {
        /// The tree.
        tree: TreeId,
        /// The range and its sequence number.
        tombstone: RangeTombstone,
    },
    /// What the keeper of the tree holds durably, in place of what it held before. Without files and root: nothing.
    SetExternalRoot {
        /// The tree.
        tree: TreeId,
        /// Its files and its root.
        kept: ExternalRoot,
    },
    /// Flushes and compactions wrote files of the tree.
    NoteWritten {
        /// The tree.
        tree: TreeId,
        /// Bytes, beyond those noted before.
        bytes: u64,
    },
    /// A deleted range hides nothing any more.
    RemoveRangeTombstone {
        /// The tree.
        tree: TreeId,
        /// The range and its sequence number.
        tombstone: RangeTombstone,
    },
    /// No sstable of the level reaches across this key.
    AddBoundary {
        /// The tree.
        tree: TreeId,
        /// The level.
        level: usize,
        /// The first key behind the boundary.
        key: Vec<u8>,
    },
    /// Two partitions become one.
    RemoveBoundary {
        /// The tree.
        tree: TreeId,
        /// The level.
        level: usize,
        /// The first key behind the boundary.
        key: Vec<u8>,
    },
    /// A REMIX file orders entries of the tree. All its sstables are there; with the first that leaves it is out.
    AddView {
        /// The tree.
        tree: TreeId,
        /// The file.
        view: ViewMeta,
    },
    /// A REMIX file is out.
    RemoveView {
        /// The tree.
        tree: TreeId,
        /// The number of its file.
        number: u64,
    },
    /// Says where the entries are that the last flush of a tree kept back, instead of what was said before.
    SetRetained {
        /// The tree.
        tree: TreeId,
        /// Where they are; `None` if there are none.
        retained: Option<RetainedLog>,
    },
}

impl EditOperation {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::NextFileNumber(number) => put_numbers(out, 1, &[*number]),
            Self::NextTreeId(tree) => put_numbers(out, 2, &[u64::from(*tree)]),
            Self::LastSequence(sequence) => put_numbers(out, 3, &[*sequence]),
            Self::WalFloor(number) => put_numbers(out, 4, &[*number]),
            Self::SealWal { number, len } => put_numbers(out, 5, &[*number, *len]),
            Self::StartWal { number, tag } => {
                put_numbers(out, 23, &[*number]);
                put_u64(out, *tag);
            }
            Self::NoteCutTail(tail) => {
                out.push(24);
                tail.encode(out);
            }
            Self::ForgetCutTail(number) => put_numbers(out, 25, &[*number]),
            Self::CreateTree { tree, options, descriptor } => {
                put_numbers(out, 6, &[u64::from(*tree)]);
                put_bytes(out, options);
                put_bytes(out, descriptor);
            }
            Self::DropTree { tree } => put_numbers(out, 7, &[u64::from(*tree)]),
            Self::SetDescriptor { tree, descriptor } => {
                put_numbers(out, 8, &[u64::from(*tree)]);
                put_bytes(out, descriptor);
            }
            Self::SetOptions { tree, options } => {
                put_numbers(out, 9, &[u64::from(*tree)]);
                put_bytes(out, options);
            }
            Self::TreeLogFloor { tree, number } => put_numbers(out, 10, &[u64::from(*tree), *number]),
            Self::AddTable { tree, level, run, meta } => {
                let tag = if meta.attachment.is_empty() { 11 } else { 15 };
                put_numbers(out, tag, &[u64::from(*tree), *level as u64, *run]);
                meta.encode(out);
                if !meta.attachment.is_empty() {
                    put_bytes(out, &meta.attachment);
                }
            }
            Self::SetExternalRoot { tree, kept } => {
                put_numbers(out, 16, &[u64::from(*tree), kept.files.len() as u64]);
                kept.files.iter().for_each(|&number| put_varint(out, number));
                put_bytes(out, &kept.root);
            }
            Self::NoteWritten { tree, bytes } => put_numbers(out, 17, &[u64::from(*tree), *bytes]),
            Self::RemoveTable { tree, number } => put_numbers(out, 12, &[u64::from(*tree), *number]),
            Self::AddRangeTombstone { tree, tombstone } => put_tombstone(out, 13, *tree, tombstone),
            Self::RemoveRangeTombstone { tree, tombstone } => put_tombstone(out, 14, *tree, tombstone),
            Self::AddBoundary { tree, level, key } => put_boundary(out, 18, *tree, *level, key),
            Self::RemoveBoundary { tree, level, key } => put_boundary(out, 19, *tree, *level, key),
            Self::AddView { tree, view } => {
                put_numbers(out, 21, &[u64::from(*tree)]);
                view.encode(out);
            }
            Self::RemoveView { tree, number } => put_numbers(out, 22, &[u64::from(*tree), *number]),
            Self::SetRetained { tree, retained } => {
                put_numbers(out, 20, &[u64::from(*tree)]);
                RetainedLog::encode(*retained, out);
            }
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        let tag = decoder.u8()?;
        Some(match tag {
            1 => Self::NextFileNumber(decoder.varint()?),
            2 => Self::NextTreeId(decode_tree(decoder)?),
            3 => Self::LastSequence(decode_sequence(decoder)?),
            4 => Self::WalFloor(decoder.varint()?),
            5 => Self::SealWal { number: decoder.varint()?, len: decoder.varint()? },
            23 => Self::StartWal { number: decoder.varint()?, tag: decoder.u64()? },
            24 => Self::NoteCutTail(CutTail::decode(decoder)?),
            25 => Self::ForgetCutTail(decoder.varint()?),
            6..=22 => Self::decode_of_tree(tag, decode_tree(decoder)?, decoder)?,
            _ => return None,
        })
    }

    fn decode_of_tree(tag: u8, tree: TreeId, decoder: &mut Decoder<'_>) -> Option<Self> {
        Some(match tag {
            6 => {
                let options = decode_descriptor(decoder)?;
                Self::CreateTree { tree, options, descriptor: decode_descriptor(decoder)? }
            }
            7 => Self::DropTree { tree },
            8 => Self::SetDescriptor { tree, descriptor: decode_descriptor(decoder)? },
            9 => Self::SetOptions { tree, options: decode_descriptor(decoder)? },
            10 => Self::TreeLogFloor { tree, number: decoder.varint()? },
            11 | 15 => {
                let level = decoder.length(LEVELS - 1)?;
                let run = decoder.varint()?;
                let mut meta = TableMeta::decode(decoder)?;
                if tag == 15 {
                    let len = decoder.length(MAX_ATTACHMENT_BYTES).filter(|&len| len > 0)?;
                    meta.attachment = decoder.take(len)?.to_vec();
                }
                Self::AddTable { tree, level, run, meta }
            }
            12 => Self::RemoveTable { tree, number: decoder.varint()? },
            13 => Self::AddRangeTombstone { tree, tombstone: decode_tombstone(decoder)? },
            14 => Self::RemoveRangeTombstone { tree, tombstone: decode_tombstone(decoder)? },
            16 => Self::SetExternalRoot { tree, kept: decode_kept_root(decoder)? },
            17 => Self::NoteWritten { tree, bytes: decoder.varint()? },
            18 | 19 => {
                let (level, key) = (decoder.length(LEVELS - 1)?, decode_key(decoder)?);
                match tag {
                    18 => Self::AddBoundary { tree, level, key },
                    _ => Self::RemoveBoundary { tree, level, key },
                }
            }
            20 => Self::SetRetained { tree, retained: RetainedLog::decode(decoder)? },
            21 => Self::AddView { tree, view: ViewMeta::decode(decoder)? },
            22 => Self::RemoveView { tree, number: decoder.varint()? },
            _ => return None,
        })
    }

    /// What cannot be written, in words; `None` if the operation can.
    fn over_limit(&self) -> Option<&'static str> {
        let (len, limit, what) = match self {
            Self::CreateTree { options: one, descriptor: other, .. } => {
                let len = one.len().max(other.len());
                (len, MAX_DESCRIPTOR_BYTES, "the options or the descriptor of a tree is over 1 MiB")
            }
            Self::SetDescriptor { descriptor: bytes, .. } | Self::SetOptions { options: bytes, .. } => {
                (bytes.len(), MAX_DESCRIPTOR_BYTES, "the options or the descriptor of a tree is over 1 MiB")
            }
            Self::AddRangeTombstone { tombstone, .. } => {
                let len = tombstone.start.len().max(tombstone.end.len());
                (len, MAX_TREE_KEY_BYTES, "an end of a deleted range is too long")
            }
            Self::AddTable { meta, .. } => {
                (meta.attachment.len(), MAX_ATTACHMENT_BYTES, "the attachment of an sstable is over 64 KiB")
            }
            Self::SetExternalRoot { kept, .. } => {
                let len = kept.root.len().max(kept.files.len());
                (len, MAX_KEPT_ROOT, "the root of a kept tree is over 64 KiB, or in over 65,536 files")
            }
            Self::AddView { view, .. } => {
                (view.tables.len(), MAX_VIEW_TABLES, "a view orders more than 65,536 sstables")
            }
            Self::AddBoundary { key, .. } => {
                (key.len(), MAX_TREE_KEY_BYTES, "a boundary between partitions is too long")
            }
            _ => return None,
        };
        (len > limit).then_some(what)
    }
}

fn put_numbers(out: &mut Vec<u8>, tag: u8, numbers: &[u64]) {
    out.push(tag);
    for &number in numbers {
        put_varint(out, number);
    }
}

fn put_tombstone(out: &mut Vec<u8>, tag: u8, tree: TreeId, tombstone: &RangeTombstone) {
    put_numbers(out, tag, &[u64::from(tree), tombstone.sequence]);
    put_bytes(out, &tombstone.start);
    put_bytes(out, &tombstone.end);
}

fn put_boundary(out: &mut Vec<u8>, tag: u8, tree: TreeId, level: usize, key: &[u8]) {
    put_numbers(out, tag, &[u64::from(tree), level as u64]);
    put_bytes(out, key);
}

fn decode_tree(decoder: &mut Decoder<'_>) -> Option<TreeId> {
    TreeId::try_from(decoder.varint()?).ok()
}

fn decode_sequence(decoder: &mut Decoder<'_>) -> Option<SequenceNumber> {
    decoder.varint().filter(|&sequence| sequence <= MAX_SEQUENCE)
}

fn decode_descriptor(decoder: &mut Decoder<'_>) -> Option<Vec<u8>> {
    let len = decoder.length(MAX_DESCRIPTOR_BYTES)?;
    decoder.take(len).map(<[u8]>::to_vec)
}

fn decode_kept_root(decoder: &mut Decoder<'_>) -> Option<ExternalRoot> {
    let count = decoder.length(MAX_KEPT_ROOT)?;
    let files = (0..count).map(|_| decoder.varint()).collect::<Option<Vec<u64>>>()?;
    let len = decoder.length(MAX_KEPT_ROOT)?;
    let root = decoder.take(len)?.to_vec();
    files.is_sorted_by(|left, right| left < right).then_some(ExternalRoot { files, root })
}

fn decode_tombstone(decoder: &mut Decoder<'_>) -> Option<RangeTombstone> {
    let sequence = decode_sequence(decoder)?;
    let tombstone = RangeTombstone { start: decode_key(decoder)?, end: decode_key(decoder)?, sequence };
    (tombstone.start < tombstone.end).then_some(tombstone)
}

/// Steps that become durable together, or not at all.
///
/// ```
/// use bolide_lsm::version::VersionEdit;
/// let mut edit = VersionEdit::new();
/// edit.create_tree(7, vec![1], b"posts".to_vec());
/// edit.set_last_sequence(12);
/// let bytes = edit.encode();
/// assert_eq!(VersionEdit::decode(&bytes), Some(edit));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VersionEdit {
    operations: Vec<EditOperation>,
}

impl VersionEdit {
    /// An edit that changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates `tree`, whose id was never used before. Options and descriptor are at most 1 MiB each.
    pub fn create_tree(&mut self, tree: TreeId, options: Vec<u8>, descriptor: Vec<u8>) {
        self.push(EditOperation::CreateTree { tree, options, descriptor });
    }

    /// Drops `tree` with all its sstables.
    pub fn drop_tree(&mut self, tree: TreeId) {
        self.push(EditOperation::DropTree { tree });
    }

    /// Changes what the layer above keeps with `tree`.
    pub fn set_descriptor(&mut self, tree: TreeId, descriptor: Vec<u8>) {
        self.push(EditOperation::SetDescriptor { tree, descriptor });
    }

    /// Changes the settings of `tree`, at most 1 MiB.
    pub fn set_options(&mut self, tree: TreeId, options: Vec<u8>) {
        self.push(EditOperation::SetOptions { tree, options });
    }

    /// Says that every durable write has the sequence number `sequence` or a smaller one. The log must
    /// be synced through it.
    pub fn set_last_sequence(&mut self, sequence: SequenceNumber) {
        self.push(EditOperation::LastSequence(sequence));
    }

    /// Says that WAL segments below `number` are no longer needed.
    pub fn set_wal_floor(&mut self, number: u64) {
        self.push(EditOperation::WalFloor(number));
    }

    /// Names WAL segment `number` with this tag. The file must be durable.
    pub fn start_wal(&mut self, number: u64, tag: u64) {
        self.push(EditOperation::StartWal { number, tag });
    }

    /// Notes that recovery cut off the end of a WAL segment.
    pub fn note_cut_tail(&mut self, tail: CutTail) {
        self.push(EditOperation::NoteCutTail(tail));
    }

    /// Removes the note of the cut tail of WAL segment `number`.
    pub fn forget_cut_tail(&mut self, number: u64) {
        self.push(EditOperation::ForgetCutTail(number));
    }

    /// Says that the records of WAL segment `number` end at `len` bytes, and that all are durable.
    pub fn seal_wal(&mut self, number: u64, len: u64) {
        self.push(EditOperation::SealWal { number, len });
    }

    /// Says that WAL segments below `number` hold nothing that `tree` lacks on disk.
    pub fn set_tree_log_floor(&mut self, tree: TreeId, number: u64) {
        self.push(EditOperation::TreeLogFloor { tree, number });
    }

    /// Adds `tables` to the run `run` of `level`, which is created if it is not there. Within a level,
    /// runs with larger numbers are newer.
    pub fn add_tables(&mut self, tree: TreeId, level: usize, run: u64, tables: Vec<TableMeta>) {
        for meta in tables {
            self.push(EditOperation::AddTable { tree, level, run, meta });
        }
    }

    /// Removes the sstable `number`.
    pub fn remove_table(&mut self, tree: TreeId, number: u64) {
        self.push(EditOperation::RemoveTable { tree, number });
    }

    /// Notes a deleted range in the ledger of `tree`. Empty ranges are left out.
    pub fn add_range_tombstone(&mut self, tree: TreeId, tombstone: RangeTombstone) {
        if tombstone.start < tombstone.end {
            self.push(EditOperation::AddRangeTombstone { tree, tombstone });
        }
    }

    /// Says what the keeper of `tree` holds durably.
    pub fn set_external_root(&mut self, tree: TreeId, kept: ExternalRoot) {
        self.push(EditOperation::SetExternalRoot { tree, kept });
    }

    /// Notes that `bytes` were written to files of `tree`, beyond those noted before.
    pub fn note_written(&mut self, tree: TreeId, bytes: u64) {
        self.push(EditOperation::NoteWritten { tree, bytes });
    }

    /// Removes a deleted range that hides nothing any more.
    pub fn remove_range_tombstone(&mut self, tree: TreeId, tombstone: RangeTombstone) {
        self.push(EditOperation::RemoveRangeTombstone { tree, tombstone });
    }

    /// Cuts `level` of `tree` at `key`.
    pub fn add_boundary(&mut self, tree: TreeId, level: usize, key: Vec<u8>) {
        self.push(EditOperation::AddBoundary { tree, level, key });
    }

    /// Takes back all boundaries of `level` that `boundaries` has.
    pub fn remove_boundaries<'k>(
        &mut self,
        tree: TreeId,
        level: usize,
        boundaries: impl IntoIterator<Item = &'k Vec<u8>>,
    ) {
        for key in boundaries {
            self.push(EditOperation::RemoveBoundary { tree, level, key: key.clone() });
        }
    }

    /// Says where in the log the entries of `tree` are that its flush keeps back.
    pub fn set_retained(&mut self, tree: TreeId, retained: Option<RetainedLog>) {
        self.push(EditOperation::SetRetained { tree, retained });
    }

    /// Appends one step.
    pub fn push(&mut self, operation: EditOperation) {
        self.operations.push(operation);
    }

    /// The steps.
    pub fn operations(&self) -> &[EditOperation] {
        &self.operations
    }

    /// True if the edit changes nothing.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The payload of a manifest record.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for operation in &self.operations {
            operation.encode(&mut out);
        }
        out
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` for anything else. Allocates in proportion to
    /// the input.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let mut operations = Vec::new();
        while !decoder.is_empty() {
            operations.push(EditOperation::decode(&mut decoder)?);
        }
        Some(Self { operations })
    }

    /// What cannot be written, in words; `None` if all can.
    pub(super) fn over_limit(&self) -> Option<&'static str> {
        self.operations.iter().find_map(EditOperation::over_limit)
    }
}

#[cfg(test)]
#[path = "version_edit_tests.rs"]
mod tests;
