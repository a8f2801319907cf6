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
