//! Records of the index workload.
//!
//! ```text
//! record 300 bytes   secondary key u64 | version u64 | number u64 | filler | seal u64   (big-endian)
//! ```
//!
//! `seal` is a hash of number and version, which distinguishes all records and versions.

use super::random::mix;

/// Length of every record in bytes.
pub const RECORD_BYTES: usize = 300;

/// The secondary key of a record; 0 if it is too short to have one.
#[inline]
pub fn secondary_of(record: &[u8]) -> u64 {
    word(record, 0)
}

/// The version of a record; 0 if it is too short to have one.
#[cfg(any(test, feature = "peers"))]
#[inline]
pub fn version_of(record: &[u8]) -> u64 {
    word(record, 8)
}

#[inline]
fn word(record: &[u8], at: usize) -> u64 {
    record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes)
}

/// The seal of a record; 0 if it does not have the right length.
#[inline]
pub fn seal_of(record: &[u8]) -> u64 {
    if record.len() == RECORD_BYTES { word(record, RECORD_BYTES - 8) } else { 0 }
}

/// The seal that record `number` has at `version`.
#[inline]
pub fn seal(number: u64, version: u32) -> u64 {
    mix(mix(number) ^ u64::from(version))
}

/// A reusable buffer of one record.
#[derive(Debug)]
pub struct RecordBuffer {
    bytes: [u8; RECORD_BYTES],
}

impl RecordBuffer {
    /// A buffer with its filler in place.
    pub fn new() -> Self {
        let mut bytes = [0; RECORD_BYTES];
        for (position, byte) in bytes.iter_mut().enumerate() {
            *byte = mix(position as u64) as u8;
        }
        Self { bytes }
    }

    /// Record `number` with a secondary key, at `version`.
    #[inline]
    pub fn fill(&mut self, number: u64, secondary: u64, version: u32) -> &[u8] {
        let words = [secondary, u64::from(version), number];
        for (place, word) in self.bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        self.bytes[RECORD_BYTES - 8..].copy_from_slice(&seal(number, version).to_be_bytes());
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_contains_its_number_and_version() {
        let mut buffer = RecordBuffer::new();
        let record = buffer.fill(7, 99, 3);
        assert_eq!((secondary_of(record), version_of(record), seal_of(record)), (99, 3, seal(7, 3)));
        assert_eq!(seal_of(&record[1..]), 0);
        assert_eq!(secondary_of(b"short"), 0);
    }
}
