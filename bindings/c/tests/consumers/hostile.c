/* Wrong arguments: NULL, objects of another type, wrong enumerators, lengths over the limits, invalid UTF-8, freeing in any order. */
#include "check.h"

#define BAD_TEXT "\xff\xfe", 2

static void null_handles(void) {
  bolide_bytes bytes;
  bolide_row row;
  bolide_key key;
  bolide_build_progress progress;
  bolide_range range = {0};
  bolide_value value = {BOLIDE_VALUE_INT, 1, 0, NULL, 0};
  struct ArrowArrayStream stream;
  uint64_t number;
  void *object = &bytes;
#define REFUSED(call) FAILS(BOLIDE_INVALID_INPUT, "NULL", call)
  REFUSED(bolide_open(BOLIDE_TEXT(":memory:"), NULL, NULL, &error));
  REFUSED(bolide_open(NULL, 5, NULL, (bolide_db **)&object, &error));
  CHECK(object == NULL);
  REFUSED(bolide_has_writer(NULL, 0, NULL, &error));
  REFUSED(bolide_options_set(NULL, BOLIDE_OPTION_SYNC, 0, &error));
  REFUSED(bolide_collection_options_set(NULL, BOLIDE_COLLECTION_KEYS, 0, &error));
  REFUSED(bolide_collection_options_add_index(NULL, "a", 1, &error));
  REFUSED(bolide_collection_open(NULL, "a", 1, (bolide_collection **)&object, &error));
  REFUSED(bolide_collection_create(NULL, "a", 1, NULL, (bolide_collection **)&object, &error));
  REFUSED(bolide_collection_drop(NULL, "a", 1, &error));
  REFUSED(bolide_collections(NULL, &bytes, &error));
  REFUSED(bolide_sync_log(NULL, &error));
  REFUSED(bolide_flush(NULL, &error));
  REFUSED(bolide_compact(NULL, &error));
  REFUSED(bolide_wait_until_settled(NULL, &error));
  REFUSED(bolide_checkpoint(NULL, "a", 1, &error));
  REFUSED(bolide_check(NULL, true, NULL, NULL, &error));
  REFUSED(bolide_stats(NULL, &bytes, &error));
  REFUSED(bolide_collection_name(NULL, &bytes, &error));
  REFUSED(bolide_put(NULL, "a", 1, "{}", 2, &error));
  REFUSED(bolide_put_sync(NULL, "a", 1, "{}", 2, 0, &error));
  REFUSED(bolide_delete(NULL, "a", 1, &error));
  REFUSED(bolide_delete_range(NULL, &range, &error));
  REFUSED(bolide_get(NULL, "a", 1, NULL, &bytes, &number, &error));
  CHECK(bytes.data == NULL && number == 0);
  REFUSED(bolide_multi_get(NULL, NULL, 1, &bytes, &error));
  REFUSED(bolide_collection_compact(NULL, &error));
  REFUSED(bolide_batch_new(NULL, (bolide_batch **)&object, &error));
  REFUSED(bolide_batch_put(NULL, NULL, "a", 1, "{}", 2, &error));
  REFUSED(bolide_batch_delete(NULL, NULL, "a", 1, &error));
  REFUSED(bolide_batch_delete_range(NULL, NULL, &range, &error));
  REFUSED(bolide_batch_expect(NULL, NULL, "a", 1, 0, 0, &error));
  REFUSED(bolide_batch_clear(NULL, &error));
  REFUSED(bolide_batch_write(NULL, 0, &number, &error));
  REFUSED(bolide_snapshot_new(NULL, (bolide_snapshot **)&object, &error));
  REFUSED(bolide_begin(NULL, 0, 0, 0, (bolide_transaction **)&object, &error));
  REFUSED(bolide_commit(NULL, &number, &error));
  REFUSED(bolide_transaction_get(NULL, NULL, "a", 1, false, &bytes, &error));
  REFUSED(bolide_transaction_put(NULL, NULL, "a", 1, "{}", 2, &error));
  REFUSED(bolide_transaction_delete(NULL, NULL, "a", 1, &error));
  REFUSED(bolide_transaction_delete_range(NULL, NULL, &range, &error));
  REFUSED(bolide_transaction_count(NULL, NULL, NULL, &number, &error));
  REFUSED(bolide_savepoint_new(NULL, (bolide_savepoint **)&object, &error));
  REFUSED(bolide_rollback_to(NULL, NULL, &error));
  REFUSED(bolide_cursor_open(NULL, NULL, NULL, (bolide_cursor **)&object, &error));
  REFUSED(bolide_transaction_cursor(NULL, NULL, NULL, (bolide_cursor **)&object, &error));
  REFUSED(bolide_cursor_first(NULL, &row, &error));
  CHECK(row.key.data == NULL);
  REFUSED(bolide_cursor_last(NULL, &row, &error));
  REFUSED(bolide_cursor_next(NULL, &row, &error));
  REFUSED(bolide_cursor_previous(NULL, &row, &error));
  REFUSED(bolide_cursor_seek(NULL, "a", 1, &row, &error));
  REFUSED(bolide_cursor_seek_previous(NULL, "a", 1, &row, &error));
  REFUSED(bolide_query_new("", 0, NULL, &error));
  REFUSED(bolide_query_equal(NULL, "a", 1, &value, &error));
  REFUSED(bolide_query_between(NULL, "a", 1, &value, NULL, &error));
  REFUSED(bolide_query_set_order(NULL, 0, &error));
  REFUSED(bolide_query_sort_by(NULL, "a", 1, false, &error));
  REFUSED(bolide_query_set_limit(NULL, 1, &error));
  REFUSED(bolide_query_set_limit_per_value(NULL, 1, &error));
  REFUSED(bolide_query_select(NULL, "a", 1, &error));
  REFUSED(bolide_query_select_part(NULL, "a", 1, &error));
  REFUSED(bolide_query_keys_only(NULL, &error));
  REFUSED(bolide_query_use_index(NULL, "a", 1, &error));
  REFUSED(bolide_query_set_token(NULL, "", 0, &error));
  REFUSED(bolide_query_measure(NULL, &error));
  REFUSED(bolide_query_check(NULL, &error));
  REFUSED(bolide_find(NULL, NULL, NULL, (bolide_answers **)&object, &error));
  REFUSED(bolide_transaction_find(NULL, NULL, NULL, (bolide_answers **)&object, &error));
  REFUSED(bolide_answers_next(NULL, &row, &error));
  REFUSED(bolide_answers_explain(NULL, &bytes, &error));
  REFUSED(bolide_answers_token(NULL, &bytes, &error));
  REFUSED(bolide_count(NULL, NULL, NULL, &number, &error));
  REFUSED(bolide_summarize(NULL, NULL, "a", 1, &bytes, &error));
  REFUSED(bolide_distinct(NULL, NULL, "a", 1, 1, &bytes, &error));
  REFUSED(bolide_estimate(NULL, NULL, &bytes, &error));
  REFUSED(bolide_delete_where(NULL, NULL, 0, NULL, &error));
  REFUSED(bolide_index_create(NULL, "a", 1, &error));
  REFUSED(bolide_index_create_background(NULL, "a", 1, 0, (bolide_index_build **)&object, &error));
  REFUSED(bolide_index_build_progress(NULL, &progress, &error));
  REFUSED(bolide_index_build_wait(NULL, 1, &error));
  REFUSED(bolide_index_rebuild(NULL, "a", 1, &error));
  REFUSED(bolide_index_drop(NULL, "a", 1, &error));
  REFUSED(bolide_indexes(NULL, &bytes, &error));
  REFUSED(bolide_advise(NULL, "a", 1, &bytes, &error));
  REFUSED(bolide_find_arrow(NULL, NULL, NULL, NULL, 0, 0, &stream, &error));
  CHECK(stream.release == NULL);
  REFUSED(bolide_find_arrow(NULL, NULL, NULL, NULL, 0, 0, NULL, &error));
  REFUSED(bolide_import_arrow(NULL, NULL, "a", 1, 0, &number, &error));
  REFUSED(bolide_key_of_int(1, NULL, &error));
  REFUSED(bolide_key_of_uint(1, NULL, &error));
  REFUSED(bolide_key_of_text("a", 1, NULL, &error));
  REFUSED(bolide_key_decode("a", 1, NULL, &error));
  REFUSED(bolide_key_decode(NULL, 1, &key, &error));
  /* Without an object for the error. */
  CHECK(bolide_put(NULL, "a", 1, "{}", 2, NULL) == BOLIDE_INVALID_INPUT);
  CHECK(bolide_error_code(NULL) == BOLIDE_OK && strlen(bolide_error_message(NULL)) == 0);
  CHECK(strlen(bolide_error_advice(NULL)) == 0 && bolide_batch_count(NULL) == 0);
}

