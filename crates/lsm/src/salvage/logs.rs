//! Salvage of the write-ahead log.
//!
//! With an intact manifest, the segments that it names are read by the rules of recovery: each up to its end, the entries of
//! each tree from its log floor on, and the retained entries that the manifest lists. Without, all segments of the directory
//! are read, and all of their entries are used.
//!
//! After a damaged record, reading continues with the next full one. Sequence numbers have no gaps, so those on both sides
//! give the range that is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bolide_base::{ErrorKind, FileIdentity, MAX_SEQUENCE, Result, SequenceNumber, Trailer, TreeId};
use bolide_storage::{File, Vfs};

use super::loss::{Loss, LossKind};
use super::manifest::{SalvagedManifest, presumed_identity};
use super::spill::Spill;
use crate::batch::{BatchReader, Operation, PlacedOperation};
use crate::file_name::FileName;
use crate::range_tombstones::RangeTombstone;
use crate::record_log::format::HEADER_BYTES;
use crate::record_log::{Boot, LogHeader, LogReader, LogRole, LogStop, only_zeros_from};
use crate::sync_marker::Marks;
use crate::version::{RetainedLog, WalSegment};

/// Reads the segments of a log.
pub(super) struct LogSalvage<'a> {
    vfs: &'a dyn Vfs,
    dir: &'a Path,
    manifest: &'a SalvagedManifest,
    marks: &'a Marks,
    /// The trees whose entries are needed.
    wanted: &'a dyn Fn(TreeId) -> bool,
    spill: &'a mut Spill,
    found: &'a mut LogContents,
    losses: &'a mut Vec<Loss>,
    /// The first sequence number of the next record; `None` before the first record.
    expected: Option<SequenceNumber>,
    /// Losses since the last record, by their indexes in the list.
    open_losses: Vec<usize>,
}

/// The contents of the log besides the entries.
#[derive(Debug, Default)]
pub(super) struct LogContents {
    pub(super) tombstones: BTreeMap<TreeId, Vec<RangeTombstone>>,
    /// Trees of records that no readable manifest names.
    pub(super) unknown: BTreeSet<TreeId>,
    pub(super) last_sequence: SequenceNumber,
}

impl<'a> LogSalvage<'a> {
    #[expect(clippy::too_many_arguments, reason = "each is a part of the salvage that it works for")]
    pub(super) fn new(
        vfs: &'a dyn Vfs,
        dir: &'a Path,
        manifest: &'a SalvagedManifest,
        marks: &'a Marks,
        wanted: &'a dyn Fn(TreeId) -> bool,
        spill: &'a mut Spill,
        found: &'a mut LogContents,
        losses: &'a mut Vec<Loss>,
    ) -> Self {
        let (expected, open_losses) = (None, Vec::new());
        Self { vfs, dir, manifest, marks, wanted, spill, found, losses, expected, open_losses }
    }

    /// Reads all segments in use; `on_disk` are those of the directory.
    ///
    /// # Errors
    /// Those of writing scratch files.
    pub(super) fn read(&mut self, on_disk: &BTreeSet<u64>) -> Result<()> {
        let state = &self.manifest.state;
        let named = state.segments.range(state.wal_floor..).map(|(&number, _)| number);
        let numbers: BTreeSet<u64> = if self.manifest.intact {
            let named: BTreeSet<u64> = named.collect();
            let unnamed: Vec<u64> =
                on_disk.range(state.wal_floor..).copied().filter(|number| !named.contains(number)).collect();
            unnamed.into_iter().for_each(|number| self.note_unnamed(number));
            named
        } else {
            named.chain(on_disk.iter().copied()).collect()
        };
        let last = numbers.last().copied();
        for number in numbers {
            let segment = state.segments.get(&number).copied();
            self.read_segment(number, segment, Some(number) == last)?;
        }
        // Behind the last readable record, only the start of the lost sequence numbers is known.
        self.complete_losses(MAX_SEQUENCE + 1);
        Ok(())
    }

