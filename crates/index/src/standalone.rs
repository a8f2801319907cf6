//! Indexes that keep their entries in trees of their own, beside the table, in the same log and
//! manifest (LevelDB++ §4).

pub(crate) mod checked_records;
pub mod composite;
pub mod covering;
mod declared;
mod describe;
pub mod eager;
pub mod lazy;
pub mod posting_list;
pub(crate) mod secondary_key;

pub use describe::describe_entry;
