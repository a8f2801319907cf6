/*
 * Bolide: an embedded key-value store whose secondary indexes are first class.
 *
 * Written by bindings/c/header from the sources of the library. Do not edit.
 *
 * Results. Functions return a bolide_code, and results through pointers. After an error, results are NULL, 0 or empty. The last
 * parameter receives an error object with a message and an advice; it may be NULL. Only NULL is written there if the call succeeds,
 * also over an earlier error: free that before.
 *
 * Texts and bytes have explicit lengths: keys and records may contain NUL, names and filters are UTF-8. BOLIDE_TEXT passes a C string.
 *
 * Memory. What a function returns by a pointer to a pointer, or in a bolide_bytes, belongs to the caller and has a function that
 * frees it. A bolide_slice and a bolide_row are lent until the next call with the same object. Objects may be freed in any order; an
 * object keeps its database open. bolide_close reports objects that still exist; bolide_db_free closes with the last of them.
 *
 * Threads. All objects may move between threads. Databases, collections, snapshots, transactions and index builds may be used by many
 * threads at once, queries after their setters have returned. Batches, cursors, answers, options and errors are used by one thread at
 * a time: a second one gets BOLIDE_IN_USE while the first is inside a call, and otherwise ends what was lent to the first. An
 * object is freed when no other thread uses it.
 *
 * Processes. After fork(), databases, collections, batches, snapshots, transactions, cursors, answers, index builds and Arrow
 * streams of the parent return errors in the child (BOLIDE_FORKED), and freeing them there does nothing. Bytes, queries, options,
 * savepoints and errors are the child's own. A child can open databases only if its parent had none open at the fork; otherwise
 * it calls exec first. If a parent ends without closing a database, its lock lasts until its children have ended or called exec.
 *
 * Undefined behaviour, as of any C library: pointers to memory that does not exist or is shorter than its length, and the use of an
 * object after it was freed. NULL, wrong enumerators, lengths over the limits, invalid UTF-8 and objects of another type are errors.
 * No function unwinds or aborts the process, except when memory is exhausted.
 */

#ifndef BOLIDE_H
#define BOLIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A C string as two parameters: its bytes, and their number. */
#define BOLIDE_TEXT(text) (text), (strlen(text))

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
  const char *format;
  const char *name;
  const char *metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema **children;
  struct ArrowSchema *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};

#endif /* ARROW_C_DATA_INTERFACE */

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};

#endif /* ARROW_C_STREAM_INTERFACE */

/**
 * The version of this header. It changes when a program has to be compiled again.
 */
#define BOLIDE_ABI_VERSION 1

/**
 * The answers to a query, which are read one by one, in order. They are of one state. One thread at a time uses them.
 */
typedef struct bolide_answers bolide_answers;

/**
 * Writes over any collections of one database that take effect together or not at all. One thread at a time uses it.
 */
typedef struct bolide_batch bolide_batch;

/**
 * A collection of records under keys, with indexes. May be used by many threads.
 */
typedef struct bolide_collection bolide_collection;

/**
 * Settings of a new collection; see `bolide_collection_options_new`. One thread at a time uses it.
 */
typedef struct bolide_collection_options bolide_collection_options;

/**
 * A position among the records of a collection, in key order. It reads one state. One thread at a time uses it.
 */
typedef struct bolide_cursor bolide_cursor;

/**
 * An open database. May be used by many threads.
 */
typedef struct bolide_db bolide_db;

/**
 * An error: a code, a message and an advice.
 *
 * Functions write it to their last parameter, which may be NULL. They write NULL there if they succeed. The caller frees it by
 * `bolide_error_free`.
 */
typedef struct bolide_error bolide_error;

/**
 * An index that is built in the background. May be used by many threads. The build goes on without it.
 */
typedef struct bolide_index_build bolide_index_build;

/**
 * Settings of a database; see `bolide_options_new`. One thread at a time uses it.
 */
typedef struct bolide_options bolide_options;

/**
 * Which records a query selects, their order and number, and what is returned of them. After its setters have returned, many
 * threads may use it.
 */
typedef struct bolide_query bolide_query;

/**
 * A position among the writes of a transaction. It belongs to it, and may be freed after it.
 */
typedef struct bolide_savepoint bolide_savepoint;

/**
 * All collections as they were at one moment. May be used by many threads. Compactions retain its versions until it is freed.
 */
typedef struct bolide_snapshot bolide_snapshot;

/**
 * Reads at one state and writes that are committed together, if what they depend on is unchanged. May be used by many threads.
 */
typedef struct bolide_transaction bolide_transaction;

/**
 * The result of a function: `BOLIDE_OK`, `BOLIDE_ABSENT`, or the kind of an error, by what the caller can do about it.
 */
typedef int32_t bolide_code;

/**
 * Bytes that belong to the caller, and that `bolide_bytes_free` frees. Without NUL at the end. A function that takes a pointer to
 * these overwrites them without freeing what was there.
 */
typedef struct {
  /**
   * The first byte. NULL if there is nothing.
   */
  const char *data;
  /**
   * The number of bytes.
   */
  size_t size;
  /**
   * The memory. Do not change it.
   */
  void *owner;
} bolide_bytes;

/**
 * The kind of a typed key.
 */
typedef int32_t bolide_key_kind;

/**
 * A decoded key.
 */
typedef struct {
  /**
   * Which of the fields has the key.
   */
  bolide_key_kind kind;
  /**
   * The integer, of kind `BOLIDE_KEY_INT`.
   */
  int64_t int_value;
  /**
   * The integer, of kind `BOLIDE_KEY_UINT`.
   */
  uint64_t uint_value;
  /**
   * The text or the bytes, which the caller frees.
   */
  bolide_bytes text;
} bolide_key;

/**
 * A setting of a database.
 */
typedef int32_t bolide_option;

/**
 * A setting of a collection.
 */
typedef int32_t bolide_collection_option;

/**
 * The moment at which a write is safe from a power cut.
 */
typedef int32_t bolide_sync;

/**
 * A range of keys, for example `{.prefix = "user/", .prefix_size = 5}`. With all fields NULL and 0: all keys.
 */
