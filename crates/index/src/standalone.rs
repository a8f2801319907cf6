//! Stand-alone indexes: they store their entries in trees of their own, with the same log and manifest as the table
//! (LevelDB++ §4).

pub(crate) mod checked_records;
pub mod composite;
pub mod covering;
mod describe;
pub mod eager;
mod index_tree;
pub mod lazy;
pub mod posting_list;
pub(crate) mod secondary_key;

pub use describe::describe_entry;
