//! Settings of databases and collections.

use std::ffi::c_char;
use std::time::Duration;

use bolide::key::KeyFormat;
use bolide::{CollectionOptions, Compression, IndexSpec, Layout, Options, RecordKind};

use crate::code::bolide_code;
use crate::error::bolide_error;
use crate::exclusive::Exclusive;
use crate::failure::Failure;
use crate::guard::call;
use crate::handle::{self, object};
use crate::input::{choice, size, sync_mode, text};

/// Settings of a database; see `bolide_options_new`. One thread at a time uses it.
pub struct bolide_options {
    _opaque: [u8; 0],
}

object!(bolide_options, Exclusive<OpenSettings>, "the options", of_process = false);

/// A setting of a database.
pub type bolide_option = i32;

/// 1: create a missing database (default); 0: a missing one is an error.
pub const BOLIDE_OPTION_CREATE_IF_MISSING: bolide_option = 1;
/// 1: change no byte and take no lock; there must be no writer. Default: 0.
pub const BOLIDE_OPTION_READ_ONLY: bolide_option = 2;
/// A `bolide_sync`. Default: `BOLIDE_SYNC_BATCH`.
pub const BOLIDE_OPTION_SYNC: bolide_option = 3;
/// The longest time without a sync under `BOLIDE_SYNC_BATCH`, in microseconds.
pub const BOLIDE_OPTION_SYNC_INTERVAL_MICROS: bolide_option = 4;
/// The memory budget, in bytes. Its default and those of the parts of it follow the memory of the machine.
pub const BOLIDE_OPTION_MEMORY_BYTES: bolide_option = 5;
/// The cache of blocks, in bytes.
pub const BOLIDE_OPTION_CACHE_BYTES: bolide_option = 6;
/// The cache of single records, in bytes.
pub const BOLIDE_OPTION_ROW_CACHE_BYTES: bolide_option = 7;
/// A memtable, in bytes.
pub const BOLIDE_OPTION_MEMTABLE_BYTES: bolide_option = 8;
/// Threads for flushes and compactions.
pub const BOLIDE_OPTION_BACKGROUND_THREADS: bolide_option = 9;
/// Files that are open at once.
pub const BOLIDE_OPTION_MAX_OPEN_FILES: bolide_option = 10;
/// Threads that help queries to fetch records.
pub const BOLIDE_OPTION_FETCH_THREADS: bolide_option = 11;
/// Space that is reserved for deletes on a full disk, in bytes.
pub const BOLIDE_OPTION_RESERVE_BYTES: bolide_option = 12;

/// What [`bolide_options`] has.
#[derive(Default)]
pub(crate) struct OpenSettings {
    pub(crate) options: Options,
    pub(crate) is_read_only: bool,
}

fn truth(what: &str, value: u64) -> Result<bool, Failure> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Failure::invalid(format!("{what} is {other}: it is 0 or 1"))),
    }
}

/// A number as an enumeration may have it; others are none of its values.
fn enumerated(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl OpenSettings {
    fn set(&mut self, option: bolide_option, value: u64) -> Result<(), Failure> {
        let options = self.options.clone();
        self.options = match option {
            BOLIDE_OPTION_CREATE_IF_MISSING => options.create_if_missing(truth("CREATE_IF_MISSING", value)?),
            BOLIDE_OPTION_READ_ONLY => {
                self.is_read_only = truth("READ_ONLY", value)?;
                options
            }
            BOLIDE_OPTION_SYNC => options.sync(sync_mode(enumerated(value))?.unwrap_or_default()),
            BOLIDE_OPTION_SYNC_INTERVAL_MICROS => options.sync_interval(Duration::from_micros(value)),
            BOLIDE_OPTION_MEMORY_BYTES => options.memory_bytes(size("MEMORY_BYTES", value)?),
            BOLIDE_OPTION_CACHE_BYTES => options.cache_bytes(size("CACHE_BYTES", value)?),
            BOLIDE_OPTION_ROW_CACHE_BYTES => options.row_cache_bytes(size("ROW_CACHE_BYTES", value)?),
            BOLIDE_OPTION_MEMTABLE_BYTES => options.memtable_bytes(size("MEMTABLE_BYTES", value)?),
            BOLIDE_OPTION_BACKGROUND_THREADS => {
                options.background_threads(limited("BACKGROUND_THREADS", value, 1_024)?)
            }
            BOLIDE_OPTION_MAX_OPEN_FILES => options.max_open_files(size("MAX_OPEN_FILES", value)?),
            BOLIDE_OPTION_FETCH_THREADS => options.fetch_threads(limited("FETCH_THREADS", value, 1_024)?),
            BOLIDE_OPTION_RESERVE_BYTES => options.reserve_bytes(value),
            other => {
                return Err(Failure::invalid(format!(
                    "{other} is no option of a database: see the constants BOLIDE_OPTION_*"
                )));
            }
        };
        Ok(())
    }
}

fn limited(what: &str, value: u64, limit: u64) -> Result<usize, Failure> {
    if value > limit {
        return Err(bolide::Error::limit_exceeded(what, value, limit).into());
    }
    size(what, value)
}

/// New settings of a database, all with their defaults. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn bolide_options_new() -> *mut bolide_options {
    handle::into_pointer(Exclusive::default())
}

