/* Queries: filters, orders, limits, tokens, selections, reports, aggregates, indexes. */
#include "check.h"

static bolide_collection *orders;

/* The keys of the answers, joined. */
static void check_answers(bolide_answers *answers, const char *expected) {
  char found[256] = "";
  bolide_row row;
  bolide_error *error = NULL;
  bolide_code code;
  while ((code = bolide_answers_next(answers, &row, &error)) == BOLIDE_OK) {
    strncat(found, row.key.data, row.key.size);
    strcat(found, " ");
    CHECK(strlen(found) < 200 && row.sequence > 0);
  }
  if (code != BOLIDE_ABSENT || strcmp(found, expected) != 0) {
    fprintf(stderr, "found \"%s\", not \"%s\": %s\n", found, expected, bolide_error_message(error));
    exit(1);
  }
}

/* Frees the query. */
static void check_query(bolide_query *query, const char *expected) {
  bolide_answers *answers = NULL;
  OK(bolide_find(orders, query, NULL, &answers, &error));
  bolide_query_free(query);
  check_answers(answers, expected);
  bolide_answers_free(answers);
}

static void filters(void) {
  bolide_query *query;
  bolide_value ada = {BOLIDE_VALUE_TEXT, 0, 0, "ada", 3}, low = {BOLIDE_VALUE_INT, 10, 0, NULL, 0};
  bolide_value high = {BOLIDE_VALUE_FLOAT, 0, 20.5, NULL, 0}, yes = {BOLIDE_VALUE_BOOL, 1, 0, NULL, 0};
  bolide_value nothing = {BOLIDE_VALUE_NULL, 0, 0, NULL, 0};
  check_query(query_of(""), "o5 o4 o3 o2 o1 ");
  check_query(query_of("state = \"open\""), "o4 o3 o1 ");
  check_query(query_of("state = \"open\" and (total > 15 or tags[*] in (\"new\"))"), "o3 o1 ");
  check_query(query_of("not state exists"), "o5 ");
  FAILS(BOLIDE_INVALID_INPUT, "position", bolide_query_new(BOLIDE_TEXT("a = 1 and b ="), &query, &error));

  query = query_of("");
  OK(bolide_query_equal(query, BOLIDE_TEXT("customer"), &ada, &error));
  OK(bolide_query_between(query, BOLIDE_TEXT("total"), &low, &high, &error));
  check_query(query, "o3 o1 ");
  query = query_of("");
  OK(bolide_query_between(query, BOLIDE_TEXT("total"), NULL, &low, &error));
  check_query(query, "o4 o2 ");
  query = query_of("");
  OK(bolide_query_equal(query, BOLIDE_TEXT("paid"), &yes, &error));
  check_query(query, "o2 ");
  query = query_of("");
  OK(bolide_query_equal(query, BOLIDE_TEXT("note"), &nothing, &error));
  check_query(query, "o4 ");
}

static void orders_and_limits(void) {
  bolide_query *query = query_of("total >= 1");
  OK(bolide_query_set_order(query, BOLIDE_ORDER_VALUE, &error));
  OK(bolide_query_set_limit(query, 3, &error));
  check_query(query, "o4 o2 o1 ");
  query = query_of("total >= 1");
  OK(bolide_query_set_order(query, BOLIDE_ORDER_VALUE_DESCENDING, &error));
  check_query(query, "o3 o1 o2 o4 ");
  query = query_of("state = \"open\"");
  OK(bolide_query_set_order(query, BOLIDE_ORDER_OLDEST, &error));
  OK(bolide_query_use_index(query, BOLIDE_TEXT("state"), &error));
  check_query(query, "o1 o3 o4 ");
  query = query_of("state exists");
  OK(bolide_query_sort_by(query, BOLIDE_TEXT("state"), false, &error));
  OK(bolide_query_sort_by(query, BOLIDE_TEXT("total"), true, &error));
  check_query(query, "o2 o3 o1 o4 ");
  query = query_of("");
  OK(bolide_query_set_limit(query, 0, &error));
  check_query(query, "");
  query = query_of("customer >= \"a\"");
  OK(bolide_query_set_order(query, BOLIDE_ORDER_VALUE, &error));
  OK(bolide_query_set_limit_per_value(query, 1, &error));
  check_query(query, "o3 o2 ");
  query = query_of("state = \"open\"");
  OK(bolide_query_set_limit_per_value(query, 1, &error));
  FAILS(BOLIDE_INVALID_INPUT, "", bolide_query_check(query, &error));
  bolide_query_free(query);
}

