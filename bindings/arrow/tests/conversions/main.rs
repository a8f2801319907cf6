//! Conversions between records and batches: oracles, and hostile input.

mod hostile;
mod oracle;
mod random;
