/* Arrow streams out and in, over the C stream interface without an Arrow library. */
#include "check.h"

#define COLUMN(name, type) {name, sizeof(name) - 1, type, sizeof(type) - 1}

static void release_array(struct ArrowArray *array) {
  if (array->release != NULL) array->release(array);
}

static void exports(bolide_collection *orders) {
  bolide_column columns[3] = {COLUMN("_key", "string"), COLUMN("total", "float64"), COLUMN("tags", "list<string>")};
  bolide_query *query = query_of("total >= 0");
  struct ArrowArrayStream stream;
  struct ArrowSchema schema;
  struct ArrowArray array;
  int64_t rows = 0;
  int batches = 0;
  double sum = 0;
  OK(bolide_query_set_order(query, BOLIDE_ORDER_OLDEST, &error));
  OK(bolide_find_arrow(orders, query, NULL, columns, 3, 64, &stream, &error));
  bolide_query_free(query);
  CHECK(stream.get_schema(&stream, &schema) == 0);
  CHECK(strcmp(schema.format, "+s") == 0 && schema.n_children == 3);
  CHECK(strcmp(schema.children[0]->name, "_key") == 0 && strcmp(schema.children[1]->format, "g") == 0);
  schema.release(&schema);
  for (;;) {
    const double *totals;
    int64_t at;
    CHECK(stream.get_next(&stream, &array) == 0);
    if (array.release == NULL) break;
    CHECK(array.length <= 64 && array.n_children == 3);
    totals = (const double *)array.children[1]->buffers[1];
    for (at = 0; at < array.length; at++) sum += totals[at + array.children[1]->offset];
    rows += array.length;
    batches++;
    release_array(&array);
  }
  CHECK(rows == 200 && batches == 4 && sum == 199.0 * 200 / 2);
  CHECK(stream.get_next(&stream, &array) == 0 && array.release == NULL);
  stream.release(&stream);
}

static void inferred_columns(bolide_collection *orders) {
  bolide_query *query = query_of("");
  bolide_column column = COLUMN("total", "");
  struct ArrowArrayStream stream;
  struct ArrowSchema schema;
  OK(bolide_find_arrow(orders, query, NULL, NULL, 0, 0, &stream, &error));
  CHECK(stream.get_schema(&stream, &schema) == 0 && schema.n_children == 3);
  schema.release(&schema);
  stream.release(&stream);
  OK(bolide_find_arrow(orders, query, NULL, &column, 1, 0, &stream, &error));
  CHECK(stream.get_schema(&stream, &schema) == 0 && strcmp(schema.children[0]->format, "l") == 0);
  schema.release(&schema);
  stream.release(&stream);
  /* A name with NUL cannot be one of a column: it is left out. */
  OK(bolide_put(orders, BOLIDE_TEXT("nul"), BOLIDE_TEXT("{\"a\\u0000b\":1}"), &error));
  OK(bolide_find_arrow(orders, query, NULL, NULL, 0, 0, &stream, &error));
  CHECK(stream.get_schema(&stream, &schema) == 0 && schema.n_children == 3);
  schema.release(&schema);
  stream.release(&stream);
  OK(bolide_delete(orders, BOLIDE_TEXT("nul"), &error));
  column.name = "a\0b";
  column.name_size = 3;
  FAILS(BOLIDE_INVALID_INPUT, "no record", bolide_find_arrow(orders, query, NULL, &column, 1, 0, &stream, &error));
  column.name = "absent";
  column.name_size = 6;
  FAILS(BOLIDE_INVALID_INPUT, "absent", bolide_find_arrow(orders, query, NULL, &column, 1, 0, &stream, &error));
  CHECK(stream.release == NULL);
  column.type_name = "decimal";
  column.type_size = 7;
  FAILS(BOLIDE_INVALID_INPUT, "types", bolide_find_arrow(orders, query, NULL, &column, 1, 0, &stream, &error));
  bolide_query_free(query);
}

