//! The tree that an sstable was written for: what identifies the file where no manifest does.
//!
//! Stored in the [properties](crate::TableProperties). The manifest stays the authority: a tree may have another descriptor
//! since the file was written.

use bolide_base::TreeId;

/// The longest options or descriptor that a file stores, in bytes (8 KiB). Longer ones are left out.
pub const MAX_OWNER_BYTES: usize = 8 << 10;

/// The tree that an sstable was written for, as it was at that time.
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
    /// Its id.
    pub tree: TreeId,
    /// Its encoded settings; `None` if they are over [`MAX_OWNER_BYTES`].
    pub options: Option<Vec<u8>>,
    /// Its descriptor, whose meaning belongs to a higher layer; `None` if it is over [`MAX_OWNER_BYTES`].
    pub descriptor: Option<Vec<u8>>,
}

impl TableOwner {
    /// The owner with these settings and this descriptor, each left out if it is over the limit.
    pub fn new(tree: TreeId, options: &[u8], descriptor: &[u8]) -> Self {
        Self { tree, options: bounded(options), descriptor: bounded(descriptor) }
    }
}

/// A copy of `bytes`, unless they are over the limit.
pub(crate) fn bounded(bytes: &[u8]) -> Option<Vec<u8>> {
    (bytes.len() <= MAX_OWNER_BYTES).then(|| bytes.to_vec())
}