static void pages(void) {
  bolide_query *query = query_of("total >= 1");
  bolide_answers *answers = NULL;
  bolide_bytes token;
  OK(bolide_query_set_order(query, BOLIDE_ORDER_VALUE, &error));
  OK(bolide_query_set_limit(query, 3, &error));
  OK(bolide_find(orders, query, NULL, &answers, &error));
  check_answers(answers, "o4 o2 o1 ");
  OK(bolide_answers_token(answers, &token, &error));
  bolide_answers_free(answers);
  OK(bolide_query_set_token(query, token.data, token.size, &error));
  bolide_bytes_free(&token);
  OK(bolide_find(orders, query, NULL, &answers, &error));
  check_answers(answers, "o3 ");
  EXPECT(BOLIDE_ABSENT, bolide_answers_token(answers, &token, &error));
  CHECK(token.data == NULL);
  bolide_answers_free(answers);
  FAILS(BOLIDE_INVALID_INPUT, "token", bolide_query_set_token(query, BOLIDE_TEXT("no token"), &error));
  OK(bolide_query_set_token(query, NULL, 0, &error));
  check_query(query, "o4 o2 o1 ");
}

static void selections(void) {
  bolide_query *query = query_of("customer = \"ada\" and total = 12.5");
  bolide_answers *answers = NULL;
  bolide_row row;
  bolide_bytes json;
  OK(bolide_query_select(query, BOLIDE_TEXT("total"), &error));
  OK(bolide_query_select(query, BOLIDE_TEXT("tags[*]"), &error));
  OK(bolide_query_select(query, BOLIDE_TEXT("absent"), &error));
  OK(bolide_query_measure(query, &error));
  OK(bolide_find(orders, query, NULL, &answers, &error));
  OK(bolide_answers_next(answers, &row, &error));
  CHECK(slice_is(row.values, "[[12.5],[\"a\",\"new\"],[]]") && row.record.data == NULL);
  OK(bolide_answers_explain(answers, &json, &error));
  CHECK(contains(json, "\"answers\":1") && contains(json, "\"index\":"));
  bolide_bytes_free(&json);
  bolide_answers_free(answers);
  OK(bolide_query_select_part(query, BOLIDE_TEXT("tags"), &error));
  OK(bolide_find(orders, query, NULL, &answers, &error));
  OK(bolide_answers_next(answers, &row, &error));
  CHECK(slice_is(row.record, "{\"tags\":[\"new\",\"a\"]}") && row.values.data == NULL);
  bolide_answers_free(answers);
  OK(bolide_query_keys_only(query, &error));
  OK(bolide_find(orders, query, NULL, &answers, &error));
  OK(bolide_answers_next(answers, &row, &error));
  CHECK(slice_is(row.key, "o1") && row.record.data == NULL && row.values.data == NULL);
  bolide_answers_free(answers);
  bolide_query_free(query);
}

static void aggregates(bolide_db *db) {
  bolide_query *query = query_of("state = \"open\""), *all = query_of("");
  bolide_snapshot *snapshot = NULL;
  bolide_bulk_result result;
  bolide_bytes json;
  uint64_t count = 9;
  OK(bolide_count(orders, query, NULL, &count, &error));
  CHECK(count == 3);
  OK(bolide_summarize(orders, query, BOLIDE_TEXT("total"), &json, &error));
  CHECK(contains(json, "\"sum\":33.5") && contains(json, "\"max\":20") && contains(json, "\"records\":3"));
  bolide_bytes_free(&json);
  OK(bolide_distinct(orders, all, BOLIDE_TEXT("state"), 10, &json, &error));
  CHECK(bytes_are(json, "[[\"done\",1],[\"open\",3]]"));
  bolide_bytes_free(&json);
  FAILS(BOLIDE_LIMIT_EXCEEDED, "", bolide_distinct(orders, all, BOLIDE_TEXT("state"), 1, &json, &error));
  OK(bolide_estimate(orders, query, &json, &error));
  CHECK(contains(json, "\"indexes\":[\"state\"]"));
  bolide_bytes_free(&json);
  OK(bolide_snapshot_new(db, &snapshot, &error));
  OK(bolide_delete_where(orders, query, BOLIDE_SYNC_ALWAYS, &result, &error));
  CHECK(result.found == 3 && result.changed == 3 && result.skipped == 0);
  OK(bolide_count(orders, query, NULL, &count, &error));
  CHECK(count == 0);
  OK(bolide_count(orders, query, snapshot, &count, &error));
  CHECK(count == 3);
  bolide_snapshot_free(snapshot);
  bolide_query_free(query);
  bolide_query_free(all);
}