/* Columns are inferred from the state that the stream reads. */
static void inferred_at_a_snapshot(bolide_db *db) {
  bolide_collection *past = create(db, "past", "total");
  bolide_query *query = query_of("");
  bolide_snapshot *snapshot;
  struct ArrowArrayStream stream;
  struct ArrowSchema schema;
  OK(bolide_put(past, BOLIDE_TEXT("a"), BOLIDE_TEXT("{\"old\":1}"), &error));
  OK(bolide_snapshot_new(db, &snapshot, &error));
  OK(bolide_put(past, BOLIDE_TEXT("a"), BOLIDE_TEXT("{\"new\":1}"), &error));
  OK(bolide_find_arrow(past, query, snapshot, NULL, 0, 0, &stream, &error));
  CHECK(stream.get_schema(&stream, &schema) == 0 && schema.n_children == 2);
  CHECK(strcmp(schema.children[1]->name, "old") == 0);
  schema.release(&schema);
  stream.release(&stream);
  bolide_query_free(query);
  bolide_snapshot_free(snapshot);
  bolide_collection_free(past);
}

/* Out of one collection and into another: the records are equal. */
static void round_trip(bolide_db *db, bolide_collection *orders) {
  bolide_collection *other = create(db, "other", "total");
  bolide_column columns[3] = {COLUMN("_key", "string"), COLUMN("total", "int64"), COLUMN("tags", "list<string>")};
  bolide_query *query = query_of("");
  struct ArrowArrayStream stream;
  uint64_t rows = 0;
  OK(bolide_find_arrow(orders, query, NULL, columns, 3, 0, &stream, &error));
  OK(bolide_import_arrow(other, &stream, BOLIDE_TEXT("_key"), BOLIDE_SYNC_DEFAULT, &rows, &error));
  CHECK(rows == 200 && stream.release == NULL);
  check_record(other, "o007", "{\"total\":7,\"tags\":[\"a\",\"b\"]}");
  OK(bolide_count(other, query, NULL, &rows, &error));
  CHECK(rows == 200);

  /* Errors consume the stream too. */
  OK(bolide_find_arrow(orders, query, NULL, columns, 3, 0, &stream, &error));
  FAILS(BOLIDE_INVALID_INPUT, "nothing", bolide_import_arrow(other, &stream, BOLIDE_TEXT("nothing"), 0, NULL, &error));
  CHECK(stream.release == NULL);
  FAILS(BOLIDE_INVALID_INPUT, "stream", bolide_import_arrow(other, &stream, BOLIDE_TEXT("_key"), 0, NULL, &error));
  OK(bolide_find_arrow(orders, query, NULL, columns, 3, 0, &stream, &error));
  FAILS(BOLIDE_INVALID_INPUT, "NULL", bolide_import_arrow(NULL, &stream, BOLIDE_TEXT("_key"), 0, NULL, &error));
  CHECK(stream.release == NULL);
  bolide_query_free(query);
  bolide_collection_free(other);
}

/* A stream that fails. */
static int failing_schema(struct ArrowArrayStream *stream, struct ArrowSchema *schema) {
  (void)stream;
  (void)schema;
  return 5;
}
static int failing_next(struct ArrowArrayStream *stream, struct ArrowArray *array) {
  (void)stream;
  (void)array;
  return 5;
}
static const char *failing_text(struct ArrowArrayStream *stream) {
  (void)stream;
  return "out of luck";
}
static int released;
static void failing_release(struct ArrowArrayStream *stream) {
  released++;
  stream->release = NULL;
}

static void failing_stream(bolide_collection *orders) {
  struct ArrowArrayStream stream = {failing_schema, failing_next, failing_text, failing_release, NULL};
  FAILS(BOLIDE_INVALID_INPUT, "stream", bolide_import_arrow(orders, &stream, BOLIDE_TEXT("_key"), 0, NULL, &error));
  CHECK(released == 1);
}

/* A stream keeps the database open. */
static void open_stream(bolide_db *db, bolide_collection *orders) {
  bolide_query *query = query_of("");
  struct ArrowArrayStream stream;
  OK(bolide_find_arrow(orders, query, NULL, NULL, 0, 0, &stream, &error));
  bolide_query_free(query);
  bolide_collection_free(orders);
  FAILS(BOLIDE_IN_USE, "1 objects", bolide_close(db, &error));
  stream.release(&stream);
  OK(bolide_close(db, &error));
}

int main(void) {
  bolide_db *db = open_memory();
  bolide_collection *orders = create(db, "orders", "total");
  char key[16], record[64];
  int at;
  for (at = 0; at < 200; at++) {
    snprintf(key, sizeof key, "o%03d", at);
    snprintf(record, sizeof record, "{\"total\":%d,\"tags\":[\"a\",\"b\"]}", at);
    put(orders, key, record);
  }
  exports(orders);
  inferred_columns(orders);
  inferred_at_a_snapshot(db);
  round_trip(db, orders);
  failing_stream(orders);
  open_stream(db, orders);
  return 0;
}
