/* Opening, closing, copying, checking: a database in the directory of the argument. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <dirent.h>
#include <sys/stat.h>

static char path[4096], copy[4096], repaired[4096], noisy[4096];

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

/* Changes bytes in the middle of the largest file of a directory. */
static void damage(const char *directory) {
  char largest[8192] = "", file[8192];
  off_t size = 0;
  struct dirent *entry;
  struct stat found;
  DIR *entries = opendir(directory);
  FILE *open;
  CHECK(entries != NULL);
  while ((entry = readdir(entries)) != NULL) {
    snprintf(file, sizeof file, "%s/%s", directory, entry->d_name);
    if (strstr(entry->d_name, ".sst") != NULL && stat(file, &found) == 0 && found.st_size > size) {
      size = found.st_size;
      strcpy(largest, file);
    }
  }
  closedir(entries);
  CHECK(size > 1000);
  open = fopen(largest, "r+b");
  CHECK(open != NULL && fseek(open, (long)(size / 2), SEEK_SET) == 0);
  CHECK(fwrite("DAMAGED", 1, 7, open) == 7 && fclose(open) == 0);
}

/* A damaged block: a walk ends with the error, also if it calls again, and never as if all had been read. */
static void damaged_walks(void) {
  bolide_db *db = NULL;
  bolide_collection *noise;
  bolide_cursor *cursor = NULL;
  bolide_answers *answers = NULL;
  bolide_query *query = query_of("");
  bolide_row row;
  bolide_error *failure = NULL;
  bolide_code code;
  char key[16], record[256];
  unsigned state = 1;
  int at, digit, count = 0;
  OK(bolide_open(BOLIDE_TEXT(noisy), NULL, &db, &error));
  noise = create(db, "noise", NULL);
  for (at = 0; at < 2000; at++) {
    snprintf(key, sizeof key, "%05d", at);
    strcpy(record, "{\"v\":\"");
    for (digit = 6; digit < 200; digit++) {
      state = state * 1103515245u + 12345u;
      record[digit] = (char)('a' + (state >> 16) % 26);
    }
    strcpy(record + digit, "\"}");
    put(noise, key, record);
  }
  bolide_collection_free(noise);
  OK(bolide_flush(db, &error));
  OK(bolide_close(db, &error));
  damage(noisy);

  OK(bolide_open(BOLIDE_TEXT(noisy), NULL, &db, &error));
  OK(bolide_collection_open(db, BOLIDE_TEXT("noise"), &noise, &error));
  OK(bolide_cursor_open(noise, NULL, NULL, &cursor, &error));
  for (code = bolide_cursor_first(cursor, &row, &failure); code == BOLIDE_OK; count++)
    code = bolide_cursor_next(cursor, &row, &failure);
  CHECK(code == BOLIDE_CORRUPTION && bolide_error_code(failure) == code && count > 0 && count < 2000);
  bolide_error_free(failure);
  FAILS(BOLIDE_CORRUPTION, "", bolide_cursor_next(cursor, &row, &error));
  CHECK(row.key.data == NULL);
  FAILS(BOLIDE_CORRUPTION, "", bolide_cursor_previous(cursor, &row, &error));
  OK(bolide_cursor_first(cursor, &row, &error));
  OK(bolide_cursor_next(cursor, &row, &error));
  CHECK(slice_is(row.key, "00001"));
  bolide_cursor_free(cursor);

  OK(bolide_find(noise, query, NULL, &answers, &error));
  while ((code = bolide_answers_next(answers, &row, &failure)) == BOLIDE_OK) continue;
  CHECK(code == BOLIDE_CORRUPTION);
  bolide_error_free(failure);
  FAILS(BOLIDE_CORRUPTION, "", bolide_answers_next(answers, &row, &error));
  FAILS(BOLIDE_CORRUPTION, "", bolide_answers_next(answers, &row, &error));
  bolide_answers_free(answers);
  bolide_query_free(query);
  bolide_collection_free(noise);
  bolide_db_free(db);
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
  snprintf(noisy, sizeof noisy, "%s/noisy", arguments[1]);
  missing();
  first_use();
  second_use();
  repairs();
  damaged_walks();
  return 0;
}
