//! Bolide for C: the functions of `include/bolide.h`, which is generated from this crate.
//!
//! | file | concept |
//! |---|---|
//! | [`code`], [`failure`], [`error`], [`guard`] | codes and error objects; panics, which never leave a function |
//! | [`handle`], [`fork`], [`session`] | objects behind opaque pointers; child processes; an open database |
//! | [`input`], [`range`], [`output`], [`exclusive`] | arguments and results; objects that one thread uses at a time |
//! | [`version`], [`key`], [`options`], [`value`] | the version; keys, settings and values |
//! | [`db`], [`collection`], [`batch`], [`snapshot`], [`transaction`] | the objects of the same names |
//! | [`cursor`], [`query`], [`answers`], [`aggregate`] | reads in key order; queries and their results |
//! | [`index`], [`report`] | indexes; statistics and checks as JSON |
//! | [`arrow_schema`], [`arrow_out`], [`arrow_in`] | Arrow streams |
//!
//! # Contract
//! Every exported function is `unsafe`: a pointer is NULL or points to what its type states, and is valid for the length beside it. The
//! functions check what can be checked: NULL, lengths, UTF-8, values of enumerations, and the tag at the begin of each object. They
//! share the contract, so that their bodies, which call the checks of [`handle`], [`input`] and [`output`], repeat no reasons;
//! these modules state the reason at each block.

#![allow(unsafe_code, reason = "pointers from C")]
#![allow(
    unsafe_op_in_unsafe_fn,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    reason = "exported functions have the contract above"
)]
#![allow(non_camel_case_types, reason = "the names in the header")]

pub mod aggregate;
pub mod answers;
pub mod arrow_in;
pub mod arrow_out;
mod arrow_schema;
pub mod batch;
pub mod code;
pub mod collection;
pub mod cursor;
pub mod db;
pub mod error;
mod exclusive;
mod failure;
mod fork;
mod guard;
mod handle;
pub mod index;
pub mod input;
pub mod key;
pub mod options;
pub mod output;
pub mod query;
pub mod range;
mod report;
pub mod session;
pub mod snapshot;
pub mod transaction;
pub mod value;
pub mod version;
