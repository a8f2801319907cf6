//! CSV rows as JSON objects; cells are separated by commas, or by another byte.
//!
//! The header names the fields. A cell with the JSON form of an integer or a decimal fraction becomes a number with the
//! same digits, `true` and `false` become booleans, an empty cell omits the field, and everything else is a string:
//! `007`, `1e5` and `+1` stay texts. A column may have a fixed type instead.
//!
//! A quoted cell that is not closed at the end of the file is an error, and text after a closing quote makes a bad row:
//! in both cases a quote is missing, and a lenient parser would join rows into one cell.

use std::cell::{Cell, RefCell};
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use super::input_options::CellType;
use super::quotes::Quotes;
use super::{InputRow, too_long};

/// The read-ahead of the CSV parser, in bytes.
const READ_AHEAD_BYTES: usize = 64 << 10;
/// The maximum length of a cell in messages, in characters.
const MAX_PRINTED: usize = 60;

/// Reads a CSV file row by row.
pub(super) struct CsvRows {
    reader: csv::Reader<LimitedReader>,
    read_limit: Rc<Cell<u64>>,
    quotes: Rc<RefCell<Quotes>>,
    /// The field names as JSON texts, with their quotes.
    fields: Vec<String>,
    /// The types of the columns.
    types: Vec<CellType>,
    record: csv::ByteRecord,
    line: u64,
    max_row_bytes: usize,
}

/// A reader that fails once a row exceeds its limit, and tracks the quotes.
struct LimitedReader {
    inner: Box<dyn BufRead>,
    consumed: u64,
    read_limit: Rc<Cell<u64>>,
    quotes: Rc<RefCell<Quotes>>,
    /// The last byte of the first line before its line feed, as far as it was read.
    last_of_line: Option<u8>,
    has_line: bool,
}

impl LimitedReader {
    /// Whether the first line ends in CR LF. Known once a row after it was read.
    fn ends_in_crlf(&self) -> bool {
        self.has_line && self.last_of_line == Some(b'\r')
    }

    fn watch_first_line(&mut self, bytes: &[u8]) {
        if self.has_line {
            return;
        }
        let end = bytes.iter().position(|&byte| byte == b'\n');
        self.has_line = end.is_some();
        self.last_of_line = bytes[..end.unwrap_or(bytes.len())].last().copied().or(self.last_of_line);
    }
}

impl Read for LimitedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.consumed >= self.read_limit.get() {
            let open = self.quotes.borrow().open_line();
            let place = open.map_or_else(String::new, |line| {
                format!("; the quote that begins on line {line} may lack its closing quote")
            });
            let what = format!("a row is longer than a record may be{place}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let read = self.inner.read(buffer)?;
        self.quotes.borrow_mut().watch(&buffer[..read], self.consumed);
        self.watch_first_line(&buffer[..read]);
        self.consumed += read as u64;
        if read == 0 {
            self.quotes.borrow_mut().ended = true;
        }
        Ok(read)
    }
}

