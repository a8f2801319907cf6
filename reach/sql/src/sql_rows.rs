//! Results of statements.

use std::fmt;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;

use crate::error::Result;

/// The result of a statement.
#[derive(Debug)]
#[non_exhaustive]
pub enum SqlResult {
    /// Rows.
    Rows(SqlRows),
    /// No rows: the command, with the number of rows that it wrote, such as `UPDATE 3`.
    Done(String),
}

impl SqlResult {
    pub(crate) fn written(command: &str, rows: u64) -> Self {
        Self::Done(format!("{command} {rows}"))
    }
}

/// The rows of a statement, batch by batch.
///
/// A query is executed as far as its rows are read. Dropping them cancels it; its snapshot is released when its scans have
/// noticed that, at latest after some thousand records.
pub struct SqlRows {
    schema: SchemaRef,
    source: RowSource,
}

enum RowSource {
    Stream(SendableRecordBatchStream),
    Batches(std::vec::IntoIter<RecordBatch>),
}

impl fmt::Debug for SqlRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlRows").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl SqlRows {
    pub(crate) fn of_stream(stream: SendableRecordBatchStream) -> Self {
        Self { schema: stream.schema(), source: RowSource::Stream(stream) }
    }

    pub(crate) fn of_batches(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, source: RowSource::Batches(batches.into_iter()) }
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next batch; `None` after the last one. No batch is empty.
    ///
    /// # Errors
    /// Those of the execution.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let batch = match &mut self.source {
                RowSource::Stream(stream) => stream.next().await.transpose()?,
                RowSource::Batches(batches) => batches.next(),
            };
            match batch {
                Some(batch) if batch.num_rows() == 0 => {}
                other => return Ok(other),
            }
        }
    }

    /// All batches that were not read yet.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn collect(mut self) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next().await? {
            batches.push(batch);
        }
        Ok(batches)
    }
}
