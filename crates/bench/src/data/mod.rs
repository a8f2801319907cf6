//! Records and the random choices among them: functions of numbers and seeds, nothing remembered.

pub mod indexed_record;
pub mod keys;
pub mod random;
pub mod zipf;
