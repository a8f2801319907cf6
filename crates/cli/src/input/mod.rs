//! Rows from files: NDJSON, JSON arrays, CSV and TSV, plain or compressed, one row at a time.
//!
//! Memory is bounded for any file: a row is at most as long as a record may be.

mod csv_rows;
mod input_options;
mod json_array;
mod lines;
mod quotes;
mod source;

use std::io;

pub(crate) use input_options::{CellType, InputFormat, InputOptions, parse_separator, parse_type};
pub(crate) use source::{ByteCounter, Source};

use csv_rows::CsvRows;
use json_array::JsonArrayRows;
use lines::{InputLine, Lines};
use source::RowFormat;

/// The maximum length of a row, in bytes: that of a record.
const MAX_ROW_BYTES: usize = bolide::limits::MAX_VALUE_BYTES;

/// The content of one line, or of one CSV row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InputRow {
    /// A row with a JSON text; whether it is an object is not known yet.
    Json,
    /// A row that cannot be read, and the reason.
    Bad(String),
}

/// Reads the rows of one [`Source`] in order.
pub(crate) struct RowReader {
    rows: Rows,
    line: u64,
}

enum Rows {
    Lines(Lines),
    Csv(Box<CsvRows>),
    Array(JsonArrayRows),
}

impl RowReader {
    /// Reads from the start of `source`; for CSV this reads the header.
    ///
    /// # Errors
    /// Those of the file, and a CSV header that names a column twice or not at all.
    pub(crate) fn new(source: Source) -> io::Result<Self> {
        let rows = match source.format() {
            RowFormat::Ndjson => Rows::Lines(Lines::new(source.into_reader()?, MAX_ROW_BYTES)),
            RowFormat::JsonArray => Rows::Array(JsonArrayRows::new(source.into_reader()?, MAX_ROW_BYTES)),
            RowFormat::Csv { separator } => {
                let types = source.types().to_vec();
                Rows::Csv(Box::new(CsvRows::new(source.into_reader()?, separator, &types, MAX_ROW_BYTES)?))
            }
        };
        Ok(Self { rows, line: 0 })
    }

    /// Reads the next row into `text`; `None` at the end. Blank lines are skipped.
    ///
    /// # Errors
    /// Those of the file and of its compression; the input ends then.
    pub(crate) fn next(&mut self, text: &mut Vec<u8>) -> io::Result<Option<InputRow>> {
        match &mut self.rows {
            Rows::Array(rows) => {
                let row = rows.next(text)?;
                self.line = rows.line();
                Ok(row)
            }
            Rows::Csv(rows) => {
                let row = rows.next(text)?;
                self.line = rows.line();
                Ok(row)
            }
            Rows::Lines(lines) => loop {
                let line = lines.next(text)?;
                self.line += 1;
                match line {
                    InputLine::End => return Ok(None),
                    InputLine::Whole if text.trim_ascii().is_empty() => {}
                    InputLine::Whole => return Ok(Some(InputRow::Json)),
                    InputLine::TooLong => return Ok(Some(InputRow::Bad(too_long(MAX_ROW_BYTES)))),
                }
            },
        }
    }

    /// The line, from 1, on which the last row starts.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }
}

fn too_long(limit: usize) -> String {
    format!("it is longer than a record may be ({limit} bytes)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(name: &str, bytes: &[u8]) -> Vec<(u64, Result<String, String>)> {
        let mut reader = RowReader::new(Source::of_bytes(name, bytes.to_vec()).unwrap()).unwrap();
        let (mut found, mut text) = (Vec::new(), Vec::new());
        while let Some(row) = reader.next(&mut text).unwrap() {
            let row = match row {
                InputRow::Json => Ok(String::from_utf8(text.clone()).unwrap()),
                InputRow::Bad(reason) => Err(reason),
            };
            found.push((reader.line(), row));
        }
        found
    }

    #[test]
    fn lines_are_counted_with_the_blank_ones() {
        let found = rows("a.ndjson", b"\xef\xbb\xbf{\"a\":1}\r\n\n  \n{\"a\":2}");
        assert_eq!(found, [(1, Ok("{\"a\":1}\r".into())), (4, Ok("{\"a\":2}".into()))]);
        assert_eq!(rows("a.jsonl", b""), []);
    }

    #[test]
    fn compressed_files_are_read_by_their_name() {
        let plain = b"{\"a\":1}\n{\"a\":2}\n".repeat(1000);
        let zst = zstd::encode_all(&plain[..], 1).unwrap();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut gz, &plain).unwrap();
        let gz = gz.finish().unwrap();
        // Files of both formats may consist of several members.
        assert_eq!(rows("a.ndjson.zst", &[&zst[..], &zst].concat()).len(), 4000);
        assert_eq!(rows("a.ndjson.gz", &[&gz[..], &gz].concat()).len(), 4000);
    }

    #[test]
    fn a_truncated_compressed_file_is_an_error() {
        let plain: Vec<u8> =
            (0..1000).flat_map(|n| format!("{{\"a\":{}}}\n", n * 7919).into_bytes()).collect();
        let zst = zstd::encode_all(&plain[..], 1).unwrap();
        let truncated = &zst[..zst.len() - 9];
        let source = Source::of_bytes("a.ndjson.zst", truncated.to_vec()).unwrap();
        let read_all = || -> io::Result<()> {
            let (mut reader, mut text) = (RowReader::new(source)?, Vec::new());
            while reader.next(&mut text)?.is_some() {}
            Ok(())
        };
        assert!(!read_all().expect_err("the truncation was not detected").to_string().is_empty());
    }
}
