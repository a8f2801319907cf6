//! Columns and statistics of a collection from its records.

use std::collections::{BTreeMap, HashSet};
use std::ops::{Bound, ControlFlow};

use bolide::key::KeyFormat;
use bolide::{Collection, IndexState, KeySplit, Order, Query, RecordKind};
use bolide_arrow::{
    BatchLimits, Column, ColumnSource, InferenceLimits, RecordDecoder, RecordKey, SchemaInference,
};

use crate::error::{Result, SqlError};
use crate::read_point::{ReadPoint, StoredRow};
use crate::record_key::{KeyType, with_record_key};
use crate::table_schema::{
    ColumnFigures, DeclaredColumn, MAX_COLUMNS, TableSchema, TableStatistics, default_key_name,
};

/// How much of a collection is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleLimits {
    /// Records of each of the two parts: the newest ones, and those of the key ranges.
    pub(crate) records: usize,
    /// Bytes of both parts, about.
    pub(crate) bytes: usize,
}

impl SampleLimits {
    /// For ANALYZE.
    pub(crate) const ANALYZE: Self = Self { records: 10_000, bytes: 64 << 20 };
    /// For a table without a declaration, at its first use.
    pub(crate) const FIRST_USE: Self = Self { records: 1_000, bytes: 8 << 20 };
}

/// Key ranges of a sample.
const RANGES: usize = 50;
/// Values of a column that are distinguished.
const MAX_DISTINCT: usize = 10_000;

/// Infers the columns of `collection` from a sample: records of key ranges with about equal bytes, and the newest ones.
/// Every indexed attribute is a column. Blocks.
///
/// # Errors
/// For a collection whose records are no JSON; those of reading.
pub(crate) fn infer(collection: &Collection, point: &ReadPoint, limits: SampleLimits) -> Result<TableSchema> {
    if collection.records() != RecordKind::Json {
        return Err(SqlError::unsupported(format!(
            "the records of the collection `{}` are no JSON, so it is no table",
            collection.name()
        )));
    }
    let mut sample = Sample::new(collection.key_format());
    sample.read(collection, point, limits, &mut |sample, row| sample.infer(row))?;
    // Keys of other types are before or after the integers.
    for is_reverse in [false, true] {
        point.scan(collection, &all_keys(), is_reverse, &mut |row| {
            sample.note_key(row.key);
            Ok(ControlFlow::Break(()))
        })?;
    }
    let columns = with_indexed(collection, sample.inference.finish());
    let key_type = match (sample.has_bytes, sample.has_ints, sample.has_texts) {
        (true, ..) => KeyType::Binary,
        (false, true, false) => KeyType::Int,
        _ => KeyType::Text,
    };
    TableSchema::new(default_key_name(), key_type, columns)
}

/// Infers the columns, or takes those of `declared`, and computes the statistics. Blocks.
///
/// # Errors
/// As [`infer`].
pub(crate) fn analyze(
    collection: &Collection,
    point: &ReadPoint,
    declared: Option<TableSchema>,
) -> Result<TableSchema> {
    let limits = SampleLimits::ANALYZE;
    let mut schema = match declared {
        Some(declared) => declared,
        None => infer(collection, point, limits)?,
    };
    let columns: Vec<Column> = schema
        .all()
        .iter()
        .filter(|column| matches!(column.source(), ColumnSource::Path(..)))
        .cloned()
        .collect();
    let decoder = RecordDecoder::new(columns, BatchLimits::default())?;
    let mut figures = FigureBuilder::new(decoder);
    let mut sample = Sample::new(collection.key_format());
    let mut records = 0_u64;
    let mut bytes = 0_u64;
    sample.read(collection, point, limits, &mut |_, row| {
        records += 1;
        bytes += row.record.len() as u64;
        figures.add(row)
    })?;
    schema.statistics = Some(TableStatistics {
        records,
        record_bytes: bytes as f64 / records.max(1) as f64,
        columns: figures.finish()?,
    });
    Ok(schema)
}

/// A pass over a sample.
struct Sample {
    keys: KeyFormat,
    inference: SchemaInference,
    has_texts: bool,
    has_ints: bool,
    has_bytes: bool,
    bytes: usize,
}

impl Sample {
    fn new(keys: KeyFormat) -> Self {
        // One column each for the key and the sequence number, and some for indexed attributes.
        let mut limits = InferenceLimits::default();
        limits.columns = MAX_COLUMNS / 2;
        let inference = SchemaInference::new(limits);
        Self { keys, inference, has_texts: false, has_ints: false, has_bytes: false, bytes: 0 }
    }

    fn infer(&mut self, row: StoredRow<'_>) -> Result<()> {
        self.inference.add(row.record);
        self.note_key(row.key);
        Ok(())
    }

    fn note_key(&mut self, key: &[u8]) {
        with_record_key(key, self.keys, |key| match key {
            RecordKey::Int(_) => self.has_ints = true,
            RecordKey::Bytes(bytes) if std::str::from_utf8(bytes).is_err() => self.has_bytes = true,
            _ => self.has_texts = true,
        });
    }