impl CsvRows {
    /// Reads the header of `input`, whose cells are separated by `separator`, a comma by default. `types` has the types of
    /// columns.
    pub(super) fn new(
        input: Box<dyn BufRead>,
        separator: Option<u8>,
        types: &[(String, CellType)],
        max_row_bytes: usize,
    ) -> io::Result<Self> {
        let read_limit = Rc::new(Cell::new((max_row_bytes + READ_AHEAD_BYTES) as u64));
        let quotes = Rc::new(RefCell::new(Quotes::new(separator.unwrap_or(b','))));
        let guarded = LimitedReader {
            inner: input,
            consumed: 0,
            read_limit: Rc::clone(&read_limit),
            quotes: Rc::clone(&quotes),
            last_of_line: None,
            has_line: false,
        };
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(separator.unwrap_or(b','))
            .flexible(true)
            .buffer_capacity(READ_AHEAD_BYTES)
            .from_reader(guarded);
        let header = reader.headers().map_err(into_io)?.clone();
        check_closed(&quotes)?;
        if let Some(line) = quotes.borrow_mut().take_misplaced(reader.position().byte()) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, misplaced(line)));
        }
        let fields: Vec<String> =
            header.iter().map(|name| serde_json::Value::from(name).to_string()).collect();
        for (position, name) in fields.iter().enumerate() {
            let problem = if name == "\"\"" {
                format!("column {} of the header has no name", position + 1)
            } else if fields[..position].contains(name) {
                format!("the header names the column {name} twice")
            } else {
                continue;
            };
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let only = header.get(0).filter(|_| header.len() == 1 && separator.is_none());
        if let Some(found) =
            only.and_then(|only| only.chars().find(|found| matches!(found, ';' | '\t' | '|')))
        {
            let option =
                if found == '\t' { "--format tsv".to_owned() } else { format!("--separator '{found}'") };
            let problem =
                format!("the header has no comma, but {found:?}: add {option} if that separates its columns");
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let types = types_of(&header, types)?;
        let record = csv::ByteRecord::new();
        Ok(Self { reader, read_limit, quotes, fields, types, record, line: 1, max_row_bytes })
    }

    /// Puts the next row into `text` as a JSON object.
    pub(super) fn next(&mut self, text: &mut Vec<u8>) -> io::Result<Option<InputRow>> {
        let start = self.reader.position().byte();
        self.read_limit.set(start + (self.max_row_bytes + READ_AHEAD_BYTES) as u64);
        if !self.reader.read_byte_record(&mut self.record).map_err(into_io)? {
            return Ok(None);
        }
        self.line = self.record.position().map_or(self.line + 1, csv::Position::line);
        // After CR the parser stops before the line feed at the end of a row.
        self.line += u64::from(self.reader.get_ref().ends_in_crlf());
        check_closed(&self.quotes)?;
        text.clear();
        if let Some(line) = self.quotes.borrow_mut().take_misplaced(self.reader.position().byte()) {
            return Ok(Some(InputRow::Bad(misplaced(line))));
        }
        if self.record.len() != self.fields.len() {
            let (cells, columns) = (self.record.len(), self.fields.len());
            return Ok(Some(InputRow::Bad(format!("it has {cells} cells where the header has {columns}"))));
        }
        if self.record.as_slice().len() > self.max_row_bytes {
            return Ok(Some(InputRow::Bad(too_long(self.max_row_bytes))));
        }
        text.push(b'{');
        for ((name, cell), cell_type) in self.fields.iter().zip(&self.record).zip(&self.types) {
            if cell.is_empty() {
                continue;
            }
            let Ok(cell) = std::str::from_utf8(cell) else {
                return Ok(Some(InputRow::Bad(format!("the cell of {name} is not UTF-8"))));
            };
            if text.len() > 1 {
                text.push(b',');
            }
            text.extend_from_slice(name.as_bytes());
            text.push(b':');
            if let Err(what) = write_cell(cell, *cell_type, text) {
                let field: String = serde_json::from_str(name).unwrap_or_default();
                let advice = format!("use --type {}=string, or fix the cell", field.escape_debug());
                return Ok(Some(InputRow::Bad(format!("the cell of {name} {what}; {advice}"))));
            }
        }
        text.push(b'}');
        Ok(Some(InputRow::Json))
    }

    /// The line, from 1, on which the last row starts.
    pub(super) fn line(&self) -> u64 {
        self.line
    }
}

/// The type of each column.
fn types_of(header: &csv::StringRecord, types: &[(String, CellType)]) -> io::Result<Vec<CellType>> {
    if header.is_empty() && !types.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file has no header"));
    }
    let mut of_columns = vec![CellType::Auto; header.len()];
    for (field, cell_type) in types {
        let Some(column) = header.iter().position(|name| name == field) else {
            let names: Vec<&str> = header.iter().collect();
            let problem = format!("--type {field}: the header has no such column, but {}", names.join(", "));
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        };
        of_columns[column] = *cell_type;
    }
    Ok(of_columns)
}

/// Writes a cell of this type as JSON, or returns what is wrong with it.
fn write_cell(cell: &str, cell_type: CellType, text: &mut Vec<u8>) -> Result<(), String> {
    let trimmed = cell.trim();
    let json = match cell_type {
        CellType::Auto if is_json_literal(cell) => cell.to_owned(),
        CellType::Auto | CellType::String => serde_json::Value::from(cell).to_string(),
        CellType::Number => {
            json_number(trimmed).ok_or_else(|| format!("is not a number: {:?}", beginning(cell)))?
        }
        CellType::Boolean => match &*trimmed.to_ascii_lowercase() {
            word @ ("true" | "false") => word.to_owned(),
            _ => return Err(format!("is neither true nor false: {:?}", beginning(cell))),
        },
        CellType::Json => match serde_json::from_str::<serde::de::IgnoredAny>(trimmed) {
            Ok(_) => trimmed.to_owned(),
            Err(error) => return Err(format!("is not JSON: {error}")),
        },
    };
    text.extend_from_slice(json.as_bytes());
    Ok(())
}

