/* Random operations on a database in a directory, compared with an array: puts, deletes, batches, transactions, reads, scans, queries
 * with and without an index, snapshots, opening again. Arguments: the directory, and perhaps a seed, which it prints. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <time.h>

enum { KEYS = 64, GROUPS = 5, STEPS = 4000 };

/* The group of each key's record; -1 for none. */
typedef struct {
  int group[KEYS];
} model;

static uint64_t state;

static int below(int end) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (int)(state % (uint64_t)end);
}

static void key_of(int at, char *key) { snprintf(key, 8, "k%02d", at); }
static void record_of(int group, char *record) { snprintf(record, 32, "{\"group\":%d}", group); }

static void check_key(bolide_collection *c, bolide_snapshot *snapshot, const model *m, int at) {
  char key[8], record[32];
  bolide_bytes found;
  key_of(at, key);
  if (m->group[at] < 0) {
    EXPECT(BOLIDE_ABSENT, bolide_get(c, BOLIDE_TEXT(key), snapshot, &found, NULL, &error));
    return;
  }
  record_of(m->group[at], record);
  OK(bolide_get(c, BOLIDE_TEXT(key), snapshot, &found, NULL, &error));
  CHECK(bytes_are(found, record));
  bolide_bytes_free(&found);
}

static void check_scan(bolide_collection *c, bolide_snapshot *snapshot, const model *m, int backwards) {
  bolide_cursor *cursor = NULL;
  bolide_row row;
  bolide_error *error_of_walk = NULL;
  bolide_code code;
  int step;
  OK(bolide_cursor_open(c, NULL, snapshot, &cursor, &error));
  code = backwards ? bolide_cursor_last(cursor, &row, &error_of_walk) : bolide_cursor_first(cursor, &row, &error_of_walk);
  for (step = 0; step < KEYS; step++) {
    int at = backwards ? KEYS - 1 - step : step;
    char key[8], record[32];
    if (m->group[at] < 0) continue;
    key_of(at, key);
    record_of(m->group[at], record);
    CHECK(code == BOLIDE_OK && slice_is(row.key, key) && slice_is(row.record, record));
    code = backwards ? bolide_cursor_previous(cursor, &row, &error_of_walk) : bolide_cursor_next(cursor, &row, &error_of_walk);
  }
  CHECK(code == BOLIDE_ABSENT);
  bolide_cursor_free(cursor);
}

static void check_group(bolide_collection *c, bolide_snapshot *snapshot, const model *m, int group) {
  char filter[32];
  bolide_query *query;
  bolide_answers *answers = NULL;
  bolide_row row;
  bolide_error *error_of_walk = NULL;
  bolide_code code;
  int expected = 0, found = 0, at;
  uint64_t count = 0;
  snprintf(filter, sizeof filter, "group = %d", group);
  query = query_of(filter);
  for (at = 0; at < KEYS; at++) expected += m->group[at] == group;
  OK(bolide_find(c, query, snapshot, &answers, &error));
  while ((code = bolide_answers_next(answers, &row, &error_of_walk)) == BOLIDE_OK) {
    CHECK(row.key.size == 3);
    at = (row.key.data[1] - '0') * 10 + row.key.data[2] - '0';
    CHECK(at >= 0 && at < KEYS && m->group[at] == group);
    found++;
  }
  CHECK(code == BOLIDE_ABSENT && found == expected);
  bolide_answers_free(answers);
  OK(bolide_count(c, query, snapshot, &count, &error));
  CHECK(count == (uint64_t)expected);
  bolide_query_free(query);
}

static void one_write(bolide_collection *c, model *m) {
  char key[8], record[32];
  int at = below(KEYS);
  key_of(at, key);
  if (below(4) == 0) {
    OK(bolide_delete(c, BOLIDE_TEXT(key), &error));
    m->group[at] = -1;
  } else {
    m->group[at] = below(GROUPS);
    record_of(m->group[at], record);
    OK(bolide_put(c, BOLIDE_TEXT(key), BOLIDE_TEXT(record), &error));
  }
}

static void one_range(bolide_collection *c, model *m) {
  char start[8], end[8];
  int first = below(KEYS), last = first + below(5), at;
  bolide_range range = {start, 3, end, 3, NULL, 0};
  key_of(first, start);
  key_of(last, end);
  OK(bolide_delete_range(c, &range, &error));
  for (at = first; at < last && at < KEYS; at++) m->group[at] = -1;
}