typedef struct {
  /**
   * The first key, which is included. NULL: from the first one on.
   */
  const void *start;
  /**
   * Bytes of `start`.
   */
  size_t start_size;
  /**
   * The end, which is excluded. NULL: to the last one.
   */
  const void *end;
  /**
   * Bytes of `end`.
   */
  size_t end_size;
  /**
   * The keys also begin with this. NULL: with anything.
   */
  const void *prefix;
  /**
   * Bytes of `prefix`.
   */
  size_t prefix_size;
} bolide_range;

/**
 * Bytes that an object lends: valid until the next call with that object. Without NUL at the end.
 */
typedef struct {
  /**
   * The first byte. NULL if there is nothing.
   */
  const char *data;
  /**
   * The number of bytes.
   */
  size_t size;
} bolide_slice;

/**
 * What a batch expects of a record.
 */
typedef int32_t bolide_expected;

/**
 * What a commit of a transaction is checked for.
 */
typedef int32_t bolide_isolation;

/**
 * A record of a cursor or of the answers to a query. What it points to is valid until the next call with the same cursor or answers.
 */
typedef struct {
  /**
   * The primary key.
   */
  bolide_slice key;
  /**
   * The record. `data` is NULL if the query is for keys or values.
   */
  bolide_slice record;
  /**
   * The selected values, as JSON: for each path an array of its values. `data` is NULL if nothing was selected.
   */
  bolide_slice values;
  /**
   * The sequence number of the write that put the record.
   */
  uint64_t sequence;
} bolide_row;

/**
 * The kind of a value.
 */
typedef int32_t bolide_value_kind;

/**
 * A value of an attribute, for example `{.kind = BOLIDE_VALUE_INT, .int_value = 7}`.
 */
typedef struct {
  /**
   * Which of the fields has the value.
   */
  bolide_value_kind kind;
  /**
   * The integer or boolean.
   */
  int64_t int_value;
  /**
   * The number.
   */
  double float_value;
  /**
   * The text, in UTF-8.
   */
  const char *text;
  /**
   * Bytes of `text`.
   */
  size_t text_size;
} bolide_value;

/**
 * The order of the answers.
 */
typedef int32_t bolide_order;

/**
 * The result of a change of all answers to a query.
 */
typedef struct {
  /**
   * Records that satisfied the query.
   */
  uint64_t found;
  /**
   * Records that were changed.
   */
  uint64_t changed;
  /**
   * Records that were skipped, because another thread wrote them meanwhile.
   */
  uint64_t skipped;
} bolide_bulk_result;

/**
 * The progress of an index build.
 */
typedef struct {
  /**
   * The completed share, from 0 to 1.
   */
  double share;
  /**
   * Records whose entries are in the index.
   */
  uint64_t records;
  /**
   * The estimated number of records to read.
   */
  uint64_t expected_records;
  /**
   * Entries that were added.
   */
  uint64_t entries;
  /**
   * Malformed records that were skipped.
   */
  uint64_t malformed;
  /**
   * Seconds since the start, or the duration.
   */
  double elapsed_seconds;
  /**
   * Whether queries use the index.
   */
  bool is_ready;
} bolide_build_progress;

/**
 * A column of an Arrow stream.
 *
 * `name` is a path, as "total" or "user.id", or "_key", "_sequence", "_record" (the whole record). `type_name` is "int64", "float64",
 * "string", "bool", "date", "timestamp" (ISO text), "timestamp[ms]" (integers), "json", or "list<…>" of these; with `type_size` 0 the
 * type is inferred from a sample of the records.
 */
typedef struct {
  /**
   * The name, in UTF-8.
   */
  const char *name;
  /**
   * Bytes of `name`.
   */
  size_t name_size;
  /**
   * The type, in UTF-8.
   */
  const char *type_name;
  /**
   * Bytes of `type_name`.
   */
  size_t type_size;
} bolide_column;

/**
 * Keys of a collection.
 */
typedef int32_t bolide_key_format;

/**
 * Records of a collection.
 */
typedef int32_t bolide_record_kind;

/**
 * The layout of the sorted runs of a collection.
 */
typedef int32_t bolide_layout;

/**
 * The compression of blocks.
 */
typedef int32_t bolide_compression;

/**
 * The call succeeded.
 */
#define BOLIDE_OK 0

/**
 * The call succeeded and there is nothing: no record under the key, no further record or answer. There is no error object.
 */
#define BOLIDE_ABSENT -1

/**
 * The input is invalid: fix it and call again.
 */
#define BOLIDE_INVALID_INPUT 1

/**
 * The input is over a documented limit: make it smaller.
 */
#define BOLIDE_LIMIT_EXCEEDED 2

/**
 * The named collection, index or file does not exist.
 */
#define BOLIDE_NOT_FOUND 3

/**
 * The named object exists already, another operation of the database uses it, or another commit changed what this one depends on:
 * choose another name, wait, or run the transaction again.
 */
#define BOLIDE_CONFLICT 4

/**
 * Another process, or another handle in this process, has the database open.
 */
#define BOLIDE_LOCKED 5

/**
 * Bytes on disk are damaged: restore them from a copy.
 */
#define BOLIDE_CORRUPTION 6

/**
 * The file was written by a newer version of Bolide, or is none of Bolide.
 */
#define BOLIDE_UNSUPPORTED 7

/**
 * The disk, the quota or the memory budget is exhausted, and nothing was written: free some, then retry.
 */
#define BOLIDE_NO_SPACE 8

/**
 * The operating system refused an operation.
 */
#define BOLIDE_IO 9

/**
 * The handle or the medium is read-only.
 */
#define BOLIDE_READ_ONLY 10

/**
 * An earlier write failed, so that this handle refuses further ones: open the database again.
 */
#define BOLIDE_POISONED 11

/**
 * A token or a snapshot is no longer available: start the query again.
 */
#define BOLIDE_EXPIRED 12

/**
 * The database is closed, or the transaction has ended.
 */
#define BOLIDE_CLOSED 13

