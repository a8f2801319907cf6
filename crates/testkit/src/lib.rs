//! Oracles, histories and crash runners for testing Bolide.
//!
//! A [`history`] is a list of random steps from a seed. A [`Subject`](subject::Subject) runs it on a
//! database and on a [`Model`](model::Model) side by side. The runners disturb that in their own way:
//!
//! | runner | disturbs |
//! |---|---|
//! | [`crash`] | cuts the power at every sync point, also inside recovery |
//! | [`fault`] | lets every input/output call fail, once or from there on |
//! | [`workloads`] | cuts the power at every disk operation of all workloads of a few operations |
//! | [`panics`] | lets every call of an extractor, the file system, the runtime or an index panic |
//! | [`allocations`] | lets allocations fail |
//! | [`damage`] | flips every bit of every file, cuts, zeroes, swaps, removes |
//! | [`forks`] | puts files of a copy that went on by itself in the place of its own |
//! | [`repair`] | damages one to three files, and repairs the database |
//! | [`metamorphic`] | changes settings that must not change an answer |
//! | [`every_kind`] | puts every kind of index in the place of every other |
//! | [`concurrent`] | runs many threads at once; not repeatable by its seed |
//! | [`soak`] | writes for a long time, on a real disk |
//!
//! [`conformance`] is the suite that every kind of index passes, and [`flawed`] breaks indexes to see it fail.
//!
//! The program `bolide-testkit` runs them over ranges of seeds; `docs/TESTING.md` has the commands. All of
//! it runs on a simulated disk with a simulated clock, and without background threads unless a setup asks
//! for them: a seed repeats a failure.
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
pub mod history;
pub mod kinds;
pub mod kinds_soak;
pub mod metamorphic;
pub mod model;
pub mod model_query;
pub mod panicking;
mod panicking_index;
mod panicking_runtime;
pub mod panics;
pub mod pauses;
pub mod planted;
pub mod record;
pub mod repair;
pub mod rows;
pub mod rule;
pub mod sample;
pub mod seeds;
pub mod setup;
pub mod soak;
pub mod subject;
pub mod value;
pub mod verify;
pub mod workloads;
