/* Many threads: shared objects, and objects of one thread that two use. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <pthread.h>

enum { THREADS = 8, WRITES = 300 };

static bolide_db *db;
static bolide_collection *counters;
static bolide_query *query;

static void *writer(void *argument) {
  int number = (int)(size_t)argument, at;
  char key[32];
  for (at = 0; at < WRITES; at++) {
    uint64_t count = 0;
    snprintf(key, sizeof key, "%d/%04d", number, at);
    put(counters, key, "{\"v\":1}");
    check_record(counters, key, "{\"v\":1}");
    if (at % 50 == 0) {
      OK(bolide_count(counters, query, NULL, &count, &error));
      CHECK(count > (uint64_t)at);
    }
  }
  return NULL;
}

/* Increments one counter in transactions, which conflict. */
static void *incrementer(void *argument) {
  int at;
  (void)argument;
  for (at = 0; at < 20; at++) {
    bolide_code code = BOLIDE_CONFLICT;
    while (code == BOLIDE_CONFLICT) {
      bolide_transaction *tx = NULL;
      bolide_bytes record;
      char text[32], next[32];
      OK(bolide_begin(db, BOLIDE_SERIALIZABLE, BOLIDE_SYNC_DEFAULT, 0, &tx, &error));
      OK(bolide_transaction_get(tx, counters, "n", 1, false, &record, &error));
      CHECK(record.size < sizeof text);
      memcpy(text, record.data, record.size);
      text[record.size] = 0;
      bolide_bytes_free(&record);
      snprintf(next, sizeof next, "{\"n\":%d}", atoi(text + 5) + 1);
      OK(bolide_transaction_put(tx, counters, "n", 1, BOLIDE_TEXT(next), &error));
      code = bolide_commit(tx, NULL, NULL);
      CHECK(code == BOLIDE_OK || code == BOLIDE_CONFLICT);
      bolide_transaction_free(tx);
    }
  }
  return NULL;
}

static bolide_cursor *shared;
static int refused, moved;
static pthread_mutex_t counts = PTHREAD_MUTEX_INITIALIZER;

/* A cursor of several threads: each call succeeds or is refused. Until both were seen. */
static void *mover(void *argument) {
  int at, ends = 0;
  (void)argument;
  for (at = 0; at < 1000 || (!ends && at < 3000000); at++) {
    bolide_code code = bolide_cursor_first(shared, NULL, NULL);
    CHECK(code == BOLIDE_OK || code == BOLIDE_IN_USE);
    pthread_mutex_lock(&counts);
    if (code == BOLIDE_OK) moved++;
    else refused++;
    ends = moved > 0 && refused > 0;
    pthread_mutex_unlock(&counts);
  }
  return NULL;
}

static bolide_transaction *common;
static bolide_snapshot *past;

/* Writes and reads of one transaction, and reads of one snapshot. */
static void *sharer(void *argument) {
  int number = (int)(size_t)argument, at;
  char key[32];
  for (at = 0; at < 50; at++) {
    bolide_bytes found;
    snprintf(key, sizeof key, "t%d/%04d", number, at);
    OK(bolide_transaction_put(common, counters, BOLIDE_TEXT(key), BOLIDE_TEXT("{\"v\":2}"), &error));
    OK(bolide_transaction_get(common, counters, BOLIDE_TEXT(key), false, &found, &error));
    CHECK(bytes_are(found, "{\"v\":2}"));
    bolide_bytes_free(&found);
    EXPECT(BOLIDE_ABSENT, bolide_get(counters, BOLIDE_TEXT(key), past, &found, NULL, &error));
    OK(bolide_get(counters, BOLIDE_TEXT("0/0000"), past, &found, NULL, &error));
    bolide_bytes_free(&found);
  }
  return NULL;
}

/* A commit beside calls of other threads with the transaction: it succeeds, or the transaction is in use; it never conflicts. */
static void *committer(void *argument) {
  int is_first = argument == NULL, at;
  bolide_code code = is_first ? BOLIDE_IN_USE : BOLIDE_OK;
  while (code == BOLIDE_IN_USE) code = bolide_commit(common, NULL, NULL);
  CHECK(code == BOLIDE_OK);
  for (at = 0; !is_first && at < 200; at++) {
    bolide_bytes found;
    code = bolide_transaction_get(common, counters, BOLIDE_TEXT("n"), false, &found, NULL);
    CHECK(code == BOLIDE_OK || code == BOLIDE_CLOSED);
    bolide_bytes_free(&found);
  }
  return NULL;
}

/* Setters of a query beside counts of it. */
static void *setter(void *argument) {
  int at;
  for (at = 0; at < 100; at++) {
    uint64_t count = 0;
    if (argument == NULL) {
      bolide_code code = bolide_query_set_limit(query, 1000000, NULL);
      CHECK(code == BOLIDE_OK || code == BOLIDE_IN_USE);
    } else {
      bolide_code code = bolide_count(counters, query, past, &count, NULL);
      CHECK(code == BOLIDE_IN_USE || (code == BOLIDE_OK && count == THREADS * WRITES));
    }
  }
  return NULL;
}

static void run(void *(*work)(void *)) {
  pthread_t threads[THREADS];
  size_t at;
  for (at = 0; at < THREADS; at++) CHECK(pthread_create(&threads[at], NULL, work, (void *)at) == 0);
  for (at = 0; at < THREADS; at++) CHECK(pthread_join(threads[at], NULL) == 0);
}

int main(void) {
  uint64_t count = 0;
  db = open_memory();
  counters = create(db, "counters", "v");
  query = query_of("v = 1");
  run(writer);
  OK(bolide_count(counters, query, NULL, &count, &error));
  CHECK(count == THREADS * WRITES);
  put(counters, "n", "{\"n\":0}");
  run(incrementer);
  check_record(counters, "n", "{\"n\":160}");
  OK(bolide_cursor_open(counters, NULL, NULL, &shared, &error));
  run(mover);
  CHECK(moved > 0 && refused > 0);
  bolide_cursor_free(shared);
  OK(bolide_snapshot_new(db, &past, &error));
  OK(bolide_begin(db, BOLIDE_SERIALIZABLE, BOLIDE_SYNC_DEFAULT, 0, &common, &error));
  run(sharer);
  run(committer);
  bolide_transaction_free(common);
  check_record(counters, "t7/0049", "{\"v\":2}");
  run(setter);
  bolide_snapshot_free(past);
  bolide_query_free(query);
  bolide_collection_free(counters);
  OK(bolide_close(db, &error));
  return 0;
}
