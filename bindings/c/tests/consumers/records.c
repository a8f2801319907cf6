/* Records by key: puts, reads, deletes, batches, snapshots, cursors, typed keys. */
#include "check.h"

static void puts_and_gets(bolide_collection *notes) {
  bolide_bytes record;
  uint64_t sequence = 0;
  put(notes, "a", "{\"v\":1}");
  OK(bolide_put_sync(notes, BOLIDE_TEXT("b"), BOLIDE_TEXT("{\"v\":2}"), BOLIDE_SYNC_ALWAYS, &error));
  OK(bolide_get(notes, BOLIDE_TEXT("b"), NULL, &record, &sequence, &error));
  CHECK(bytes_are(record, "{\"v\":2}") && sequence > 0);
  bolide_bytes_free(&record);
  bolide_bytes_free(&record);
  CHECK(record.data == NULL && record.owner == NULL);
  check_record(notes, "c", NULL);
  FAILS(BOLIDE_INVALID_INPUT, "JSON", bolide_put(notes, BOLIDE_TEXT("c"), BOLIDE_TEXT("{\"v\":"), &error));
  OK(bolide_delete(notes, BOLIDE_TEXT("b"), &error));
  OK(bolide_delete(notes, BOLIDE_TEXT("never"), &error));
  check_record(notes, "b", NULL);
  /* Keys may contain NUL. */
  OK(bolide_put(notes, "x\0y", 3, BOLIDE_TEXT("{\"v\":3}"), &error));
  check_record(notes, "x", NULL);
  OK(bolide_get(notes, "x\0y", 3, NULL, &record, NULL, &error));
  bolide_bytes_free(&record);
  OK(bolide_delete(notes, "x\0y", 3, &error));
}

static void several_gets(bolide_collection *notes) {
  bolide_bytes records[3];
  bolide_slice keys[3] = {{"b", 1}, {"a", 1}, {"zz", 2}};
  put(notes, "b", "{\"v\":2}");
  OK(bolide_multi_get(notes, keys, 3, records, &error));
  CHECK(bytes_are(records[0], "{\"v\":2}") && bytes_are(records[1], "{\"v\":1}") && records[2].data == NULL);
  bolide_bytes_free(&records[0]);
  bolide_bytes_free(&records[1]);
  bolide_bytes_free(&records[2]);
  OK(bolide_multi_get(notes, NULL, 0, NULL, &error));
  /* After an error the results are empty. */
  memset(records, 0x55, sizeof records);
  FAILS(BOLIDE_INVALID_INPUT, "keys is NULL", bolide_multi_get(notes, NULL, 3, records, &error));
  CHECK(records[0].owner == NULL && records[2].owner == NULL && records[2].data == NULL);
  FAILS(BOLIDE_INVALID_INPUT, "records is NULL", bolide_multi_get(notes, keys, 3, NULL, &error));
  FAILS(BOLIDE_LIMIT_EXCEEDED, "keys", bolide_multi_get(notes, keys, (1 << 20) + 1, records, &error));
}