/// Sets one option, a constant `BOLIDE_OPTION_*`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_options_set(
    options: *mut bolide_options,
    option: bolide_option,
    value: u64,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || handle::borrow(options)?.lock("the options")?.set(option, value))
}

/// Frees settings. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_options_free(options: *mut bolide_options) {
    handle::free(options);
}

/// Settings of a new collection; see `bolide_collection_options_new`. One thread at a time uses it.
pub struct bolide_collection_options {
    _opaque: [u8; 0],
}

object!(
    bolide_collection_options,
    Exclusive<CollectionOptions>,
    "the options of the collection",
    of_process = false
);

/// A setting of a collection.
pub type bolide_collection_option = i32;

/// A `bolide_key_format`. Default: `BOLIDE_KEYS_BYTES`.
pub const BOLIDE_COLLECTION_KEYS: bolide_collection_option = 1;
/// A `bolide_record_kind`. Default: `BOLIDE_RECORDS_JSON`.
pub const BOLIDE_COLLECTION_RECORDS: bolide_collection_option = 2;
/// A `bolide_layout`. Default: `BOLIDE_LAYOUT_LEVELED`.
pub const BOLIDE_COLLECTION_LAYOUT: bolide_collection_option = 3;
/// A `bolide_compression`. Default: `BOLIDE_COMPRESSION_LZ4`.
pub const BOLIDE_COLLECTION_COMPRESSION: bolide_collection_option = 4;
/// A data block, in bytes.
pub const BOLIDE_COLLECTION_BLOCK_BYTES: bolide_collection_option = 5;
/// The Bloom filters, in bits for each key.
pub const BOLIDE_COLLECTION_BLOOM_BITS_PER_KEY: bolide_collection_option = 6;
/// An sstable, in bytes.
pub const BOLIDE_COLLECTION_TARGET_FILE_BYTES: bolide_collection_option = 7;

/// Keys of a collection.
pub type bolide_key_format = i32;

/// Any bytes, in their order.
pub const BOLIDE_KEYS_BYTES: bolide_key_format = 0;
/// Integers and texts, which are encoded by `bolide_key_of_int` and `bolide_key_of_text`; integers sort as numbers.
pub const BOLIDE_KEYS_TYPED: bolide_key_format = 1;

/// Records of a collection.
pub type bolide_record_kind = i32;

/// JSON objects.
pub const BOLIDE_RECORDS_JSON: bolide_record_kind = 0;
/// Any bytes, without indexes.
pub const BOLIDE_RECORDS_BYTES: bolide_record_kind = 1;

/// The layout of the sorted runs of a collection.
pub type bolide_layout = i32;

/// Levels of one run each.
pub const BOLIDE_LAYOUT_LEVELED: bolide_layout = 0;
/// Levels of several runs.
pub const BOLIDE_LAYOUT_TIERED: bolide_layout = 1;
/// Levels of fragments.
pub const BOLIDE_LAYOUT_FRAGMENTED: bolide_layout = 2;
/// Partitions with sorted views.
pub const BOLIDE_LAYOUT_PARTITIONED: bolide_layout = 3;

/// The compression of blocks.
pub type bolide_compression = i32;

