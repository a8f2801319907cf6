//! Resynchronization after damage: the search for the next full record.
//!
//! Only full records are found: their checksums do not depend on previous records. The delta-encoded records after a lost
//! record are lost too, up to the next full record, which is usually at most 4 KiB away; see [`Predecessor`].

use std::sync::Arc;

use bolide_base::Result;
use bolide_storage::File;

use super::super::format::{HEADER_BYTES, LogHeader, RecordHeader, SHORT_RECORD_BYTES};
use super::super::predecessor::Predecessor;
use super::{LogReader, READ_BYTES};

impl LogReader {
    /// Opens a log with a header that is known from another source, or presumed. Does not read the header in the file. With a
    /// wrong tag, no record is valid.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open_as(file: Arc<dyn File>, name: impl Into<String>, header: LogHeader) -> Result<Self> {
        let limit = file.len()?.max(HEADER_BYTES as u64);
        Ok(Self::with_header(file, name.into(), header, limit))
    }

    /// Limits the readable part of the file to `end` bytes.
    pub fn end_at(&mut self, end: u64) {
        self.limit = self.limit.min(end).max(HEADER_BYTES as u64);
    }

    /// Skips the bytes at [`position`](Self::position) that are not a record, up to the next full record with a valid header.
    /// Returns its offset; `None` if there is none up to the end. Call it after [`next_record`](Self::next_record) has failed
    /// or has stopped before the end.
    ///
    /// Cost: one pass over the skipped bytes.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn resynchronize(&mut self) -> Result<Option<u64>> {
        let found = self.next_header(self.position + 1)?;
        if let Some(offset) = found {
            self.position = offset;
            self.predecessor = Predecessor::default();
            self.stop = None;
        }
        Ok(found)
    }

    /// The first offset from `start` on at which a full record has a valid header.
    fn next_header(&mut self, start: u64) -> Result<Option<u64>> {
        let identity = self.header.identity;
        let mut offset = start;
        while offset < self.limit {
            let window_bytes = (self.limit - offset).min(READ_BYTES as u64) as usize;
            self.fill(offset, window_bytes)?;
            let window = self.window(offset, window_bytes);
            let candidates = if window.iter().all(|&byte| byte == 0) { 0 } else { window.len() };
            for at in 0..candidates {
                let here = offset + at as u64;
                let bytes = window.get(at..window.len().min(at + SHORT_RECORD_BYTES)).unwrap_or_default();
                if RecordHeader::decode(bytes, here, identity).is_some() {
                    return Ok(Some(here));
                }
            }
            // The next window overlaps this one, for a header that crosses the boundary.
            let step = window.len().saturating_sub(SHORT_RECORD_BYTES - 1);
            if step == 0 || window_bytes < READ_BYTES {
                break;
            }
            offset += step as u64;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bolide_base::FileIdentity;
    use bolide_storage::{MemVfs, Vfs};

    use super::super::super::format::{Boot, LogRole};
    use super::*;
    use crate::batch::StoreBatch;

    const HEADER: LogHeader = LogHeader {
        role: LogRole::Wal,
        identity: FileIdentity { file_number: 3, tag: 9 },
        boot: Boot { id: 0, mount: 0 },
    };

    fn batch(number: u64) -> Vec<u8> {
        let mut batch = StoreBatch::new();
        let value = vec![number as u8; if number.is_multiple_of(40) { 6000 } else { 30 }];
        batch.put(1, format!("key{number:03}").as_bytes(), &value).unwrap();
        batch.assign(number);
        batch.seal().to_vec()
    }

    /// The sequence numbers of the batches in a log, and the number of resynchronizations.
    fn numbers(bytes: &[u8]) -> (Vec<u64>, usize) {
        let vfs = MemVfs::new();
        let file = vfs.create(Path::new("000003.wal")).unwrap();
        file.append(bytes).unwrap();
        let mut reader = LogReader::open_as(file, "000003.wal", HEADER).unwrap();
        let (mut found, mut skipped) = (Vec::new(), 0);
        loop {
            if let Some(record) = reader.next_record().unwrap() {
                let number = u64::from_le_bytes(*record.payload.first_chunk().unwrap());
                assert_eq!(record.payload, batch(number));
                found.push(number);
            } else if reader.position() == reader.limit() {
                return (found, skipped);
            } else {
                skipped += 1;
                if reader.resynchronize().unwrap().is_none() {
                    return (found, skipped);
                }
            }
        }
    }

    #[test]
    fn records_after_damage_are_found() {
        let mut bytes = HEADER.encode();
        let mut predecessor = Predecessor::default();
        let mut starts = Vec::new();
        for number in 1..=100 {
            let offset = bytes.len() as u64;
            starts.push(offset as usize);
            // A sync every ten records: the record after it is full.
            let synced = starts[starts.len() / 10 * 10 - if starts.len() < 10 { 0 } else { 1 }] as u64;
            let synced = if starts.len() < 10 { HEADER_BYTES as u64 } else { synced };
            predecessor.put_next(&HEADER, &mut bytes, offset, synced, &batch(number));
        }
        assert_eq!(numbers(&bytes), ((1..=100).collect(), 0));
        for at in (HEADER_BYTES..bytes.len()).step_by(37) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            let (found, skipped) = numbers(&damaged);
            let hit = starts.partition_point(|&start| start <= at) as u64;
            assert!(!found.contains(&hit), "record {hit} is served with byte {at} damaged");
            assert!(found.iter().is_sorted());
            assert!(skipped >= 1 && found.len() >= 88, "byte {at}: {} records", found.len());
            assert!((1..hit).all(|number| found.contains(&number)), "byte {at}");
        }
        // The header of the file is not read.
        let mut damaged = bytes.clone();
        damaged[..HEADER_BYTES].fill(0xff);
        assert_eq!(numbers(&damaged).0.len(), 100);
        damaged.truncate(20);
        assert_eq!(numbers(&damaged), (Vec::new(), 0));
    }
}
