//! The limits of the store, in one place. They are promises: each is tested at and over its edge.

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
/// Most collections of a database.
pub const MAX_COLLECTIONS: usize = 1_024;
/// Most indexes of a collection.
pub const MAX_INDEXES_PER_COLLECTION: usize = 64;
/// Most array elements of one record that one index may hold.
pub const MAX_INDEXED_ELEMENTS: usize = 10_000;
/// Most range tombstones that one tree may hold at once.
pub const MAX_RANGE_TOMBSTONES: usize = 65_536;
