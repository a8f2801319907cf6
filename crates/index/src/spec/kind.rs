//! The kinds of index.

use bolide_base::{Error, Result};

/// The structure of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum IndexKind {
    /// One entry per record in a tree of its own, under the secondary key, the sequence number and the
    /// primary key.
    Composite,
    /// Posting lists whose fragments are appended blindly and merged by compactions (LevelDB++ §4.1.2).
    Lazy,
    /// Posting lists that each write reads, changes and writes back (LevelDB++ §4.1.1).
    Eager,
    /// No tree of its own: Bloom filters and zone maps in the sstables of the table (LevelDB++ §3).
    Embedded,
    /// No tree of its own: blocks of sorted entries in the sstables of the table, below a global index in memory (NEXT).
    Next,
    /// An in-memory structure of its own, written to disk by checkpoints, with a version table (Perseid). The default
    /// kind.
    #[default]
    PsTree,
}

impl IndexKind {
    /// All kinds of this version.
    pub const ALL: [Self; 6] =
        [Self::Composite, Self::Lazy, Self::Eager, Self::Embedded, Self::Next, Self::PsTree];

    /// The name in specifications.
    pub fn name(self) -> &'static str {
        match self {
            Self::Composite => "composite",
            Self::Lazy => "lazy",
            Self::Eager => "eager",
            Self::Embedded => "embedded",
            Self::Next => "next",
            Self::PsTree => "ps-tree",
        }
    }

    /// Whether its entries are in a tree of their own.
    pub fn is_standalone(self) -> bool {
        !matches!(self, Self::Embedded | Self::Next)
    }

    /// The options of this kind.
    pub(super) fn options(self) -> &'static [&'static str] {
        match self {
            Self::Composite => &["maintenance", "validation", "include", "repair", "order"],
            Self::Lazy => &["maintenance", "validation", "include", "repair"],
            Self::Eager => &["maintenance", "validation", "include", "repair", "split"],
            Self::Embedded => &["bloom_bits"],
            Self::Next => &["delta", "block_bytes", "global"],
            Self::PsTree => &["include", "skey", "region", "page_bytes"],
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        if let Some(kind) = Self::ALL.into_iter().find(|kind| kind.name() == text) {
            return Ok(kind);
        }
        Err(Error::invalid_input(format!(
            "there is no index kind `{text}`; the kinds of this version are {}",
            Self::ALL.map(Self::name).join(", ")
        )))
    }
}