/**
 * An invariant of Bolide itself is broken, or a function panicked: report a bug.
 */
#define BOLIDE_INTERNAL 14

/**
 * The object belongs to the parent process, whose threads do not exist in this one.
 */
#define BOLIDE_FORKED 15

/**
 * Another thread is inside a call with the object, or objects that depend on it exist: nothing was changed. Free them, or wait for
 * the thread, and call again.
 */
#define BOLIDE_IN_USE 16

/**
 * The caller interrupted the call. No function of this version returns it.
 */
#define BOLIDE_INTERRUPTED 17

/**
 * That of the database.
 */
#define BOLIDE_SYNC_DEFAULT 0

/**
 * One sync serves many writes: a power cut may lose the last moments.
 */
#define BOLIDE_SYNC_BATCH 1

/**
 * The write returns after it was synced.
 */
#define BOLIDE_SYNC_ALWAYS 2

/**
 * The operating system writes at a time of its choice.
 */
#define BOLIDE_SYNC_NONE 3

/**
 * The commit fails if another one has changed anything that the transaction read.
 */
#define BOLIDE_SERIALIZABLE 0

/**
 * The commit fails if another one has changed what the transaction writes, or has read for an update.
 */
#define BOLIDE_SNAPSHOT_ISOLATION 1

/**
 * JSON's null.
 */
#define BOLIDE_VALUE_NULL 0

/**
 * A boolean: `int_value` is 0 or 1.
 */
#define BOLIDE_VALUE_BOOL 1

/**
 * An integer: `int_value`.
 */
#define BOLIDE_VALUE_INT 2

/**
 * A number: `float_value`, which is finite.
 */
#define BOLIDE_VALUE_FLOAT 3

/**
 * A text: `text` and `text_size`.
 */
#define BOLIDE_VALUE_TEXT 4

/**
 * Bytes that are no encoding of another kind.
 */
#define BOLIDE_KEY_BYTES 0

/**
 * An integer.
 */
#define BOLIDE_KEY_INT 1

/**
 * An integer over `INT64_MAX`.
 */
#define BOLIDE_KEY_UINT 2

/**
 * A text.
 */
#define BOLIDE_KEY_TEXT 3

/**
 * 1: create a missing database (default); 0: a missing one is an error.
 */
#define BOLIDE_OPTION_CREATE_IF_MISSING 1

/**
 * 1: change no byte and take no lock; there must be no writer. Default: 0.
 */
#define BOLIDE_OPTION_READ_ONLY 2

/**
 * A `bolide_sync`. Default: `BOLIDE_SYNC_BATCH`.
 */
#define BOLIDE_OPTION_SYNC 3

/**
 * The longest time without a sync under `BOLIDE_SYNC_BATCH`, in microseconds.
 */
#define BOLIDE_OPTION_SYNC_INTERVAL_MICROS 4

/**
 * The memory budget, in bytes. Its default and those of the parts of it follow the memory of the machine.
 */
#define BOLIDE_OPTION_MEMORY_BYTES 5

/**
 * The cache of blocks, in bytes.
 */
#define BOLIDE_OPTION_CACHE_BYTES 6

/**
 * The cache of single records, in bytes.
 */
#define BOLIDE_OPTION_ROW_CACHE_BYTES 7

/**
 * A memtable, in bytes.
 */
#define BOLIDE_OPTION_MEMTABLE_BYTES 8

/**
 * Threads for flushes and compactions.
 */
#define BOLIDE_OPTION_BACKGROUND_THREADS 9

/**
 * Files that are open at once.
 */
#define BOLIDE_OPTION_MAX_OPEN_FILES 10

/**
 * Threads that help queries to fetch records.
 */
#define BOLIDE_OPTION_FETCH_THREADS 11

/**
 * Space that is reserved for deletes on a full disk, in bytes.
 */
#define BOLIDE_OPTION_RESERVE_BYTES 12

/**
 * A `bolide_key_format`. Default: `BOLIDE_KEYS_BYTES`.
 */
#define BOLIDE_COLLECTION_KEYS 1

/**
 * A `bolide_record_kind`. Default: `BOLIDE_RECORDS_JSON`.
 */
#define BOLIDE_COLLECTION_RECORDS 2

/**
 * A `bolide_layout`. Default: `BOLIDE_LAYOUT_LEVELED`.
 */
#define BOLIDE_COLLECTION_LAYOUT 3

/**
 * A `bolide_compression`. Default: `BOLIDE_COMPRESSION_LZ4`.
 */
#define BOLIDE_COLLECTION_COMPRESSION 4

/**
 * A data block, in bytes.
 */
#define BOLIDE_COLLECTION_BLOCK_BYTES 5

/**
 * The Bloom filters, in bits for each key.
 */
#define BOLIDE_COLLECTION_BLOOM_BITS_PER_KEY 6

/**
 * An sstable, in bytes.
 */
#define BOLIDE_COLLECTION_TARGET_FILE_BYTES 7

/**
 * Any bytes, in their order.
 */
#define BOLIDE_KEYS_BYTES 0

/**
 * Integers and texts, which are encoded by `bolide_key_of_int` and `bolide_key_of_text`; integers sort as numbers.
 */
#define BOLIDE_KEYS_TYPED 1

/**
 * JSON objects.
 */
#define BOLIDE_RECORDS_JSON 0

/**
 * Any bytes, without indexes.
 */
#define BOLIDE_RECORDS_BYTES 1

/**
 * Levels of one run each.
 */
#define BOLIDE_LAYOUT_LEVELED 0

/**
 * Levels of several runs.
 */
#define BOLIDE_LAYOUT_TIERED 1

/**
 * Levels of fragments.
 */
#define BOLIDE_LAYOUT_FRAGMENTED 2

/**
 * Partitions with sorted views.
 */
#define BOLIDE_LAYOUT_PARTITIONED 3

/**
 * None.
 */
#define BOLIDE_COMPRESSION_NONE 0

/**
 * LZ4.
 */
#define BOLIDE_COMPRESSION_LZ4 1

/**
 * Zstandard.
 */
#define BOLIDE_COMPRESSION_ZSTD 2

