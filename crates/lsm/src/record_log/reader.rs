//! Reads a record log and classifies its end.

mod resync;

use std::sync::Arc;

use bolide_base::{Error, FileIdentity, Result};
use bolide_storage::File;

use super::format::{
    HEADER_BYTES, KIND_DATA, LogHeader, LogRole, MIN_RECORD_BYTES, PayloadEncoding, RecordHeader,
    SHORT_RECORD_BYTES, is_delta, unpack,
};
use super::predecessor::Predecessor;

/// The bytes of one read.
const READ_BYTES: usize = 256 << 10;

/// One record of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRecord<'a> {
    /// The offset of the record in its file, in bytes.
    pub offset: u64,
    /// The offset of the end of the record.
    pub end: u64,
    /// The offset up to which the log was known to be durable when the record was written.
    pub synced_through: u64,
    /// The payload as appended.
    pub payload: &'a [u8],
}

/// The reason for the end of the records of a [`LogReader`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStop {
    /// The file, or its valid part, ends after a whole record.
    End,
    /// The next bytes are not a record; the text is the reason.
    Invalid(&'static str),
}

/// The classified end of an unsealed log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TailEnd {
    /// After a whole record, possibly followed by zeros (reserved and unused space).
    Clean,
    /// With an append that did not become durable before a power cut. It was never acknowledged.
    Torn,
}

/// Reads the records of a log in order. Memory: one buffer of 256 KiB, or of the longest record.
#[derive(Debug)]
pub struct LogReader {
    file: Arc<dyn File>,
    name: String,
    header: LogHeader,
    /// The end of the records: the length of the file, or less if sealed.
    limit: u64,
    /// The start of the next record.
    position: u64,
    /// The bytes of the file from `buffer_start` on.
    buffer: Vec<u8>,
    buffer_start: u64,
    /// The payload of the last record, if it was packed or delta-encoded.
    unpacked: Vec<u8>,
    /// The last record.
    predecessor: Predecessor,
    stop: Option<LogStop>,
}

impl LogReader {
    /// Opens the log in `file`. Errors name it `name`.
    ///
    /// With `expected`, the log must have this identity; without, any identity is accepted.
    ///
    /// # Errors
    /// Those of [`LogHeader::decode`] and of the file system.
    pub fn open(
        file: Arc<dyn File>,
        name: impl Into<String>,
        role: LogRole,
        expected: Option<FileIdentity>,
    ) -> Result<Self> {
        let name = name.into();
        let limit = file.len()?;
        let mut bytes = vec![0; HEADER_BYTES.min(usize::try_from(limit).unwrap_or(HEADER_BYTES))];
        file.read_exact_at(0, &mut bytes)?;
        let header = LogHeader::decode(&bytes, &name, role, expected)?;
        Ok(Self::with_header(file, name, header, limit))
    }

    fn with_header(file: Arc<dyn File>, name: String, header: LogHeader, limit: u64) -> Self {
        Self {
            file,
            name,
            header,
            limit,
            position: HEADER_BYTES as u64,
            buffer: Vec::new(),
            buffer_start: HEADER_BYTES as u64,
            unpacked: Vec::new(),
            predecessor: Predecessor::default(),
            stop: None,
        }
    }

    /// Sets the end of the records to `end` bytes, all of which are durable: a whole record must end there, and later bytes
    /// are ignored.
    ///
    /// # Errors
    /// Corruption if the file is shorter.
    pub fn seal_at(&mut self, end: u64) -> Result<()> {
        if end > self.limit || end < HEADER_BYTES as u64 {
            let len = self.limit;
            let what = format!("the file has {len} bytes, but its records end at byte {end}");
            return Err(Error::corruption(&self.name, len, what));
        }
        self.limit = end;
        Ok(())
    }

