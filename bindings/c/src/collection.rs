//! Collections: records by key.

use std::ffi::c_void;

use bolide::{Collection, ValueRef, WriteBatch, WriteOptions};

use crate::code::bolide_code;
use crate::error::bolide_error;
use crate::failure::Failure;
use crate::guard::{Presence, call, find};
use crate::handle::{self, object};
use crate::input::{self, bolide_sync, sync_mode};
use crate::output::{self, Out, bolide_bytes};
use crate::range::{self, bolide_range};
use crate::session::Member;
use crate::snapshot::bolide_snapshot;

/// A collection of records under keys, with indexes. May be used by many threads.
pub struct bolide_collection {
    _opaque: [u8; 0],
}

object!(bolide_collection, Member<Collection>, "the collection");

/// The settings of a write.
pub(crate) fn write_options(sync: bolide_sync) -> Result<WriteOptions, Failure> {
    let options = WriteOptions::default();
    Ok(match sync_mode(sync.into())? {
        Some(sync) => options.sync(sync),
        None => options,
    })
}

/// Frees the handle of a collection; the collection stays. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_collection_free(collection: *mut bolide_collection) {
    handle::free(collection);
}

/// The name of a collection, which the caller frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_collection_name(
    collection: *const bolide_collection,
    name: *mut bolide_bytes,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::bytes(name, "name")?;
        out.set(bolide_bytes::of_text(handle::borrow(collection)?.name().to_owned()));
        Ok(())
    })
}

/// Puts a record under a key and replaces an existing one. `BOLIDE_INVALID_INPUT` for a record that is no JSON object, except in a
/// collection of bytes. A key has at most 65,535 bytes, a record 64 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_put(
    collection: *const bolide_collection,
    key: *const c_void,
    key_size: usize,
    record: *const c_void,
    record_size: usize,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let collection = handle::borrow(collection)?;
        Ok(collection.put(input::key(key, key_size)?, input::record(record, record_size)?)?)
    })
}

/// As `bolide_put`, with a mode of syncing of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_put_sync(
    collection: *const bolide_collection,
    key: *const c_void,
    key_size: usize,
    record: *const c_void,
    record_size: usize,
    sync: bolide_sync,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let collection = handle::borrow(collection)?;
        let options = write_options(sync)?;
        let mut batch = WriteBatch::new();
        batch.put(collection, input::key(key, key_size)?, input::record(record, record_size)?)?;
        collection.session().db.write_with(batch, &options)?;
        Ok(())
    })
}

/// Deletes the record under a key. A missing record is no error, and is not looked up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_delete(
    collection: *const bolide_collection,
    key: *const c_void,
    key_size: usize,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || Ok(handle::borrow(collection)?.delete(input::key(key, key_size)?)?))
}

/// Deletes all records with keys in a range, in constant time. `range` is not NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_delete_range(
    collection: *const bolide_collection,
    range: *const bolide_range,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || Ok(handle::borrow(collection)?.delete_range(range::deleted(range)?)?))
}

/// Reads the record under a key: the latest, or with `snapshot`, which may be NULL, that of the snapshot. The caller frees it.
/// Stores the sequence number of the write that put it in `sequence`, which may be NULL, and is 0 for a read of a snapshot.
/// `BOLIDE_ABSENT` if there is none.
///
/// The bytes may be those of a block of the cache, which stays in memory until they are freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_get(
    collection: *const bolide_collection,
    key: *const c_void,
    key_size: usize,
    snapshot: *const bolide_snapshot,
    record: *mut bolide_bytes,
    sequence: *mut u64,
    error: *mut *mut bolide_error,
) -> bolide_code {
    find(error, || {
        let (out, number) = (output::bytes(record, "record")?, Out::optional(sequence, 0));
        let collection = handle::borrow(collection)?;
        let key = input::key(key, key_size)?;
        let found = match handle::borrow_optional(snapshot)? {
            Some(snapshot) => collection.get_at(snapshot, key)?.map(|record| (0, ValueRef::from(record))),
            None => collection.get_pinned(key)?,
        };
        let Some((sequence, record)) = found else { return Ok(Presence::Absent) };
        out.set(bolide_bytes::of(record));
        if let Some(number) = number {
            number.set(sequence);
        }
        Ok(Presence::Found)
    })
}

/// Reads the records under `count` keys, all at one moment, in their order: `records[n]` receives that under `keys[n]`, or NULL and
/// 0 for none. The caller frees each. At most 1,048,576 keys; for more, and only then, `records` is left as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_multi_get(
    collection: *const bolide_collection,
    keys: *const output::bolide_slice,
    count: usize,
    records: *mut bolide_bytes,
    error: *mut *mut bolide_error,
) -> bolide_code {
    /// The largest number of keys of one call.
    const MAX_KEYS: usize = 1 << 20;
    call(error, || {
        if count > MAX_KEYS {
            return Err(
                bolide::Error::limit_exceeded("the number of keys", count as u64, MAX_KEYS as u64).into()
            );
        }
        if count == 0 {
            return Ok(());
        }
        if records.is_null() {
            return Err(Failure::invalid("the array of records is NULL"));
        }
        let mut outs = Vec::with_capacity(count);
        for at in 0..count {
            outs.push(output::bytes(records.wrapping_add(at), "records")?);
        }
        if keys.is_null() {
            return Err(Failure::invalid("the array of keys is NULL"));
        }
        let collection = handle::borrow(collection)?;
        let mut read = Vec::with_capacity(count);
        for at in 0..count {
            let key = keys.add(at).read_unaligned();
            read.push(input::key(key.data.cast(), key.size)?);
        }
        for (out, found) in outs.iter().zip(collection.multi_get(&read)?) {
            if let Some(record) = found {
                out.set(bolide_bytes::of(ValueRef::from(record)));
            }
        }
        Ok(())
    })
}

/// Merges all sorted runs of a collection and its indexes, and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_collection_compact(
    collection: *const bolide_collection,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || Ok(handle::borrow(collection)?.compact()?))
}