/**
 * There is no record under the key.
 */
#define BOLIDE_EXPECT_ABSENT 0

/**
 * There is a record under the key.
 */
#define BOLIDE_EXPECT_PRESENT 1

/**
 * The record under the key is that of the write with the sequence number.
 */
#define BOLIDE_EXPECT_SEQUENCE 2

/**
 * The most recently written record first.
 */
#define BOLIDE_ORDER_NEWEST 0

/**
 * The least recently written record first.
 */
#define BOLIDE_ORDER_OLDEST 1

/**
 * By the value of the attribute of the first range, the smallest first.
 */
#define BOLIDE_ORDER_VALUE 2

/**
 * By the value of the attribute of the first range, the largest first.
 */
#define BOLIDE_ORDER_VALUE_DESCENDING 3

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the interface of the loaded library. A program that was compiled with this header compares it with
 * `BOLIDE_ABI_VERSION`: other versions are incompatible.
 */
uint32_t bolide_abi_version(void);

/**
 * The version of Bolide, as "0.1.0". Static: never freed.
 */
const char *bolide_version(void);

/**
 * The code of an error; `BOLIDE_OK` for NULL.
 */
bolide_code bolide_error_code(const bolide_error *error);

/**
 * The message: what failed and where. UTF-8 that ends with NUL; valid until the error is freed. Empty for NULL.
 */
const char *bolide_error_message(const bolide_error *error);

/**
 * What the caller can do. UTF-8 that ends with NUL; valid until the error is freed. Empty for NULL.
 */
const char *bolide_error_advice(const bolide_error *error);

/**
 * Frees an error. Does nothing for NULL.
 */
void bolide_error_free(bolide_error *error);

/**
 * Frees bytes that a function returned, and sets all fields to NULL and 0. Does nothing for NULL, nor the second time.
 */
void bolide_bytes_free(bolide_bytes *bytes);

/**
 * Encodes an integer as a typed key. The caller frees it.
 */
bolide_code bolide_key_of_int(int64_t value, bolide_bytes *key, bolide_error **error);

/**
 * As `bolide_key_of_int`, for an integer that may be over `INT64_MAX`.
 */
bolide_code bolide_key_of_uint(uint64_t value, bolide_bytes *key, bolide_error **error);

/**
 * Encodes a text as a typed key. The caller frees it.
 */
bolide_code bolide_key_of_text(const char *text, size_t text_size, bolide_bytes *key, bolide_error **error);

/**
 * Decodes a typed key. The caller frees its `text`.
 */
bolide_code bolide_key_decode(const void *key, size_t key_size, bolide_key *decoded, bolide_error **error);

/**
 * New settings of a database, all with their defaults. Never NULL.
 */
bolide_options *bolide_options_new(void);

/**
 * Sets one option, a constant `BOLIDE_OPTION_*`.
 */
bolide_code bolide_options_set(bolide_options *options, bolide_option option, uint64_t value, bolide_error **error);

/**
 * Frees settings. Does nothing for NULL.
 */
void bolide_options_free(bolide_options *options);

/**
 * New settings of a collection, all with their defaults. Never NULL.
 */
bolide_collection_options *bolide_collection_options_new(void);

/**
 * Sets one option, a constant `BOLIDE_COLLECTION_*`.
 */
bolide_code bolide_collection_options_set(bolide_collection_options *options,
                                          bolide_collection_option option,
                                          uint64_t value,
                                          bolide_error **error);

/**
 * Adds an index, for example "state", "customer+total", "tags[*]:next": attributes and perhaps a kind.
 */
bolide_code bolide_collection_options_add_index(bolide_collection_options *options,
                                                const char *spec,
                                                size_t spec_size,
                                                bolide_error **error);

/**
 * Frees settings. Does nothing for NULL.
 */
void bolide_collection_options_free(bolide_collection_options *options);

/**
 * Opens the database in a directory, or a new one in memory for the path ":memory:". `options` may be NULL for the defaults.
 *
 * `BOLIDE_LOCKED` if it is open elsewhere; `BOLIDE_NOT_FOUND` if it is missing and is not to be created; `BOLIDE_FORKED` in a child
 * process whose parent had a database open at the fork.
 */
bolide_code bolide_open(const char *path,
                        size_t path_size,
                        const bolide_options *options,
                        bolide_db **db,
                        bolide_error **error);

/**
 * Closes a database and frees its handle. Syncs what was written.
 *
 * `BOLIDE_IN_USE` if other objects of it exist (collections, snapshots, batches, transactions, cursors, answers, index builds,
 * Arrow streams): the handle stays valid then. So it does after `BOLIDE_FORKED`, and `BOLIDE_INVALID_INPUT` for a pointer to
 * something else. It is freed after all other errors. No other thread may use the handle. Does nothing for NULL.
 */
bolide_code bolide_close(bolide_db *db,
                         bolide_error **error);

/**
 * Frees the handle of a database. The database is closed now, or as soon as its last object is freed; errors of closing are
 * not reported. For languages that free objects in any order. Does nothing for NULL.
 */
void bolide_db_free(bolide_db *db);

/**
 * Stores in `has_writer` whether a database is open for writing now, in this process or another one.
 */
bolide_code bolide_has_writer(const char *path, size_t path_size, bool *has_writer, bolide_error **error);

/**
 * Copies what is intact in a damaged database to a new one in the directory `target`. `report` receives a report as text,
 * which the caller frees; it may be NULL.
 */
bolide_code bolide_repair(const char *source,
                          size_t source_size,
                          const char *target,
                          size_t target_size,
                          bolide_bytes *report,
                          bolide_error **error);

/**
 * Opens a collection. `BOLIDE_NOT_FOUND` if there is none of this name.
 */
bolide_code bolide_collection_open(const bolide_db *db,
                                   const char *name,
                                   size_t name_size,
                                   bolide_collection **collection,
                                   bolide_error **error);

/**
 * Creates a collection with its indexes. `options` may be NULL for the defaults. `BOLIDE_CONFLICT` if there is one of this name.
 */
