//! The loop of a scan: it decodes records, checks the predicates on the rows, and returns batches. It blocks, so it runs on a
//! thread of its own.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{Array, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{filter_record_batch, prep_null_mask_filter};
use arrow::datatypes::SchemaRef;
use bolide::key::KeyFormat;
use bolide::{Explain, Query};
use bolide_arrow::{BatchLimits, Column, RecordDecoder};
use datafusion::physical_expr::PhysicalExpr;

use super::access::Access;
use super::source::ScanSource;
use crate::error::{Result, SqlError};
use crate::read_point::StoredRow;
use crate::record_key::with_column_key;
use crate::sample::all_keys;

/// Rows of the first batch, so that a plan which needs few rows decodes few.
const FIRST_ROWS: usize = 256;
/// Rows after which a scan without a batch checks whether it was cancelled.
const CHECK_ROWS: u64 = 1_024;

/// A scan that is ready to run.
#[derive(Clone)]
pub(crate) struct ScanRun {
    pub(crate) source: Arc<ScanSource>,
    pub(crate) access: Access,
    pub(crate) partition: usize,
    /// The columns that are decoded, in the order of the table.
    pub(crate) columns: Vec<Column>,
    /// The predicate on the decoded columns.
    pub(crate) predicate: Option<Arc<dyn PhysicalExpr>>,
    /// For an order with NULL last: the same predicate, for the rows without a value.
    pub(crate) null_predicate: Option<Arc<dyn PhysicalExpr>>,
    /// The decoded columns that are returned.
    pub(crate) output: Vec<usize>,
    pub(crate) schema: SchemaRef,
    pub(crate) fetch: Option<usize>,
    /// Rows of the largest batch.
    pub(crate) batch_rows: usize,
    /// Whether the query alone decides which rows are returned: the engine stops at the limit.
    pub(crate) is_exact: bool,
}

/// What a scan has read.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScanCosts {
    /// Rows that were decoded.
    pub(crate) decoded: u64,
    /// Rows that did not satisfy the predicate.
    pub(crate) dropped: u64,
    /// The report of the engine for a query.
    pub(crate) explain: Option<Box<Explain>>,
}

/// Takes batches; returns false if no more are needed.
pub(crate) type BatchSink<'s> = dyn FnMut(RecordBatch) -> bool + 's;

impl ScanRun {
    /// Passes the batches of the scan to `emit` until it returns false, or `is_cancelled` returns true.
    ///
    /// # Errors
    /// Those of reading and decoding.
    pub(crate) fn run(&self, emit: &mut BatchSink<'_>, is_cancelled: &dyn Fn() -> bool) -> Result<ScanCosts> {
        let mut costs = ScanCosts::default();
        if self.fetch == Some(0) {
            return Ok(costs);
        }
        let mut rows = RowBatches::new(self, self.predicate.clone(), self.fetch, emit, is_cancelled)?;
        costs.explain = self.read(&mut rows)?;
        let has_ended = rows.finish()?;
        let remaining = rows.remaining;
        costs.note(&rows);
        if let Some(predicate) = &self.null_predicate
            && !has_ended
            && remaining != Some(0)
        {
            let mut rows = RowBatches::new(self, Some(predicate.clone()), remaining, emit, is_cancelled)?;
            let source = &self.source;
            source.point.scan(&source.collection, &all_keys(), false, &mut |row| rows.push(row))?;
            rows.finish()?;
            costs.note(&rows);
        }
        Ok(costs)
    }

    fn read(&self, rows: &mut RowBatches<'_, '_>) -> Result<Option<Box<Explain>>> {
        let ScanSource { collection, point, .. } = &*self.source;
        let sink = &mut |row: StoredRow<'_>| rows.push(row);
        match &self.access {
            Access::Points(keys) => point.points(collection, keys, sink)?,
            Access::Keys(parts, is_reverse) => {
                if let Some(bounds) = parts.get(self.partition) {
                    point.scan(collection, bounds, *is_reverse, sink)?;
                }
            }
            Access::Query(query, _) => {
                let explain = point.visit(collection, &self.projected(query), sink)?;
                return Ok(Some(Box::new(explain)));
            }
        }
        Ok(None)
    }

    /// The query with the limit that the engine may apply, and without records where no column needs them.
    fn projected(&self, query: &Query) -> Query {
        let mut query = query.clone();
        if let Some(fetch) = self.fetch.filter(|_| self.is_exact) {
            query = query.limit(fetch);
        }
        let needs_records = self.columns.iter().any(|column| {
            matches!(
                column.source(),
                bolide_arrow::ColumnSource::Path(..) | bolide_arrow::ColumnSource::Record
            )
        });
        if needs_records { query } else { query.keys_only() }
    }
}