    fn read(
        &mut self,
        collection: &Collection,
        point: &ReadPoint,
        limits: SampleLimits,
        each: &mut dyn FnMut(&mut Self, StoredRow<'_>) -> Result<()>,
    ) -> Result<()> {
        let ranges: Vec<KeySplit> = collection.split(RANGES)?;
        let per_range = limits.records.div_ceil(ranges.len().max(1));
        let mut is_whole = true;
        for range in ranges {
            let mut rows = 0;
            point.scan(collection, &range, false, &mut |row| {
                if rows == per_range || self.bytes > limits.bytes {
                    is_whole = false;
                    return Ok(ControlFlow::Break(()));
                }
                rows += 1;
                self.bytes += row.record.len();
                each(self, row)?;
                Ok(ControlFlow::Continue(()))
            })?;
        }
        if is_whole {
            return Ok(());
        }
        // New fields are in the newest records.
        let query = Query::new().order(Order::Newest).limit(limits.records);
        let (from, bytes) = (self.bytes, limits.bytes / 2);
        point.visit(collection, &query, &mut |row| {
            self.bytes += row.record.len();
            each(self, row)?;
            Ok(if self.bytes - from > bytes { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(())
    }
}

/// The inferred columns, and one for each indexed attribute that no record of the sample has.
fn with_indexed(collection: &Collection, inferred: Vec<Column>) -> Vec<DeclaredColumn> {
    let mut columns: Vec<DeclaredColumn> = Vec::with_capacity(inferred.len());
    for column in inferred {
        if let ColumnSource::Path(path, column_type) = column.source() {
            columns.push(DeclaredColumn {
                name: column.name().to_owned(),
                path: path.clone(),
                column_type: *column_type,
                is_required: false,
            });
        }
    }
    // Columns of a record have other names than those of the key and the sequence number.
    columns.retain(|column| {
        ![bolide_arrow::KEY_COLUMN, bolide_arrow::SEQUENCE_COLUMN, bolide_arrow::RECORD_COLUMN]
            .contains(&column.name.as_str())
    });
    for index in collection.indexes() {
        for attribute in index.spec().attributes() {
            let text = attribute.to_string();
            let (text, column_type) = match text.strip_suffix("[*]") {
                Some(array) => (array.to_owned(), "list<json>"),
                None => (text, "json"),
            };
            let (Ok(path), Ok(column_type)) = (text.parse(), column_type.parse()) else { continue };
            if columns.iter().all(|known| known.path != path) && columns.len() < MAX_COLUMNS {
                columns.push(DeclaredColumn { name: text, path, column_type, is_required: false });
            }
        }
    }
    columns
}

/// Counts NULL and different values of columns.
struct FigureBuilder {
    decoder: RecordDecoder,
    rows: u64,
    nulls: Vec<u64>,
    hashes: Vec<HashSet<u64>>,
    state: std::hash::RandomState,
}

impl FigureBuilder {
    fn new(decoder: RecordDecoder) -> Self {
        let columns = decoder.schema().fields().len();
        Self {
            decoder,
            rows: 0,
            nulls: vec![0; columns],
            hashes: vec![HashSet::new(); columns],
            state: std::hash::RandomState::new(),
        }
    }

    fn add(&mut self, row: StoredRow<'_>) -> Result<()> {
        self.decoder.push(RecordKey::Bytes(row.key), row.sequence, row.record)?;
        if self.decoder.is_full() { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        use std::hash::BuildHasher;

        use datafusion::scalar::ScalarValue;

        let batch = self.decoder.finish()?;
        self.rows += batch.num_rows() as u64;
        for (at, column) in batch.columns().iter().enumerate() {
            if let Some(nulls) = self.nulls.get_mut(at) {
                *nulls += column.null_count() as u64;
            }
            let Some(hashes) = self.hashes.get_mut(at) else { continue };
            for row in 0..column.len() {
                if hashes.len() >= MAX_DISTINCT {
                    break;
                }
                if column.is_valid(row) {
                    let value = ScalarValue::try_from_array(column, row)
                        .map_err(|error| SqlError::internal(error.to_string()))?;
                    hashes.insert(self.state.hash_one(&value));
                }
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<BTreeMap<String, ColumnFigures>> {
        if self.decoder.rows() > 0 {
            self.flush()?;
        }
        let schema = self.decoder.schema().clone();
        let rows = self.rows.max(1) as f64;
        let figures = schema.fields().iter().zip(self.nulls.iter().zip(&self.hashes));
        Ok(figures
            .map(|(field, (nulls, hashes))| {
                let figures = ColumnFigures { nulls: *nulls as f64 / rows, distinct: hashes.len() as u64 };
                (field.name().clone(), figures)
            })
            .collect())
    }
}

/// Whether queries of `collection` use an index whose first attribute is `path`.
pub(crate) fn has_index(collection: &Collection, path: &str) -> bool {
    collection.indexes().iter().any(|index| {
        index.state() == IndexState::Ready
            && index.spec().attributes().first().is_some_and(|first| first.to_string() == path)
    })
}

/// The bounds of all keys.
pub(crate) fn all_keys() -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (Bound::Unbounded, Bound::Unbounded)
}