bolide_code bolide_collection_create(const bolide_db *db,
                                     const char *name,
                                     size_t name_size,
                                     const bolide_collection_options *options,
                                     bolide_collection **collection,
                                     bolide_error **error);

/**
 * Drops a collection with its records and indexes. Its handles return `BOLIDE_NOT_FOUND` afterwards.
 */
bolide_code bolide_collection_drop(const bolide_db *db, const char *name, size_t name_size, bolide_error **error);

/**
 * The names of all collections, as a JSON array of texts, which the caller frees.
 */
bolide_code bolide_collections(const bolide_db *db, bolide_bytes *json, bolide_error **error);

/**
 * Syncs all writes so far: a power cut cannot lose them.
 */
bolide_code bolide_sync_log(const bolide_db *db, bolide_error **error);

/**
 * Writes all memtables to sstables, and waits for it. Not needed for durability.
 */
bolide_code bolide_flush(const bolide_db *db, bolide_error **error);

/**
 * Merges all sorted runs of all collections and indexes, and waits for it. Not needed in normal use.
 */
bolide_code bolide_compact(const bolide_db *db, bolide_error **error);

/**
 * Waits until no flush or compaction is due.
 */
bolide_code bolide_wait_until_settled(const bolide_db *db, bolide_error **error);

/**
 * Copies the database as it is now to a new directory. Writers go on meanwhile.
 */
bolide_code bolide_checkpoint(const bolide_db *db, const char *path, size_t path_size, bolide_error **error);

/**
 * Reads all files and verifies their checksums; with `deep` also compares all indexes with their records. Stores in `is_sound`
 * whether there is no problem, and in `json` a report, which the caller frees; either may be NULL.
 */
bolide_code bolide_check(const bolide_db *db,
                         bool deep,
                         bool *is_sound,
                         bolide_bytes *json,
                         bolide_error **error);

/**
 * Sizes and counters of the database, its collections and indexes, as a JSON object, which the caller frees.
 */
bolide_code bolide_stats(const bolide_db *db, bolide_bytes *json, bolide_error **error);

/**
 * Frees the handle of a collection; the collection stays. Does nothing for NULL.
 */
void bolide_collection_free(bolide_collection *collection);

/**
 * The name of a collection, which the caller frees.
 */
bolide_code bolide_collection_name(const bolide_collection *collection, bolide_bytes *name, bolide_error **error);

/**
 * Puts a record under a key and replaces an existing one. `BOLIDE_INVALID_INPUT` for a record that is no JSON object, except in a
 * collection of bytes. A key has at most 65,535 bytes, a record 64 MiB.
 */
bolide_code bolide_put(const bolide_collection *collection,
                       const void *key,
                       size_t key_size,
                       const void *record,
                       size_t record_size,
                       bolide_error **error);

/**
 * As `bolide_put`, with a mode of syncing of its own.
 */
bolide_code bolide_put_sync(const bolide_collection *collection,
                            const void *key,
                            size_t key_size,
                            const void *record,
                            size_t record_size,
                            bolide_sync sync,
                            bolide_error **error);

/**
 * Deletes the record under a key. A missing record is no error, and is not looked up.
 */
bolide_code bolide_delete(const bolide_collection *collection, const void *key, size_t key_size, bolide_error **error);

/**
 * Deletes all records with keys in a range, in constant time. `range` is not NULL.
 */
bolide_code bolide_delete_range(const bolide_collection *collection, const bolide_range *range, bolide_error **error);

/**
 * Reads the record under a key: the latest, or with `snapshot`, which may be NULL, that of the snapshot. The caller frees it.
 * Stores the sequence number of the write that put it in `sequence`, which may be NULL, and is 0 for a read of a snapshot.
 * `BOLIDE_ABSENT` if there is none.
 *
 * The bytes may be those of a block of the cache, which stays in memory until they are freed.
 */
bolide_code bolide_get(const bolide_collection *collection,
                       const void *key,
                       size_t key_size,
                       const bolide_snapshot *snapshot,
                       bolide_bytes *record,
                       uint64_t *sequence,
                       bolide_error **error);

/**
 * Reads the records under `count` keys, all at one moment, in their order: `records[n]` receives that under `keys[n]`, or NULL and
 * 0 for none. The caller frees each. At most 1,048,576 keys; for more, and only then, `records` is left as it was.
 */
bolide_code bolide_multi_get(const bolide_collection *collection,
                             const bolide_slice *keys,
                             size_t count,
                             bolide_bytes *records,
                             bolide_error **error);

/**
 * Merges all sorted runs of a collection and its indexes, and waits for it.
 */
bolide_code bolide_collection_compact(const bolide_collection *collection, bolide_error **error);

/**
 * A new batch without writes.
 */
bolide_code bolide_batch_new(const bolide_db *db, bolide_batch **batch, bolide_error **error);

/**
 * Adds a put.
 */
bolide_code bolide_batch_put(bolide_batch *batch,
                             const bolide_collection *collection,
                             const void *key,
                             size_t key_size,
                             const void *record,
                             size_t record_size,
                             bolide_error **error);

/**
 * Adds a delete of a record, if there is one.
 */
bolide_code bolide_batch_delete(bolide_batch *batch,
                                const bolide_collection *collection,
                                const void *key,
                                size_t key_size,
                                bolide_error **error);

/**
 * Adds a delete of all records with keys in a range. `range` is not NULL.
 */
bolide_code bolide_batch_delete_range(bolide_batch *batch,
                                      const bolide_collection *collection,
                                      const bolide_range *range,
                                      bolide_error **error);

/**
 * Makes the write of the batch depend on the record under a key, as the writes before in the batch leave it: otherwise it fails with
 * `BOLIDE_CONFLICT`. `sequence` is used by `BOLIDE_EXPECT_SEQUENCE` only.
 */
bolide_code bolide_batch_expect(bolide_batch *batch,
                                const bolide_collection *collection,
                                const void *key,
                                size_t key_size,
                                bolide_expected expected,
                                uint64_t sequence,
                                bolide_error **error);

/**
 * The number of writes; 0 for NULL, and while another thread uses the batch.
 */