static void batches(bolide_db *db, bolide_collection *notes) {
  bolide_batch *batch = NULL;
  uint64_t sequence = 0, first = 0;
  bolide_bytes record;
  bolide_range range = {0};
  OK(bolide_batch_new(db, &batch, &error));
  OK(bolide_batch_expect(batch, notes, BOLIDE_TEXT("a"), BOLIDE_EXPECT_PRESENT, 0, &error));
  OK(bolide_batch_expect(batch, notes, BOLIDE_TEXT("k1"), BOLIDE_EXPECT_ABSENT, 0, &error));
  OK(bolide_batch_put(batch, notes, BOLIDE_TEXT("k1"), BOLIDE_TEXT("{}"), &error));
  OK(bolide_batch_put(batch, notes, BOLIDE_TEXT("k2"), BOLIDE_TEXT("{}"), &error));
  OK(bolide_batch_delete(batch, notes, BOLIDE_TEXT("a"), &error));
  /* After the writes before. */
  OK(bolide_batch_expect(batch, notes, BOLIDE_TEXT("a"), BOLIDE_EXPECT_ABSENT, 0, &error));
  CHECK(bolide_batch_count(batch) == 3);
  OK(bolide_batch_write(batch, BOLIDE_SYNC_DEFAULT, &sequence, &error));
  CHECK(sequence > 0 && bolide_batch_count(batch) == 0);
  check_record(notes, "a", NULL);
  check_record(notes, "k2", "{}");

  /* An expectation that does not hold: nothing is written. */
  OK(bolide_get(notes, BOLIDE_TEXT("k1"), NULL, &record, &first, &error));
  bolide_bytes_free(&record);
  OK(bolide_batch_expect(batch, notes, BOLIDE_TEXT("k1"), BOLIDE_EXPECT_SEQUENCE, first + 1000, &error));
  OK(bolide_batch_put(batch, notes, BOLIDE_TEXT("k1"), BOLIDE_TEXT("{\"v\":9}"), &error));
  FAILS(BOLIDE_CONFLICT, "k1", bolide_batch_write(batch, BOLIDE_SYNC_NONE, &sequence, &error));
  CHECK(sequence == 0 && bolide_batch_count(batch) == 0);
  check_record(notes, "k1", "{}");
  OK(bolide_batch_expect(batch, notes, BOLIDE_TEXT("k1"), BOLIDE_EXPECT_SEQUENCE, first, &error));
  OK(bolide_batch_put(batch, notes, BOLIDE_TEXT("k1"), BOLIDE_TEXT("{\"v\":9}"), &error));
  OK(bolide_batch_write(batch, BOLIDE_SYNC_BATCH, NULL, &error));
  check_record(notes, "k1", "{\"v\":9}");

  range.prefix = "k";
  range.prefix_size = 1;
  OK(bolide_batch_delete_range(batch, notes, &range, &error));
  OK(bolide_batch_clear(batch, &error));
  OK(bolide_batch_write(batch, BOLIDE_SYNC_DEFAULT, NULL, &error));
  check_record(notes, "k1", "{\"v\":9}");
  OK(bolide_batch_delete_range(batch, notes, &range, &error));
  OK(bolide_batch_write(batch, BOLIDE_SYNC_DEFAULT, NULL, &error));
  check_record(notes, "k1", NULL);
  bolide_batch_free(batch);
}

static void check_walk(bolide_cursor *cursor, const char *keys, int backwards) {
  bolide_row row;
  bolide_error *error = NULL;
  bolide_code code = backwards ? bolide_cursor_last(cursor, &row, &error) : bolide_cursor_first(cursor, &row, &error);
  for (; code == BOLIDE_OK; keys++) {
    CHECK(*keys != 0 && row.key.size == 1 && row.key.data[0] == *keys);
    CHECK(row.sequence > 0 && row.record.size > 1 && row.values.data == NULL);
    code = backwards ? bolide_cursor_previous(cursor, &row, &error) : bolide_cursor_next(cursor, &row, &error);
  }
  CHECK(code == BOLIDE_ABSENT && *keys == 0 && row.key.data == NULL);
}

static void cursors_and_snapshots(bolide_db *db) {
  bolide_collection *letters = create(db, "letters", NULL);
  bolide_cursor *cursor = NULL, *old = NULL;
  bolide_snapshot *snapshot = NULL;
  bolide_row row;
  bolide_bytes record;
  bolide_range range = {0};
  const char *at;
  for (at = "dbace"; *at; at++) OK(bolide_put(letters, at, 1, BOLIDE_TEXT("{\"v\":1}"), &error));
  OK(bolide_snapshot_new(db, &snapshot, &error));
  CHECK(bolide_snapshot_sequence(snapshot) > 0 && bolide_snapshot_sequence(NULL) == 0);
  range.start = "c";
  range.start_size = 1;
  OK(bolide_delete_range(letters, &range, &error));
  check_record(letters, "c", NULL);
  OK(bolide_get(letters, "c", 1, snapshot, &record, NULL, &error));
  bolide_bytes_free(&record);

  OK(bolide_cursor_open(letters, NULL, NULL, &cursor, &error));
  check_walk(cursor, "ab", 0);
  bolide_cursor_free(cursor);
  range.end = "e";
  range.end_size = 1;
  OK(bolide_cursor_open(letters, &range, snapshot, &cursor, &error));
  OK(bolide_cursor_open(letters, NULL, snapshot, &old, &error));
  bolide_snapshot_free(snapshot);
  check_walk(cursor, "cd", 0);
  check_walk(cursor, "dc", 1);
  check_walk(old, "abcde", 0);
  OK(bolide_cursor_seek(old, "bb", 2, &row, &error));
  CHECK(slice_is(row.key, "c"));
  OK(bolide_cursor_seek_previous(old, "bb", 2, &row, &error));
  CHECK(slice_is(row.key, "b") && slice_is(row.record, "{\"v\":1}"));
  EXPECT(BOLIDE_ABSENT, bolide_cursor_seek(old, "x", 1, NULL, &error));
  EXPECT(BOLIDE_ABSENT, bolide_cursor_next(old, &row, &error));
  /* The handle of the collection may end before its cursors. */
  bolide_collection_free(letters);
  check_walk(old, "edcba", 1);
  bolide_cursor_free(old);
  bolide_cursor_free(cursor);
}