static void frees_of_null(void) {
  bolide_options_free(NULL);
  bolide_collection_options_free(NULL);
  bolide_db_free(NULL);
  bolide_collection_free(NULL);
  bolide_batch_free(NULL);
  bolide_snapshot_free(NULL);
  bolide_transaction_free(NULL);
  bolide_savepoint_free(NULL);
  bolide_cursor_free(NULL);
  bolide_query_free(NULL);
  bolide_answers_free(NULL);
  bolide_index_build_free(NULL);
  bolide_error_free(NULL);
  bolide_bytes_free(NULL);
}

static void wrong_types(bolide_db *db, bolide_collection *notes) {
  bolide_query *query = query_of("");
  bolide_bytes bytes;
  uint64_t aligned[2] = {1, 2};
  uint64_t number;
  FAILS(BOLIDE_INVALID_INPUT, "something else", bolide_stats((bolide_db *)notes, &bytes, &error));
  FAILS(BOLIDE_INVALID_INPUT, "something else", bolide_put((bolide_collection *)db, "a", 1, "{}", 2, &error));
  FAILS(BOLIDE_INVALID_INPUT, "something else", bolide_count(notes, (bolide_query *)notes, NULL, &number, &error));
  FAILS(BOLIDE_INVALID_INPUT, "something else",
        bolide_count(notes, query, (bolide_snapshot *)query, &number, &error));
  FAILS(BOLIDE_INVALID_INPUT, "something else", bolide_close((bolide_db *)query, &error));
  FAILS(BOLIDE_INVALID_INPUT, "something else", bolide_flush((bolide_db *)aligned, &error));
  FAILS(BOLIDE_INVALID_INPUT, "something else", bolide_flush((bolide_db *)((char *)aligned + 1), &error));
  /* Freeing an object of another type does nothing. */
  bolide_snapshot_free((bolide_snapshot *)query);
  bolide_db_free((bolide_db *)notes);
  OK(bolide_query_check(query, &error));
  check_record(notes, "never", NULL);
  bolide_query_free(query);
}