size_t bolide_batch_count(const bolide_batch *batch);

/**
 * Removes all writes and expectations.
 */
bolide_code bolide_batch_clear(bolide_batch *batch, bolide_error **error);

/**
 * Commits all writes of a batch, which is empty afterwards, also after an error. Stores the sequence number of the last one in
 * `sequence`, which may be NULL.
 */
bolide_code bolide_batch_write(bolide_batch *batch,
                               bolide_sync sync,
                               uint64_t *sequence,
                               bolide_error **error);

/**
 * Frees a batch. Writes that were not committed have no effect. Does nothing for NULL.
 */
void bolide_batch_free(bolide_batch *batch);

/**
 * Makes a snapshot of all collections as they are now.
 */
bolide_code bolide_snapshot_new(const bolide_db *db, bolide_snapshot **snapshot, bolide_error **error);

/**
 * The sequence number of the last write that the snapshot contains; 0 for NULL.
 */
uint64_t bolide_snapshot_sequence(const bolide_snapshot *snapshot);

/**
 * Frees a snapshot. What was opened with it stays valid. Does nothing for NULL.
 */
void bolide_snapshot_free(bolide_snapshot *snapshot);

/**
 * Begins a transaction. `max_bytes` is its largest memory; 0 for the default of 64 MiB.
 */
bolide_code bolide_begin(const bolide_db *db,
                         bolide_isolation isolation_level,
                         bolide_sync sync,
                         uint64_t max_bytes,
                         bolide_transaction **transaction,
                         bolide_error **error);

/**
 * Commits all writes, and stores the sequence number of the last one in `sequence`, which may be NULL. The transaction has ended
 * afterwards, also after an error other than `BOLIDE_IN_USE`, `BOLIDE_FORKED` and `BOLIDE_INVALID_INPUT`; its handle is to be freed.
 *
 * `BOLIDE_CONFLICT` if another commit has changed what it depends on: begin another transaction and repeat the work.
 * `BOLIDE_IN_USE`, and the transaction is as it was, if a cursor or answers of it exist, or another thread is inside a call with it.
 */
bolide_code bolide_commit(bolide_transaction *transaction,
                          uint64_t *sequence,
                          bolide_error **error);

/**
 * Frees the handle of a transaction. One that was not committed has no effect; it ends with its last cursor. Does nothing for NULL.
 */
void bolide_transaction_free(bolide_transaction *transaction);

/**
 * Reads the record under a key, with the writes of the transaction. The caller frees it. With `for_update`, the commit also fails
 * under `BOLIDE_SNAPSHOT_ISOLATION` if another one has changed the record. `BOLIDE_ABSENT` if there is none.
 */
bolide_code bolide_transaction_get(const bolide_transaction *transaction,
                                   const bolide_collection *collection,
                                   const void *key,
                                   size_t key_size,
                                   bool for_update,
                                   bolide_bytes *record,
                                   bolide_error **error);

/**
 * Puts a record at the commit. Reads of the transaction see it at once.
 */
bolide_code bolide_transaction_put(const bolide_transaction *transaction,
                                   const bolide_collection *collection,
                                   const void *key,
                                   size_t key_size,
                                   const void *record,
                                   size_t record_size,
                                   bolide_error **error);

/**
 * Deletes the record under a key at the commit, if there is one.
 */
bolide_code bolide_transaction_delete(const bolide_transaction *transaction,
                                      const bolide_collection *collection,
                                      const void *key,
                                      size_t key_size,
                                      bolide_error **error);

/**
 * Deletes all records with keys in a range at the commit. `range` is not NULL.
 */
bolide_code bolide_transaction_delete_range(const bolide_transaction *transaction,
                                            const bolide_collection *collection,
                                            const bolide_range *range,
                                            bolide_error **error);

/**
 * Stores the number of records that satisfy a query in `count`, with the writes of the transaction.
 */
bolide_code bolide_transaction_count(const bolide_transaction *transaction,
                                     const bolide_collection *collection,
                                     const bolide_query *query,
                                     uint64_t *count,
                                     bolide_error **error);

/**
 * The present position among the writes of a transaction. The caller frees it.
 */
bolide_code bolide_savepoint_new(const bolide_transaction *transaction,
                                 bolide_savepoint **savepoint,
                                 bolide_error **error);

/**
 * Removes the writes after a savepoint. What was read is validated nevertheless.
 */
bolide_code bolide_rollback_to(const bolide_transaction *transaction,
                               const bolide_savepoint *savepoint,
                               bolide_error **error);

/**
 * Frees a savepoint; the writes stay. Does nothing for NULL.
 */
void bolide_savepoint_free(bolide_savepoint *savepoint);

/**
 * Opens a cursor over the records with keys in `range`, or all for NULL: the latest, or with `snapshot`, which may be NULL, those of
 * the snapshot. It is at no record.
 */
bolide_code bolide_cursor_open(const bolide_collection *collection,
                               const bolide_range *range,
                               const bolide_snapshot *snapshot,
                               bolide_cursor **cursor,
                               bolide_error **error);

/**
 * As `bolide_cursor_open`, in a transaction, with its writes until now. It has to be freed before the commit.
 */
bolide_code bolide_transaction_cursor(const bolide_transaction *transaction,
                                      const bolide_collection *collection,
                                      const bolide_range *range,
                                      bolide_cursor **cursor,
                                      bolide_error **error);

/**
 * Moves to the first record, and stores it in `row`, which may be NULL. `BOLIDE_ABSENT` if there is none.
 *
 * All records in order: `for (code = bolide_cursor_first(c, &row, &e); code == BOLIDE_OK; code = bolide_cursor_next(c, &row, &e))`.
 */
bolide_code bolide_cursor_first(bolide_cursor *cursor,
                                bolide_row *row,
                                bolide_error **error);

/**
 * Moves to the last record; otherwise as `bolide_cursor_first`.
 */
bolide_code bolide_cursor_last(bolide_cursor *cursor, bolide_row *row, bolide_error **error);

