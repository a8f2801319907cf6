//! Answers on standard output: newline-delimited JSON, a table, or CSV.

mod csv_form;
mod deferred;
pub(crate) mod figures;
mod ndjson;
mod ordered;
mod table;

use std::io::{self, BufWriter, IsTerminal, Write};

use clap::ValueEnum;
use serde_json::Value;

use crate::failure::Failure;
use deferred::DeferredOutput;
pub(crate) use deferred::{discard_unwritten, has_written, write_unwritten};

/// Writes a line to standard error, in one piece. If standard error is closed, the error is ignored and the work
/// continues.
macro_rules! report {
    ($($text:tt)*) => {
        $crate::output::write_error_line(format!($($text)*))
    };
}
pub(crate) use report;

/// The implementation of [`report`].
pub(crate) fn write_error_line(mut line: String) {
    line.push('\n');
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// The form of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One JSON object a line: the default if standard output is not a terminal.
    Ndjson,
    /// A table: the default on a terminal.
    Table,
    /// Comma-separated values under a header line.
    Csv,
}

impl Format {
    /// The requested form, or the default of this standard output.
    pub(crate) fn or_default(requested: Option<Self>) -> Self {
        requested.unwrap_or(if io::stdout().is_terminal() { Self::Table } else { Self::Ndjson })
    }
}

/// One line of an answer. Missing parts are omitted.
#[derive(Debug, Clone, Default)]
pub(crate) struct OutputLine<'a> {
    /// The key as JSON.
    pub(crate) key: Value,
    /// The sequence number of the write that put the record.
    pub(crate) sequence: Option<u64>,
    /// The record as JSON text.
    pub(crate) record: Option<&'a str>,
}

/// Writes lines in one format. [`Printer::finish`] must be called at the end: tables are written then.
pub(crate) struct Printer {
    out: DeferredOutput,
    form: Form,
}

enum Form {
    Ndjson,
    Table(table::TableForm),
    Csv(csv_form::CsvForm),
}

impl Printer {
    /// Writes to standard output.
    pub(crate) fn new(format: Format) -> Self {
        let form = match format {
            Format::Ndjson => Form::Ndjson,
            Format::Table => Form::Table(table::TableForm::new(terminal_width())),
            Format::Csv => Form::Csv(csv_form::CsvForm::default()),
        };
        Self { out: DeferredOutput::default(), form }
    }

    /// Writes one line.
    ///
    /// # Errors
    /// Those of standard output.
    pub(crate) fn line(&mut self, line: &OutputLine<'_>) -> Result<(), Failure> {
        match &mut self.form {
            Form::Ndjson => ndjson::write_line(&mut self.out, line)?,
            Form::Table(form) => form.push(&mut self.out, line)?,
            Form::Csv(form) => form.push(&mut self.out, line)?,
        }
        Ok(())
    }

    /// Writes pending lines, and notes on standard error what the format omits.
    ///
    /// # Errors
    /// Those of standard output.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let note = match &mut self.form {
            Form::Ndjson => None,
            Form::Table(form) => form.finish(&mut self.out)?,
            Form::Csv(form) => form.finish(&mut self.out)?,
        };
        self.out.flush()?;
        if let Some(note) = note {
            report!("note: {note}; `--format ndjson` shows all");
        }
        Ok(())
    }
}

/// An object with its fields in order.
pub(crate) type Fields = Vec<(String, Value)>;

/// Writes objects: one a line, or as the rows of a table. A table of one object lists its fields.
///
/// # Errors
/// Those of standard output.
pub(crate) fn print_objects(format: Format, objects: &[Fields]) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut omitted = Vec::new();
    match format {
        Format::Ndjson => {
            for object in objects {
                ndjson::write_object(&mut out, object)?;
            }
        }
        Format::Table => omitted = table::write_objects(&mut out, objects, terminal_width())?,
        Format::Csv => csv_form::write_objects(&mut out, objects)?,
    }
    out.flush()?;
    if !omitted.is_empty() {
        report!("note: no room for {}; `--format ndjson` shows all", omitted.join(", "));
    }
    Ok(())
}

/// A row of named cells.
type Cells = Vec<(String, String)>;

/// The top-level fields of a record with their values as cells, in the record's order.
fn cells_of(record: &str) -> Cells {
    let whole = |cell: String| vec![("record".to_owned(), cell)];
    match serde_json::from_str::<ordered::Object>(record) {
        Ok(ordered::Object(fields)) => object_cells(&fields),
        Err(_) => match serde_json::from_str(record) {
            Ok(value) => whole(cell_of(&value)),
            Err(_) => whole(record.to_owned()),
        },
    }
}

fn object_cells(fields: &Fields) -> Cells {
    fields.iter().map(|(name, value)| (name.clone(), cell_of(value))).collect()
}

/// A value as the text of a cell: strings without quotes, `null` as nothing, everything else as JSON.
fn cell_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Columns of the terminal; 120 without one.
fn terminal_width() -> usize {
    let requested = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let (_, columns) = console_size().unwrap_or((0, requested.unwrap_or(120)));
    usize::from(columns).clamp(20, 400)
}

fn console_size() -> Option<(u16, u16)> {
    if io::stdout().is_terminal() { console::Term::stdout().size_checked() } else { None }
}
