//! The elements of one JSON array, as a stream: memory is that of one element.
//!
//! The scan finds where an element ends, by its brackets and strings. Whether it is a valid record is decided when the row is
//! read. An array that does not end, a missing comma and text after the array are errors of the file.

use std::io::{self, BufRead};

use super::{InputRow, too_long};

const UNCLOSED_ARRAY: &str = "the array is not closed before the end of the file";

/// Reads the elements of an array one by one.
pub(super) struct JsonArrayRows {
    reader: Box<dyn BufRead>,
    max_row_bytes: usize,
    /// The line, from 1, of the next byte.
    next_line: u64,
    /// The line on which the last element starts.
    line: u64,
    stage: ArrayStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArrayStage {
    Start,
    First,
    Further,
    End,
}

/// The scan of an element.
#[derive(Debug, Default)]
struct ElementScan {
    depth: u64,
    in_string: bool,
    escaped: bool,
    /// A number or a word, which ends before the next byte that cannot belong to it.
    is_bare: bool,
}

/// Whether an element goes on after a byte.
#[derive(Debug, PartialEq, Eq)]
enum Scanned {
    GoesOn,
    /// The byte is the last one of the element.
    EndsWith,
    /// The element ends before the byte.
    EndsBefore,
}

impl ElementScan {
    fn scan(&mut self, byte: u8) -> Scanned {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    self.in_string = false;
                    return if self.depth == 0 { Scanned::EndsWith } else { Scanned::GoesOn };
                }
                _ => {}
            }
            return Scanned::GoesOn;
        }
        match byte {
            b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n' if self.is_bare => return Scanned::EndsBefore,
            _ if self.is_bare => {}
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    return Scanned::EndsWith;
                }
            }
            _ if self.depth == 0 => self.is_bare = true,
            _ => {}
        }
        Scanned::GoesOn
    }
}

impl JsonArrayRows {
    /// The elements of the array in `reader`, each of at most `max_row_bytes`.
    pub(super) fn new(reader: Box<dyn BufRead>, max_row_bytes: usize) -> Self {
        Self { reader, max_row_bytes, next_line: 1, line: 0, stage: ArrayStage::Start }
    }

    /// Puts the next element into `text`; `None` at the end.
    ///
    /// # Errors
    /// Those of the file, and a file that is not one array.
    pub(super) fn next(&mut self, text: &mut Vec<u8>) -> io::Result<Option<InputRow>> {
        text.clear();
        if self.stage == ArrayStage::Start {
            self.open()?;
        }
        if self.stage == ArrayStage::End {
            return Ok(None);
        }
        let mut next = self.peek_token()?;
        if self.stage == ArrayStage::Further {
            match next {
                Some(b',') => {
                    self.skip_byte();
                    next = self.peek_token()?;
                    if next == Some(b']') {
                        return Err(self.wrong("an element is missing after the comma"));
                    }
                }
                Some(b']') | None => {}
                Some(_) => return Err(self.wrong("a comma is missing between two elements")),
            }
        }
        self.stage = ArrayStage::Further;
        match next {
            None => Err(self.wrong(UNCLOSED_ARRAY)),
            Some(b']') => self.close().map(|()| None),
            Some(b',' | b'}' | b':') => Err(self.wrong("an element is missing here")),
            Some(_) => self.read_element(text).map(Some),
        }
    }

