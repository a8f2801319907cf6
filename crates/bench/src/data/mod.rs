//! Records and the random choices among them: functions of numbers and seeds, nothing remembered; and real positions.

pub mod indexed_record;
pub mod keys;
pub mod positions;
pub mod random;
pub mod zipf;