static void wrong_enumerators(bolide_db *db, bolide_collection *notes) {
  static const uint64_t wrong[] = {4, 77, INT32_MAX, UINT32_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX};
  bolide_options *options = bolide_options_new();
  bolide_collection_options *of_collection = bolide_collection_options_new();
  bolide_query *query = query_of("");
  bolide_batch *batch = NULL;
  bolide_transaction *tx = NULL;
  size_t at;
  OK(bolide_batch_new(db, &batch, &error));
  for (at = 0; at < sizeof wrong / sizeof *wrong; at++) {
    int32_t number = (int32_t)wrong[at];
    bolide_value value = {0, 2, 0, NULL, 0};
    if (number == 0) number = 5;
    value.kind = number == 4 ? 5 : number;
    FAILS(BOLIDE_INVALID_INPUT, "sync", bolide_options_set(options, BOLIDE_OPTION_SYNC, wrong[at], &error));
    FAILS(BOLIDE_INVALID_INPUT, "0 or 1", bolide_options_set(options, BOLIDE_OPTION_READ_ONLY, wrong[at], &error));
    FAILS(BOLIDE_INVALID_INPUT, "keys",
          bolide_collection_options_set(of_collection, BOLIDE_COLLECTION_KEYS, wrong[at], &error));
    FAILS(BOLIDE_INVALID_INPUT, "layout",
          bolide_collection_options_set(of_collection, BOLIDE_COLLECTION_LAYOUT, wrong[at], &error));
    FAILS(BOLIDE_INVALID_INPUT, "records",
          bolide_collection_options_set(of_collection, BOLIDE_COLLECTION_RECORDS, wrong[at], &error));
    FAILS(BOLIDE_INVALID_INPUT, "compression",
          bolide_collection_options_set(of_collection, BOLIDE_COLLECTION_COMPRESSION, wrong[at], &error));
    FAILS(BOLIDE_INVALID_INPUT, "order", bolide_query_set_order(query, number, &error));
    FAILS(BOLIDE_INVALID_INPUT, "sync", bolide_put_sync(notes, "a", 1, "{}", 2, number, &error));
    FAILS(BOLIDE_INVALID_INPUT, "sync", bolide_batch_write(batch, number, NULL, &error));
    FAILS(BOLIDE_INVALID_INPUT, "expectation", bolide_batch_expect(batch, notes, "a", 1, number, 0, &error));
    FAILS(BOLIDE_INVALID_INPUT, "isolation", bolide_begin(db, number, 0, 0, &tx, &error));
    FAILS(BOLIDE_INVALID_INPUT, "kind", bolide_query_equal(query, "a", 1, &value, &error));
  }
  {
    bolide_value value = {BOLIDE_VALUE_BOOL, 2, 0, NULL, 0};
    FAILS(BOLIDE_INVALID_INPUT, "boolean", bolide_query_equal(query, "a", 1, &value, &error));
    value.kind = BOLIDE_VALUE_FLOAT;
    value.float_value = 0.0 / 0.0;
    FAILS(BOLIDE_INVALID_INPUT, "", bolide_query_equal(query, "a", 1, &value, &error));
    FAILS(BOLIDE_INVALID_INPUT, "NULL", bolide_query_equal(query, "a", 1, NULL, &error));
  }
  FAILS(BOLIDE_INVALID_INPUT, "option", bolide_options_set(options, 99, 1, &error));
  FAILS(BOLIDE_INVALID_INPUT, "option", bolide_options_set(options, -1, 1, &error));
  FAILS(BOLIDE_INVALID_INPUT, "option", bolide_collection_options_set(of_collection, 0, 1, &error));
  FAILS(BOLIDE_LIMIT_EXCEEDED, "", bolide_options_set(options, BOLIDE_OPTION_BACKGROUND_THREADS, UINT64_MAX, &error));
  bolide_options_free(options);
  bolide_collection_options_free(of_collection);
  bolide_query_free(query);
  bolide_batch_free(batch);
}

