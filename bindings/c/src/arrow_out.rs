//! Records as Arrow streams.

use std::mem::{ManuallyDrop, forget};

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use bolide::AnswerCursor;
use bolide::key::KeyFormat;
use bolide_arrow::{BatchLimits, RecordDecoder};

use crate::arrow_schema::{bolide_column, columns_of, with_record_key};
use crate::code::bolide_code;
use crate::collection::bolide_collection;
use crate::error::bolide_error;
use crate::failure::Failure;
use crate::fork;
use crate::guard::{call, caught};
use crate::handle;
use crate::query::bolide_query;
use crate::session::Member;
use crate::snapshot::bolide_snapshot;

/// Rows of a batch if the caller sets none.
const DEFAULT_BATCH_ROWS: usize = 8_192;
/// The largest number of rows of a batch.
const MAX_BATCH_ROWS: usize = 1 << 24;

/// A query and the batch that it fills. In a child process nothing of it is dropped.
struct AnswerBatches {
    scan: ManuallyDrop<AnswerScan>,
    schema: SchemaRef,
    forks: u64,
    has_ended: bool,
}

struct AnswerScan {
    answers: Member<AnswerCursor>,
    decoder: RecordDecoder,
    keys: KeyFormat,
}

/// An error of a stream, whose consumer gets the text as a C string: with NUL in it the Arrow library would abort the process.
fn external(error: impl std::error::Error) -> ArrowError {
    ArrowError::ExternalError(error.to_string().replace('\0', "\u{fffd}").into())
}

impl AnswerScan {
    /// The next batch; `None` at the end.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let Self { answers, decoder, keys } = self;
        while !decoder.is_full() {
            let Some(answer) = answers.value_mut().next().map_err(external)? else { break };
            let (sequence, record) = (answer.sequence, answer.record.unwrap_or_default());
            with_record_key(answer.key, *keys, |key| decoder.push(key, sequence, record))
                .map_err(external)?;
        }
        if decoder.rows() == 0 {
            return Ok(None);
        }
        decoder.finish().map(Some).map_err(external)
    }
}

impl Iterator for AnswerBatches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        if self.forks != fork::forks() {
            self.has_ended = true;
            return Some(Err(ArrowError::ExternalError("the stream belongs to the parent process".into())));
        }
        let next = match caught(|| Ok(self.scan.next_batch())) {
            Ok(batch) => batch.transpose(),
            Err(_) => Some(Err(ArrowError::ExternalError("the stream panicked: report a bug".into()))),
        };
        self.has_ended = !matches!(next, Some(Ok(_)));
        next
    }
}

impl RecordBatchReader for AnswerBatches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Drop for AnswerBatches {
    fn drop(&mut self) {
        // SAFETY: not used again.
        let scan = unsafe { ManuallyDrop::take(&mut self.scan) };
        if self.forks == fork::forks() {
            // A panic must not leave the release function of the stream.
            let _ = caught(|| {
                drop(scan);
                Ok(())
            });
        } else {
            forget(scan);
        }
    }
}

/// Exports the answers to a query as an Arrow stream (the C stream interface). Its consumer releases it, from any thread; it keeps
/// the database open until then. A value of another type than that of its column is NULL.
///
/// `snapshot` may be NULL for the latest state. `columns` may be NULL, with `column_count` 0, for the key and all attributes of a sample
/// of the records in that state. `batch_rows` is the largest number of rows of a batch; 0 for 8,192. The query has no selection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_find_arrow(
    collection: *const bolide_collection,
    query: *const bolide_query,
    snapshot: *const bolide_snapshot,
    columns: *const bolide_column,
    column_count: usize,
    batch_rows: usize,
    stream: *mut FFI_ArrowArrayStream,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        if stream.is_null() {
            return Err(Failure::invalid("the parameter `stream`, which receives the result, is NULL"));
        }
        stream.write_unaligned(FFI_ArrowArrayStream::empty());
        let collection = handle::borrow(collection)?;
        let settings = handle::borrow(query)?.read()?;
        let snapshot = handle::borrow_optional(snapshot)?;
        if settings.query.projection() != bolide::Projection::Records {
            return Err(Failure::invalid("the query of an Arrow stream selects nothing: its columns do"));
        }
        let rows = match batch_rows {
            0 => DEFAULT_BATCH_ROWS,
            rows if rows > MAX_BATCH_ROWS => {
                let what = "the number of rows of a batch";
                return Err(bolide::Error::limit_exceeded(what, rows as u64, MAX_BATCH_ROWS as u64).into());
            }
            rows => rows,
        };
        let columns = columns_of(collection, snapshot.map(|snapshot| &**snapshot), columns, column_count)?;
        let decoder = RecordDecoder::new(columns, BatchLimits::default().with_rows(rows))?;
        let schema = decoder.schema().clone();
        let options = settings.find_options(snapshot.map(|snapshot| &**snapshot));
        let answers = Member::new(collection.session(), collection.answers(&settings.query, &options)?);
        let scan = AnswerScan { answers, decoder, keys: collection.key_format() };
        let batches =
            AnswerBatches { scan: ManuallyDrop::new(scan), schema, forks: fork::forks(), has_ended: false };
        stream.write_unaligned(FFI_ArrowArrayStream::new(Box::new(batches)));
        Ok(())
    })
}
