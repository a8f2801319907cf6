//! Columns of Arrow streams.

use std::collections::HashMap;
use std::ffi::c_char;

use bolide::key::{self, KeyFormat, PrimaryKey};
use bolide::{Collection, IterOptions, Snapshot};
use bolide_arrow::{Column, ColumnSource, InferenceLimits, RecordKey, SchemaInference};

use crate::failure::Failure;
use crate::input::text;

/// Records of the sample that types are inferred from.
const SAMPLE_RECORDS: usize = 10_000;
/// Key ranges of the sample.
const SAMPLE_RANGES: usize = 50;
/// Bytes of the sample, about.
const SAMPLE_BYTES: usize = 64 << 20;
/// The largest number of declared columns.
const MAX_COLUMNS: usize = 10_000;

/// A column of an Arrow stream.
///
/// `name` is a path, as "total" or "user.id", or "_key", "_sequence", "_record" (the whole record). `type_name` is "int64", "float64",
/// "string", "bool", "date", "timestamp" (ISO text), "timestamp[ms]" (integers), "json", or "list<…>" of these; with `type_size` 0 the
/// type is inferred from a sample of the records.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct bolide_column {
    /// The name, in UTF-8.
    pub name: *const c_char,
    /// Bytes of `name`.
    pub name_size: usize,
    /// The type, in UTF-8.
    pub type_name: *const c_char,
    /// Bytes of `type_name`.
    pub type_size: usize,
}

/// Calls `then` with the key as a column has it.
pub(crate) fn with_record_key<T>(key: &[u8], format: KeyFormat, then: impl FnOnce(RecordKey<'_>) -> T) -> T {
    if format != KeyFormat::Typed {
        return then(RecordKey::Bytes(key));
    }
    match key::decode(key) {
        PrimaryKey::Int(value) => then(RecordKey::Int(value)),
        PrimaryKey::Uint(value) => then(RecordKey::Uint(value)),
        PrimaryKey::String(text) => then(RecordKey::Text(&text)),
        PrimaryKey::Bytes(bytes) => then(RecordKey::Bytes(&bytes)),
    }
}

/// The declared columns; without any, the key and all columns of a sample at `snapshot`, or of the latest state.
///
/// # Safety
/// `columns` is NULL or valid for `count` columns, whose texts are valid for their sizes.
pub(crate) unsafe fn columns_of(
    collection: &Collection,
    snapshot: Option<&Snapshot>,
    columns: *const bolide_column,
    count: usize,
) -> Result<Vec<Column>, Failure> {
    if count > MAX_COLUMNS {
        return Err(
            bolide::Error::limit_exceeded("the number of columns", count as u64, MAX_COLUMNS as u64).into()
        );
    }
    if columns.is_null() && count > 0 {
        return Err(Failure::invalid(format!("the columns are NULL, but their number is {count}")));
    }
    let mut declared = Vec::with_capacity(count);
    for at in 0..count {
        let column = columns.add(at).read_unaligned();
        let name = text(column.name, column.name_size, "the name of a column")?;
        declared.push((name, text(column.type_name, column.type_size, "the type of a column")?));
    }
    if count > 0 && declared.iter().all(|(_, of)| !of.is_empty()) {
        return declared.iter().map(|(name, of)| Ok(Column::parse(name, of)?)).collect();
    }
    let sample = Sample::read(collection, snapshot)?;
    if count == 0 {
        let key = Column::new(bolide_arrow::KEY_COLUMN, sample.key);
        return Ok(std::iter::once(key).chain(sample.columns).collect());
    }
    let by_name: HashMap<&str, &Column> =
        sample.columns.iter().map(|column| (column.name(), column)).collect();
    declared.iter().map(|(name, of)| inferred(name, of, &by_name, &sample.key)).collect()
}

fn inferred(
    name: &str,
    of: &str,
    by_name: &HashMap<&str, &Column>,
    key: &ColumnSource,
) -> Result<Column, Failure> {
    Ok(match (name, of) {
        (bolide_arrow::KEY_COLUMN, "") => Column::new(name, key.clone()),
        (bolide_arrow::SEQUENCE_COLUMN, "") => Column::parse(name, "int64")?,
        (bolide_arrow::RECORD_COLUMN, "") => Column::parse(name, "json")?,
        (other, "") => by_name.get(other).map(|column| (*column).clone()).ok_or_else(|| {
            Failure::invalid(format!("no record of the sample has the column {other:?}: declare its type"))
        })?,
        (name, of) => Column::parse(name, of)?,
    })
}

/// What a sample of the records contains.
struct Sample {
    columns: Vec<Column>,
    key: ColumnSource,
}

impl Sample {
    /// Reads the first records of key ranges with about equal bytes, and the last key, at `snapshot` or now.
    fn read(collection: &Collection, snapshot: Option<&Snapshot>) -> bolide::Result<Self> {
        let mut inference = SchemaInference::new(InferenceLimits::default());
        let (mut has_texts, mut has_ints, mut has_bytes) = (false, false, false);
        let ranges = collection.split(SAMPLE_RANGES)?;
        let per_range = SAMPLE_RECORDS / ranges.len().max(1);
        let mut bytes = 0;
        let mut note_key = |key: &[u8]| {
            with_record_key(key, collection.key_format(), |key| match key {
                RecordKey::Int(_) => has_ints = true,
                RecordKey::Bytes(bytes) if std::str::from_utf8(bytes).is_err() => has_bytes = true,
                _ => has_texts = true,
            });
        };
        for range in &ranges {
            let mut options = IterOptions::default().range(range.clone());
            options.snapshot = snapshot.cloned();
            let mut cursor = collection.cursor(&options)?;
            cursor.seek_to_first()?;
            for _ in 0..per_range {
                if !cursor.valid() || bytes > SAMPLE_BYTES {
                    break;
                }
                bytes += cursor.value().len();
                inference.add(cursor.value());
                note_key(cursor.key());
                cursor.next()?;
            }
        }
        let mut options = IterOptions::default();
        options.snapshot = snapshot.cloned();
        let mut cursor = collection.cursor(&options)?;
        // Texts sort behind integers: a sample of the first records of a range may have none.
        cursor.seek_to_last()?;
        if cursor.valid() {
            note_key(cursor.key());
        }
        let key = match (has_bytes, has_ints, has_texts) {
            (true, ..) => ColumnSource::BinaryKey,
            (false, true, false) => ColumnSource::IntKey,
            _ => ColumnSource::TextKey,
        };
        Ok(Self { columns: inference.finish(), key })
    }
}
