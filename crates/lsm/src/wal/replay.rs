//! Reading the chain of WAL segments back.
//!
//! # Algorithm
//! 1. Of the segments at or above the WAL floor, pass over those whose creation was torn: without a valid
//!    header, and with nothing behind it but the zeros of reserved space. (A header is durable before the
//!    first record is appended, so a file with more and a bad header is damaged.) A sealed segment is
//!    never torn.
//! 2. Walk from the last segment to the first: each header names the segment before it and its length.
//!    A named segment at or above the floor must be there, and one that nobody names must not; except that
//!    one without records, unsealed, is passed over: its creation may have failed at its very end, and the
//!    segment before it may have been written on. What it says of that one's length still must hold.
//! 3. Read the segments in order. All but the last end where their successor says; a seal in the
//!    manifest says where the last one ends. There, anything that is not a whole record is damage.
//! 4. Only the last segment, if unsealed, may have a torn tail:
//!    [`LogReader::classify_end`] tells it from damage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::checksum::check_tag;
use bolide_base::{Error, ErrorKind, FileIdentity, Result};
use bolide_storage::Vfs;

use crate::file_name::FileName;
use crate::record_log::format::{HEADER_BYTES, check_number};
use crate::record_log::{LogReader, LogRecord, LogRole, TailEnd, only_zeros_from};

/// How much of a segment is copied at a time, in bytes.
const COPY_BYTES: usize = 1 << 20;

/// Where the records of a log end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEnd {
    /// The number of the log.
    pub number: u64,
    /// The end of its last record, in bytes.
    pub len: u64,
    /// Its tag.
    pub tag: u64,
}

/// What is to be replayed.
#[derive(Debug)]
pub struct WalChain<'a> {
    /// The file system.
    pub vfs: &'a dyn Vfs,
    /// The directory of the database.
    pub dir: &'a Path,
    /// Segments below this number are no longer needed and are not read.
    pub floor: u64,
    /// Sealed ends, by segment number, from the manifest.
    pub seals: &'a BTreeMap<u64, u64>,
}

/// How the chain of segments ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalTail {
    /// The last segment and the end of its records; `None` if there is no segment.
    pub last: Option<LogEnd>,
    /// True if that end is sealed in the manifest already.
    pub sealed: bool,
    /// How many bytes after that end were cut off as a torn tail.
    pub torn_bytes: u64,
    /// How many records were read in all.
    pub records: u64,
}

impl WalTail {
    /// Makes the last segment durable through its end, so that its end may be sealed in the manifest.
    /// Nothing to do if it is sealed.
    ///
    /// A sync of the file would not do: if an earlier one failed, the operating system may have dropped
    /// the bytes from what it will write, although it still shows them to readers, and would report
    /// success now. So the segment is written anew, under its own name. Cost: its length, once after
    /// an end that was not clean.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn make_durable(&self, vfs: &dyn Vfs, dir: &Path) -> Result<()> {
        match self.last {
            Some(end) if !self.sealed => rewrite(vfs, dir, end),
            _ => Ok(()),
        }
    }
}

/// Replaces a segment by a copy of it through its end.
fn rewrite(vfs: &dyn Vfs, dir: &Path, end: LogEnd) -> Result<()> {
    let (path, copy_path) = (FileName::Wal(end.number).path(dir), FileName::Temp(end.number).path(dir));
    match vfs.remove(&copy_path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        // Nothing, or what an opening left that was cut off here.
        _ => {}
    }
    let segment = vfs.open(&path)?;
    let copy = vfs.create(&copy_path)?;
    let mut buffer = vec![0; COPY_BYTES.min(end.len as usize)];
    let mut offset = 0;
    while offset < end.len {
        let count = (end.len - offset).min(COPY_BYTES as u64);
        let piece = &mut buffer[..count as usize];
        segment.read_exact_at(offset, piece)?;
        copy.append(piece)?;
        offset += count;
    }
    copy.sync()?;
    vfs.rename(&copy_path, &path)?;
    vfs.sync_dir(dir)
}

