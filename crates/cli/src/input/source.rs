//! Sources of rows: a file whose name determines its format, or standard input.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::input_options::{CellType, InputFormat, InputOptions};
use crate::failure::Failure;

/// Bytes read from the operating system at once.
const BUFFER_BYTES: usize = 256 << 10;
/// The byte order mark of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The format of the rows of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowFormat {
    /// One JSON text a line.
    Ndjson,
    /// One JSON array.
    JsonArray,
    /// A header line, then one row a line, with this byte between cells, by default a comma.
    Csv {
        /// The byte, if it is known.
        separator: Option<u8>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InputCompression {
    None,
    Zstd,
    Gzip,
}

/// Counts the bytes read from a file, before decompression.
#[derive(Debug, Clone, Default)]
pub(crate) struct ByteCounter(Arc<AtomicU64>);

impl ByteCounter {
    /// The bytes read so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Counted<R> {
    inner: R,
    counter: ByteCounter,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.counter.0.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// An opened input: its name for messages, its format, and its bytes without compression.
pub(crate) struct Source {
    name: String,
    format: RowFormat,
    types: Vec<(String, CellType)>,
    reader: Box<dyn BufRead>,
    counter: ByteCounter,
    file_bytes: Option<u64>,
}

impl Source {
    /// Opens `path`, or standard input for `-`.
    ///
    /// # Errors
    /// A name without a known format is wrong usage, and so are options of another format; a file that cannot be opened
    /// fails.
    pub(crate) fn open(path: &Path, options: &InputOptions) -> Result<Self, Failure> {
        let is_stdin = path == Path::new("-");
        let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
        let parts = if is_stdin {
            let named = if options.separator.is_some() { InputFormat::Csv } else { InputFormat::Ndjson };
            (named.rows(), InputCompression::None)
        } else {
            format_of(&name, options.format)?
        };
        let mut format = options.format.map_or(parts.0, InputFormat::rows);
        options.check_for(&name, matches!(format, RowFormat::Csv { .. }))?;
        if let (RowFormat::Csv { separator }, Some(_)) = (&mut format, options.separator) {
            *separator = options.separator;
        }
        let parts = (format, parts.1);
        if is_stdin {
            let source = Self::new(&name, parts, io::stdin(), None)?;
            return Ok(Self { types: options.types.clone(), ..source });
        }
        let open = || -> io::Result<(File, u64)> {
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            if metadata.is_dir() {
                return Err(io::Error::other("it is a directory"));
            }
            Ok((file, metadata.len()))
        };
        let (file, bytes) = open()
            .map_err(|error| Failure::operation(format!("cannot open {name}: {error}"), "check the path"))?;
        // Pipes and devices have no length.
        let source = Self::new(&name, parts, file, Some(bytes).filter(|&bytes| bytes > 0))?;
        Ok(Self { types: options.types.clone(), ..source })
    }

    /// A source of bytes in memory, read as a file named `name` would be.
    pub(crate) fn of_bytes(name: &str, bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self, Failure> {
        let bytes = bytes.into();
        let len = bytes.len() as u64;
        Self::new(name, format_of(name, None)?, io::Cursor::new(bytes), Some(len))
    }

    fn new(
        name: &str,
        (format, compression): (RowFormat, InputCompression),
        input: impl Read + 'static,
        file_bytes: Option<u64>,
    ) -> Result<Self, Failure> {
        let counter = ByteCounter::default();
        let input = Counted { inner: input, counter: counter.clone() };
        let input = BufReader::with_capacity(BUFFER_BYTES, input);
        let reader: Box<dyn BufRead> = match compression {
            InputCompression::None => Box::new(input),
            InputCompression::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(input)
                    .map_err(|error| Failure::reading(name, &error))?;
                Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
            }
            InputCompression::Gzip => {
                let decoder = flate2::bufread::MultiGzDecoder::new(input);
                Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
            }
        };
        Ok(Self { name: name.to_owned(), format, types: Vec::new(), reader, counter, file_bytes })
    }

    /// The path, or `standard input`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The format of its rows.
    pub(crate) fn format(&self) -> RowFormat {
        self.format
    }

    /// The types of its columns.
    pub(super) fn types(&self) -> &[(String, CellType)] {
        &self.types
    }

    /// Counts the bytes that are read from now on.
    pub(crate) fn counter(&self) -> ByteCounter {
        self.counter.clone()
    }

    /// The length of the file on disk, if it has one.
    pub(crate) fn file_bytes(&self) -> Option<u64> {
        self.file_bytes
    }

    /// The bytes without compression and without a byte order mark, which some programs write first. A pipe may deliver
    /// the mark byte by byte.
    pub(super) fn into_reader(mut self) -> io::Result<Box<dyn BufRead>> {
        let mut start = Vec::with_capacity(BYTE_ORDER_MARK.len());
        self.reader.by_ref().take(BYTE_ORDER_MARK.len() as u64).read_to_end(&mut start)?;
        if start == BYTE_ORDER_MARK {
            return Ok(self.reader);
        }
        Ok(Box::new(io::Cursor::new(start).chain(self.reader)))
    }
}

impl InputFormat {
    fn rows(self) -> RowFormat {
        match self {
            Self::Ndjson => RowFormat::Ndjson,
            Self::Json => RowFormat::JsonArray,
            Self::Csv => RowFormat::Csv { separator: None },
            Self::Tsv => RowFormat::Csv { separator: Some(b'\t') },
        }
    }
}

/// The format and the compression of a file. Its name need not have a format if there is a `requested` one.
fn format_of(name: &str, requested: Option<InputFormat>) -> Result<(RowFormat, InputCompression), Failure> {
    let lower = name.to_ascii_lowercase();
    let (stem, compression) = if let Some(stem) = lower.strip_suffix(".zst") {
        (stem, InputCompression::Zstd)
    } else if let Some(stem) = lower.strip_suffix(".gz") {
        (stem, InputCompression::Gzip)
    } else {
        (lower.as_str(), InputCompression::None)
    };
    let format = match Path::new(stem).extension().and_then(|extension| extension.to_str()) {
        Some("ndjson" | "jsonl") => InputFormat::Ndjson,
        Some("json") => InputFormat::Json,
        Some("csv") => InputFormat::Csv,
        Some("tsv" | "tab") => InputFormat::Tsv,
        _ => requested.ok_or_else(|| {
            Failure::usage(format!(
                "the name {name} has no known format: it must end in .ndjson, .jsonl, .json, .csv or .tsv, \
                 each also with .zst or .gz; or add --format"
            ))
        })?,
    };
    Ok((format.rows(), compression))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{InputRow, RowReader};

    /// Delivers one byte a read, as a pipe may.
    struct ByteByByte(io::Cursor<Vec<u8>>);

    impl Read for ByteByByte {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let len = buffer.len().min(1);
            self.0.read(&mut buffer[..len])
        }
    }

    #[test]
    fn pieces_of_a_pipe_hide_neither_the_byte_order_mark_nor_line_ends() {
        let csv = RowFormat::Csv { separator: None };
        for (format, text, lines) in [
            (RowFormat::Ndjson, "{\"a\":1}\n{\"a\":2}", [1, 2]),
            (RowFormat::JsonArray, "[{\"a\":1},\n{\"a\":2}]", [1, 2]),
            (csv, "a\r\n1\r\n2\r\n", [2, 3]),
            (csv, "a\n1\n2\n", [2, 3]),
        ] {
            for mark in ["", "\u{feff}"] {
                let input = ByteByByte(io::Cursor::new(format!("{mark}{text}").into_bytes()));
                let source = Source::new("a", (format, InputCompression::None), input, None).unwrap();
                let mut reader = RowReader::new(source).unwrap();
                let mut row = Vec::new();
                for (number, line) in (1..).zip(lines) {
                    assert_eq!(reader.next(&mut row).unwrap(), Some(InputRow::Json), "{text:?}");
                    assert_eq!(row, format!("{{\"a\":{number}}}").into_bytes(), "{text:?}");
                    assert_eq!(reader.line(), line, "{text:?}");
                }
                assert_eq!(reader.next(&mut row).unwrap(), None);
            }
        }
    }

    #[test]
    fn names_determine_formats() {
        use InputCompression::{Gzip, None, Zstd};
        use RowFormat::{JsonArray, Ndjson};
        let csv = |separator| RowFormat::Csv { separator };
        for (name, expected) in [
            ("a.ndjson", (Ndjson, None)),
            ("dir.csv/a.JSONL", (Ndjson, None)),
            ("a.csv", (csv(Option::None), None)),
            ("a.b.csv.gz", (csv(Option::None), Gzip)),
            ("a.TSV", (csv(Some(b'\t')), None)),
            ("a.tab.zst", (csv(Some(b'\t')), Zstd)),
            ("a.json", (JsonArray, None)),
            ("a.ndjson.zst", (Ndjson, Zstd)),
        ] {
            assert_eq!(format_of(name, Option::None).unwrap(), expected, "{name}");
        }
        for name in ["a", "a.txt", "a.zst", ".csv", "a.csv.bz2", "ndjson"] {
            assert!(matches!(format_of(name, Option::None), Err(Failure::Usage(_))), "{name}");
            assert!(format_of(name, Some(InputFormat::Csv)).is_ok(), "{name}");
        }
    }
}
