//! Stand-alone indexes: they store their entries in trees of their own, with the same log and manifest as the table
//! (LevelDB++ §4).

pub mod checked_records;
pub mod composite;
pub mod covering;
mod describe;
pub(crate) mod dropped_postings;
pub mod eager;
pub mod entry_key;
mod index_tree;
pub mod lazy;
pub mod posting_list;
pub mod secondary_key;
pub(crate) mod stale_filter;