impl ScanCosts {
    fn note(&mut self, rows: &RowBatches<'_, '_>) {
        self.decoded += rows.decoded;
        self.dropped += rows.dropped;
    }
}

/// Decodes rows, and returns those that satisfy the predicate in batches.
struct RowBatches<'r, 'e> {
    run: &'r ScanRun,
    decoder: RecordDecoder,
    predicate: Option<Arc<dyn PhysicalExpr>>,
    /// Rows that are still to be returned.
    remaining: Option<usize>,
    keys: KeyFormat,
    /// Rows of the next batch.
    target: usize,
    pushed: u64,
    decoded: u64,
    dropped: u64,
    is_ended: bool,
    emit: &'r mut BatchSink<'e>,
    is_cancelled: &'r dyn Fn() -> bool,
}

impl<'r, 'e> RowBatches<'r, 'e> {
    fn new(
        run: &'r ScanRun,
        predicate: Option<Arc<dyn PhysicalExpr>>,
        remaining: Option<usize>,
        emit: &'r mut BatchSink<'e>,
        is_cancelled: &'r dyn Fn() -> bool,
    ) -> Result<Self> {
        let decoder =
            RecordDecoder::new(run.columns.clone(), BatchLimits::default().with_rows(run.batch_rows))?;
        let keys = run.source.collection.key_format();
        let first = match remaining {
            // Checked rows may be fewer.
            Some(rows) if predicate.is_some() => rows.saturating_mul(2).clamp(16, FIRST_ROWS),
            Some(rows) => rows.clamp(1, run.batch_rows.max(1)),
            None => FIRST_ROWS,
        };
        Ok(Self {
            run,
            decoder,
            predicate,
            remaining,
            keys,
            target: first,
            pushed: 0,
            decoded: 0,
            dropped: 0,
            is_ended: false,
            emit,
            is_cancelled,
        })
    }

    fn push(&mut self, row: StoredRow<'_>) -> Result<ControlFlow<()>> {
        self.pushed += 1;
        if self.pushed.is_multiple_of(CHECK_ROWS) && (self.is_cancelled)() {
            self.is_ended = true;
            return Ok(ControlFlow::Break(()));
        }
        match self.decode(&row) {
            Ok(()) => {}
            // The record fits into an empty batch.
            Err(error) if error.is_limit() && self.decoder.rows() > 0 => {
                self.flush()?;
                self.decode(&row)?;
            }
            Err(error) => return Err(error.into()),
        }
        if self.decoder.rows() >= self.target || self.decoder.is_full() {
            self.flush()?;
        }
        Ok(if self.is_ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn decode(&mut self, row: &StoredRow<'_>) -> bolide_arrow::Result<()> {
        let decoder = &mut self.decoder;
        with_column_key(row.key, self.keys, self.run.source.schema.key_type, |key| {
            decoder.push(key, row.sequence, row.record)
        })
    }

    /// Returns the rows of the decoder.
    fn flush(&mut self) -> Result<()> {
        let batch = self.decoder.finish()?;
        let decoded = batch.num_rows();
        self.target = self.target.saturating_mul(4).min(self.run.batch_rows);
        let mut batch = match &self.predicate {
            Some(predicate) => checked(&batch, predicate)?,
            None => batch,
        };
        self.decoded += decoded as u64;
        self.dropped += (decoded - batch.num_rows()) as u64;
        if let Some(remaining) = &mut self.remaining {
            if batch.num_rows() > *remaining {
                batch = batch.slice(0, *remaining);
            }
            *remaining -= batch.num_rows();
            self.is_ended |= *remaining == 0;
        }
        if batch.num_rows() > 0 {
            let batch = projected(&batch, &self.run.output, &self.run.schema)?;
            self.is_ended |= !(self.emit)(batch);
        }
        Ok(())
    }

    /// Returns the last rows. True if no more are needed.
    fn finish(&mut self) -> Result<bool> {
        if self.decoder.rows() > 0 && !self.is_ended {
            self.flush()?;
        }
        Ok(self.is_ended)
    }
}

/// The rows that satisfy `predicate`.
pub(crate) fn checked(batch: &RecordBatch, predicate: &Arc<dyn PhysicalExpr>) -> Result<RecordBatch> {
    let found = predicate.evaluate(batch)?.into_array(batch.num_rows())?;
    let found = found
        .as_any()
        .downcast_ref::<BooleanArray>()
        .ok_or_else(|| SqlError::internal("a predicate has no boolean value"))?;
    // NULL is not true.
    let found = if found.null_count() > 0 { prep_null_mask_filter(found) } else { found.clone() };
    Ok(filter_record_batch(batch, &found)?)
}

fn projected(batch: &RecordBatch, output: &[usize], schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = output.iter().filter_map(|at| batch.columns().get(*at).cloned()).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}