static void lengths_and_texts(bolide_db *db, bolide_collection *notes) {
  static char key[65536];
  bolide_collection *other = NULL;
  bolide_query *query = query_of(""), *second = NULL;
  bolide_batch *batch = NULL;
  bolide_bytes bytes;
  bolide_slice slice = {key, SIZE_MAX};
  bolide_value text = {BOLIDE_VALUE_TEXT, 0, 0, "\xff", 1};
  bolide_range range = {key, SIZE_MAX, NULL, 0, NULL, 0};
  bolide_db *opened = NULL;
  char name[256];
  memset(key, 'k', sizeof key);
  memset(name, 'n', sizeof name);
  OK(bolide_put(notes, key, 65535, "{}", 2, &error));
  OK(bolide_delete(notes, key, 65535, &error));
  FAILS(BOLIDE_LIMIT_EXCEEDED, "65535", bolide_put(notes, key, 65536, "{}", 2, &error));
  FAILS(BOLIDE_LIMIT_EXCEEDED, "key", bolide_put(notes, key, SIZE_MAX, "{}", 2, &error));
  FAILS(BOLIDE_LIMIT_EXCEEDED, "record", bolide_put(notes, key, 1, "{}", ((size_t)64 << 20) + 1, &error));
  FAILS(BOLIDE_LIMIT_EXCEEDED, "record", bolide_put(notes, key, 1, "{}", SIZE_MAX, &error));
  FAILS(BOLIDE_LIMIT_EXCEEDED, "key", bolide_get(notes, key, SIZE_MAX / 2, NULL, &bytes, NULL, &error));
  FAILS(BOLIDE_LIMIT_EXCEEDED, "key", bolide_multi_get(notes, &slice, 1, &bytes, &error));
  FAILS(BOLIDE_LIMIT_EXCEEDED, "keys", bolide_multi_get(notes, &slice, SIZE_MAX, &bytes, &error));
  FAILS(BOLIDE_LIMIT_EXCEEDED, "key", bolide_delete_range(notes, &range, &error));
  FAILS(BOLIDE_INVALID_INPUT, "NULL", bolide_delete_range(notes, NULL, &error));
  /* A key may be empty. */
  OK(bolide_put(notes, NULL, 0, "{}", 2, &error));
  OK(bolide_delete(notes, "", 0, &error));
  FAILS(BOLIDE_INVALID_INPUT, "NULL", bolide_put(notes, NULL, 3, "{}", 2, &error));
  FAILS(BOLIDE_INVALID_INPUT, "NULL", bolide_put(notes, "a", 1, NULL, 2, &error));
  FAILS(BOLIDE_INVALID_INPUT, "", bolide_put(notes, "a", 1, NULL, 0, &error));
  FAILS(BOLIDE_INVALID_INPUT, "", bolide_put(notes, "a", 1, BAD_TEXT, &error));
  FAILS(BOLIDE_LIMIT_EXCEEDED, "filter", bolide_query_new(key, SIZE_MAX, &second, &error));
  FAILS(BOLIDE_INVALID_INPUT, "UTF-8", bolide_open(BAD_TEXT, NULL, &opened, &error));
  FAILS(BOLIDE_INVALID_INPUT, "empty", bolide_open("", 0, NULL, &opened, &error));
  FAILS(BOLIDE_INVALID_INPUT, "NUL", bolide_open("a\0b", 3, NULL, &opened, &error));
  FAILS(BOLIDE_INVALID_INPUT, "UTF-8", bolide_collection_create(db, BAD_TEXT, NULL, &other, &error));
  FAILS(BOLIDE_LIMIT_EXCEEDED, "", bolide_collection_create(db, name, sizeof name, NULL, &other, &error));
  FAILS(BOLIDE_INVALID_INPUT, "UTF-8", bolide_index_create(notes, BAD_TEXT, &error));
  FAILS(BOLIDE_INVALID_INPUT, "UTF-8", bolide_query_equal(query, BAD_TEXT, &text, &error));
  FAILS(BOLIDE_INVALID_INPUT, "UTF-8", bolide_query_equal(query, "a", 1, &text, &error));
  FAILS(BOLIDE_INVALID_INPUT, "UTF-8", bolide_query_select(query, BAD_TEXT, &error));
  FAILS(BOLIDE_INVALID_INPUT, "UTF-8", bolide_key_of_text(BAD_TEXT, &bytes, &error));
  OK(bolide_batch_new(db, &batch, &error));
  FAILS(BOLIDE_LIMIT_EXCEEDED, "key", bolide_batch_put(batch, notes, key, 65536, "{}", 2, &error));
  CHECK(bolide_batch_count(batch) == 0);
  bolide_batch_free(batch);
  bolide_query_free(query);
}