/// Feeds every record at or above the WAL floor to `apply`, in the order in which it was written, with
/// the number and the name of its segment. Writes nothing. Memory: the buffer of one [`LogReader`].
///
/// # Errors
/// Corruption with file and offset for anything missing or damaged; Unsupported for newer formats;
/// those of the file system and of `apply`.
pub fn replay(
    chain: &WalChain<'_>,
    mut apply: impl FnMut(u64, &str, LogRecord<'_>) -> Result<()>,
) -> Result<WalTail> {
    let mut tail = WalTail { last: None, sealed: false, torn_bytes: 0, records: 0 };
    let Segments { readers, least_len } = chain.open_segments()?;
    let mut segments = readers.into_iter().peekable();
    while let Some(mut reader) = segments.next() {
        let FileIdentity { file_number: number, tag } = reader.header().identity;
        let sealed = match segments.peek() {
            Some(next) => Some(next.header().previous_len),
            None => chain.seals.get(&number).copied(),
        };
        let file_len = reader.limit();
        if let Some(end) = sealed {
            reader.seal_at(end)?;
        }
        let name = reader.name().to_owned();
        while let Some(record) = reader.next_record()? {
            apply(number, &name, record)?;
            tail.records += 1;
        }
        if sealed.is_some() {
            reader.require_clean_end()?;
        } else {
            if reader.position() < least_len {
                reader.require_clean_end()?;
                let what = format!("the segment ends here, but was durable through byte {least_len}");
                return Err(Error::corruption(&name, reader.position(), what));
            }
            if reader.classify_end()? == TailEnd::Torn {
                tail.torn_bytes = file_len - reader.position();
            }
        }
        tail.last = Some(LogEnd { number, len: reader.position(), tag });
        tail.sealed = sealed.is_some();
    }
    Ok(tail)
}

/// What there is to read.
struct Segments {
    /// Oldest first.
    readers: Vec<LogReader>,
    /// The last of them was durable through here when an unused segment was created behind it.
    least_len: u64,
}

impl WalChain<'_> {
    /// The segments to read, oldest first, after steps 1 and 2 of the module's algorithm.
    fn open_segments(&self) -> Result<Segments> {
        let mut numbers = Vec::new();
        for name in self.vfs.list(self.dir)? {
            if let Some(FileName::Wal(number)) = FileName::parse(&name)
                && number >= self.floor
            {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        if let Some((&missing, _)) = self.seals.iter().find(|(number, _)| !numbers.contains(number)) {
            return Err(self.missing(missing, "the manifest says where it ends"));
        }
        let mut segments = Segments { readers: Vec::new(), least_len: 0 };
        // The predecessor that the segment opened last names; above the floor it must come next.
        let mut wanted: Option<(u64, u64)> = None;
        // The tag that it must have.
        let mut wanted_tag = 0;
        let mut claims = BTreeMap::new();
        for &number in numbers.iter().rev() {
            let Some(reader) = self.open_segment(number)? else { continue };
            let header = *reader.header();
            if header.previous_number >= number {
                let what = "the header names a later segment as the one before";
                return Err(Error::corruption(reader.name(), 40, what));
            }
            if wanted.is_none_or(|(wanted, _)| wanted < number) && self.is_unused(&reader, number)? {
                // One without records may be gone: it was unused as well, and an opening removes what is
                // unused in an order that a power cut does not keep.
                if header.previous_len > HEADER_BYTES as u64 {
                    self.require_present(&numbers, header.previous_number, number)?;
                }
                claims.insert(header.previous_number, header.previous_len);
                continue;
            }
            match wanted {
                Some((wanted, by)) if wanted < number => {
                    let what = format!("segment {by} does not name it as the one before itself");
                    return Err(Error::corruption(reader.name(), 0, what));
                }
                Some((wanted, by)) if wanted > number => return Err(self.missing_before(wanted, by)),
                Some(_) => check_tag(reader.name(), 0, header.identity.tag, wanted_tag)?,
                None => segments.least_len = claims.get(&number).copied().unwrap_or(0),
            }
            wanted = Some((header.previous_number, number));
            wanted_tag = header.previous_tag;
            segments.readers.push(reader);
        }
        if let Some((wanted, by)) = wanted {
            self.require_present(&[], wanted, by)?;
        }
        segments.readers.reverse();
        Ok(segments)
    }

    /// True if the segment has no records and no seal.
    fn is_unused(&self, reader: &LogReader, number: u64) -> Result<bool> {
        Ok(!self.seals.contains_key(&number) && reader.is_unused()?)
    }

    /// The segment `wanted`, which `by` continues, must be among `numbers` or below the floor.
    fn require_present(&self, numbers: &[u64], wanted: u64, by: u64) -> Result<()> {
        let needed = wanted != 0 && wanted >= self.floor;
        if needed && !numbers.contains(&wanted) { Err(self.missing_before(wanted, by)) } else { Ok(()) }
    }

    fn missing_before(&self, wanted: u64, by: u64) -> Error {
        self.missing(wanted, format!("segment {by} continues it"))
    }

    /// Opens one segment; `None` if its creation was torn.
    fn open_segment(&self, number: u64) -> Result<Option<LogReader>> {
        let path = self.path(number);
        let file = self.vfs.open(&path)?;
        let name = path.display().to_string();
        let error = match LogReader::open(Arc::clone(&file), name, LogRole::Wal, None) {
            Ok(reader) => {
                check_number(reader.name(), reader.header().identity.file_number, number)?;
                return Ok(Some(reader));
            }
            Err(error) => error,
        };
        // A header of garbage looks like a foreign file.
        let invalid = matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Unsupported);
        let torn_creation = invalid
            && !self.seals.contains_key(&number)
            && only_zeros_from(&*file, HEADER_BYTES as u64, file.len()?)?;
        if torn_creation { Ok(None) } else { Err(error) }
    }

    fn path(&self, number: u64) -> PathBuf {
        FileName::Wal(number).path(self.dir)
    }

    fn missing(&self, number: u64, why: impl std::fmt::Display) -> Error {
        Error::corruption(self.path(number).display(), 0, format!("the segment is missing; {why}"))
    }
}

#[cfg(test)]
mod tests {
    use bolide_storage::MemVfs;

    use super::*;
    use crate::record_log::format::put_record;
    use crate::wal::WalWriter;

    fn dir() -> &'static Path {
        Path::new("/db")
    }

    fn identity(number: u64) -> FileIdentity {
        FileIdentity { file_number: number, tag: 0xb0 + number }
    }

    fn new_vfs() -> Arc<MemVfs> {
        let vfs = MemVfs::new();
        vfs.create_dir_all(dir()).unwrap();
        Arc::new(vfs)
    }

    fn read(vfs: &MemVfs, floor: u64, seals: &[(u64, u64)]) -> Result<(WalTail, Vec<Vec<u8>>)> {
        let seals = seals.iter().copied().collect();
        let chain = WalChain { vfs, dir: dir(), floor, seals: &seals };
        let mut records = Vec::new();
        let tail = replay(&chain, |_, _, record| {
            records.push(record.payload.to_vec());
            Ok(())
        })?;
        Ok((tail, records))
    }

    fn rewrite(vfs: &MemVfs, number: u64, change: impl FnOnce(&mut Vec<u8>)) {
        let path = FileName::Wal(number).path(dir());
        let file = vfs.open(&path).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(0, &mut bytes).unwrap();
        change(&mut bytes);
        vfs.remove(&path).unwrap();
        vfs.create(&path).unwrap().append(&bytes).unwrap();
    }

    /// Three segments: 5 (records a, b), 7 (no record), 9 (record c).
    fn three_segments() -> (Arc<MemVfs>, LogEnd, LogEnd) {
        let vfs = new_vfs();
        let first = WalWriter::create(&*vfs, dir(), identity(5), None).unwrap();
        first.append([&b"a"[..], b"b"]).unwrap();
        first.sync().unwrap();
        let second = WalWriter::create(&*vfs, dir(), identity(7), Some(first.end())).unwrap();
        let third = WalWriter::create(&*vfs, dir(), identity(9), Some(second.end())).unwrap();
        third.append([&b"c"[..]]).unwrap();
        (vfs, first.end(), third.end())
    }

    #[test]
    fn a_chain_is_read_in_order_from_the_floor() {
        let (vfs, _, last) = three_segments();
        let (tail, records) = read(&vfs, 1, &[]).unwrap();
        assert_eq!(records, [b"a", b"b", b"c"]);
        assert_eq!(tail, WalTail { last: Some(last), sealed: false, torn_bytes: 0, records: 3 });
        assert_eq!(read(&vfs, 6, &[]).unwrap().1, [b"c"]);
        assert_eq!(read(&vfs, 10, &[]).unwrap().0.last, None);
        let (tail, _) = read(&vfs, 1, &[(9, last.len)]).unwrap();
        assert!(tail.sealed);
    }

    #[test]
    fn a_missing_segment_is_named() {
        for (missing, floor) in [(5, 1), (7, 1), (5, 5), (7, 6)] {
            let (vfs, ..) = three_segments();
            vfs.remove(&FileName::Wal(missing).path(dir())).unwrap();
            let error = read(&vfs, floor, &[]).unwrap_err();
            assert!(error.is_corruption());
            assert!(error.message().contains(&format!("00000{missing}.wal")), "{error}");
        }
        let (vfs, _, last) = three_segments();
        vfs.remove(&FileName::Wal(9).path(dir())).unwrap();
        assert!(read(&vfs, 1, &[(9, last.len)]).unwrap_err().message().contains("000009.wal"));
        // Without a seal, nothing says that the last segment ever was.
        assert_eq!(read(&vfs, 1, &[]).unwrap().1.len(), 2);
    }

    #[test]
    fn nothing_may_be_wrong_with_a_segment_that_was_synced_whole() {
        let (_, first, _) = three_segments();
        for len in 0..first.len as usize {
            let (vfs, ..) = three_segments();
            rewrite(&vfs, 5, |bytes| bytes.truncate(len));
            let error = read(&vfs, 1, &[]).unwrap_err();
            assert!(error.is_corruption() && error.message().contains("000005.wal"), "{len}: {error}");
        }
        for bit in 0..first.len as usize * 8 {
            let (vfs, ..) = three_segments();
            rewrite(&vfs, 5, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
            let error = read(&vfs, 1, &[]).unwrap_err();
            assert!(error.message().contains("000005.wal"), "{bit}: {error}");
        }
    }

    #[test]
    fn a_torn_tail_is_cut_only_in_an_unsealed_last_segment() {
        let (vfs, _, last) = three_segments();
        rewrite(&vfs, 9, |bytes| bytes.truncate(bytes.len() - 1));
        let (tail, records) = read(&vfs, 1, &[]).unwrap();
        assert_eq!(records, [b"a", b"b"]);
        assert_eq!((tail.last.unwrap().len, tail.torn_bytes), (64, 7));
        assert!(read(&vfs, 1, &[(9, last.len)]).unwrap_err().is_corruption());
        // Once cut and sealed, the same bytes are no damage, and the next segment continues there.
        let (sealed, _) = read(&vfs, 1, &[(9, 64)]).unwrap();
        assert_eq!((sealed.sealed, sealed.torn_bytes), (true, 0));
        let next = WalWriter::create(&*vfs, dir(), identity(11), sealed.last).unwrap();
        next.append([&b"d"[..]]).unwrap();
        assert_eq!(read(&vfs, 1, &[(9, 64)]).unwrap().1, [b"a", b"b", b"d"]);
    }

    #[test]
    fn an_unused_segment_does_not_hide_what_was_written_on_before_it() {
        let vfs = new_vfs();
        let first = WalWriter::create(&*vfs, dir(), identity(5), None).unwrap();
        first.append([&b"a"[..]]).unwrap();
        first.sync().unwrap();
        let claimed = first.end();
        // Its creation reported a failure although it was done: the segment before it goes on.
        WalWriter::create(&*vfs, dir(), identity(6), Some(claimed)).unwrap();
        // The space that was reserved for it is there too.
        rewrite(&vfs, 6, |bytes| bytes.resize(70_000, 0));
        assert_eq!(read(&vfs, 1, &[]).unwrap().0.last, Some(claimed));
        first.append([&b"b"[..]]).unwrap();
        let (tail, records) = read(&vfs, 1, &[]).unwrap();
        assert_eq!((tail.last, records.len()), (Some(first.end()), 2));
        let next = WalWriter::create(&*vfs, dir(), identity(7), Some(first.end())).unwrap();
        next.append([&b"c"[..]]).unwrap();
        assert_eq!(read(&vfs, 1, &[]).unwrap().1, [b"a", b"b", b"c"]);
        // What the unused one says of the length before it must hold.
        vfs.remove(&FileName::Wal(7).path(dir())).unwrap();
        rewrite(&vfs, 5, |bytes| bytes.truncate(claimed.len as usize - 1));
        assert!(read(&vfs, 1, &[]).unwrap_err().message().contains("000005.wal"));
        vfs.remove(&FileName::Wal(5).path(dir())).unwrap();
        assert!(read(&vfs, 1, &[]).unwrap_err().message().contains("000005.wal"));
        assert_eq!(read(&vfs, 6, &[]).unwrap().0.last, None);
    }

    #[test]
    fn of_two_unused_segments_the_first_may_be_gone() {
        let vfs = new_vfs();
        let first = WalWriter::create(&*vfs, dir(), identity(5), None).unwrap();
        first.append([&b"a"[..]]).unwrap();
        first.sync().unwrap();
        let second = WalWriter::create(&*vfs, dir(), identity(7), Some(first.end())).unwrap();
        WalWriter::create(&*vfs, dir(), identity(9), Some(second.end())).unwrap();
        vfs.remove(&FileName::Wal(7).path(dir())).unwrap();
        let (tail, records) = read(&vfs, 1, &[]).unwrap();
        assert_eq!((tail.last, records), (Some(first.end()), vec![b"a".to_vec()]));
    }

    #[test]
    fn a_torn_creation_is_passed_over() {
        let reserved = [vec![0xa5; 64], vec![0; 300_000]].concat();
        for garbage in [&b""[..], b"Bolid", &[0; 64], &[0xa5; 64], &[0; 7], &[0; 5_000], &reserved] {
            let (vfs, _, last) = three_segments();
            vfs.create(&FileName::Wal(12).path(dir())).unwrap().append(garbage).unwrap();
            let (tail, records) = read(&vfs, 1, &[]).unwrap();
            assert_eq!((tail.last, records.len()), (Some(last), 3));
            let next = WalWriter::create(&*vfs, dir(), identity(13), tail.last).unwrap();
            next.append([&b"d"[..]]).unwrap();
            assert_eq!(read(&vfs, 1, &[]).unwrap().1.len(), 4);
        }
        // A longer file had a durable header once.
        let (vfs, ..) = three_segments();
        let longer = [vec![0; 64], vec![1]].concat();
        vfs.create(&FileName::Wal(12).path(dir())).unwrap().append(&longer).unwrap();
        assert!(read(&vfs, 1, &[]).is_err());
    }

    #[test]
    fn a_segment_with_another_tag_or_number_is_refused() {
        // The same segment as a copy of the database might have it.
        let (vfs, first, _) = three_segments();
        vfs.remove(&FileName::Wal(5).path(dir())).unwrap();
        let fork = FileIdentity { file_number: 5, tag: 0xf0 };
        let fork = WalWriter::create(&*vfs, dir(), fork, None).unwrap();
        fork.append([&b"x"[..], b"y"]).unwrap();
        assert_eq!(fork.len(), first.len);
        let error = read(&vfs, 1, &[]).unwrap_err();
        assert!(error.is_corruption() && error.message().contains("000005.wal"), "{error}");
        assert!(error.message().contains("tag is 00000000000000f0, not 00000000000000b5"), "{error}");
        let (vfs, _, _) = three_segments();
        vfs.hard_link(&FileName::Wal(9).path(dir()), &FileName::Wal(14).path(dir())).unwrap();
        assert!(read(&vfs, 1, &[]).unwrap_err().message().contains("another one"));
    }

    #[test]
    fn a_record_moved_to_another_place_is_no_record() {
        let (vfs, _, last) = three_segments();
        rewrite(&vfs, 9, |bytes| {
            let record = bytes[64..].to_vec();
            bytes.extend_from_slice(&record);
            let mut foreign = Vec::new();
            put_record(&mut foreign, bytes.len() as u64, identity(5), 64, b"foreign");
            bytes.extend_from_slice(&foreign);
        });
        let (tail, records) = read(&vfs, 9, &[]).unwrap();
        assert_eq!((tail.last.unwrap(), records.len()), (last, 1));
        assert!(tail.torn_bytes > 0);
    }
}
