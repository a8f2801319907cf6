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

/* A cursor of two threads: each call succeeds or is refused. */
static void *mover(void *argument) {
  int at;
  (void)argument;
  for (at = 0; at < 2000; at++) {
    bolide_code code = bolide_cursor_first(shared, NULL, NULL);
    CHECK(code == BOLIDE_OK || code == BOLIDE_CONFLICT);
    pthread_mutex_lock(&counts);
    if (code == BOLIDE_OK) moved++;
    else refused++;
    pthread_mutex_unlock(&counts);
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
  CHECK(moved + refused == THREADS * 2000 && moved > 0);
  bolide_cursor_free(shared);
  bolide_query_free(query);
  bolide_collection_free(counters);
  OK(bolide_close(db, &error));
  return 0;
}