/* Objects of two databases. */
static void two_databases(bolide_db *db, bolide_collection *notes) {
  bolide_db *second = open_memory();
  bolide_collection *others = create(second, "notes", NULL);
  bolide_batch *batch = NULL;
  bolide_transaction *tx = NULL;
  bolide_snapshot *snapshot = NULL;
  bolide_cursor *cursor = NULL;
  bolide_bytes bytes;
  OK(bolide_batch_new(db, &batch, &error));
  FAILS(BOLIDE_INVALID_INPUT, "another database", bolide_batch_put(batch, others, "a", 1, "{}", 2, &error));
  OK(bolide_begin(db, BOLIDE_SERIALIZABLE, 0, 0, &tx, &error));
  FAILS(BOLIDE_INVALID_INPUT, "", bolide_transaction_put(tx, others, "a", 1, "{}", 2, &error));
  FAILS(BOLIDE_INVALID_INPUT, "", bolide_transaction_get(tx, others, "a", 1, false, &bytes, &error));
  OK(bolide_snapshot_new(db, &snapshot, &error));
  FAILS(BOLIDE_INVALID_INPUT, "", bolide_get(others, "a", 1, snapshot, &bytes, NULL, &error));
  FAILS(BOLIDE_INVALID_INPUT, "", bolide_cursor_open(others, NULL, snapshot, &cursor, &error));
  bolide_snapshot_free(snapshot);
  bolide_transaction_free(tx);
  bolide_batch_free(batch);
  bolide_collection_free(others);
  OK(bolide_close(second, &error));
  check_record(notes, "a", NULL);
}