static void one_batch(bolide_db *db, bolide_collection *c, model *m) {
  bolide_batch *batch = NULL;
  char key[8], record[32];
  model after = *m;
  int writes = below(6), at = below(KEYS), hold;
  OK(bolide_batch_new(db, &batch, &error));
  key_of(at, key);
  hold = below(2);
  OK(bolide_batch_expect(batch, c, BOLIDE_TEXT(key),
                         (m->group[at] < 0) == hold ? BOLIDE_EXPECT_ABSENT : BOLIDE_EXPECT_PRESENT, 0, &error));
  while (writes-- > 0) {
    at = below(KEYS);
    key_of(at, key);
    after.group[at] = below(GROUPS);
    record_of(after.group[at], record);
    OK(bolide_batch_put(batch, c, BOLIDE_TEXT(key), BOLIDE_TEXT(record), &error));
  }
  EXPECT(hold ? BOLIDE_OK : BOLIDE_CONFLICT, bolide_batch_write(batch, BOLIDE_SYNC_DEFAULT, NULL, &error));
  if (hold) *m = after;
  bolide_batch_free(batch);
}

static void one_transaction(bolide_db *db, bolide_collection *c, model *m) {
  bolide_transaction *tx = NULL;
  bolide_query *query = query_of("group = 1");
  char key[8], record[32];
  model after = *m;
  uint64_t count = 0, expected = 0;
  int writes = below(6), end = below(3), at;
  OK(bolide_begin(db, BOLIDE_SERIALIZABLE, BOLIDE_SYNC_DEFAULT, 0, &tx, &error));
  while (writes-- > 0) {
    at = below(KEYS);
    key_of(at, key);
    after.group[at] = below(GROUPS);
    record_of(after.group[at], record);
    OK(bolide_transaction_put(tx, c, BOLIDE_TEXT(key), BOLIDE_TEXT(record), &error));
  }
  for (at = 0; at < KEYS; at++) expected += after.group[at] == 1;
  OK(bolide_transaction_count(tx, c, query, &count, &error));
  CHECK(count == expected);
  if (end > 0) {
    OK(bolide_commit(tx, NULL, &error));
    *m = after;
  }
  bolide_transaction_free(tx);
  bolide_query_free(query);
}

int main(int count, char **arguments) {
  bolide_db *db = NULL;
  bolide_collection *c = NULL;
  bolide_snapshot *snapshot = NULL;
  model m, old;
  char path[4096];
  int step, at;
  CHECK(count >= 2);
  state = count > 2 ? strtoull(arguments[2], NULL, 10) : (uint64_t)time(NULL);
  printf("seed %llu\n", (unsigned long long)state);
  fflush(stdout);
  state = state * 0x9e3779b97f4a7c15u + 1;
  snprintf(path, sizeof path, "%s/model", arguments[1]);
  for (at = 0; at < KEYS; at++) m.group[at] = -1;
  old = m;
  OK(bolide_open(BOLIDE_TEXT(path), NULL, &db, &error));
  c = create(db, "c", below(2) ? "group" : NULL);
  for (step = 0; step < STEPS; step++) {
    int choice = below(100);
    if (choice < 40) one_write(c, &m);
    else if (choice < 45) one_range(c, &m);
    else if (choice < 55) one_batch(db, c, &m);
    else if (choice < 65) one_transaction(db, c, &m);
    else if (choice < 80) check_key(c, NULL, &m, below(KEYS));
    else if (choice < 86) check_group(c, NULL, &m, below(GROUPS));
    else if (choice < 90) check_scan(c, NULL, &m, below(2));
    else if (choice < 96 && snapshot != NULL) {
      check_key(c, snapshot, &old, below(KEYS));
      check_group(c, snapshot, &old, below(GROUPS));
      check_scan(c, snapshot, &old, below(2));
    } else if (choice < 98) {
      bolide_snapshot_free(snapshot);
      OK(bolide_snapshot_new(db, &snapshot, &error));
      old = m;
    } else if (choice == 98) {
      OK(bolide_flush(db, &error));
    } else if (below(4) == 0) {
      bolide_snapshot_free(snapshot);
      snapshot = NULL;
      bolide_collection_free(c);
      OK(bolide_close(db, &error));
      OK(bolide_open(BOLIDE_TEXT(path), NULL, &db, &error));
      OK(bolide_collection_open(db, BOLIDE_TEXT("c"), &c, &error));
    }
  }
  for (at = 0; at < KEYS; at++) check_key(c, NULL, &m, at);
  {
    bool is_sound = false;
    OK(bolide_check(db, true, &is_sound, NULL, &error));
    CHECK(is_sound);
  }
  bolide_snapshot_free(snapshot);
  bolide_collection_free(c);
  OK(bolide_close(db, &error));
  return 0;
}
