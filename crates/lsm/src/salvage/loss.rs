//! The losses of a salvage, one fact each.

use std::fmt;
use std::ops::{Range, RangeInclusive};

use bolide_base::{MAX_SEQUENCE, SequenceNumber, TreeId};

/// Longer keys are truncated to this length, in bytes.
const MAX_PRINTED_KEY_BYTES: usize = 48;

/// The kind of a lost part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossKind {
    /// The manifest, or a part of it: the set of live sstables is uncertain. Deleted and replaced records may reappear, and
    /// collections or indexes may be missing or reappear.
    Manifest,
    /// Records of the write-ahead log.
    Log,
    /// Acknowledged writes may be missing at the end of the log.
    LogEnd,
    /// A whole sstable.
    Table,
    /// A block of an sstable.
    Block,
    /// An entry that cannot be part of a collection.
    Entry,
    /// The name or the settings of a collection.
    Name,
    /// An index.
    Index,
}

impl LossKind {
    /// The kind as one word.
    ///
    /// ```
    /// assert_eq!(bolide_lsm::salvage::LossKind::Block.name(), "block");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::Log => "log",
            Self::LogEnd => "log-end",
            Self::Table => "sstable",
            Self::Block => "block",
            Self::Entry => "entry",
            Self::Name => "name",
            Self::Index => "index",
        }
    }
}

/// A range of keys, both bounds inclusive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LostKeys {
    /// No key below this one is lost; `None` if that is not known.
    pub first: Option<Vec<u8>>,
    /// No key above this one is lost; `None` if that is not known.
    pub last: Option<Vec<u8>>,
}

impl LostKeys {
    /// True if `key` may be lost.
    ///
    /// ```
    /// use bolide_lsm::salvage::LostKeys;
    /// let keys = LostKeys { first: Some(b"b".to_vec()), last: None };
    /// assert!(keys.contains(b"b") && !keys.contains(b"a"));
    /// ```
    pub fn contains(&self, key: &[u8]) -> bool {
        self.first.as_ref().is_none_or(|first| first.as_slice() <= key)
            && self.last.as_ref().is_none_or(|last| key <= last.as_slice())
    }
}

impl fmt::Display for LostKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = |key: &Option<Vec<u8>>| match key {
            None => "?".to_owned(),
            Some(key) if key.len() <= MAX_PRINTED_KEY_BYTES => format!("\"{}\"", key.escape_ascii()),
            Some(key) => {
                format!("\"{}\"… ({} bytes)", key[..MAX_PRINTED_KEY_BYTES].escape_ascii(), key.len())
            }
        };
        write!(f, "{} to {}", key(&self.first), key(&self.last))
    }
}

/// A part that could not be read or could not be written to the new database.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// What is lost.
    pub kind: LossKind,
    /// The name of the file in the directory of the database; empty if no file is concerned.
    pub file: String,
    /// The bytes of the file that are lost.
    pub bytes: Option<Range<u64>>,
    /// The tree whose entries are lost; `None` if that is not known, or entries of several trees may be.
    pub tree: Option<TreeId>,
    /// The name of the collection, once the layer above has filled it in.
    pub collection: Option<String>,
    /// The keys that may be affected; `None`: any.
    pub keys: Option<LostKeys>,
    /// The range of the sequence numbers of the lost entries, if known. It ends with [`MAX_SEQUENCE`] if only its start is
    /// known.
    pub sequences: Option<RangeInclusive<SequenceNumber>>,
    /// The maximum number of lost entries, if known.
    pub entries: Option<u64>,
    /// The cause as text.
    pub what: String,
}

impl Loss {
    /// A loss without further facts.
    pub fn new(kind: LossKind, file: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            kind,
            file: file.into(),
            bytes: None,
            tree: None,
            collection: None,
            keys: None,
            sequences: None,
            entries: None,
            what: what.into(),
        }
    }

    /// True if the record under `key` of the tree `tree` may be affected.
    pub fn may_affect(&self, tree: TreeId, key: &[u8]) -> bool {
        self.tree.is_none_or(|lost| lost == tree) && self.keys.as_ref().is_none_or(|keys| keys.contains(key))
    }
}

impl fmt::Display for Loss {
    /// One line: kind, file, extent, cause.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if !self.file.is_empty() {
            write!(f, " {}", self.file)?;
        }
        if let Some(bytes) = &self.bytes {
            write!(f, ", bytes {}..{}", bytes.start, bytes.end)?;
        }
        match (&self.collection, self.tree) {
            (Some(name), _) => write!(f, ", collection {name:?}")?,
            (None, Some(tree)) => write!(f, ", tree {tree}")?,
            (None, None) => {}
        }
        if let Some(keys) = &self.keys {
            write!(f, ", keys {keys}")?;
        }
        match &self.sequences {
            Some(sequences) if *sequences.end() == MAX_SEQUENCE => {
                write!(f, ", sequence numbers from {} on", sequences.start())?;
            }
            Some(sequences) => {
                write!(f, ", sequence numbers {} to {}", sequences.start(), sequences.end())?;
            }
            None => {}
        }
        if let Some(entries) = self.entries {
            write!(f, ", up to {entries} entries")?;
        }
        write!(f, ": {}", self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_printed_as_one_line_with_all_facts() {
        let mut loss = Loss::new(LossKind::Block, "000007.sst", "the checksum does not match");
        assert_eq!(loss.to_string(), "block 000007.sst: the checksum does not match");
        loss.bytes = Some(48..300);
        loss.tree = Some(2);
        loss.keys = Some(LostKeys { first: Some(b"a\n".to_vec()), last: None });
        loss.sequences = Some(3..=9);
        loss.entries = Some(4);
        assert_eq!(
            loss.to_string(),
            "block 000007.sst, bytes 48..300, tree 2, keys \"a\\n\" to ?, sequence numbers 3 to 9, \
             up to 4 entries: the checksum does not match"
        );
        assert!(loss.may_affect(2, b"b") && !loss.may_affect(3, b"b") && !loss.may_affect(2, b"a"));
        loss.collection = Some("posts".to_owned());
        assert!(loss.to_string().contains("collection \"posts\""));
        loss.sequences = Some(3..=MAX_SEQUENCE);
        assert!(loss.to_string().contains("sequence numbers from 3 on"), "{loss}");
        let long = LostKeys { first: Some(vec![b'x'; 500]), last: Some(Vec::new()) };
        assert!(long.to_string().contains("(500 bytes) to \"\""), "{long}");
    }
}