/**
 * Moves to the next record; otherwise as `bolide_cursor_first`. `BOLIDE_ABSENT` if it is at no record. After an error, it returns the
 * same error until another function has moved the cursor.
 */
bolide_code bolide_cursor_next(bolide_cursor *cursor,
                               bolide_row *row,
                               bolide_error **error);

/**
 * Moves to the previous record; otherwise as `bolide_cursor_next`.
 */
bolide_code bolide_cursor_previous(bolide_cursor *cursor, bolide_row *row, bolide_error **error);

/**
 * Moves to the first record at or after a key, which may be one that the cursor lends; otherwise as `bolide_cursor_first`.
 */
bolide_code bolide_cursor_seek(bolide_cursor *cursor,
                               const void *key,
                               size_t key_size,
                               bolide_row *row,
                               bolide_error **error);

/**
 * Moves to the last record at or before a key, which may be one that the cursor lends; otherwise as `bolide_cursor_first`.
 */
bolide_code bolide_cursor_seek_previous(bolide_cursor *cursor,
                                        const void *key,
                                        size_t key_size,
                                        bolide_row *row,
                                        bolide_error **error);

/**
 * Frees a cursor. Does nothing for NULL.
 */
void bolide_cursor_free(bolide_cursor *cursor);

/**
 * A new query for the records that satisfy a filter, newest first: `state = "open" and (total > 10 or tags[*] in ("a", "b"))`. An
 * empty text is for all records. The caller frees it.
 *
 * The tests are `=`, `!=`, `<`, `<=`, `>`, `>=`, `in (…)`, `in A..B`, `starts with`, `exists`, `is null`, `is absent`,
 * `within(…)`, `nearest(…)`, joined by `and`, `or`, `not`. For values from elsewhere, use `bolide_query_equal` and
 * `bolide_query_between`, which need no quotes.
 */
bolide_code bolide_query_new(const char *filter,
                             size_t filter_size,
                             bolide_query **query,
                             bolide_error **error);

/**
 * Adds the condition that an attribute equals a value.
 */
bolide_code bolide_query_equal(bolide_query *query,
                               const char *attribute,
                               size_t attribute_size,
                               const bolide_value *value,
                               bolide_error **error);

/**
 * Adds the condition that an attribute lies between two values, both included. Either may be NULL for no limit.
 */
bolide_code bolide_query_between(bolide_query *query,
                                 const char *attribute,
                                 size_t attribute_size,
                                 const bolide_value *low,
                                 const bolide_value *high,
                                 bolide_error **error);

/**
 * Sets the order of the answers.
 */
bolide_code bolide_query_set_order(bolide_query *query, bolide_order order, bolide_error **error);

/**
 * Sorts the answers by an attribute, and by further ones of further calls where the values before are equal.
 */
bolide_code bolide_query_sort_by(bolide_query *query,
                                 const char *attribute,
                                 size_t attribute_size,
                                 bool descending,
                                 bolide_error **error);

/**
 * Limits the answers to the first `limit` ones.
 */
bolide_code bolide_query_set_limit(bolide_query *query, uint64_t limit, bolide_error **error);

/**
 * Limits the answers for each value of the attribute of the first range.
 */
bolide_code bolide_query_set_limit_per_value(bolide_query *query, uint64_t limit, bolide_error **error);

/**
 * Returns the values at a path in place of records, and those of the paths of further calls; see `bolide_row`.
 */
bolide_code bolide_query_select(bolide_query *query,
                                const char *attribute,
                                size_t attribute_size,
                                bolide_error **error);

/**
 * Returns the part of each record at a path in place of the whole, and those of the paths of further calls: a JSON object.
 */
bolide_code bolide_query_select_part(bolide_query *query,
                                     const char *attribute,
                                     size_t attribute_size,
                                     bolide_error **error);

/**
 * Returns keys without records.
 */
bolide_code bolide_query_keys_only(bolide_query *query, bolide_error **error);

/**
 * Uses the index with this name.
 */
bolide_code bolide_query_use_index(bolide_query *query, const char *index, size_t index_size, bolide_error **error);

/**
 * Continues after the answers that were returned before; `token` is that of `bolide_answers_token`. An empty token starts again.
 */
bolide_code bolide_query_set_token(bolide_query *query,
                                   const char *token,
                                   size_t token_size,
                                   bolide_error **error);

/**
 * Measures times for `bolide_answers_explain`.
 */
bolide_code bolide_query_measure(bolide_query *query, bolide_error **error);

/**
 * Reports the first invalid part of a query, as its execution would do.
 */
bolide_code bolide_query_check(const bolide_query *query, bolide_error **error);

/**
 * Frees a query. What was opened with it stays valid. Does nothing for NULL.
 */
void bolide_query_free(bolide_query *query);

/**
 * Runs a query: on the latest state, or with `snapshot`, which may be NULL, on that of the snapshot. The answers hold that state
 * until they are freed. Changes of the query afterwards have no effect on them.
 */
bolide_code bolide_find(const bolide_collection *collection,
                        const bolide_query *query,
                        const bolide_snapshot *snapshot,
                        bolide_answers **answers,
                        bolide_error **error);

/**
 * As `bolide_find`, in a transaction, with its writes until now. The answers have to be freed before the commit.
 */
bolide_code bolide_transaction_find(const bolide_transaction *transaction,
                                    const bolide_collection *collection,
                                    const bolide_query *query,
                                    bolide_answers **answers,
                                    bolide_error **error);

/**
 * Stores the next answer in `row`, which may be NULL. `BOLIDE_ABSENT` after the last one. After an error, it returns the same error
 * again: the answers are not complete.
 */
bolide_code bolide_answers_next(bolide_answers *answers,
                                bolide_row *row,
                                bolide_error **error);

/**
 * The execution report of what was read so far, as a JSON object, which the caller frees: the plan and its costs.
 */
bolide_code bolide_answers_explain(bolide_answers *answers, bolide_bytes *json, bolide_error **error);

/**
 * The token for the answers after the last one that was read, for `bolide_query_set_token`. The caller frees it. `BOLIDE_ABSENT` if
 * there are none.
 */