    /// The line, from 1, on which the last element starts.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    fn open(&mut self) -> io::Result<()> {
        match self.peek_token()? {
            Some(b'[') => self.skip_byte(),
            None => return Err(self.wrong("the file is empty: an array begins with `[`")),
            Some(b'{') => {
                return Err(self.wrong(
                    "the file does not contain an array: it begins with an object; for one object a line use \
                     --format ndjson; for an array inside an object extract it first, as with `jq .items`",
                ));
            }
            Some(_) => {
                return Err(self.wrong("the file does not contain a JSON array, which begins with `[`"));
            }
        }
        self.stage = ArrayStage::First;
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        self.skip_byte();
        self.stage = ArrayStage::End;
        match self.peek_token()? {
            None => Ok(()),
            Some(_) => Err(self.wrong("text follows the array")),
        }
    }

    /// Reads an element, which begins with the next byte. One over the limit is read to its end.
    fn read_element(&mut self, text: &mut Vec<u8>) -> io::Result<InputRow> {
        self.line = self.next_line;
        let mut scan = ElementScan::default();
        let mut is_too_long = false;
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return Err(match scan.is_bare {
                    true => self.wrong(UNCLOSED_ARRAY),
                    false => {
                        let what = "the element that begins here is not closed before the end of the file";
                        wrong_at(self.line, what)
                    }
                });
            }
            let mut taken = buffer.len();
            let mut has_ended = false;
            for (at, byte) in buffer.iter().enumerate() {
                let scanned = scan.scan(*byte);
                if scanned != Scanned::GoesOn {
                    (taken, has_ended) = (at + usize::from(scanned == Scanned::EndsWith), true);
                    break;
                }
            }
            let part = &buffer[..taken];
            self.next_line += part.iter().filter(|byte| **byte == b'\n').count() as u64;
            is_too_long |= text.len() + taken > self.max_row_bytes;
            if is_too_long {
                text.clear();
            } else {
                text.extend_from_slice(part);
            }
            self.reader.consume(taken);
            if has_ended {
                let reason = is_too_long.then(|| too_long(self.max_row_bytes));
                return Ok(reason.map_or(InputRow::Json, InputRow::Bad));
            }
        }
    }

    /// The next byte that is no white space; not consumed.
    fn peek_token(&mut self) -> io::Result<Option<u8>> {
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return Ok(None);
            }
            let spaces = buffer.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            self.next_line += buffer[..spaces].iter().filter(|byte| **byte == b'\n').count() as u64;
            let mark = buffer.get(spaces).copied();
            self.reader.consume(spaces);
            if mark.is_some() {
                return Ok(mark);
            }
        }
    }

    /// Consumes a byte that was peeked at.
    fn skip_byte(&mut self) {
        self.reader.consume(1);
    }

    fn wrong(&self, what: &str) -> io::Error {
        wrong_at(self.next_line, what)
    }
}

fn wrong_at(line: u64, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("line {line}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &str, capacity: usize, max: usize) -> io::Result<Vec<(u64, Result<String, String>)>> {
        let input = io::BufReader::with_capacity(capacity, io::Cursor::new(input.as_bytes().to_vec()));
        let mut rows = JsonArrayRows::new(Box::new(input), max);
        let (mut found, mut text) = (Vec::new(), Vec::new());
        while let Some(row) = rows.next(&mut text)? {
            let row = match row {
                InputRow::Json => Ok(String::from_utf8(text.clone()).unwrap()),
                InputRow::Bad(reason) => Err(reason),
            };
            assert!(text.len() <= max);
            found.push((rows.line(), row));
        }
        assert_eq!(rows.next(&mut text)?, None);
        Ok(found)
    }

    #[test]
    fn elements_are_read_at_every_boundary_of_a_buffer() {
        let input = " [\n{\"a\":\"}],\\\"\\\\\"},\n 12 ,[1,[2]],\"x,]\",\r\ntrue,{\n\"b\":{}}]\n\n";
        let wanted = [
            (2, "{\"a\":\"}],\\\"\\\\\"}"),
            (3, "12"),
            (3, "[1,[2]]"),
            (3, "\"x,]\""),
            (4, "true"),
            (4, "{\n\"b\":{}}"),
        ];
        let wanted: Vec<_> = wanted.iter().map(|(line, row)| (*line, Ok((*row).to_owned()))).collect();
        for capacity in [3, 4, 5, 7, 64] {
            assert_eq!(read(input, capacity, 100).unwrap(), wanted, "{capacity}");
        }
        for empty in ["[]", " [ ] \n"] {
            assert_eq!(read(empty, 8, 100).unwrap(), [], "{empty:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_one_array_is_an_error_with_its_line() {
        for (input, what) in [
            ("[1,2", "line 1: the array is not closed"),
            ("[{\"a\":1}\n,\n", "line 3: the array is not closed"),
            ("[{\"a\":1", "line 1: the element that begins here is not closed"),
            ("[1,\n{\"a\":1\n,\n\n", "line 2: the element that begins here is not closed"),
            ("[\n\"a\n", "line 2: the element that begins here is not closed"),
            ("", "line 1: the file is empty"),
            (" \n", "the file is empty: an array begins with `[`"),
            ("[1,\n]", "line 2: an element is missing after the comma"),
            ("[,1]", "line 1: an element is missing here"),
            ("[1 2]", "a comma is missing between two elements"),
            ("[1]\n[2]", "line 2: text follows the array"),
            ("{\"a\":1}", "use --format ndjson"),
            ("id,n", "does not contain a JSON array"),
        ] {
            let error = read(input, 8, 100).unwrap_err().to_string();
            assert!(error.contains(what), "{input:?}: {error}");
        }
    }

    #[test]
    fn a_long_element_is_skipped_in_bounded_memory() {
        let long = format!("[{{\"a\":\"{}\"}},2]", "x".repeat(1 << 20));
        let rows = read(&long, 64, 50).unwrap();
        assert!(rows[0].1.as_ref().unwrap_err().contains("longer than a record"), "{rows:?}");
        assert_eq!(rows[1], (1, Ok("2".to_owned())));
    }
}