    /// A segment that an intact manifest does not name: its creation was interrupted, so it must be empty.
    fn note_unnamed(&mut self, number: u64) {
        let path = FileName::Wal(number).path(self.dir);
        let is_unused = self.vfs.open(&path).and_then(|file| {
            let end = file.len()?;
            only_zeros_from(&*file, HEADER_BYTES as u64, end)
        });
        match is_unused {
            Ok(true) => {}
            Ok(false) => {
                self.lose(number, None, "the segment holds bytes, but the manifest does not name it")
            }
            Err(error) => self.lose(number, None, error.message()),
        }
    }

    fn read_segment(&mut self, number: u64, segment: Option<WalSegment>, is_last: bool) -> Result<()> {
        let path = FileName::Wal(number).path(self.dir);
        let identity = match segment {
            Some(segment) => Some(FileIdentity { file_number: number, tag: segment.tag }),
            None => presumed_identity(self.vfs, &path, number),
        };
        let Some(identity) = identity else {
            self.lose(number, None, "the header of the segment cannot be read");
            return Ok(());
        };
        let header = LogHeader { role: LogRole::Wal, identity, boot: Boot::default() };
        let name = FileName::Wal(number).to_string();
        let opened =
            self.vfs.open(&path).and_then(|file| Ok((file.clone(), LogReader::open_as(file, name, header)?)));
        let (file, mut reader) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let missing = error.kind() == ErrorKind::NotFound;
                let cause =
                    if missing { "the segment is missing; the manifest names it" } else { error.message() };
                self.lose(number, None, cause);
                return Ok(());
            }
        };
        let end = segment.and_then(|segment| segment.end);
        if let Some(end) = end {
            reader.end_at(end);
        }
        let marked = self.marks.synced_through(LogRole::Wal, identity);
        let durable = end.unwrap_or(marked);
        let is_marked = self.manifest.marked && marked > 0;
        if end.is_none() && is_last && self.manifest.intact && !is_marked {
            self.note_unknown_end(number);
        }
        let losses = self.losses.len();
        self.read_records(number, &mut reader, durable)?;
        let nothing_found = reader.position() == HEADER_BYTES as u64 && self.losses.len() == losses;
        if segment.is_some() && nothing_found && !has_header(file, identity) {
            // The header was durable before the manifest named the segment.
            let what =
                "the header of the segment is damaged, and no record follows it: its contents are lost";
            self.lose(number, Some(0..HEADER_BYTES as u64), what);
        }
        Ok(())
    }

    /// Reads the records of a segment that was durable through byte `durable`.
    fn read_records(&mut self, number: u64, reader: &mut LogReader, durable: u64) -> Result<()> {
        loop {
            let start = reader.position();
            let cause = match reader.next_record() {
                Ok(Some(record)) => {
                    let place = RetainedLog { segment: number, start: record.offset, end: record.end };
                    match is_batch(record.payload) {
                        true => self.apply(place, record.payload)?,
                        false => self.lose(number, Some(start..place.end), "the record is not a write batch"),
                    }
                    continue;
                }
                Ok(None) => match reader.stop() {
                    Some(LogStop::Invalid(what)) => what.to_owned(),
                    _ if start < durable => {
                        let what = format!(
                            "the segment ends at byte {start}, but was durable through byte {durable}"
                        );
                        self.lose(number, Some(start..durable), &what);
                        return Ok(());
                    }
                    _ => return Ok(()),
                },
                Err(error) => error.message().to_owned(),
            };
            match reader.resynchronize() {
                Ok(Some(next)) => self.lose(number, Some(start..next), &cause),
                Ok(None) => {
                    self.lose_end(number, reader, start, durable, &cause);
                    return Ok(());
                }
                Err(error) => {
                    self.lose(number, Some(start..reader.limit().max(durable)), error.message());
                    return Ok(());
                }
            }
        }
    }

    /// Reports the rest from `start` on, which no record follows, as lost, unless it is reserved and unused space.
    fn lose_end(&mut self, number: u64, reader: &LogReader, start: u64, durable: u64, cause: &str) {
        if start >= durable && reader.only_zeros_from(start).unwrap_or(false) {
            return;
        }
        let what = match start < durable {
            true => format!("{cause}, although the log was durable through byte {durable}"),
            false => format!("{cause}; nothing proves that these bytes were ever durable"),
        };
        self.lose(number, Some(start..reader.limit().max(durable)), &what);
    }

    /// Applies a record that is a whole batch.
    fn apply(&mut self, place: RetainedLog, payload: &[u8]) -> Result<()> {
        let mut operations = BatchReader::new(payload)?;
        self.complete_losses(operations.next_sequence());
        for placed in &mut operations {
            let placed = placed?;
            self.found.last_sequence = self.found.last_sequence.max(placed.sequence);
            if !self.is_applicable(place, &placed) || !(self.wanted)(placed.tree) {
                continue;
            }
            match placed.operation {
                Operation::Entry { kind, key, value } => {
                    self.spill.insert(placed.tree, key, Trailer::new(placed.sequence, kind), value)?;
                }
                Operation::RangeDelete { start, end } => {
                    let (start, end, sequence) = (start.to_vec(), end.to_vec(), placed.sequence);
                    let tombstone = RangeTombstone { start, end, sequence };
                    self.found.tombstones.entry(placed.tree).or_default().push(tombstone);
                }
            }
        }
        let next = operations.next_sequence();
        self.expected = Some(self.expected.map_or(next, |expected| expected.max(next)));
        Ok(())
    }

    /// Sets the sequence numbers of the losses since the last record to those missing before `first`.
    fn complete_losses(&mut self, first: SequenceNumber) {
        let lost = self.expected.filter(|&expected| expected < first).map(|expected| expected..=first - 1);
        for place in self.open_losses.drain(..) {
            if let Some(loss) = self.losses.get_mut(place) {
                loss.sequences = lost.clone();
            }
        }
    }

    /// True if an operation takes effect by the rules of recovery.
    fn is_applicable(&mut self, place: RetainedLog, placed: &PlacedOperation<'_>) -> bool {
        let state = &self.manifest.state;
        if state.dropped.contains(&placed.tree) {
            return false;
        }
        match state.trees.get(&placed.tree) {
            Some(tree) if self.manifest.intact && placed.retained => tree.retained.is_some_and(|log| {
                log.segment == place.segment && log.start <= place.start && place.end <= log.end
            }),
            Some(tree) if self.manifest.intact => place.segment >= tree.log_floor,
            // Ids of trees are never reused: this one was dropped.
            None if self.manifest.intact => false,
            Some(tree) if tree.descriptor.is_some() => true,
            Some(_) | None => {
                // A derived operation is an index entry.
                let is_record = !placed.derived;
                if is_record {
                    self.found.unknown.insert(placed.tree);
                }
                is_record || placed.retained
            }
        }
    }

    fn note_unknown_end(&mut self, number: u64) {
        let what = "the marker is missing or older than the log: writes at the end of the log that were acknowledged as \
                    synced may be missing, which is otherwise undetectable";
        self.losses.push(Loss::new(LossKind::LogEnd, FileName::Wal(number).to_string(), what));
    }

    fn lose(&mut self, number: u64, bytes: Option<Range<u64>>, cause: &str) {
        // Retained entries have sequence numbers of their own, which do not continue those around them.
        let is_hit = |log: &RetainedLog| {
            let overlaps = |bytes: &Range<u64>| log.start < bytes.end && bytes.start < log.end;
            log.segment == number && bytes.as_ref().is_none_or(overlaps)
        };
        if !self.manifest.state.trees.values().filter_map(|tree| tree.retained.as_ref()).any(is_hit) {
            self.open_losses.push(self.losses.len());
        }
        let mut loss = Loss::new(LossKind::Log, FileName::Wal(number).to_string(), cause);
        loss.bytes = bytes;
        self.losses.push(loss);
    }
}

/// True if a segment begins with the header that it was created with.
fn has_header(file: Arc<dyn File>, identity: FileIdentity) -> bool {
    LogReader::open(file, "", LogRole::Wal, Some(identity)).is_ok()
}

/// True if all operations of a payload decode.
fn is_batch(payload: &[u8]) -> bool {
    BatchReader::new(payload).is_ok_and(|mut operations| operations.all(|placed| placed.is_ok()))
}
