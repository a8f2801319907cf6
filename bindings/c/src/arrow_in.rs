//! Arrow streams as records.

use std::ffi::c_char;

use arrow_array::RecordBatchReader;
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use bolide::key::{self, KeyFormat};
use bolide::{Collection, Db, WriteBatch, WriteOptions};
use bolide_arrow::{EncodedKey, RecordEncoder};

use crate::code::bolide_code;
use crate::collection::{bolide_collection, write_options};
use crate::error::bolide_error;
use crate::failure::Failure;
use crate::guard::{call, caught};
use crate::handle;
use crate::input::{bolide_sync, text};
use crate::output::Out;

/// Bytes of a batch of writes, about.
const BATCH_BYTES: usize = 4 << 20;

/// A failure of the Arrow library, which panics on slices of structs within structs (apache/arrow-rs#10835).
const UNREADABLE: &str = "the Arrow library cannot read this batch; it fails for slices of structs within structs: copy them before";

/// Puts the rows of all batches of an Arrow stream (the C stream interface) as records, in batches of 4 MiB. `key_column` has the keys:
/// texts, binary, or in a collection of typed keys integers. A NULL is an absent field.
///
/// The stream is always consumed: it is released before the function returns. Stores the number of rows in `rows`, which may be NULL.
/// After an error, the batches of writes before it stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_import_arrow(
    collection: *const bolide_collection,
    stream: *mut FFI_ArrowArrayStream,
    key_column: *const c_char,
    key_column_size: usize,
    sync: bolide_sync,
    rows: *mut u64,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = Out::optional(rows, 0);
        if stream.is_null() {
            return Err(Failure::invalid("the Arrow stream is NULL"));
        }
        // Moved: whatever happens, it is released.
        let moved = stream.read_unaligned();
        stream.write_unaligned(FFI_ArrowArrayStream::empty());
        let stream = moved;
        let collection = handle::borrow(collection)?;
        let key_column = text(key_column, key_column_size, "the name of the column of the keys")?;
        let options = write_options(sync)?;
        let mut reader = caught(|| {
            ArrowArrayStreamReader::try_new(stream)
                .map_err(|error| Failure::invalid(format!("the Arrow stream cannot be read: {error}")))
        })?;
        let encoder = RecordEncoder::new(reader.schema(), key_column)?;
        let mut import = Import {
            db: &collection.session().db,
            collection,
            encoder: encoder.max_record_bytes(bolide::limits::MAX_VALUE_BYTES),
            writes: WriteBatch::new(),
            options,
        };
        let mut count = 0;
        while let Some(batch) = next_batch(&mut reader)? {
            import.add(&batch)?;
            count += batch.num_rows() as u64;
        }
        import.finish()?;
        if let Some(out) = out {
            out.set(count);
        }
        Ok(())
    })
}

fn next_batch(reader: &mut ArrowArrayStreamReader) -> Result<Option<arrow_array::RecordBatch>, Failure> {
    let next = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| reader.next()));
    match next {
        Ok(None) => Ok(None),
        Ok(Some(Ok(batch))) => Ok(Some(batch)),
        Ok(Some(Err(error))) => Err(Failure::invalid(format!("the Arrow stream failed: {error}"))),
        Err(_) => Err(Failure::invalid(UNREADABLE)),
    }
}

/// An import that is under way.
struct Import<'a> {
    db: &'a Db,
    collection: &'a Collection,
    encoder: RecordEncoder,
    writes: WriteBatch,
    options: WriteOptions,
}

impl Import<'_> {
    fn add(&mut self, batch: &arrow_array::RecordBatch) -> Result<(), Failure> {
        let Self { db, collection, encoder, writes, options } = self;
        encoder.encode(batch, |key: EncodedKey<'_>, record: &[u8]| -> Result<(), Failure> {
            put(writes, collection, key, record)?;
            if writes.len_bytes() >= BATCH_BYTES {
                db.write_with(std::mem::take(writes), options)?;
            }
            Ok(())
        })
    }

    fn finish(self) -> Result<(), Failure> {
        if !self.writes.is_empty() {
            self.db.write_with(self.writes, &self.options)?;
        }
        Ok(())
    }
}

fn put(
    writes: &mut WriteBatch,
    collection: &Collection,
    key: EncodedKey<'_>,
    record: &[u8],
) -> Result<(), Failure> {
    let encoded;
    let key = match (key, collection.key_format()) {
        (EncodedKey::Bytes(bytes), _) => bytes,
        (EncodedKey::Text(text), KeyFormat::Bytes) => text.as_bytes(),
        (EncodedKey::Text(text), _) => {
            encoded = key::encode_string(text);
            &encoded[..]
        }
        (EncodedKey::Int(value), KeyFormat::Typed) => {
            encoded = key::encode_int(value);
            &encoded[..]
        }
        (EncodedKey::Uint(value), KeyFormat::Typed) => {
            encoded = key::encode_uint(value);
            &encoded[..]
        }
        _ => {
            return Err(Failure::invalid(
                "the keys of this collection are bytes: convert the column of the keys to text or binary",
            ));
        }
    };
    Ok(writes.put(collection, key, record)?)
}
