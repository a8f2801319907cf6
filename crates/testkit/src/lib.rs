//! Oracles, histories and crash runners for testing Bolide.
//!
//! A [`history`] is a list of random steps from a seed. A [`Subject`](subject::Subject) runs it on a
//! database and on a [`Model`](model::Model) side by side. Each runner adds its own faults:
//!
//! | runner | faults |
//! |---|---|
//! | [`crash`] | cuts the power at every sync point, also inside recovery |
//! | [`fault`] | makes every I/O call fail, once or persistently |
//! | [`workloads`] | cuts the power at every disk operation of all workloads of a few operations |
//! | [`panics`] | makes every call of an extractor, the file system, the runtime or an index panic |
//! | [`allocations`] | makes allocations fail |
//! | [`damage`] | flips every bit of every file; truncates, zeroes, swaps and removes files |
//! | [`forks`] | replaces files by those of a diverged copy |
//! | [`repair`] | damages one to three files, and repairs the database |
//! | [`metamorphic`] | varies settings that must not change an answer |
//! | [`every_kind`] | replaces the kind of all indexes |
//! | [`concurrent`] | runs many threads at once; not repeatable by its seed |
//! | [`transactions`] | runs transactions by many threads, with power cuts; not repeatable by its seed |
//! | [`soak`], [`memory_soak`] | write for a long time, and within a memory budget, on a real disk |
//!
//! [`conformance`] is the suite of index kinds, and [`flawed`] has planted bugs that it must detect.
//!
//! The program `bolide-testkit` runs them over ranges of seeds; `docs/TESTING.md` has the commands. The runs use a simulated
//! disk, a simulated clock and, unless a setup enables them, no background threads. So a seed repeats a failure.
#![forbid(unsafe_code)]

pub mod allocations;
pub mod availability;
pub mod concurrent;
pub mod conformance;
pub mod crash;
pub mod damage;
pub mod every_kind;
pub mod expected;
pub mod failure;
pub mod fault;
pub mod flawed;
pub mod forks;
pub mod hash_index;
pub mod history;
pub mod kinds;
pub mod kinds_soak;
pub mod memory;
pub mod memory_soak;
pub mod metamorphic;
pub mod model;
pub mod model_query;
pub mod panicking;
mod panicking_index;
mod panicking_runtime;
pub mod panics;
pub mod pauses;
pub mod planted;
mod pulled_query;
pub mod record;
pub mod repair;
pub mod rows;
pub mod rule;
pub mod sample;
pub mod seeds;
pub mod setup;
pub mod soak;
pub mod subject;
pub mod transactions;
pub mod value;
pub mod verify;
pub mod workloads;