/* Seeks with the key that the cursor lends, which is in the memory that it changes. */
static void seeks_with_lent_keys(bolide_db *db) {
  bolide_collection *mixed = mixed_sources(db);
  bolide_cursor *cursor = NULL;
  OK(bolide_cursor_open(mixed, NULL, NULL, &cursor, &error));
  check_lent_keys(cursor);
  bolide_cursor_free(cursor);
  bolide_collection_free(mixed);
}

static void typed_keys(bolide_db *db) {
  bolide_collection_options *options = bolide_collection_options_new();
  bolide_collection *numbers = NULL;
  bolide_cursor *cursor = NULL;
  bolide_row row;
  bolide_key decoded;
  bolide_bytes key;
  bolide_error *error_of_walk = NULL;
  bolide_code code;
  int64_t values[4] = {10, -3, 9, 100}, expected[4] = {-3, 9, 10, 100};
  int at;
  OK(bolide_collection_options_set(options, BOLIDE_COLLECTION_KEYS, BOLIDE_KEYS_TYPED, &error));
  OK(bolide_collection_options_set(options, BOLIDE_COLLECTION_RECORDS, BOLIDE_RECORDS_BYTES, &error));
  OK(bolide_collection_options_set(options, BOLIDE_COLLECTION_LAYOUT, BOLIDE_LAYOUT_TIERED, &error));
  OK(bolide_collection_options_set(options, BOLIDE_COLLECTION_COMPRESSION, BOLIDE_COMPRESSION_ZSTD, &error));
  OK(bolide_collection_create(db, BOLIDE_TEXT("numbers"), options, &numbers, &error));
  bolide_collection_options_free(options);
  for (at = 0; at < 4; at++) {
    OK(bolide_key_of_int(values[at], &key, &error));
    OK(bolide_put(numbers, key.data, key.size, "", 0, &error));
    bolide_bytes_free(&key);
  }
  OK(bolide_cursor_open(numbers, NULL, NULL, &cursor, &error));
  code = bolide_cursor_first(cursor, &row, &error_of_walk);
  for (at = 0; code == BOLIDE_OK; at++) {
    OK(bolide_key_decode(row.key.data, row.key.size, &decoded, &error));
    CHECK(at < 4 && decoded.kind == BOLIDE_KEY_INT && decoded.int_value == expected[at]);
    CHECK(row.record.data != NULL && row.record.size == 0);
    code = bolide_cursor_next(cursor, &row, &error_of_walk);
  }
  CHECK(at == 4);
  bolide_cursor_free(cursor);
  OK(bolide_key_of_text(BOLIDE_TEXT("gr\xc3\xbcn"), &key, &error));
  OK(bolide_key_decode(key.data, key.size, &decoded, &error));
  CHECK(decoded.kind == BOLIDE_KEY_TEXT && bytes_are(decoded.text, "gr\xc3\xbcn"));
  bolide_bytes_free(&decoded.text);
  bolide_bytes_free(&key);
  OK(bolide_key_of_uint(UINT64_MAX, &key, &error));
  OK(bolide_key_decode(key.data, key.size, &decoded, &error));
  CHECK(decoded.kind == BOLIDE_KEY_UINT && decoded.uint_value == UINT64_MAX);
  bolide_bytes_free(&key);
  /* An empty record is a record. */
  OK(bolide_key_of_int(9, &key, &error));
  bolide_bytes record;
  OK(bolide_get(numbers, key.data, key.size, NULL, &record, NULL, &error));
  CHECK(record.data != NULL && record.size == 0);
  bolide_bytes_free(&record);
  bolide_bytes_free(&key);
  bolide_collection_free(numbers);
}

int main(void) {
  bolide_db *db = open_memory();
  bolide_collection *notes = create(db, "notes", NULL);
  bolide_bytes text;
  puts_and_gets(notes);
  several_gets(notes);
  batches(db, notes);
  cursors_and_snapshots(db);
  seeks_with_lent_keys(db);
  typed_keys(db);
  OK(bolide_collection_name(notes, &text, &error));
  CHECK(bytes_are(text, "notes"));
  bolide_bytes_free(&text);
  OK(bolide_collections(db, &text, &error));
  CHECK(bytes_are(text, "[\"letters\",\"mixed\",\"notes\",\"numbers\"]"));
  bolide_bytes_free(&text);
  OK(bolide_collection_compact(notes, &error));
  bolide_collection_free(notes);
  OK(bolide_close(db, &error));
  return 0;
}