/// The number as JSON with all its digits: forms that JSON does not have, as `+1`, `007` and `.5`, lose their plus and get
/// exactly the zeros that JSON demands.
fn json_number(text: &str) -> Option<String> {
    let is_json = |text: &str| serde_json::from_str::<serde_json::Number>(text).is_ok();
    if is_json(text) {
        return Some(text.to_owned());
    }
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    unsigned.strip_prefix(|first: char| first.is_ascii_digit() || first == '.')?;
    let digits = unsigned.trim_start_matches('0');
    let zero = if digits.starts_with(|first: char| first.is_ascii_digit()) { "" } else { "0" };
    Some(format!("{sign}{zero}{digits}")).filter(|number| is_json(number))
}

/// The beginning of a cell, for a message.
fn beginning(cell: &str) -> String {
    match cell.char_indices().nth(MAX_PRINTED) {
        Some((end, _)) => format!("{}…", &cell[..end]),
        None => cell.to_owned(),
    }
}

/// Fails if the input has ended within quotes.
fn check_closed(quotes: &RefCell<Quotes>) -> io::Result<()> {
    let quotes = quotes.borrow();
    match quotes.open_line().filter(|_| quotes.ended) {
        None => Ok(()),
        Some(line) => {
            let what =
                format!("the quote that begins on line {line} is not closed before the end of the file");
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    }
}

fn misplaced(line: u64) -> String {
    format!(
        "text follows the closing quote of the cell that begins on line {line}: a quote is missing, \
         or one within the cell is not doubled"
    )
}

/// True for `true`, `false`, and numbers whose digits survive as a JSON number.
fn is_json_literal(cell: &str) -> bool {
    if matches!(cell, "true" | "false") {
        return true;
    }
    let unsigned = cell.strip_prefix('-').unwrap_or(cell);
    let (whole, fraction) = unsigned.split_once('.').map_or((unsigned, None), |(w, f)| (w, Some(f)));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = digits(whole) && (whole == "0" || !whole.starts_with('0'));
    match fraction {
        // More than 17 digits would not survive as a float.
        Some(fraction) => canonical && digits(fraction) && whole.len() + fraction.len() <= 17,
        None => canonical && cell != "-0" && (cell.parse::<i64>().is_ok() || cell.parse::<u64>().is_ok()),
    }
}

fn into_io(error: csv::Error) -> io::Error {
    let text = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        csv::ErrorKind::Utf8 { .. } => io::Error::new(io::ErrorKind::InvalidData, "the header is not UTF-8"),
        _ => io::Error::new(io::ErrorKind::InvalidData, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8], max_row_bytes: usize) -> io::Result<Vec<(u64, Result<String, String>)>> {
        read_with(input, None, &[], max_row_bytes)
    }

    fn read_with(
        input: &[u8],
        separator: Option<u8>,
        types: &[(&str, CellType)],
        max_row_bytes: usize,
    ) -> io::Result<Vec<(u64, Result<String, String>)>> {
        let types: Vec<_> = types.iter().map(|(name, of)| ((*name).to_owned(), *of)).collect();
        let input = Box::new(io::Cursor::new(input.to_vec()));
        let mut rows = CsvRows::new(input, separator, &types, max_row_bytes)?;
        let (mut found, mut text) = (Vec::new(), Vec::new());
        while let Some(row) = rows.next(&mut text)? {
            let row = match row {
                InputRow::Json => Ok(String::from_utf8(text.clone()).unwrap()),
                InputRow::Bad(reason) => Err(reason),
            };
            found.push((rows.line(), row));
        }
        Ok(found)
    }

    #[test]
    fn cells_become_typed_fields() {
        let input = b"id,name,\"a \"\"b\"\"\",ok\r\n1,\"x, y\nz\",,true\r\n007,1e5,-1.50,\"\"\n";
        let expected = [
            (2, Ok(r#"{"id":1,"name":"x, y\nz","ok":true}"#.to_owned())),
            (4, Ok(r#"{"id":"007","name":"1e5","a \"b\"":-1.50}"#.to_owned())),
        ];
        assert_eq!(read(input, 1000).unwrap(), expected);
    }

    #[test]
    fn cells_are_separated_by_other_bytes() {
        for (separator, input) in [(b';', "a;b\n\"x;\"\"y\";1,5\n"), (b'\t', "a\tb\n\"x;\"\"y\"\t1,5\n")] {
            let rows = read_with(input.as_bytes(), Some(separator), &[], 1000).unwrap();
            assert_eq!(rows, [(2, Ok(r#"{"a":"x;\"y","b":"1,5"}"#.to_owned()))]);
        }
        let joined = read_with(b"a;b\n\"x\n2;\"y\"\n", Some(b';'), &[], 1000).unwrap();
        assert!(joined[0].1.as_ref().unwrap_err().contains("closing quote"), "{joined:?}");
        for (header, option) in
            [("a;b", "--separator ';'"), ("a\tb", "--format tsv"), ("a|b", "--separator '|'")]
        {
            let error = read(format!("{header}\n1\n").as_bytes(), 1000).unwrap_err().to_string();
            assert!(error.contains(option), "{error}");
        }
        assert_eq!(
            read_with(b"a;b\n1\n", Some(b','), &[], 1000).unwrap()[0].1,
            Ok(r#"{"a;b":1}"#.to_owned())
        );
    }

    #[test]
    fn columns_may_have_fixed_types() {
        use CellType::{Boolean, Json, Number, String};
        let types = [("zip", String), ("n", Number), ("ok", Boolean), ("tags", Json)];
        let input = b"zip,n,ok,tags,auto\n01234,007,TRUE,\"[1,\"\"a\"\"]\",007\n5,+1.5,false,null,5\n,,,,\n";
        let rows = read_with(input, None, &types, 1000).unwrap();
        let wanted = [
            r#"{"zip":"01234","n":7,"ok":true,"tags":[1,"a"],"auto":"007"}"#,
            r#"{"zip":"5","n":1.5,"ok":false,"tags":null,"auto":5}"#,
            "{}",
        ];
        assert_eq!(rows.into_iter().map(|(_, row)| row.unwrap()).collect::<Vec<_>>(), wanted);
        for (cell, what) in [
            (",x,,", "is not a number"),
            (",NaN,,", "is not a number"),
            (",,1,", "neither true"),
            (",,,[", "is not JSON"),
        ] {
            let row =
                &read_with(format!("zip,n,ok,tags\n{cell}\n").as_bytes(), None, &types, 1000).unwrap()[0];
            assert!(row.1.as_ref().unwrap_err().contains(what), "{row:?}");
        }
        let error = read_with(b"a,b\n", None, &types, 1000).unwrap_err().to_string();
        assert!(error.contains("--type zip: the header has no such column, but a, b"), "{error}");
    }

    #[test]
    fn numbers_of_a_typed_column_keep_all_digits() {
        for (cell, wanted) in [
            ("+12345678901234567890", Some("12345678901234567890")),
            ("007.1234567890123456789", Some("7.1234567890123456789")),
            ("12345678901234567890123", Some("12345678901234567890123")),
            ("-007", Some("-7")),
            ("00", Some("0")),
            ("00.50", Some("0.50")),
            ("+.5", Some("0.5")),
            ("1e5", Some("1e5")),
            ("1,5", None),
            ("5.", None),
            ("e5", None),
            ("+", None),
            ("-", None),
            (".", None),
            ("", None),
            ("+-5", None),
            ("--5", None),
            ("0x10", None),
            ("NaN", None),
            ("inf", None),
            ("1e999", None),
        ] {
            assert_eq!(json_number(cell).as_deref(), wanted, "{cell:?}");
        }
    }

    #[test]
    fn messages_contain_the_beginning_of_a_cell_and_advice() {
        for of in [CellType::Number, CellType::Boolean] {
            let input = format!("zip,b\n{},1\n", "é".repeat(100_000));
            let row = &read_with(input.as_bytes(), None, &[("zip", of)], 1 << 20).unwrap()[0].1;
            let reason = row.as_ref().unwrap_err();
            assert!(reason.contains(&format!("{}…\"", "é".repeat(60))), "{}", reason.len());
            assert!(reason.ends_with("; use --type zip=string, or fix the cell"), "{reason}");
        }
        let error = read_with(b"", None, &[("zip", CellType::String)], 10).unwrap_err().to_string();
        assert_eq!(error, "the file has no header");
    }

    #[test]
    fn numbers_preserve_their_digits_or_stay_texts() {
        for (cell, itself) in [
            ("0", true),
            ("-12", true),
            ("18446744073709551615", true),
            ("18446744073709551616", false),
            ("-0", false),
            ("00", false),
            ("1.", false),
            (".5", false),
            ("0.5", true),
            ("1234567890.12345678", false),
            ("+1", false),
            ("1 ", false),
            ("NaN", false),
            ("-", false),
        ] {
            assert_eq!(is_json_literal(cell), itself, "{cell:?}");
            assert!(!itself || serde_json::from_str::<serde_json::Number>(cell).is_ok(), "{cell:?}");
        }
    }

    #[test]
    fn bad_rows_are_distinguished_from_a_bad_file() {
        let rows = read(b"a,b\n1\n2,3\n\xff,1\n", 1000).unwrap();
        assert!(rows[0].1.as_ref().unwrap_err().contains("1 cells where the header has 2"));
        assert!(rows[1].1.is_ok());
        assert!(rows[2].1.as_ref().unwrap_err().contains("not UTF-8"));
        assert!(read(b"a,a\n", 10).unwrap_err().to_string().contains("twice"));
        assert!(read(b"a,,b\n", 10).unwrap_err().to_string().contains("no name"));
        assert_eq!(read(b"", 10).unwrap(), []);
    }

    #[test]
    fn an_unclosed_quote_does_not_collect_the_file() {
        let mut input = b"a,b\n1,2\n1,\"".to_vec();
        input.resize(10 << 20, b'x');
        let error = read(&input, 1000).unwrap_err().to_string();
        assert!(error.contains("the quote that begins on line 3"), "{error}");
    }

    #[test]
    fn a_quote_that_stays_open_is_an_error_with_its_line() {
        for (input, line) in [
            ("a,b\n1,2\n3,\"x\n4,5\n6,7\n", 3),
            ("a,b\r\n1,2\r\n3,\"x\r\n4,5\r\n", 3),
            ("a,b\n1,\"two\nlines\"\n\"3,4", 4),
            ("a,b\n1,\"x\"\"\n2,3\n", 2),
            ("a,b\n1,\"", 2),
            ("a,\"b\n1,2\n", 1),
        ] {
            let error = read(input.as_bytes(), 1000).unwrap_err().to_string();
            let wanted = format!("the quote that begins on line {line} is not closed");
            assert!(error.contains(&wanted), "{input:?}: {error}");
        }
    }

    #[test]
    fn rows_that_a_missing_quote_joins_are_bad() {
        let rows = read(b"a,b\n1,\"x\n2,\"y\"\n3,\"z\" \n4,a\"b\n", 1000).unwrap();
        assert!(rows[0].1.as_ref().unwrap_err().contains("the cell that begins on line 2"), "{rows:?}");
        assert_eq!(rows[1], (4, Ok(r#"{"a":3,"b":"z "}"#.to_owned())));
        assert_eq!(rows[2], (5, Ok(r#"{"a":4,"b":"a\"b"}"#.to_owned())));
        assert_eq!(rows.len(), 3);
        assert!(read(b"a,\"b\"c\n1,2\n", 1000).unwrap_err().to_string().contains("closing quote"));
    }

    #[test]
    fn many_rows_with_misplaced_quotes_are_reported_one_by_one() {
        let input: String = (0..20_000).map(|id| format!("{id},\"x\"y\n{id},\"x\"\n")).collect();
        let rows = read(format!("a,b\n{input}").as_bytes(), 1000).unwrap();
        for (number, (line, row)) in rows.iter().enumerate() {
            assert_eq!((*line, row.is_err()), (number as u64 + 2, number % 2 == 0), "{row:?}");
        }
        assert_eq!(rows.len(), 40_000);
    }
}
