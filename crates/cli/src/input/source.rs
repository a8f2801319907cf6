//! Sources of rows: a file whose name determines its format, or standard input.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::Failure;

/// Bytes read from the operating system at once.
const BUFFER_BYTES: usize = 256 << 10;

/// The format of the rows of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowFormat {
    /// One JSON text a line.
    Ndjson,
    /// A header line, then one row a line, commas between cells.
    Csv,
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
    reader: Box<dyn BufRead>,
    counter: ByteCounter,
    file_bytes: Option<u64>,
}

impl Source {
    /// Opens `path`, or standard input for `-`.
    ///
    /// # Errors
    /// A name without a known format is wrong usage; a file that cannot be opened fails.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("-") {
            let parts = (RowFormat::Ndjson, InputCompression::None);
            return Self::new("standard input", parts, io::stdin(), None);
        }
        let name = path.display().to_string();
        let parts = format_of(&name)?;
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
        Self::new(&name, parts, file, Some(bytes).filter(|&bytes| bytes > 0))
    }

    /// A source of bytes in memory, read as a file named `name` would be.
    pub(crate) fn of_bytes(name: &str, bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self, Failure> {
        let bytes = bytes.into();
        let len = bytes.len() as u64;
        Self::new(name, format_of(name)?, io::Cursor::new(bytes), Some(len))
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
        Ok(Self { name: name.to_owned(), format, reader, counter, file_bytes })
    }

    /// The path, or `standard input`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The format of its rows.
    pub(crate) fn format(&self) -> RowFormat {
        self.format
    }

    /// Counts the bytes that are read from now on.
    pub(crate) fn counter(&self) -> ByteCounter {
        self.counter.clone()
    }

    /// The length of the file on disk, if it has one.
    pub(crate) fn file_bytes(&self) -> Option<u64> {
        self.file_bytes
    }

    /// The bytes without compression.
    pub(super) fn into_reader(self) -> Box<dyn BufRead> {
        self.reader
    }
}

fn format_of(name: &str) -> Result<(RowFormat, InputCompression), Failure> {
    let lower = name.to_ascii_lowercase();
    let (stem, compression) = if let Some(stem) = lower.strip_suffix(".zst") {
        (stem, InputCompression::Zstd)
    } else if let Some(stem) = lower.strip_suffix(".gz") {
        (stem, InputCompression::Gzip)
    } else {
        (lower.as_str(), InputCompression::None)
    };
    let format = match Path::new(stem).extension().and_then(|extension| extension.to_str()) {
        Some("ndjson" | "jsonl") => RowFormat::Ndjson,
        Some("csv") => RowFormat::Csv,
        _ => {
            return Err(Failure::usage(format!(
                "the name {name} has no known format: it must end in .ndjson, .jsonl or .csv, \
                 each also with .zst or .gz; or pipe NDJSON in with `-`"
            )));
        }
    };
    Ok((format, compression))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_determine_formats() {
        use InputCompression::{Gzip, None, Zstd};
        use RowFormat::{Csv, Ndjson};
        for (name, expected) in [
            ("a.ndjson", (Ndjson, None)),
            ("dir.csv/a.JSONL", (Ndjson, None)),
            ("a.csv", (Csv, None)),
            ("a.b.csv.gz", (Csv, Gzip)),
            ("a.ndjson.zst", (Ndjson, Zstd)),
        ] {
            assert_eq!(format_of(name).unwrap(), expected, "{name}");
        }
        for name in ["a", "a.txt", "a.zst", ".csv", "a.csv.bz2", "ndjson"] {
            assert!(matches!(format_of(name), Err(Failure::Usage(_))), "{name}");
        }
    }
}