/* Freeing in every rotation of the order of creation. */
static void orders_of_frees(void) {
  int first, at;
  for (first = 0; first < 8; first++) {
    bolide_db *db = open_memory();
    bolide_collection *notes = create(db, "notes", "v");
    bolide_snapshot *snapshot = NULL;
    bolide_batch *batch = NULL;
    bolide_transaction *tx = NULL;
    bolide_cursor *cursor = NULL;
    bolide_answers *answers = NULL;
    bolide_query *query = query_of("v = 1");
    bolide_bytes bytes;
    put(notes, "a", "{\"v\":1}");
    OK(bolide_snapshot_new(db, &snapshot, &error));
    OK(bolide_batch_new(db, &batch, &error));
    OK(bolide_batch_put(batch, notes, "b", 1, "{}", 2, &error));
    OK(bolide_begin(db, BOLIDE_SERIALIZABLE, 0, 0, &tx, &error));
    OK(bolide_transaction_put(tx, notes, "c", 1, "{\"v\":1}", 7, &error));
    OK(bolide_transaction_cursor(tx, notes, NULL, &cursor, &error));
    OK(bolide_find(notes, query, snapshot, &answers, &error));
    OK(bolide_get(notes, "a", 1, NULL, &bytes, NULL, &error));
    for (at = 0; at < 8; at++) {
      switch ((first + at) % 8) {
      case 0: bolide_db_free(db); break;
      case 1: bolide_collection_free(notes); break;
      case 2: bolide_snapshot_free(snapshot); break;
      case 3: bolide_batch_free(batch); break;
      case 4: bolide_transaction_free(tx); break;
      case 5: bolide_cursor_free(cursor); break;
      case 6: bolide_answers_free(answers); break;
      case 7: bolide_query_free(query); break;
      }
    }
    /* Bytes outlive the database. */
    CHECK(bytes_are(bytes, "{\"v\":1}"));
    bolide_bytes_free(&bytes);
  }
}

int main(void) {
  bolide_db *db = open_memory();
  bolide_collection *notes = create(db, "notes", NULL);
  null_handles();
  frees_of_null();
  wrong_types(db, notes);
  wrong_enumerators(db, notes);
  lengths_and_texts(db, notes);
  two_databases(db, notes);
  bolide_collection_free(notes);
  OK(bolide_close(db, &error));
  orders_of_frees();
  return 0;
}