bolide_code bolide_answers_token(bolide_answers *answers,
                                 bolide_bytes *token,
                                 bolide_error **error);

/**
 * Frees answers and releases their state. Does nothing for NULL.
 */
void bolide_answers_free(bolide_answers *answers);

/**
 * Stores the number of records that satisfy a query, up to its limit, in `count`. `snapshot` may be NULL for the latest state.
 */
bolide_code bolide_count(const bolide_collection *collection,
                         const bolide_query *query,
                         const bolide_snapshot *snapshot,
                         uint64_t *count,
                         bolide_error **error);

/**
 * Number, sum, mean, smallest and largest value of an attribute over the answers to a query, as a JSON object with `records`,
 * `values`, `numbers`, `sum`, `mean`, `min`, `max`. The caller frees it.
 */
bolide_code bolide_summarize(const bolide_collection *collection,
                             const bolide_query *query,
                             const char *attribute,
                             size_t attribute_size,
                             bolide_bytes *json,
                             bolide_error **error);

/**
 * The distinct values of an attribute over the answers to a query, each with its number of records: a JSON array of pairs, which the
 * caller frees. More than `max` values are an error.
 */
bolide_code bolide_distinct(const bolide_collection *collection,
                            const bolide_query *query,
                            const char *attribute,
                            size_t attribute_size,
                            size_t max,
                            bolide_bytes *json,
                            bolide_error **error);

/**
 * The planner's estimate for a query, without reading data: a JSON object with `records`, `exact`, `micros` and `indexes`. The
 * caller frees it.
 */
bolide_code bolide_estimate(const bolide_collection *collection,
                            const bolide_query *query,
                            bolide_bytes *json,
                            bolide_error **error);

/**
 * Deletes all records that satisfy a query, in batches of 1,000. `result` may be NULL. The query has no order, limit, token or
 * selection. After an error, the batches before it stay, and `result` has their counts.
 */
bolide_code bolide_delete_where(const bolide_collection *collection,
                                const bolide_query *query,
                                bolide_sync sync,
                                bolide_bulk_result *result,
                                bolide_error **error);

/**
 * Creates an index from a declaration, as "state", "customer+total" or "tags[*]:next", fills it, and waits for it. Writers go on
 * meanwhile. `BOLIDE_CONFLICT` if there is one of this name.
 */
bolide_code bolide_index_create(const bolide_collection *collection,
                                const char *spec,
                                size_t spec_size,
                                bolide_error **error);

/**
 * As `bolide_index_create`, without waiting. `records_per_second` limits the speed; 0 for no limit. The caller frees `build`.
 */
bolide_code bolide_index_create_background(const bolide_collection *collection,
                                           const char *spec,
                                           size_t spec_size,
                                           uint64_t records_per_second,
                                           bolide_index_build **build,
                                           bolide_error **error);

/**
 * Stores the progress of a build in `progress`.
 */
bolide_code bolide_index_build_progress(const bolide_index_build *build,
                                        bolide_build_progress *progress,
                                        bolide_error **error);

/**
 * Waits for the end of a build, at most `timeout_millis` milliseconds; `UINT64_MAX` for no limit. `BOLIDE_ABSENT` if it goes on;
 * otherwise `BOLIDE_OK` or the error of the build.
 */
bolide_code bolide_index_build_wait(const bolide_index_build *build,
                                    uint64_t timeout_millis,
                                    bolide_error **error);

/**
 * Frees the handle of a build, which goes on. Does nothing for NULL.
 */
void bolide_index_build_free(bolide_index_build *build);

/**
 * Fills an index again, and waits for it. Queries use the old one meanwhile.
 */
bolide_code bolide_index_rebuild(const bolide_collection *collection,
                                 const char *name,
                                 size_t name_size,
                                 bolide_error **error);

/**
 * Drops an index. `BOLIDE_NOT_FOUND` if there is none of this name.
 */
bolide_code bolide_index_drop(const bolide_collection *collection,
                              const char *name,
                              size_t name_size,
                              bolide_error **error);

/**
 * The indexes of a collection, as a JSON array of objects with `name`, `spec`, `kind`, `attributes`, `state`, `progress`, `rebuild`,
 * `problem` and `damage`. The caller frees it.
 */
bolide_code bolide_indexes(const bolide_collection *collection,
                           bolide_bytes *json,
                           bolide_error **error);

/**
 * Advises an index for an attribute: a JSON object with `spec`, `kind` and `reasons`, which the caller frees. Reads the whole
 * collection, and builds trial indexes over a sample in memory: takes seconds.
 */
bolide_code bolide_advise(const bolide_collection *collection,
                          const char *attribute,
                          size_t attribute_size,
                          bolide_bytes *json,
                          bolide_error **error);

/**
 * Exports the answers to a query as an Arrow stream (the C stream interface). Its consumer releases it, from any thread; it keeps
 * the database open until then. A value of another type than that of its column is NULL.
 *
 * `snapshot` may be NULL for the latest state. `columns` may be NULL, with `column_count` 0, for the key and all attributes of a sample
 * of the records in that state. `batch_rows` is the largest number of rows of a batch; 0 for 8,192. The query has no selection.
 */
bolide_code bolide_find_arrow(const bolide_collection *collection,
                              const bolide_query *query,
                              const bolide_snapshot *snapshot,
                              const bolide_column *columns,
                              size_t column_count,
                              size_t batch_rows,
                              struct ArrowArrayStream *stream,
                              bolide_error **error);

/**
 * Puts the rows of all batches of an Arrow stream (the C stream interface) as records, in batches of 4 MiB. `key_column` has the keys:
 * texts, binary, or in a collection of typed keys integers. A NULL is an absent field.
 *
 * The stream is always consumed: it is released before the function returns. Stores the number of rows in `rows`, which may be NULL.
 * After an error, the batches of writes before it stay.
 */
bolide_code bolide_import_arrow(const bolide_collection *collection,
                                struct ArrowArrayStream *stream,
                                const char *key_column,
                                size_t key_column_size,
                                bolide_sync sync,
                                uint64_t *rows,
                                bolide_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BOLIDE_H */
