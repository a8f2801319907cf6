//! Index kinds as data: a record of properties and callbacks for each.
//!
//! The database uses a kind through this record alone. A new kind is a module with a [`SecondaryIndex`], its
//! [`IndexHooks`] and a static [`IndexMethod`], and one line that registers the latter; see [`crate::kinds`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::{Result, Trailer, TreeId};
use bolide_lsm::ReadView;
use bolide_lsm::external_tree::ExternalRoot;

use crate::extractor::AttributeExtractor;
use crate::hooks::IndexHooks;
use crate::secondary_index::SecondaryIndex;
use crate::spec::{IndexKind, IndexSpec, KindProperties};

/// What the constructor of an index receives.
pub struct NewIndex {
    /// The declaration. Options of the library are parsed; the constructor checks options of the kind alone.
    pub spec: IndexSpec,
    /// The tree of its entries. A kind without a tree of its own may use the number as a name for its blocks: no other index
    /// has ever had it.
    pub tree: TreeId,
    /// The tree of the records.
    pub table: TreeId,
    /// The extractor of the attributes; `None` for records of bytes without an extractor of the program.
    pub extractor: Option<Arc<dyn AttributeExtractor>>,
    /// The tree of the key index, if the collection has one.
    pub key_index: Option<TreeId>,
}

/// An index, in its two roles.
#[derive(Debug, Clone)]
pub struct IndexParts {
    /// Turns records into entries, and queries into candidates.
    pub index: Arc<dyn SecondaryIndex<ReadView>>,
    /// Works on the store.
    pub hooks: Arc<dyn IndexHooks>,
}

impl IndexParts {
    /// An index that has both roles.
    pub fn of<I: SecondaryIndex<ReadView> + IndexHooks + 'static>(index: I) -> Self {
        let index = Arc::new(index);
        Self { index: index.clone(), hooks: index }
    }
}

/// The files of a kind that the store does not manage.
#[derive(Clone, Copy)]
pub struct OwnFiles {
    /// The path of the file that the root of an external tree in the manifest names; from the root, the directory of the
    /// database, and that of persistent memory. `None` if it names none.
    /// It is called with the roots of all kinds, so a root must identify its kind by its first bytes. A root of kind `ps-tree`
    /// that names a file begins with a zero byte.
    pub of_root: fn(&ExternalRoot, &Path, Option<&Path>) -> Option<PathBuf>,
    /// Whether a file name in the directory of the database is that of such a file, of the database with this number.
    pub is_own: fn(&str, u64) -> bool,
}

/// Describes an entry with its key, its trailer and its value in one line of text.
pub type EntryText = fn(&IndexSpec, &[u8], Trailer, &[u8]) -> Option<String>;

/// Describes a meta block with its name and its content in one line of text.
pub type MetaBlockText = fn(&str, &[u8]) -> Option<String>;

/// The properties and the callbacks of an index kind.
pub struct IndexMethod {
    /// The properties.
    pub properties: KindProperties,
    /// Checks a declaration before anything is created for it: the options of the kind alone.
    ///
    /// # Errors
    /// `InvalidInput` for an option that is not valid; `Unsupported` for what this version lacks.
    pub check: fn(&IndexSpec) -> Result<()>,
    /// Creates an index in memory. Reads and writes nothing.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub create: fn(NewIndex) -> Result<IndexParts>,
    /// Describes an entry of its tree in one line of text: its values and its writes. `None` if it is malformed.
    pub describe_entry: Option<EntryText>,
    /// Describes a meta block of an sstable, by its name and its content, in one line. `None` if the block is not of this
    /// kind.
    pub describe_meta_block: Option<MetaBlockText>,
    /// The files that the store does not manage.
    pub own_files: Option<OwnFiles>,
}

impl IndexMethod {
    /// The method of a kind with options of the library alone, no descriptions and no own files.
    pub const fn new(properties: KindProperties, create: fn(NewIndex) -> Result<IndexParts>) -> Self {
        Self {
            properties,
            check: |_| Ok(()),
            create,
            describe_entry: None,
            describe_meta_block: None,
            own_files: None,
        }
    }

    /// The kind.
    pub const fn kind(&'static self) -> IndexKind {
        IndexKind::of(&self.properties)
    }
}

impl fmt::Debug for IndexMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IndexMethod").field(&self.properties).finish()
    }
}
