/*
 * Loads posts, one JSON object a line with a field "id", into a database, and prints the newest of a subreddit.
 *
 *   cc bindings/c/examples/posts.c $(pkg-config --cflags --libs bolide) -o posts
 *   zstd -dc crates/cli/data/posts.ndjson.zst > posts.ndjson
 *   ./posts DATABASE posts.ndjson vim
 */
#include <bolide.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program after an error. */
static void check(bolide_code code, bolide_error *error) {
  if (code > 0) {
    fprintf(stderr, "%s: %s\n", bolide_error_message(error), bolide_error_advice(error));
    exit(1);
  }
}

/* The value of "id": the bytes between the quotes after it. */
static const char *id_of(const char *line, size_t *size) {
  const char *start = strstr(line, "\"id\":\""), *end;
  if (start == NULL || (end = strchr(start + 6, '"')) == NULL) return NULL;
  *size = (size_t)(end - start) - 6;
  return start + 6;
}

static unsigned long load(bolide_db *db, bolide_collection *posts, FILE *file) {
  static char line[1 << 20];
  bolide_error *error = NULL;
  bolide_batch *batch = NULL;
  unsigned long count = 0;
  check(bolide_batch_new(db, &batch, &error), error);
  while (fgets(line, sizeof line, file) != NULL) {
    size_t size = 0;
    const char *id = id_of(line, &size);
    line[strcspn(line, "\n")] = 0;
    if (id == NULL) continue;
    check(bolide_batch_put(batch, posts, id, size, BOLIDE_TEXT(line), &error), error);
    count++;
    if (bolide_batch_count(batch) == 1000) check(bolide_batch_write(batch, BOLIDE_SYNC_DEFAULT, NULL, &error), error);
  }
  check(bolide_batch_write(batch, BOLIDE_SYNC_DEFAULT, NULL, &error), error);
  bolide_batch_free(batch);
  return count;
}

static void print_newest(bolide_collection *posts, const char *subreddit) {
  bolide_error *error = NULL;
  bolide_query *query = NULL;
  bolide_answers *answers = NULL;
  bolide_value value = {BOLIDE_VALUE_TEXT, 0, 0, subreddit, strlen(subreddit)};
  bolide_bytes explain;
  bolide_row row;
  uint64_t count = 0;
  check(bolide_query_new("", 0, &query, &error), error);
  check(bolide_query_equal(query, BOLIDE_TEXT("subreddit"), &value, &error), error);
  check(bolide_count(posts, query, NULL, &count, &error), error);
  printf("%llu posts of %s, the newest:\n", (unsigned long long)count, subreddit);
  check(bolide_query_set_limit(query, 5, &error), error);
  check(bolide_query_select(query, BOLIDE_TEXT("title"), &error), error);
  check(bolide_find(posts, query, NULL, &answers, &error), error);
  bolide_code code;
  while ((code = bolide_answers_next(answers, &row, &error)) == BOLIDE_OK) {
    printf("  %.*s %.*s\n", (int)row.key.size, row.key.data, (int)row.values.size, row.values.data);
  }
  check(code, error);
  check(bolide_answers_explain(answers, &explain, &error), error);
  printf("%.*s\n", (int)explain.size, explain.data);
  bolide_bytes_free(&explain);
  bolide_answers_free(answers);
  bolide_query_free(query);
}

int main(int count, char **arguments) {
  bolide_error *error = NULL;
  bolide_db *db = NULL;
  bolide_collection *posts = NULL;
  FILE *file;
  if (count != 4 || (file = fopen(arguments[2], "r")) == NULL) {
    fprintf(stderr, "usage: %s DATABASE POSTS.ndjson SUBREDDIT\n", arguments[0]);
    return 2;
  }
  check(bolide_open(BOLIDE_TEXT(arguments[1]), NULL, &db, &error), error);
  if (bolide_collection_open(db, BOLIDE_TEXT("posts"), &posts, NULL) == BOLIDE_NOT_FOUND) {
    check(bolide_collection_create(db, BOLIDE_TEXT("posts"), NULL, &posts, &error), error);
    check(bolide_index_create(posts, BOLIDE_TEXT("subreddit"), &error), error);
  }
  printf("%lu posts loaded\n", load(db, posts, file));
  fclose(file);
  print_newest(posts, arguments[3]);
  bolide_collection_free(posts);
  check(bolide_close(db, &error), error);
  return 0;
}
