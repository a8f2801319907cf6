/* What the test programs share: checks that report their place, and short calls. */
#ifndef CHECK_H
#define CHECK_H

#include <bolide.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the place of the failure. */
#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);           \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

/* The expected code of a call whose last argument is &error. */
#define EXPECT(expected, call)                                                                                         \
  do {                                                                                                                 \
    bolide_error *error = NULL;                                                                                        \
    bolide_code code_ = (call);                                                                                        \
    if (code_ != (expected)) {                                                                                         \
      fprintf(stderr, "%s:%d: %s: code %d, not %d: %s (%s)\n", __FILE__, __LINE__, #call, (int)code_, (int)(expected), \
              bolide_error_message(error), bolide_error_advice(error));                                                \
      exit(1);                                                                                                         \
    }                                                                                                                  \
    CHECK((error != NULL) == (code_ > 0));                                                                             \
    CHECK(error == NULL || (bolide_error_code(error) == code_ && strlen(bolide_error_message(error)) > 8));            \
    CHECK(error == NULL || strlen(bolide_error_advice(error)) > 4);                                                    \
    bolide_error_free(error);                                                                                          \
  } while (0)

#define OK(call) EXPECT(BOLIDE_OK, call)

/* The error of a call has this code and this text in its message. */
#define FAILS(expected, text, call)                                                                      \
  do {                                                                                                   \
    bolide_error *error = NULL;                                                                          \
    bolide_code code_ = (call);                                                                          \
    if (code_ != (expected) || strstr(bolide_error_message(error), (text)) == NULL) {                    \
      fprintf(stderr, "%s:%d: %s: code %d, not %d with \"%s\": %s\n", __FILE__, __LINE__, #call,         \
              (int)code_, (int)(expected), (text), bolide_error_message(error));                         \
      exit(1);                                                                                           \
    }                                                                                                    \
    bolide_error_free(error);                                                                            \
  } while (0)

static inline int slice_is(bolide_slice slice, const char *text) {
  return slice.data != NULL && slice.size == strlen(text) && memcmp(slice.data, text, slice.size) == 0;
}

static inline int bytes_are(bolide_bytes bytes, const char *text) {
  return bytes.data != NULL && bytes.size == strlen(text) && memcmp(bytes.data, text, bytes.size) == 0;
}

/* Whether the bytes contain the text. */
static inline int contains(bolide_bytes bytes, const char *text) {
  size_t size = strlen(text), at;
  for (at = 0; bytes.data != NULL && at + size <= bytes.size; at++) {
    if (memcmp(bytes.data + at, text, size) == 0) return 1;
  }
  return 0;
}

static inline bolide_db *open_memory(void) {
  bolide_db *db = NULL;
  OK(bolide_open(BOLIDE_TEXT(":memory:"), NULL, &db, &error));
  return db;
}

static inline bolide_collection *create(bolide_db *db, const char *name, const char *index) {
  bolide_collection *collection = NULL;
  bolide_collection_options *options = bolide_collection_options_new();
  if (index != NULL) OK(bolide_collection_options_add_index(options, BOLIDE_TEXT(index), &error));
  OK(bolide_collection_create(db, BOLIDE_TEXT(name), options, &collection, &error));
  bolide_collection_options_free(options);
  return collection;
}

static inline void put(bolide_collection *collection, const char *key, const char *record) {
  OK(bolide_put(collection, BOLIDE_TEXT(key), BOLIDE_TEXT(record), &error));
}

static inline bolide_query *query_of(const char *filter) {
  bolide_query *query = NULL;
  OK(bolide_query_new(BOLIDE_TEXT(filter), &query, &error));
  return query;
}

enum { MIXED = 600 };

/* Keys of different lengths. */
static inline const char *mixed_key(char key[64], int at) {
  snprintf(key, 64, "%05d/%.*s", at, at % 37, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz");
  return key;
}

/* A collection with interleaved keys in two sstables and a memtable. */
static inline bolide_collection *mixed_sources(bolide_db *db) {
  bolide_collection *mixed = create(db, "mixed", NULL);
  char key[64];
  int source, at;
  for (source = 0; source < 3; source++) {
    for (at = source; at < MIXED; at += 3) put(mixed, mixed_key(key, at), "{\"v\":1}");
    if (source < 2) OK(bolide_flush(db, &error));
  }
  return mixed;
}

static inline int is_mixed(bolide_row row, int at) {
  char key[64];
  return slice_is(row.key, mixed_key(key, at));
}

/* Turns around at each record, and seeks from a record to itself, to its first bytes, with the key that the cursor lends. */
static inline void check_lent_keys(bolide_cursor *cursor) {
  bolide_row row;
  int at = 0;
  bolide_error *failure = NULL;
  bolide_code code = bolide_cursor_first(cursor, &row, &failure);
  for (; code == BOLIDE_OK; at++) {
    CHECK(is_mixed(row, at));
    OK(bolide_cursor_seek(cursor, row.key.data, row.key.size, &row, &error));
    CHECK(is_mixed(row, at));
    OK(bolide_cursor_seek_previous(cursor, row.key.data, row.key.size, &row, &error));
    CHECK(is_mixed(row, at));
    OK(bolide_cursor_seek(cursor, row.key.data, 5, &row, &error));
    CHECK(is_mixed(row, at));
    if (at > 0) {
      OK(bolide_cursor_seek_previous(cursor, row.key.data, 5, &row, &error));
      CHECK(is_mixed(row, at - 1));
      OK(bolide_cursor_next(cursor, &row, &error));
      CHECK(is_mixed(row, at));
    }
    code = bolide_cursor_next(cursor, &row, &failure);
  }
  CHECK(code == BOLIDE_ABSENT && at == MIXED);
}

static inline void check_record(bolide_collection *collection, const char *key, const char *record) {
  bolide_bytes found;
  if (record == NULL) {
    EXPECT(BOLIDE_ABSENT, bolide_get(collection, BOLIDE_TEXT(key), NULL, &found, NULL, &error));
    CHECK(found.data == NULL && found.size == 0);
  } else {
    OK(bolide_get(collection, BOLIDE_TEXT(key), NULL, &found, NULL, &error));
    if (!bytes_are(found, record)) {
      fprintf(stderr, "the record of %s is %.*s, not %s\n", key, (int)found.size, found.data, record);
      exit(1);
    }
  }
  bolide_bytes_free(&found);
}

#endif