    /// Whether only zeros follow the file's header: no record was appended, or none became durable. Stops reading at the
    /// first other byte.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn is_unused(&self) -> Result<bool> {
        self.only_zeros_from(HEADER_BYTES as u64)
    }

    /// Whether all bytes from `start` to the [limit](Self::limit) are zero.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn only_zeros_from(&self, start: u64) -> Result<bool> {
        only_zeros_from(&*self.file, start, self.limit)
    }

    /// The file's header.
    pub fn header(&self) -> &LogHeader {
        &self.header
    }

    /// The file's name for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The end of the last record read; the length of the header before the first.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The length of the readable part of the file in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The next record; `None` at the end and before bytes that are not a record. Then [`stop`](Self::stop) returns the
    /// reason, and further calls return `None`.
    ///
    /// # Errors
    /// Those of the file system; `Unsupported` for a record of an unknown kind.
    pub fn next_record(&mut self) -> Result<Option<LogRecord<'_>>> {
        if self.stop.is_some() {
            return Ok(None);
        }
        let Some(header) = self.read_header()? else { return Ok(None) };
        let offset = self.position;
        let payload_start = offset + header.header_bytes as u64;
        let payload_len = header.payload_len as usize;
        if self.limit - payload_start < payload_len as u64 {
            self.stop = Some(LogStop::Invalid("a record reaches past the end of the file"));
            return Ok(None);
        }
        self.fill(payload_start, payload_len)?;
        let identity = self.header.identity;
        let sum = || identity.checksum(payload_start, self.window(payload_start, payload_len));
        if header.payload_checksum.is_some_and(|checksum| checksum != sum()) {
            self.stop = Some(LogStop::Invalid("the checksum of a record does not match"));
            return Ok(None);
        }
        if header.kind != KIND_DATA {
            let what = format!("unknown kind {} of the record at byte {offset}", header.kind);
            return Err(Error::unsupported(&self.name, what));
        }
        let end = payload_start + payload_len as u64;
        let mut unpacked = std::mem::take(&mut self.unpacked);
        let mut predecessor = self.predecessor;
        let bytes = self.window(payload_start, payload_len);
        let is_whole = match header.encoding {
            PayloadEncoding::Plain => Some(()),
            PayloadEncoding::Packed => unpack(bytes, &mut unpacked),
            PayloadEncoding::Delta { key_len } => predecessor.apply_delta(key_len, bytes, &mut unpacked),
        };
        self.unpacked = unpacked;
        if is_whole.is_none() {
            let what = "a record with a valid checksum has an invalid payload";
            return Err(Error::corruption(&self.name, offset, what));
        }
        if !matches!(header.encoding, PayloadEncoding::Delta { .. }) {
            let payload = self.payload(&header, payload_start);
            predecessor.record_full(&self.header, offset, header.synced_through, payload);
        }
        self.predecessor = predecessor;
        self.position = end;
        let payload = self.payload(&header, payload_start);
        Ok(Some(LogRecord { offset, end, synced_through: header.synced_through, payload }))
    }

    /// The reason for the end of the records; `None` before the end.
    pub fn stop(&self) -> Option<LogStop> {
        self.stop
    }

    /// Requires that the log ends after a whole record, for a log that must be valid as a whole: one that is sealed, or was
    /// synced before the next one was started.
    ///
    /// # Errors
    /// `Corruption` with the file and the offset.
    pub fn require_clean_end(&self) -> Result<()> {
        match self.stop {
            Some(LogStop::Invalid(what)) => Err(Error::corruption(&self.name, self.position, what)),
            _ => Ok(()),
        }
    }

    /// Classifies the bytes after the last whole record of an unsealed log. Call it after
    /// [`next_record`](Self::next_record) has returned `None`.
    ///
    /// Searches the rest of the file for a record header that was written when the log was already durable past the invalid
    /// offset. Such a header proves that the bytes there were once valid, so they are damaged. Without such a proof they are
    /// an append that never became durable, even if whole records of the same append follow (sectors reach the disk in any
    /// order).
    ///
    /// Cost: one pass over the rest of the file.
    ///
    /// # Errors
    /// `Corruption` with the file, the offset and the proof; those of the file system.
    pub fn classify_end(&mut self) -> Result<TailEnd> {
        let Some(LogStop::Invalid(what)) = self.stop else { return Ok(TailEnd::Clean) };
        let bad = self.position;
        let identity = self.header.identity;
        let mut all_zero = true;
        let mut offset = bad;
        while offset < self.limit {
            let window_bytes = (self.limit - offset).min(READ_BYTES as u64) as usize;
            self.fill(offset, window_bytes)?;
            let window = self.window(offset, window_bytes);
            let is_zero = window.iter().all(|&byte| byte == 0);
            all_zero = all_zero && is_zero;
            // Reserved and unused space has no header.
            let candidates = if is_zero { 0 } else { window.len() };
            for start in 0..candidates {
                let here = offset + start as u64;
                let bytes =
                    window.get(start..window.len().min(start + SHORT_RECORD_BYTES)).unwrap_or_default();
                if let Some(header) = RecordHeader::decode_past(bytes, here, identity, bad + 1) {
                    let through = header.synced_through;
                    let what = format!(
                        "{what}, although the record at byte {here} states that the log was durable \
                         through byte {through}"
                    );
                    return Err(Error::corruption(&self.name, bad, what));
                }
            }
            // The next window overlaps this one, for a header that crosses the boundary.
            let step = window.len().saturating_sub(SHORT_RECORD_BYTES - 1);
            if step == 0 || window_bytes < READ_BYTES {
                break;
            }
            offset += step as u64;
        }
        Ok(if all_zero { TailEnd::Clean } else { TailEnd::Torn })
    }

    /// The header of the record at `position`, or `None` with `stop` set.
    fn read_header(&mut self) -> Result<Option<RecordHeader>> {
        let left = self.limit - self.position;
        if left == 0 {
            self.stop = Some(LogStop::End);
            return Ok(None);
        }
        if left < MIN_RECORD_BYTES as u64 {
            self.stop = Some(LogStop::Invalid("the header of a record is truncated"));
            return Ok(None);
        }
        let available = left.min(SHORT_RECORD_BYTES as u64) as usize;
        self.fill(self.position, available)?;
        let bytes = self.window(self.position, available);
        let identity = self.header.identity;
        let header = match bytes.get(4) {
            Some(&kind) if is_delta(kind) => self.predecessor.decode(bytes, self.position),
            _ => RecordHeader::decode(bytes, self.position, identity),
        };
        if header.is_none() {
            self.stop = Some(LogStop::Invalid("the header of a record is not valid"));
        }
        Ok(header)
    }

    /// Reads `len` bytes from `offset` into the buffer, unless present. All of them must be before `limit`.
    fn fill(&mut self, offset: u64, len: usize) -> Result<()> {
        let end = offset + len as u64;
        if offset >= self.buffer_start && end <= self.buffer_start + self.buffer.len() as u64 {
            return Ok(());
        }
        let read_bytes = (len.max(READ_BYTES) as u64).min(self.limit - offset) as usize;
        self.buffer_start = offset;
        self.buffer.clear();
        self.buffer.shrink_to(READ_BYTES);
        self.buffer.resize(read_bytes, 0);
        if let Err(error) = self.file.read_exact_at(offset, &mut self.buffer) {
            self.buffer.clear();
            return Err(error);
        }
        Ok(())
    }

    /// The payload of a decoded record.
    fn payload(&self, header: &RecordHeader, start: u64) -> &[u8] {
        match header.encoding {
            PayloadEncoding::Plain => self.window(start, header.payload_len as usize),
            PayloadEncoding::Packed | PayloadEncoding::Delta { .. } => &self.unpacked,
        }
    }

    /// Bytes that [`fill`](Self::fill) has read.
    fn window(&self, offset: u64, len: usize) -> &[u8] {
        let start = (offset - self.buffer_start) as usize;
        self.buffer.get(start..start + len).unwrap_or_default()
    }
}

