//! Records of Bolide as Arrow batches, and Arrow batches as records.
//!
//! | type | concept |
//! |---|---|
//! | [`RecordDecoder`] | JSON records to batches, in one pass over each record, for the projected columns alone |
//! | [`RecordEncoder`] | batches to JSON records with their keys |
//! | [`SchemaInference`] | columns and types from a sample of records |
//! | [`PartStream`] | parts that several threads read, in order |
//! | [`Column`], [`ColumnType`], [`ColumnPath`] | the declaration of a column |
//!
//! # Rules of reading
//! A value of another type than that of its column is NULL, and so are JSON `null` and an absent field. Numbers compare by
//! value: `1.0` is an integer, and an integer is a float. Nothing else is converted: `"12"` is no number.

#![forbid(unsafe_code)]

mod batch_columns;
mod cell_writer;
mod column;
mod column_builder;
mod column_path;
mod column_type;
mod conversion_error;
mod decoder;
mod encoder;
mod inference;
mod json_number;
mod json_scan;
mod json_text;
mod part_stream;
mod projection;
mod time_text;

pub use column::{Column, ColumnSource, KEY_COLUMN, RECORD_COLUMN, SEQUENCE_COLUMN};
pub use column_path::ColumnPath;
pub use column_type::{ColumnType, ScalarType};
pub use conversion_error::ConversionError;
pub use decoder::{BatchLimits, RecordDecoder, RecordKey};
pub use encoder::{EncodedKey, RecordEncoder};
pub use inference::{InferenceLimits, SchemaInference};
pub use json_text::write_string as write_json_string;
pub use part_stream::PartStream;

/// The result of a conversion.
pub type Result<T> = std::result::Result<T, ConversionError>;
