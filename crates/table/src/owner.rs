//! The tree that an sstable was written for: identifies the file without a manifest.
//!
//! Stored in the [properties](crate::TableProperties). The manifest is authoritative: the descriptor of a tree may have
//! changed since the file was written.

use bolide_base::TreeId;

/// Maximum length of stored options or of a stored descriptor, in bytes (8 KiB). Longer ones are omitted.
pub const MAX_OWNER_BYTES: usize = 8 << 10;

/// The tree that an sstable was written for, in its state at that time.
///
/// ```
/// use bolide_table::{MAX_OWNER_BYTES, TableOwner};
/// let owner = TableOwner::new(3, b"options", &[0; MAX_OWNER_BYTES + 1]);
/// assert_eq!(owner.options.as_deref(), Some(&b"options"[..]));
/// assert_eq!(owner.descriptor, None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableOwner {
    /// The id of the tree.
    pub tree: TreeId,
    /// The encoded settings of the tree; `None` if they are longer than [`MAX_OWNER_BYTES`].
    pub options: Option<Vec<u8>>,
    /// The descriptor of the tree, defined by a higher layer; `None` if it is longer than [`MAX_OWNER_BYTES`].
    pub descriptor: Option<Vec<u8>>,
}

impl TableOwner {
    /// The owner with these settings and this descriptor, each omitted if it is over the limit.
    pub fn new(tree: TreeId, options: &[u8], descriptor: &[u8]) -> Self {
        Self { tree, options: bounded(options), descriptor: bounded(descriptor) }
    }
}

/// A copy of `bytes`, unless they are over the limit.
pub(crate) fn bounded(bytes: &[u8]) -> Option<Vec<u8>> {
    (bytes.len() <= MAX_OWNER_BYTES).then(|| bytes.to_vec())
}
