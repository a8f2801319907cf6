//! SQL on databases in memory.

mod dml;
mod harness;
mod hostile;
mod oracle;
mod plans;
mod programs;
mod tables;
mod transactions;