/// Whether all bytes of `file` from `start` to `end` are zero.
///
/// # Errors
/// Those of the file system.
pub(crate) fn only_zeros_from(file: &dyn File, start: u64, end: u64) -> Result<bool> {
    let mut buffer = Vec::new();
    let mut offset = start;
    while offset < end {
        let count = (end - offset).min(READ_BYTES as u64) as usize;
        buffer.resize(count, 0);
        file.read_exact_at(offset, &mut buffer)?;
        if buffer.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        offset += count as u64;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bolide_base::ErrorKind;
    use bolide_storage::{MemVfs, Vfs};

    use super::super::format::{Boot, put_record};
    use super::super::writer::LogWriter;
    use super::*;

    const IDENTITY: FileIdentity = FileIdentity { file_number: 3, tag: 9 };

    fn file_of(bytes: &[u8]) -> Arc<dyn File> {
        let vfs = MemVfs::new();
        vfs.create_dir_all(Path::new("/db")).unwrap();
        let file = vfs.create(Path::new("/db/000003.wal")).unwrap();
        file.append(bytes).unwrap();
        file
    }

    fn header() -> LogHeader {
        LogHeader { role: LogRole::Wal, identity: IDENTITY, boot: Boot::default() }
    }

    /// A log of records (payload, synced), appended one by one; `synced` syncs before the append.
    fn log(records: &[(&[u8], bool)]) -> (Vec<u8>, Vec<u64>) {
        let mut bytes = header().encode();
        let mut synced = HEADER_BYTES as u64;
        let (mut offsets, mut predecessor) = (Vec::new(), Predecessor::default());
        for &(payload, sync_first) in records {
            let offset = bytes.len() as u64;
            if sync_first {
                synced = offset;
            }
            offsets.push(offset);
            predecessor.put_next(&header(), &mut bytes, offset, synced, payload);
        }
        (bytes, offsets)
    }

    fn read(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, TailEnd, u64)> {
        let mut reader = LogReader::open(file_of(bytes), "000003.wal", LogRole::Wal, Some(IDENTITY))?;
        let mut payloads = Vec::new();
        while let Some(record) = reader.next_record()? {
            payloads.push(record.payload.to_vec());
        }
        assert!(reader.next_record()?.is_none());
        let end = reader.classify_end()?;
        Ok((payloads, end, reader.position()))
    }

    #[test]
    fn a_written_log_is_read_back() {
        let vfs = MemVfs::new();
        vfs.create_dir_all(Path::new("/db")).unwrap();
        let path = Path::new("/db/000003.wal");
        let writer = LogWriter::create(&vfs, path, header(), None).unwrap();
        let big = vec![7; 3 * READ_BYTES + 11];
        assert!(writer.is_empty());
        let packed = b"eight by, four, and more";
        writer.append([&b"one"[..], b"", &big, packed]).unwrap();
        assert_eq!(writer.synced_through(), HEADER_BYTES as u64);
        writer.sync().unwrap();
        assert_eq!(writer.synced_through(), writer.len());
        writer.append([&b"four"[..]]).unwrap();
        assert_eq!(vfs.open(path).unwrap().len().unwrap(), writer.len());

        let mut reader = LogReader::open(vfs.open(path).unwrap(), "x", LogRole::Wal, Some(IDENTITY)).unwrap();
        for (payload, synced) in [(&b"one"[..], 64), (b"", 64), (&big, 64), (packed, 64)] {
            let record = reader.next_record().unwrap().unwrap();
            assert_eq!((record.payload, record.synced_through), (payload, synced));
        }
        let before_last = reader.position();
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!((record.payload, record.synced_through), (&b"four"[..], before_last));
        assert!(reader.next_record().unwrap().is_none());
        assert_eq!(reader.stop(), Some(LogStop::End));
        assert_eq!(reader.classify_end().unwrap(), TailEnd::Clean);
        assert_eq!(reader.position(), writer.len());
    }

    #[test]
    fn every_truncation_is_a_torn_tail_at_the_last_whole_record() {
        let second = b"a second one that is packed";
        let (bytes, offsets) = log(&[(b"first", false), (second, true), (b"third", true)]);
        for len in HEADER_BYTES..bytes.len() {
            let (payloads, end, position) = read(&bytes[..len]).unwrap();
            let whole = offsets.iter().filter(|&&offset| offset as usize <= len).count() - 1;
            let whole = if len == bytes.len() { 3 } else { whole };
            assert_eq!((payloads.len(), position), (whole, offsets[whole]));
            let clean = offsets.contains(&(len as u64));
            assert_eq!(end, if clean { TailEnd::Clean } else { TailEnd::Torn });
        }
        for len in 0..HEADER_BYTES {
            assert_eq!(read(&bytes[..len]).unwrap_err().kind(), ErrorKind::Corruption);
        }
    }

    #[test]
    fn every_bit_flip_before_the_last_record_is_detected() {
        let second = b"a second one that is packed";
        let (bytes, offsets) = log(&[(b"first", false), (second, true), (b"third", true)]);
        let last = offsets[2] as usize;
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            match read(&damaged) {
                Err(error) => {
                    assert!(bit / 8 < last, "bit {bit}: {error}");
                    assert!(error.message().contains("000003.wal"), "{error}");
                }
                Ok((payloads, end, position)) => {
                    // The exception: no proof exists that the last record was ever whole.
                    assert!(bit / 8 >= last, "bit {bit} was not detected");
                    assert_eq!((payloads.len(), end, position), (2, TailEnd::Torn, offsets[2]));
                }
            }
        }
    }

    #[test]
    fn whole_records_of_the_same_unsynced_append_do_not_prove_damage() {
        let (mut bytes, offsets) = log(&[(b"first", false), (b"second", true), (b"third", false)]);
        bytes[offsets[2] as usize - 1] ^= 1;
        let (payloads, end, position) = read(&bytes).unwrap();
        assert_eq!((payloads.len(), end, position), (1, TailEnd::Torn, offsets[1]));
        // A later record that was written after a sync past it proves damage.
        let at = bytes.len() as u64;
        put_record(&mut bytes, at, IDENTITY, at, b"fourth");
        let error = read(&bytes).unwrap_err();
        assert!(error.is_corruption());
        assert!(error.message().contains(&format!("byte {}", offsets[1])), "{error}");
    }

    #[test]
    fn the_proof_is_found_across_windows_and_in_damaged_payloads() {
        for gap in [READ_BYTES - 90, READ_BYTES - 30, READ_BYTES - 10, READ_BYTES, 3 * READ_BYTES + 5] {
            let filler = vec![0x5a; gap];
            let long = vec![0x5b; 5000];
            // The header of a long record is a proof; a short record must be whole.
            for (third, is_whole) in
                [(&long[..], false), (b"third", true), (b"a third one that is packed", true)]
            {
                let (mut bytes, offsets) = log(&[(b"first", false), (&filler, true), (third, true)]);
                bytes[offsets[1] as usize] ^= 0x80;
                if !is_whole {
                    let last = bytes.len() - 1;
                    bytes[last] ^= 1;
                }
                assert!(
                    read(&bytes).unwrap_err().is_corruption(),
                    "gap {gap}, third record of {} bytes",
                    third.len()
                );
            }
        }
    }

    #[test]
    fn a_tail_of_zeros_is_a_clean_end() {
        let (mut bytes, _) = log(&[(b"first", false)]);
        let end = bytes.len() as u64;
        for zeros in [1, 24, 25, 26, 4096, READ_BYTES * 2] {
            bytes.truncate(end as usize);
            bytes.resize(end as usize + zeros, 0);
            assert_eq!(read(&bytes).unwrap(), (vec![b"first".to_vec()], TailEnd::Clean, end));
        }
        bytes.push(1);
        assert_eq!(read(&bytes).unwrap().1, TailEnd::Torn);
    }

    #[test]
    fn a_sealed_log_ends_at_the_seal() {
        let (bytes, offsets) = log(&[(b"first", false), (b"second", true)]);
        let open = |end| {
            let mut reader = LogReader::open(file_of(&bytes), "x", LogRole::Wal, Some(IDENTITY)).unwrap();
            reader.seal_at(end)?;
            let mut count = 0;
            while reader.next_record()?.is_some() {
                count += 1;
            }
            reader.require_clean_end().map(|()| count)
        };
        assert_eq!(open(bytes.len() as u64).unwrap(), 2);
        assert_eq!(open(offsets[1]).unwrap(), 1);
        assert_eq!(open(64).unwrap(), 0);
        for end in [0, 63, 65, offsets[1] + 1, bytes.len() as u64 - 1, bytes.len() as u64 + 1] {
            assert!(open(end).unwrap_err().is_corruption(), "{end}");
        }
    }

    #[test]
    fn an_unknown_kind_of_record_is_unsupported() {
        let long = vec![1; 5000];
        let (mut bytes, offsets) = log(&[(&long, false)]);
        let start = offsets[0] as usize;
        bytes[start + 4] = 9;
        let sum = IDENTITY.checksum(start as u64, &bytes[start + 4..start + 25]) as u32;
        bytes[start..start + 4].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(read(&bytes).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
