//! Lines of bounded length.

use std::io::{self, BufRead, Read};

/// The result of reading one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputLine {
    /// A line without its line feed; the last one may lack it.
    Whole,
    /// A line over the limit, skipped completely.
    TooLong,
    /// The end of the input.
    End,
}

/// Splits an input at line feeds.
pub(super) struct Lines {
    reader: Box<dyn BufRead>,
    max_bytes: usize,
}

impl Lines {
    /// Lines of `reader`, each of at most `max_bytes` without its line feed.
    pub(super) fn new(reader: Box<dyn BufRead>, max_bytes: usize) -> Self {
        Self { reader, max_bytes }
    }

    /// Puts the next line into `text`, which never grows over the limit and a byte.
    pub(super) fn next(&mut self, text: &mut Vec<u8>) -> io::Result<InputLine> {
        text.clear();
        let allowed = self.max_bytes as u64 + 1;
        let read = self.reader.by_ref().take(allowed).read_until(b'\n', text)?;
        if read == 0 {
            return Ok(InputLine::End);
        }
        if text.last() == Some(&b'\n') {
            text.pop();
            return Ok(InputLine::Whole);
        }
        if text.len() <= self.max_bytes {
            return Ok(InputLine::Whole);
        }
        text.clear();
        self.skip_line()?;
        Ok(InputLine::TooLong)
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return Ok(());
            }
            let end = buffer.iter().position(|&byte| byte == b'\n');
            let len = end.map_or(buffer.len(), |at| at + 1);
            self.reader.consume(len);
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_may_reach_the_limit_and_a_longer_one_is_skipped() {
        let input = &b"abcd\nabcde\n\nabcdefghijk\nxyz"[..];
        let mut lines = Lines::new(Box::new(io::BufReader::with_capacity(3, input)), 4);
        let mut text = Vec::new();
        let mut found = Vec::new();
        loop {
            let line = lines.next(&mut text).unwrap();
            found.push((format!("{line:?}"), String::from_utf8(text.clone()).unwrap()));
            if line == InputLine::End {
                break;
            }
        }
        let expected = [("Whole", "abcd"), ("TooLong", ""), ("Whole", ""), ("TooLong", ""), ("Whole", "xyz")];
        let expected = expected.into_iter().chain([("End", "")]);
        assert!(found.iter().map(|(line, text)| (line.as_str(), text.as_str())).eq(expected), "{found:?}");
        assert!(text.capacity() < 64);
    }
}