static void indexes(void) {
  bolide_index_build *build = NULL;
  bolide_build_progress progress;
  bolide_bytes json;
  OK(bolide_index_create(orders, BOLIDE_TEXT("total:composite"), &error));
  FAILS(BOLIDE_CONFLICT, "total", bolide_index_create(orders, BOLIDE_TEXT("total"), &error));
  FAILS(BOLIDE_INVALID_INPUT, "", bolide_index_create(orders, BOLIDE_TEXT("a..b"), &error));
  OK(bolide_index_create_background(orders, BOLIDE_TEXT("customer+total"), 0, &build, &error));
  OK(bolide_index_build_wait(build, UINT64_MAX, &error));
  OK(bolide_index_build_wait(build, 0, &error));
  OK(bolide_index_build_progress(build, &progress, &error));
  CHECK(progress.is_ready && progress.share == 1.0 && progress.records == 5);
  bolide_index_build_free(build);
  OK(bolide_index_rebuild(orders, BOLIDE_TEXT("total"), &error));
  OK(bolide_indexes(orders, &json, &error));
  CHECK(contains(json, "\"name\":\"state\"") && contains(json, "\"kind\":\"composite\""));
  CHECK(contains(json, "\"attributes\":[\"customer\",\"total\"]"));
  bolide_bytes_free(&json);
  OK(bolide_index_drop(orders, BOLIDE_TEXT("total"), &error));
  FAILS(BOLIDE_NOT_FOUND, "total", bolide_index_drop(orders, BOLIDE_TEXT("total"), &error));
  OK(bolide_advise(orders, BOLIDE_TEXT("state"), &json, &error));
  CHECK(contains(json, "\"spec\":\"state") && contains(json, "\"reasons\":["));
  bolide_bytes_free(&json);
}

/* A build that waits is visible, and a wait with a limit ends. */
static void slow_build(bolide_db *db) {
  bolide_collection *many = create(db, "many", NULL);
  bolide_index_build *build = NULL;
  bolide_build_progress progress;
  char key[16];
  int at;
  for (at = 0; at < 3000; at++) {
    snprintf(key, sizeof key, "%05d", at);
    put(many, key, "{\"v\":1}");
  }
  OK(bolide_index_create_background(many, BOLIDE_TEXT("v"), 1, &build, &error));
  EXPECT(BOLIDE_ABSENT, bolide_index_build_wait(build, 30, &error));
  OK(bolide_index_build_progress(build, &progress, &error));
  CHECK(!progress.is_ready && progress.share < 1.0);
  OK(bolide_index_drop(many, BOLIDE_TEXT("v"), &error));
  FAILS(BOLIDE_CONFLICT, "", bolide_index_build_wait(build, UINT64_MAX, &error));
  bolide_index_build_free(build);
  bolide_collection_free(many);
}

int main(void) {
  bolide_db *db = open_memory();
  orders = create(db, "orders", "state");
  put(orders, "o1", "{\"state\":\"open\",\"customer\":\"ada\",\"total\":12.5,\"tags\":[\"new\",\"a\"]}");
  put(orders, "o2", "{\"state\":\"done\",\"customer\":\"bob\",\"total\":10,\"paid\":true}");
  put(orders, "o3", "{\"state\":\"open\",\"customer\":\"ada\",\"total\":20,\"paid\":false}");
  put(orders, "o4", "{\"state\":\"open\",\"total\":1,\"note\":null}");
  put(orders, "o5", "{}");
  filters();
  orders_and_limits();
  pages();
  selections();
  indexes();
  aggregates(db);
  slow_build(db);
  bolide_collection_free(orders);
  OK(bolide_close(db, &error));
  return 0;
}
