//! The limits of the store. They are guarantees: each is tested at and over its edge.

/// Longest primary key, in bytes.
pub const MAX_KEY_BYTES: usize = 65_535;
/// Longest key inside a tree (an index key holds a secondary key, a sequence number and a primary
/// key), in bytes.
pub const MAX_TREE_KEY_BYTES: usize = 262_143;
/// Longest encoded secondary key, in bytes.
pub const MAX_SECONDARY_KEY_BYTES: usize = 65_535;
/// Largest value or record, in bytes (64 MiB).
pub const MAX_VALUE_BYTES: usize = 64 << 20;
/// Largest write batch with all its index writes, in bytes (256 MiB).
pub const MAX_BATCH_BYTES: usize = 256 << 20;
/// Deepest nesting of a JSON record.
pub const MAX_JSON_DEPTH: usize = 128;
/// Longest name of a collection or an index, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Maximum number of collections of a database.
pub const MAX_COLLECTIONS: usize = 1_024;
/// Maximum number of indexes of a collection.
pub const MAX_INDEXES_PER_COLLECTION: usize = 64;
/// Maximum number of array elements of one record that one index may contain.
pub const MAX_INDEXED_ELEMENTS: usize = 10_000;
/// Maximum number of range tombstones that one tree may contain at once.
pub const MAX_RANGE_TOMBSTONES: usize = 65_536;
