//! Records and random choices, which are stateless functions of numbers and seeds, and real positions.

pub mod indexed_record;
pub mod keys;
pub mod positions;
pub mod random;
pub mod zipf;
