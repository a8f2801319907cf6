//! Batches of writes.

use std::ffi::c_void;
use std::sync::Arc;

use bolide::{Expected, WriteBatch};

use crate::code::bolide_code;
use crate::collection::{bolide_collection, write_options};
use crate::error::bolide_error;
use crate::exclusive::Exclusive;
use crate::failure::Failure;
use crate::guard::call;
use crate::handle::{self, object};
use crate::input::{self, bolide_sync, choice};
use crate::output::{self, Out};
use crate::range::{self, bolide_range};
use crate::session::Member;
use crate::session::bolide_db;

/// Writes over any collections of one database that take effect together or not at all. One thread at a time uses it.
pub struct bolide_batch {
    _opaque: [u8; 0],
}

object!(bolide_batch, Member<Exclusive<WriteBatch>>, "the batch");

/// What a batch expects of a record.
pub type bolide_expected = i32;

/// There is no record under the key.
pub const BOLIDE_EXPECT_ABSENT: bolide_expected = 0;
/// There is a record under the key.
pub const BOLIDE_EXPECT_PRESENT: bolide_expected = 1;
/// The record under the key is that of the write with the sequence number.
pub const BOLIDE_EXPECT_SEQUENCE: bolide_expected = 2;

/// Runs `work` on the batch and a collection of its database.
unsafe fn with_batch(
    batch: *const bolide_batch,
    collection: *const bolide_collection,
    work: impl FnOnce(&mut WriteBatch, &bolide::Collection) -> bolide::Result<()>,
) -> Result<(), Failure> {
    let (batch, collection) = (handle::borrow(batch)?, handle::borrow(collection)?);
    if !Arc::ptr_eq(batch.session(), collection.session()) {
        return Err(Failure::invalid("the collection belongs to another database than the batch"));
    }
    let mut writes = batch.lock("the batch")?;
    Ok(work(&mut writes, collection)?)
}

/// A new batch without writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_batch_new(
    db: *const bolide_db,
    batch: *mut *mut bolide_batch,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::object(batch, "batch")?;
        out.set(handle::into_pointer(Member::new(handle::borrow(db)?, Exclusive::default())));
        Ok(())
    })
}

/// Adds a put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_batch_put(
    batch: *mut bolide_batch,
    collection: *const bolide_collection,
    key: *const c_void,
    key_size: usize,
    record: *const c_void,
    record_size: usize,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let (key, record) = (input::key(key, key_size)?, input::record(record, record_size)?);
        with_batch(batch, collection, |batch, collection| batch.put(collection, key, record))
    })
}

/// Adds a delete of a record, if there is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_batch_delete(
    batch: *mut bolide_batch,
    collection: *const bolide_collection,
    key: *const c_void,
    key_size: usize,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let key = input::key(key, key_size)?;
        with_batch(batch, collection, |batch, collection| batch.delete(collection, key))
    })
}

/// Adds a delete of all records with keys in a range. `range` is not NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_batch_delete_range(
    batch: *mut bolide_batch,
    collection: *const bolide_collection,
    range: *const bolide_range,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let range = range::deleted(range)?;
        with_batch(batch, collection, |batch, collection| batch.delete_range(collection, range))
    })
}

/// Makes the write of the batch depend on the record under a key, as the writes before in the batch leave it: otherwise it fails with
/// `BOLIDE_CONFLICT`. `sequence` is used by `BOLIDE_EXPECT_SEQUENCE` only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_batch_expect(
    batch: *mut bolide_batch,
    collection: *const bolide_collection,
    key: *const c_void,
    key_size: usize,
    expected: bolide_expected,
    sequence: u64,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let key = input::key(key, key_size)?;
        let kinds = [
            (BOLIDE_EXPECT_ABSENT, "BOLIDE_EXPECT_ABSENT", Expected::Absent),
            (BOLIDE_EXPECT_PRESENT, "BOLIDE_EXPECT_PRESENT", Expected::Present),
            (BOLIDE_EXPECT_SEQUENCE, "BOLIDE_EXPECT_SEQUENCE", Expected::Sequence(sequence)),
        ];
        let expected = choice("expectation", expected.into(), &kinds)?;
        with_batch(batch, collection, |batch, collection| batch.expect(collection, key, expected))
    })
}

/// The number of writes; 0 for NULL, and while another thread uses the batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_batch_count(batch: *const bolide_batch) -> usize {
    handle::borrow(batch).and_then(|batch| Ok(batch.lock("the batch")?.len())).unwrap_or_default()
}

/// Removes all writes and expectations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_batch_clear(
    batch: *mut bolide_batch,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        *handle::borrow(batch)?.lock("the batch")? = WriteBatch::new();
        Ok(())
    })
}

/// Commits all writes of a batch, which is empty afterwards, also after an error. Stores the sequence number of the last one in
/// `sequence`, which may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_batch_write(
    batch: *mut bolide_batch,
    sync: bolide_sync,
    sequence: *mut u64,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = Out::optional(sequence, 0);
        let batch = handle::borrow(batch)?;
        let options = write_options(sync)?;
        let writes = std::mem::take(&mut *batch.lock("the batch")?);
        let last = batch.session().db.write_with(writes, &options)?;
        if let Some(out) = out {
            out.set(last);
        }
        Ok(())
    })
}

/// Frees a batch. Writes that were not committed have no effect. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_batch_free(batch: *mut bolide_batch) {
    handle::free(batch);
}
