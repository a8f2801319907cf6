/* Opening, closing, copying, checking: a database in the directory of the argument. */
#include "check.h"

static char path[4096], copy[4096], repaired[4096];

static bolide_db *open_disk(void) {
  bolide_db *db = NULL;
  bolide_options *options = bolide_options_new();
  OK(bolide_options_set(options, BOLIDE_OPTION_SYNC, BOLIDE_SYNC_ALWAYS, &error));
  OK(bolide_options_set(options, BOLIDE_OPTION_MEMORY_BYTES, 64 << 20, &error));
  OK(bolide_options_set(options, BOLIDE_OPTION_CACHE_BYTES, 8 << 20, &error));
  OK(bolide_options_set(options, BOLIDE_OPTION_MEMTABLE_BYTES, 1 << 20, &error));
  OK(bolide_options_set(options, BOLIDE_OPTION_ROW_CACHE_BYTES, 0, &error));
  OK(bolide_options_set(options, BOLIDE_OPTION_BACKGROUND_THREADS, 2, &error));
  OK(bolide_options_set(options, BOLIDE_OPTION_MAX_OPEN_FILES, 64, &error));
  OK(bolide_options_set(options, BOLIDE_OPTION_FETCH_THREADS, 1, &error));
  OK(bolide_options_set(options, BOLIDE_OPTION_SYNC_INTERVAL_MICROS, 1000, &error));
  OK(bolide_open(BOLIDE_TEXT(path), options, &db, &error));
  bolide_options_free(options);
  return db;
}

static void missing(void) {
  bolide_db *db = (bolide_db *)path;
  bolide_options *options = bolide_options_new();
  bool has_writer = true;
  OK(bolide_options_set(options, BOLIDE_OPTION_CREATE_IF_MISSING, 0, &error));
  FAILS(BOLIDE_NOT_FOUND, "", bolide_open(BOLIDE_TEXT(path), options, &db, &error));
  CHECK(db == NULL);
  bolide_options_free(options);
  OK(bolide_has_writer(BOLIDE_TEXT(path), &has_writer, &error));
  CHECK(!has_writer);
}

static void first_use(void) {
  bolide_db *db = open_disk(), *second = NULL;
  bolide_collection *orders = create(db, "orders", "state"), *other = NULL;
  bolide_bytes json;
  bool is_sound = false, has_writer = false;
  char key[16];
  int at;
  for (at = 0; at < 100; at++) {
    snprintf(key, sizeof key, "o%02d", at);
    put(orders, key, at % 3 ? "{\"state\":\"open\"}" : "{\"state\":\"done\"}");
  }
  FAILS(BOLIDE_LOCKED, "", bolide_open(BOLIDE_TEXT(path), NULL, &second, &error));
  OK(bolide_has_writer(BOLIDE_TEXT(path), &has_writer, &error));
  CHECK(has_writer);
  FAILS(BOLIDE_CONFLICT, "orders", bolide_collection_create(db, BOLIDE_TEXT("orders"), NULL, &other, &error));
  FAILS(BOLIDE_NOT_FOUND, "nothing", bolide_collection_open(db, BOLIDE_TEXT("nothing"), &other, &error));
  OK(bolide_sync_log(db, &error));
  OK(bolide_flush(db, &error));
  OK(bolide_compact(db, &error));
  OK(bolide_wait_until_settled(db, &error));
  OK(bolide_check(db, true, &is_sound, &json, &error));
  CHECK(is_sound && contains(json, "\"sound\":true") && contains(json, "\"index\":\"state\""));
  bolide_bytes_free(&json);
  OK(bolide_check(db, false, NULL, NULL, &error));
  OK(bolide_stats(db, &json, &error));
  CHECK(contains(json, "\"name\":\"orders\"") && contains(json, "\"entries\":100"));
  bolide_bytes_free(&json);
  OK(bolide_checkpoint(db, BOLIDE_TEXT(copy), &error));

  /* Closing reports what still exists, and changes nothing then. */
  FAILS(BOLIDE_IN_USE, "1 objects", bolide_close(db, &error));
  check_record(orders, "o00", "{\"state\":\"done\"}");
  bolide_collection_free(orders);
  OK(bolide_close(db, &error));
  OK(bolide_close(NULL, &error));
}

static void second_use(void) {
  bolide_db *db = open_disk(), *reader = NULL;
  bolide_options *options = bolide_options_new();
  bolide_collection *orders = NULL;
  OK(bolide_collection_open(db, BOLIDE_TEXT("orders"), &orders, &error));
  check_record(orders, "o99", "{\"state\":\"done\"}");
  /* The handle of the database may end first: it is closed with its last object. */
  bolide_db_free(db);
  check_record(orders, "o98", "{\"state\":\"open\"}");
  bolide_collection_free(orders);

  OK(bolide_options_set(options, BOLIDE_OPTION_READ_ONLY, 1, &error));
  OK(bolide_open(BOLIDE_TEXT(copy), options, &reader, &error));
  bolide_options_free(options);
  OK(bolide_collection_open(reader, BOLIDE_TEXT("orders"), &orders, &error));
  check_record(orders, "o01", "{\"state\":\"open\"}");
  FAILS(BOLIDE_READ_ONLY, "", bolide_put(orders, BOLIDE_TEXT("x"), BOLIDE_TEXT("{}"), &error));
  bolide_collection_free(orders);
  OK(bolide_close(reader, &error));

  db = open_disk();
  OK(bolide_collection_open(db, BOLIDE_TEXT("orders"), &orders, &error));
  OK(bolide_collection_drop(db, BOLIDE_TEXT("orders"), &error));
  FAILS(BOLIDE_NOT_FOUND, "orders", bolide_put(orders, BOLIDE_TEXT("x"), BOLIDE_TEXT("{}"), &error));
  bolide_collection_free(orders);
  OK(bolide_close(db, &error));
}

static void repairs(void) {
  bolide_bytes report;
  bolide_db *db = NULL;
  OK(bolide_repair(BOLIDE_TEXT(copy), BOLIDE_TEXT(repaired), &report, &error));
  CHECK(report.size > 10);
  bolide_bytes_free(&report);
  FAILS(BOLIDE_NOT_FOUND, "no directory", bolide_repair("nowhere", 7, "x", 1, &report, &error));
  OK(bolide_open(BOLIDE_TEXT(repaired), NULL, &db, &error));
  OK(bolide_close(db, &error));
}

int main(int count, char **arguments) {
  CHECK(count == 2);
  CHECK(bolide_abi_version() == BOLIDE_ABI_VERSION && strchr(bolide_version(), '.') != NULL);
  snprintf(path, sizeof path, "%s/db", arguments[1]);
  snprintf(copy, sizeof copy, "%s/copy", arguments[1]);
  snprintf(repaired, sizeof repaired, "%s/repaired", arguments[1]);
  missing();
  first_use();
  second_use();
  repairs();
  return 0;
}
