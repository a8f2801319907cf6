/* Transactions: own writes, conflicts, isolation, savepoints, cursors and answers. */
#include "check.h"

static bolide_transaction *begin(bolide_db *db, bolide_isolation isolation) {
  bolide_transaction *transaction = NULL;
  OK(bolide_begin(db, isolation, BOLIDE_SYNC_DEFAULT, 0, &transaction, &error));
  return transaction;
}

static void tx_put(bolide_transaction *tx, bolide_collection *collection, const char *key, const char *record) {
  OK(bolide_transaction_put(tx, collection, BOLIDE_TEXT(key), BOLIDE_TEXT(record), &error));
}

static void tx_check(bolide_transaction *tx, bolide_collection *collection, const char *key, const char *record) {
  bolide_bytes found;
  if (record == NULL) {
    EXPECT(BOLIDE_ABSENT, bolide_transaction_get(tx, collection, BOLIDE_TEXT(key), false, &found, &error));
  } else {
    OK(bolide_transaction_get(tx, collection, BOLIDE_TEXT(key), false, &found, &error));
    CHECK(bytes_are(found, record));
  }
  bolide_bytes_free(&found);
}

static void own_writes(bolide_db *db, bolide_collection *accounts) {
  bolide_transaction *tx = begin(db, BOLIDE_SERIALIZABLE);
  bolide_query *query = query_of("v >= 5");
  bolide_range range = {0};
  uint64_t count = 0, sequence = 0;
  tx_put(tx, accounts, "ann", "{\"v\":8}");
  tx_put(tx, accounts, "eve", "{\"v\":9}");
  OK(bolide_transaction_delete(tx, accounts, BOLIDE_TEXT("bob"), &error));
  tx_check(tx, accounts, "ann", "{\"v\":8}");
  tx_check(tx, accounts, "bob", NULL);
  check_record(accounts, "ann", "{\"v\":1}");
  OK(bolide_transaction_count(tx, accounts, query, &count, &error));
  CHECK(count == 2);
  range.start = "e";
  range.start_size = 1;
  OK(bolide_transaction_delete_range(tx, accounts, &range, &error));
  tx_check(tx, accounts, "eve", NULL);
  OK(bolide_commit(tx, &sequence, &error));
  CHECK(sequence > 0);
  check_record(accounts, "ann", "{\"v\":8}");
  check_record(accounts, "bob", NULL);
  /* It has ended. */
  FAILS(BOLIDE_CLOSED, "ended", bolide_commit(tx, NULL, &error));
  FAILS(BOLIDE_CLOSED, "ended", bolide_transaction_put(tx, accounts, BOLIDE_TEXT("a"), BOLIDE_TEXT("{}"), &error));
  bolide_transaction_free(tx);
  bolide_query_free(query);
}

static void conflicts(bolide_db *db, bolide_collection *accounts) {
  bolide_transaction *tx = begin(db, BOLIDE_SERIALIZABLE);
  bolide_bytes found;
  put(accounts, "ann", "{\"v\":1}");
  bolide_transaction_free(tx);
  tx = begin(db, BOLIDE_SERIALIZABLE);
  tx_check(tx, accounts, "ann", "{\"v\":1}");
  tx_put(tx, accounts, "zoe", "{\"v\":1}");
  put(accounts, "ann", "{\"v\":2}");
  tx_check(tx, accounts, "ann", "{\"v\":1}");
  FAILS(BOLIDE_CONFLICT, "ann", bolide_commit(tx, NULL, &error));
  FAILS(BOLIDE_CLOSED, "ended", bolide_commit(tx, NULL, &error));
  bolide_transaction_free(tx);
  check_record(accounts, "zoe", NULL);

  /* Under snapshot isolation only an update conflicts. */
  tx = begin(db, BOLIDE_SNAPSHOT_ISOLATION);
  tx_check(tx, accounts, "ann", "{\"v\":2}");
  tx_put(tx, accounts, "zoe", "{\"v\":1}");
  put(accounts, "ann", "{\"v\":3}");
  OK(bolide_commit(tx, NULL, &error));
  bolide_transaction_free(tx);
  tx = begin(db, BOLIDE_SNAPSHOT_ISOLATION);
  OK(bolide_transaction_get(tx, accounts, BOLIDE_TEXT("ann"), true, &found, &error));
  bolide_bytes_free(&found);
  tx_put(tx, accounts, "zoe", "{\"v\":2}");
  put(accounts, "ann", "{\"v\":4}");
  FAILS(BOLIDE_CONFLICT, "ann", bolide_commit(tx, NULL, &error));
  bolide_transaction_free(tx);
  check_record(accounts, "zoe", "{\"v\":1}");
}

static void savepoints(bolide_db *db, bolide_collection *accounts) {
  bolide_transaction *tx = begin(db, BOLIDE_SERIALIZABLE), *other = begin(db, BOLIDE_SERIALIZABLE);
  bolide_savepoint *savepoint = NULL;
  tx_put(tx, accounts, "s", "{\"v\":1}");
  OK(bolide_savepoint_new(tx, &savepoint, &error));
  tx_put(tx, accounts, "s", "{\"v\":2}");
  FAILS(BOLIDE_INVALID_INPUT, "savepoint", bolide_rollback_to(other, savepoint, &error));
  OK(bolide_rollback_to(tx, savepoint, &error));
  tx_check(tx, accounts, "s", "{\"v\":1}");
  OK(bolide_commit(tx, NULL, &error));
  bolide_transaction_free(tx);
  bolide_transaction_free(other);
  bolide_savepoint_free(savepoint);
  check_record(accounts, "s", "{\"v\":1}");
}

