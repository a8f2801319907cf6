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
//!   16 set external root       tree, count, numbers of files ascending, root bytes (at most 64 KiB)
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
//! Numbers, sequences, trees, levels, runs and lengths are varints. `bytes` is a length as a varint, then the bytes.
//! `meta` is the encoding of [`TableMeta`]. The format version and the feature bits of the file determine the tags, so an
//! unknown tag within a known version is damage.
//!
//! Operations apply together. Sstables are removed before others are added, whatever their order here, so that a file can
//! move to another level in one edit.

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

/// The maximum length of an external root in bytes, and the maximum number of its files.
const MAX_EXTERNAL_ROOT: usize = 64 << 10;

/// One operation of a [`VersionEdit`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EditOperation {
    /// The smallest file number that was never allocated.
    NextFileNumber(u64),
    /// The smallest tree id that was never allocated.
    NextTreeId(TreeId),
    /// The largest sequence number of the durable writes, or a larger one.
    LastSequence(SequenceNumber),
    /// WAL segments below this number are not needed.
    WalFloor(u64),
    /// A WAL segment exists durably and takes the next writes.
    StartWal {
        /// The segment.
        number: u64,
        /// The tag of the file.
        tag: u64,
    },
    /// Recovery cut off the tail of a WAL segment.
    NoteCutTail(CutTail),
    /// The file with the cut tail of this WAL segment was removed.
    ForgetCutTail(u64),
    /// The records of a WAL segment end at this length and are all durable.
    SealWal {
        /// The segment.
        number: u64,
        /// The end of its records in bytes.
        len: u64,
    },
    /// Creates a tree.
    CreateTree {
        /// The id, never used before.
        tree: TreeId,
        /// The encoded settings.
        options: Vec<u8>,
        /// The layer above's data about the tree.
        descriptor: Vec<u8>,
    },
    /// Drops a tree with all its sstables.
    DropTree {
        /// The id.
        tree: TreeId,
    },
    /// Replaces the layer above's data about a tree.
    SetDescriptor {
        /// The tree.
        tree: TreeId,
        /// The new data.
        descriptor: Vec<u8>,
    },
    /// Replaces the settings of a tree.
    SetOptions {
        /// The tree.
        tree: TreeId,
        /// The encoded settings.
        options: Vec<u8>,
    },
    /// The writes of a tree in WAL segments below this number are all on disk.
    TreeLogFloor {
        /// The tree.
        tree: TreeId,
        /// The number of the segment.
        number: u64,
    },
    /// Adds an sstable to a run.
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
    /// Removes an sstable.
    RemoveTable {
        /// The tree.
        tree: TreeId,
        /// The number of the file.
        number: u64,
    },
    /// Deletes a range of keys.
    AddRangeTombstone {
        /// The tree.
        tree: TreeId,
        /// The range and its sequence number.
        tombstone: RangeTombstone,
    },
    /// Replaces the durable state of an external tree. Without files and root, the tree is empty.
    SetExternalRoot {
        /// The tree.
        tree: TreeId,
        /// The files and the root.
        external_root: ExternalRoot,
    },
    /// Counts bytes that flushes and compactions wrote to files of a tree.
    NoteWritten {
        /// The tree.
        tree: TreeId,
        /// Bytes since the previous such operation.
        bytes: u64,
    },
    /// Removes a range tombstone that hides nothing any more.
    RemoveRangeTombstone {
        /// The tree.
        tree: TreeId,
        /// The range and its sequence number.
        tombstone: RangeTombstone,
    },
    /// Adds a boundary: no sstable of the level crosses this key.
    AddBoundary {
        /// The tree.
        tree: TreeId,
        /// The level.
        level: usize,
        /// The first key behind the boundary.
        key: Vec<u8>,
    },
    /// Removes a boundary: two partitions become one.
    RemoveBoundary {
        /// The tree.
        tree: TreeId,
        /// The level.
        level: usize,
        /// The first key behind the boundary.
        key: Vec<u8>,
    },
    /// Adds a REMIX file. All its sstables exist; removing one of them removes the file.
    AddView {
        /// The tree.
        tree: TreeId,
        /// The file.
        view: ViewMeta,
    },
    /// Removes a REMIX file.
    RemoveView {
        /// The tree.
        tree: TreeId,
        /// The number of the file.
        number: u64,
    },
    /// Replaces the log position of the entries that the last flush of a tree retained.
    SetRetained {
        /// The tree.
        tree: TreeId,
        /// The position; `None` without such entries.
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
            Self::SetExternalRoot { tree, external_root } => {
                put_numbers(out, 16, &[u64::from(*tree), external_root.files.len() as u64]);
                external_root.files.iter().for_each(|&number| put_varint(out, number));
                put_bytes(out, &external_root.root);
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
            16 => Self::SetExternalRoot { tree, external_root: decode_external_root(decoder)? },
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

    /// A description of the exceeded limit; `None` if the operation can be encoded.
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
            Self::SetExternalRoot { external_root, .. } => {
                let len = external_root.root.len().max(external_root.files.len());
                (len, MAX_EXTERNAL_ROOT, "an external root is over 64 KiB, or has over 65,536 files")
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

fn decode_external_root(decoder: &mut Decoder<'_>) -> Option<ExternalRoot> {
    let count = decoder.length(MAX_EXTERNAL_ROOT)?;
    let files = (0..count).map(|_| decoder.varint()).collect::<Option<Vec<u64>>>()?;
    let len = decoder.length(MAX_EXTERNAL_ROOT)?;
    let root = decoder.take(len)?.to_vec();
    files.is_sorted_by(|left, right| left < right).then_some(ExternalRoot { files, root })
}

fn decode_tombstone(decoder: &mut Decoder<'_>) -> Option<RangeTombstone> {
    let sequence = decode_sequence(decoder)?;
    let tombstone = RangeTombstone { start: decode_key(decoder)?, end: decode_key(decoder)?, sequence };
    (tombstone.start < tombstone.end).then_some(tombstone)
}

/// Operations that become durable together, or not at all.
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

    /// Adds the operations of `other`: all of them apply together, or none.
    pub fn append(&mut self, mut other: Self) {
        self.operations.append(&mut other.operations);
    }

    /// Creates `tree`, whose id was never used before. Options and descriptor have at most 1 MiB each.
    pub fn create_tree(&mut self, tree: TreeId, options: Vec<u8>, descriptor: Vec<u8>) {
        self.push(EditOperation::CreateTree { tree, options, descriptor });
    }

    /// Drops `tree` with all its sstables.
    pub fn drop_tree(&mut self, tree: TreeId) {
        self.push(EditOperation::DropTree { tree });
    }

    /// Replaces the layer above's data about `tree`.
    pub fn set_descriptor(&mut self, tree: TreeId, descriptor: Vec<u8>) {
        self.push(EditOperation::SetDescriptor { tree, descriptor });
    }

    /// Replaces the settings of `tree`, at most 1 MiB.
    pub fn set_options(&mut self, tree: TreeId, options: Vec<u8>) {
        self.push(EditOperation::SetOptions { tree, options });
    }

    /// Sets the largest sequence number of the durable writes, or a larger one. The log must be synced through it.
    pub fn set_last_sequence(&mut self, sequence: SequenceNumber) {
        self.push(EditOperation::LastSequence(sequence));
    }

    /// Sets the WAL floor: WAL segments below `number` are not needed.
    pub fn set_wal_floor(&mut self, number: u64) {
        self.push(EditOperation::WalFloor(number));
    }

    /// Adds WAL segment `number` with this tag. The file must be durable.
    pub fn start_wal(&mut self, number: u64, tag: u64) {
        self.push(EditOperation::StartWal { number, tag });
    }

    /// Records the tail that recovery cut off a WAL segment.
    pub fn note_cut_tail(&mut self, tail: CutTail) {
        self.push(EditOperation::NoteCutTail(tail));
    }

    /// Removes the record of the cut tail of WAL segment `number`.
    pub fn forget_cut_tail(&mut self, number: u64) {
        self.push(EditOperation::ForgetCutTail(number));
    }

    /// Seals WAL segment `number`: its records end at `len` bytes and are all durable.
    pub fn seal_wal(&mut self, number: u64, len: u64) {
        self.push(EditOperation::SealWal { number, len });
    }

    /// Sets the log floor of `tree`: its writes in WAL segments below `number` are all on disk.
    pub fn set_tree_log_floor(&mut self, tree: TreeId, number: u64) {
        self.push(EditOperation::TreeLogFloor { tree, number });
    }

    /// Adds `tables` to the run `run` of `level`, which is created if it does not exist. Within a level, runs with larger
    /// numbers are newer.
    pub fn add_tables(&mut self, tree: TreeId, level: usize, run: u64, tables: Vec<TableMeta>) {
        for meta in tables {
            self.push(EditOperation::AddTable { tree, level, run, meta });
        }
    }

    /// Removes the sstable `number`.
    pub fn remove_table(&mut self, tree: TreeId, number: u64) {
        self.push(EditOperation::RemoveTable { tree, number });
    }

    /// Adds a range tombstone to the ledger of `tree`. Empty ranges are skipped.
    pub fn add_range_tombstone(&mut self, tree: TreeId, tombstone: RangeTombstone) {
        if tombstone.start < tombstone.end {
            self.push(EditOperation::AddRangeTombstone { tree, tombstone });
        }
    }

    /// Sets the durable state of the external tree `tree`.
    pub fn set_external_root(&mut self, tree: TreeId, external_root: ExternalRoot) {
        self.push(EditOperation::SetExternalRoot { tree, external_root });
    }

    /// Counts `bytes` written to files of `tree` since the previous such operation.
    pub fn note_written(&mut self, tree: TreeId, bytes: u64) {
        self.push(EditOperation::NoteWritten { tree, bytes });
    }

    /// Removes a range tombstone that hides nothing any more.
    pub fn remove_range_tombstone(&mut self, tree: TreeId, tombstone: RangeTombstone) {
        self.push(EditOperation::RemoveRangeTombstone { tree, tombstone });
    }

    /// Adds a boundary to `level` of `tree` at `key`.
    pub fn add_boundary(&mut self, tree: TreeId, level: usize, key: Vec<u8>) {
        self.push(EditOperation::AddBoundary { tree, level, key });
    }

    /// Removes all of `boundaries` from `level`.
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

    /// Sets the log position of the entries that the last flush of `tree` retained.
    pub fn set_retained(&mut self, tree: TreeId, retained: Option<RetainedLog>) {
        self.push(EditOperation::SetRetained { tree, retained });
    }

    /// Appends one operation.
    pub fn push(&mut self, operation: EditOperation) {
        self.operations.push(operation);
    }

    /// The operations.
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

    /// Decodes the output of [`encode`](Self::encode); `None` for anything else. Allocates in proportion to the input.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let mut operations = Vec::new();
        while !decoder.is_empty() {
            operations.push(EditOperation::decode(&mut decoder)?);
        }
        Some(Self { operations })
    }

    /// A description of the exceeded limit; `None` if the edit can be encoded.
    pub(super) fn over_limit(&self) -> Option<&'static str> {
        self.operations.iter().find_map(EditOperation::over_limit)
    }
}

#[cfg(test)]
#[path = "version_edit_tests.rs"]
mod tests;
