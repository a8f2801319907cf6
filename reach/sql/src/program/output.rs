//! Rows in the forms of the output, batch by batch.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::csv;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use arrow::json::LineDelimitedWriter;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use arrow::util::pretty::pretty_format_batches_with_options;
use bolide_sql::{SqlError, SqlState};
use clap::ValueEnum;

use super::failure::Failure;

/// The form of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// A table for a terminal
    Table,
    /// One JSON object a line; NULL is omitted
    Ndjson,
    /// Comma-separated values with a header
    Csv,
    /// A stream of Arrow IPC
    Arrow,
}

/// Rows whose columns of a table are aligned with each other.
const TABLE_ROWS: usize = 10_000;

type Output = BufWriter<io::StdoutLock<'static>>;

/// Writes the rows of one statement to standard output.
pub(crate) struct RowWriter {
    schema: SchemaRef,
    form: FormWriter,
    rows: u64,
}

enum FormWriter {
    Table { waiting: Vec<RecordBatch>, waiting_rows: usize, out: Output },
    Ndjson(Box<LineDelimitedWriter<Output>>),
    Csv(Box<csv::Writer<Output>>),
    Arrow(Box<StreamWriter<Output>>),
}

impl RowWriter {
    pub(crate) fn new(format: OutputFormat, schema: SchemaRef) -> Result<Self, Failure> {
        let out = BufWriter::new(io::stdout().lock());
        let form = match format {
            OutputFormat::Table => FormWriter::Table { waiting: Vec::new(), waiting_rows: 0, out },
            OutputFormat::Ndjson => FormWriter::Ndjson(Box::new(LineDelimitedWriter::new(out))),
            OutputFormat::Csv => {
                FormWriter::Csv(Box::new(csv::WriterBuilder::new().with_header(true).build(out)))
            }
            OutputFormat::Arrow => {
                FormWriter::Arrow(Box::new(StreamWriter::try_new(out, &schema).map_err(failure)?))
            }
        };
        Ok(Self { schema, form, rows: 0 })
    }

    pub(crate) fn write(&mut self, batch: RecordBatch) -> Result<(), Failure> {
        self.rows += batch.num_rows() as u64;
        match &mut self.form {
            FormWriter::Table { waiting, waiting_rows, out } => {
                *waiting_rows += batch.num_rows();
                waiting.push(batch);
                if *waiting_rows >= TABLE_ROWS {
                    *waiting_rows = 0;
                    write_table(&std::mem::take(waiting), out)?;
                }
            }
            FormWriter::Ndjson(writer) => writer.write(&batch).map_err(failure)?,
            FormWriter::Csv(writer) => {
                writer.write(&with_texts(&batch).map_err(failure)?).map_err(failure)?
            }
            FormWriter::Arrow(writer) => writer.write(&batch).map_err(failure)?,
        }
        Ok(())
    }

    /// Writes the end, and returns the number of rows.
    pub(crate) fn finish(mut self) -> Result<u64, Failure> {
        match &mut self.form {
            FormWriter::Table { waiting, out, .. } => {
                if self.rows == 0 {
                    waiting.push(RecordBatch::new_empty(self.schema.clone()));
                }
                if !waiting.is_empty() {
                    write_table(waiting, out)?;
                }
                let plural = if self.rows == 1 { "" } else { "s" };
                writeln!(out, "({} row{plural})", self.rows)?;
                out.flush()?;
            }
            FormWriter::Ndjson(writer) => {
                writer.finish().map_err(failure)?;
                writer.get_mut().flush()?;
            }
            FormWriter::Csv(writer) => {
                if self.rows == 0 {
                    let empty = with_texts(&RecordBatch::new_empty(self.schema.clone())).map_err(failure)?;
                    writer.write(&empty).map_err(failure)?;
                }
            }
            FormWriter::Arrow(writer) => {
                writer.finish().map_err(failure)?;
                writer.get_mut().flush()?;
            }
        }
        Ok(self.rows)
    }
}

fn write_table(batches: &[RecordBatch], out: &mut Output) -> Result<(), Failure> {
    // The lines of a plan are easier to read without a frame.
    if let Some(plan) = plan_text(batches) {
        return Ok(writeln!(out, "{plan}")?);
    }
    let options = FormatOptions::default().with_null("NULL").with_types_info(false);
    let table = pretty_format_batches_with_options(batches, &options).map_err(failure)?;
    Ok(writeln!(out, "{table}")?)
}

/// The text of an explained plan.
fn plan_text(batches: &[RecordBatch]) -> Option<String> {
    let first = batches.first()?;
    let names: Vec<&str> = first.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
    if names != ["plan_type", "plan"] || batches.iter().all(|batch| batch.num_rows() == 0) {
        return None;
    }
    let mut text = String::new();
    for batch in batches {
        let options = FormatOptions::default();
        let types = ArrayFormatter::try_new(batch.column(0), &options).ok()?;
        let plans = ArrayFormatter::try_new(batch.column(1), &options).ok()?;
        for row in 0..batch.num_rows() {
            if !text.is_empty() {
                text.push('\n');
            }
            text += &format!("{}:\n{}", types.value(row), plans.value(row).to_string().trim_end());
        }
    }
    Some(text)
}

/// The batch with lists and structs as text, which CSV has no form for.
fn with_texts(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    if !schema.fields().iter().any(|field| field.data_type().is_nested()) {
        return Ok(batch.clone());
    }
    let options = FormatOptions::default();
    let mut fields: Vec<Arc<Field>> = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        if !field.data_type().is_nested() {
            fields.push(field.clone());
            columns.push(column.clone());
            continue;
        }
        let formatter = ArrayFormatter::try_new(column, &options)?;
        let texts =
            (0..column.len()).map(|row| column.is_valid(row).then(|| formatter.value(row).to_string()));
        columns.push(Arc::new(texts.collect::<StringArray>()));
        fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
}

fn failure(error: ArrowError) -> Failure {
    match error {
        ArrowError::IoError(_, error) => error.into(),
        // The writer of CSV hides the error of the output.
        ArrowError::CsvError(message) if message.contains("Broken pipe") => Failure::OutputClosed,
        other => Failure::Statement(SqlError::new(SqlState::DataException, other.to_string())),
    }
}