/// None.
pub const BOLIDE_COMPRESSION_NONE: bolide_compression = 0;
/// LZ4.
pub const BOLIDE_COMPRESSION_LZ4: bolide_compression = 1;
/// Zstandard.
pub const BOLIDE_COMPRESSION_ZSTD: bolide_compression = 2;

fn set_collection_option(
    options: &mut CollectionOptions,
    option: bolide_collection_option,
    value: u64,
) -> Result<(), Failure> {
    let number = enumerated(value);
    match option {
        BOLIDE_COLLECTION_KEYS => {
            let formats = [
                (BOLIDE_KEYS_BYTES, "BOLIDE_KEYS_BYTES", KeyFormat::Bytes),
                (BOLIDE_KEYS_TYPED, "BOLIDE_KEYS_TYPED", KeyFormat::Typed),
            ];
            options.keys = choice("format of keys", number, &formats)?;
        }
        BOLIDE_COLLECTION_RECORDS => {
            let kinds = [
                (BOLIDE_RECORDS_JSON, "BOLIDE_RECORDS_JSON", RecordKind::Json),
                (BOLIDE_RECORDS_BYTES, "BOLIDE_RECORDS_BYTES", RecordKind::Bytes),
            ];
            options.records = choice("kind of records", number, &kinds)?;
        }
        BOLIDE_COLLECTION_LAYOUT => {
            let layouts = [
                (BOLIDE_LAYOUT_LEVELED, "BOLIDE_LAYOUT_LEVELED", Layout::Leveled),
                (BOLIDE_LAYOUT_TIERED, "BOLIDE_LAYOUT_TIERED", Layout::Tiered),
                (BOLIDE_LAYOUT_FRAGMENTED, "BOLIDE_LAYOUT_FRAGMENTED", Layout::Fragmented),
                (BOLIDE_LAYOUT_PARTITIONED, "BOLIDE_LAYOUT_PARTITIONED", Layout::Partitioned),
            ];
            options.layout = choice("layout", number, &layouts)?;
        }
        BOLIDE_COLLECTION_COMPRESSION => {
            let compressions = [
                (BOLIDE_COMPRESSION_NONE, "BOLIDE_COMPRESSION_NONE", Compression::None),
                (BOLIDE_COMPRESSION_LZ4, "BOLIDE_COMPRESSION_LZ4", Compression::Lz4),
                (BOLIDE_COMPRESSION_ZSTD, "BOLIDE_COMPRESSION_ZSTD", Compression::Zstd(3)),
            ];
            options.compression = choice("compression", number, &compressions)?;
        }
        BOLIDE_COLLECTION_BLOCK_BYTES => options.block_bytes = size("BLOCK_BYTES", value)?,
        BOLIDE_COLLECTION_BLOOM_BITS_PER_KEY => {
            options.bloom_bits_per_key = size("BLOOM_BITS_PER_KEY", value)?
        }
        BOLIDE_COLLECTION_TARGET_FILE_BYTES => options.target_file_bytes = value,
        other => {
            return Err(Failure::invalid(format!(
                "{other} is no option of a collection: see the constants BOLIDE_COLLECTION_*"
            )));
        }
    }
    Ok(())
}

/// New settings of a collection, all with their defaults. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn bolide_collection_options_new() -> *mut bolide_collection_options {
    handle::into_pointer(Exclusive::default())
}

/// Sets one option, a constant `BOLIDE_COLLECTION_*`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_collection_options_set(
    options: *mut bolide_collection_options,
    option: bolide_collection_option,
    value: u64,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let mut options = handle::borrow(options)?.lock("the options of the collection")?;
        set_collection_option(&mut options, option, value)
    })
}

/// Adds an index, for example "state", "customer+total", "tags[*]:next": attributes and perhaps a kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_collection_options_add_index(
    options: *mut bolide_collection_options,
    spec: *const c_char,
    spec_size: usize,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let mut options = handle::borrow(options)?.lock("the options of the collection")?;
        let spec: IndexSpec = text(spec, spec_size, "the index")?.parse()?;
        options.indexes.push(spec);
        Ok(())
    })
}

/// Frees settings. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_collection_options_free(options: *mut bolide_collection_options) {
    handle::free(options);
}