static void cursors_and_answers(bolide_db *db, bolide_collection *accounts) {
  bolide_transaction *tx = begin(db, BOLIDE_SERIALIZABLE);
  bolide_range range = {0};
  bolide_cursor *cursor = NULL;
  bolide_answers *answers = NULL;
  bolide_query *query = query_of("kind = \"new\"");
  bolide_bytes token;
  bolide_row row;
  range.prefix = "t";
  range.prefix_size = 1;
  put(accounts, "t0", "{\"kind\":\"new\"}");
  bolide_transaction_free(tx);
  tx = begin(db, BOLIDE_SERIALIZABLE);
  tx_put(tx, accounts, "t1", "{\"kind\":\"new\"}");
  OK(bolide_transaction_cursor(tx, accounts, &range, &cursor, &error));
  OK(bolide_transaction_find(tx, accounts, query, &answers, &error));
  OK(bolide_cursor_first(cursor, &row, &error));
  CHECK(slice_is(row.key, "t0"));
  OK(bolide_cursor_next(cursor, &row, &error));
  CHECK(slice_is(row.key, "t1") && slice_is(row.record, "{\"kind\":\"new\"}"));
  EXPECT(BOLIDE_ABSENT, bolide_cursor_next(cursor, &row, &error));
  OK(bolide_answers_next(answers, &row, &error));
  CHECK(slice_is(row.key, "t1"));
  OK(bolide_answers_next(answers, &row, &error));
  CHECK(slice_is(row.key, "t0"));
  EXPECT(BOLIDE_ABSENT, bolide_answers_next(answers, &row, &error));
  EXPECT(BOLIDE_ABSENT, bolide_answers_token(answers, &token, &error));

  /* The commit waits for nothing: it refuses while they exist. */
  FAILS(BOLIDE_IN_USE, "cursors", bolide_commit(tx, NULL, &error));
  bolide_cursor_free(cursor);
  FAILS(BOLIDE_IN_USE, "cursors", bolide_commit(tx, NULL, &error));
  bolide_answers_free(answers);
  OK(bolide_commit(tx, NULL, &error));
  bolide_transaction_free(tx);
  check_record(accounts, "t1", "{\"kind\":\"new\"}");

  /* The handle of the transaction may end before its cursor and answers. */
  tx = begin(db, BOLIDE_SERIALIZABLE);
  tx_put(tx, accounts, "t2", "{\"kind\":\"new\"}");
  OK(bolide_transaction_cursor(tx, accounts, &range, &cursor, &error));
  OK(bolide_transaction_find(tx, accounts, query, &answers, &error));
  bolide_query_free(query);
  bolide_transaction_free(tx);
  OK(bolide_cursor_last(cursor, &row, &error));
  CHECK(slice_is(row.key, "t2"));
  OK(bolide_answers_next(answers, &row, &error));
  CHECK(slice_is(row.key, "t2"));
  bolide_answers_free(answers);
  bolide_cursor_free(cursor);
  check_record(accounts, "t2", NULL);
}

static void seeks_with_lent_keys(bolide_db *db) {
  bolide_collection *mixed = mixed_sources(db);
  bolide_transaction *tx = begin(db, BOLIDE_SERIALIZABLE);
  bolide_cursor *cursor = NULL;
  char key[64];
  int at;
  for (at = 1; at < MIXED; at += 5) tx_put(tx, mixed, mixed_key(key, at), "{\"v\":2}");
  OK(bolide_transaction_cursor(tx, mixed, NULL, &cursor, &error));
  check_lent_keys(cursor);
  bolide_cursor_free(cursor);
  OK(bolide_commit(tx, NULL, &error));
  bolide_transaction_free(tx);
  bolide_collection_free(mixed);
}

static void limits(bolide_db *db, bolide_collection *accounts) {
  bolide_transaction *tx = NULL;
  char record[2048];
  bolide_error *error = NULL;
  bolide_code code = BOLIDE_OK;
  char key[16];
  int at;
  memset(record, ' ', sizeof record);
  record[0] = '{';
  record[sizeof record - 1] = '}';
  OK(bolide_begin(db, BOLIDE_SERIALIZABLE, BOLIDE_SYNC_ALWAYS, 100000, &tx, &error));
  for (at = 0; code == BOLIDE_OK && at < 1000; at++) {
    snprintf(key, sizeof key, "%d", at);
    code = bolide_transaction_put(tx, accounts, BOLIDE_TEXT(key), record, sizeof record, &error);
  }
  CHECK(code == BOLIDE_LIMIT_EXCEEDED && at < 100);
  bolide_error_free(error);
  bolide_transaction_free(tx);
}

int main(void) {
  bolide_db *db = open_memory();
  bolide_collection *accounts = create(db, "accounts", "kind");
  put(accounts, "ann", "{\"v\":1}");
  put(accounts, "bob", "{\"v\":2}");
  own_writes(db, accounts);
  conflicts(db, accounts);
  savepoints(db, accounts);
  cursors_and_answers(db, accounts);
  seeks_with_lent_keys(db);
  limits(db, accounts);
  bolide_collection_free(accounts);
  OK(bolide_close(db, &error));
  return 0;
}
