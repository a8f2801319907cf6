//! The scan of a table: records to batches, for whole collections by several threads.

use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use bolide::key::{self, KeyFormat, PrimaryKey};
use bolide::{AnswerCursor, Collection, Cursor, Error, ErrorKind, IterOptions, KeySplit, Query, Snapshot};
use bolide_arrow::{BatchLimits, Column, ConversionError, PartStream, RecordDecoder, RecordKey};

use crate::arrow_errors::to_stream;
use crate::session::Exclusive;

/// Records of a part that one thread reads, about.
const PART_RECORDS: u64 = 32_768;
/// Most parts of a scan.
const MAX_PARTS: usize = 1_024;

/// The first byte of typed keys that are texts.
const TEXT_KEY: [u8; 1] = [0x1c];

/// Calls `then` with the key as a column has it.
pub(crate) fn with_record_key<T>(key: &[u8], format: KeyFormat, then: impl FnOnce(RecordKey<'_>) -> T) -> T {
    if format != KeyFormat::Typed {
        return then(RecordKey::Bytes(key));
    }
    // Without a copy of the text: most keys are texts, with one byte before.
    if let Some(text) = key.strip_prefix(&TEXT_KEY[..]).and_then(|text| std::str::from_utf8(text).ok()) {
        return then(RecordKey::Text(text));
    }
    match key::decode(key) {
        PrimaryKey::Int(value) => then(RecordKey::Int(value)),
        PrimaryKey::Uint(value) => then(RecordKey::Uint(value)),
        PrimaryKey::String(text) => then(RecordKey::Text(&text)),
        PrimaryKey::Bytes(bytes) => then(RecordKey::Bytes(&bytes)),
    }
}

/// An error of a conversion as one of the engine.
fn of_conversion(error: &ConversionError) -> Error {
    let kind = if error.is_limit() { ErrorKind::LimitExceeded } else { ErrorKind::InvalidInput };
    Error::new(kind, error.to_string())
}

/// What the batches of a scan have in common.
#[derive(Clone)]
pub(crate) struct BatchShape {
    pub(crate) columns: Vec<Column>,
    pub(crate) limits: BatchLimits,
    pub(crate) keys: KeyFormat,
}

/// The batch that is being filled.
struct Batches {
    decoder: RecordDecoder,
    keys: KeyFormat,
}

impl Batches {
    fn new(shape: &BatchShape) -> bolide::Result<Self> {
        let decoder = RecordDecoder::new(shape.columns.clone(), shape.limits);
        Ok(Self { decoder: decoder.map_err(|error| of_conversion(&error))?, keys: shape.keys })
    }

    #[inline]
    fn push(&mut self, key: &[u8], sequence: u64, record: &[u8]) -> bolide::Result<()> {
        with_record_key(key, self.keys, |key| self.decoder.push(key, sequence, record))
            .map_err(|error| of_conversion(&error))
    }

    /// Adds records from `cursor` on until the batch is full. Whether there are none left.
    fn fill_from(&mut self, cursor: &mut Cursor) -> bolide::Result<bool> {
        while !self.decoder.is_full() {
            if !cursor.valid() {
                return Ok(true);
            }
            self.push(cursor.key(), cursor.sequence(), cursor.value())?;
            cursor.next()?;
        }
        Ok(false)
    }

    /// The batch; `None` if it is empty.
    fn take(&mut self) -> bolide::Result<Option<RecordBatch>> {
        if self.decoder.rows() == 0 {
            return Ok(None);
        }
        self.decoder.finish().map(Some).map_err(|error| of_conversion(&error))
    }
}

/// A scan and the batch that it fills.
pub(crate) enum TableScan {
    /// All records, in the order of keys, by this thread. The cursor is at the next record.
    Records(Box<Cursor>, Filled),
    /// The answers to a query, in its order.
    Answers(Box<AnswerCursor>, Filled),
    /// All records, in the order of keys, by several threads.
    Parts(PartStream<RecordBatch, Error>),
}

/// The batch that this thread fills.
pub(crate) struct Filled(Box<Batches>);

impl Filled {
    fn new(shape: &BatchShape) -> bolide::Result<Self> {
        Ok(Self(Box::new(Batches::new(shape)?)))
    }
}

impl TableScan {
    /// The answers to a query.
    pub(crate) fn of_answers(answers: AnswerCursor, shape: &BatchShape) -> bolide::Result<Self> {
        Ok(Self::Answers(Box::new(answers), Filled::new(shape)?))
    }

    /// All records at `snapshot`, read by at most `threads` threads.
    pub(crate) fn of_records(
        collection: &Collection,
        snapshot: Snapshot,
        shape: &BatchShape,
        threads: usize,
    ) -> bolide::Result<Self> {
        let parts = if threads > 1 { parts_of(collection)? } else { Vec::new() };
        let count = parts.len();
        if count < 2 {
            let mut cursor = collection.cursor(&IterOptions::default().snapshot(&snapshot))?;
            cursor.seek_to_first()?;
            return Ok(Self::Records(Box::new(cursor), Filled::new(shape)?));
        }
        let (collection, shape) = (collection.clone(), shape.clone());
        let stream = PartStream::start(count, threads, move |part, pass| {
            let range = parts.get(part).cloned().unwrap_or(EMPTY);
            let options = IterOptions::default().range(range).snapshot(&snapshot);
            read_part(&collection, &options, &shape, pass)
        });
        stream.map(Self::Parts).map_err(|error| Error::io("the threads of an Arrow stream", error))
    }

    /// The next batch; `None` at the end.
    fn next_batch(&mut self) -> bolide::Result<Option<RecordBatch>> {
        match self {
            Self::Records(cursor, Filled(batches)) => {
                batches.fill_from(cursor)?;
                batches.take()
            }
            Self::Answers(cursor, Filled(batches)) => {
                while !batches.decoder.is_full() {
                    let Some(answer) = cursor.next()? else { break };
                    batches.push(answer.key, answer.sequence, answer.record.unwrap_or_default())?;
                }
                batches.take()
            }
            Self::Parts(stream) => stream.next().transpose(),
        }
    }
}

/// A range without keys.
const EMPTY: KeySplit = (Bound::Included(Vec::new()), Bound::Excluded(Vec::new()));

/// Ranges of keys with about as many records each as a thread reads at once.
fn parts_of(collection: &Collection) -> bolide::Result<Vec<KeySplit>> {
    let records = collection.estimate(&Query::new())?.records;
    let parts = usize::try_from(records / PART_RECORDS).unwrap_or(MAX_PARTS).min(MAX_PARTS);
    if parts < 2 { Ok(Vec::new()) } else { collection.split(parts) }
}

/// Passes the batches of one part on.
fn read_part(
    collection: &Collection,
    options: &IterOptions,
    shape: &BatchShape,
    pass: &mut dyn FnMut(RecordBatch) -> ControlFlow<()>,
) -> bolide::Result<()> {
    let mut batches = Batches::new(shape)?;
    let mut cursor = collection.cursor(options)?;
    cursor.seek_to_first()?;
    loop {
        let has_ended = batches.fill_from(&mut cursor)?;
        if let Some(batch) = batches.take()?
            && pass(batch).is_break()
        {
            return Ok(());
        }
        if has_ended {
            return Ok(());
        }
    }
}

/// The batches of a stream. Consumers read it from any thread, with or without the lock of the interpreter, which it never
/// requests.
pub(crate) struct TableReader {
    schema: SchemaRef,
    scan: Exclusive<TableScan>,
    has_ended: bool,
}

impl TableReader {
    pub(crate) fn new(schema: SchemaRef, scan: Exclusive<TableScan>) -> Self {
        Self { schema, scan, has_ended: false }
    }
}

impl Iterator for TableReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let read = catch_unwind(AssertUnwindSafe(|| self.scan.with_detached(TableScan::next_batch)));
        let next = match read {
            Ok(Some(batch)) => batch.transpose(),
            Ok(None) => {
                let what = "the database was closed, or this is a child process";
                Some(Err(Error::new(ErrorKind::Closed, what)))
            }
            Err(panic) => Some(Err(Error::panicked("the stream", &*panic))),
        };
        self.has_ended = !matches!(next, Some(Ok(_)));
        next.map(|batch| batch.map_err(|error| to_stream(&error)))
    }
}

impl RecordBatchReader for TableReader {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
