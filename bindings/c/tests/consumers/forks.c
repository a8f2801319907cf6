/* In a child process the objects of the parent are unusable, and freeing them does nothing. The argument is a directory for a
   database. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[4096];

static bolide_db *open_disk(void) {
  bolide_db *db = NULL;
  OK(bolide_open(BOLIDE_TEXT(path), NULL, &db, &error));
  return db;
}

static bool has_writer(void) {
  bool found = false;
  OK(bolide_has_writer(BOLIDE_TEXT(path), &found, &error));
  return found;
}

/* Waits for the end of a child, which succeeds. */
static void join(pid_t child) {
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The lock of the parent lasts until the parent closes, whatever its child frees. The child cannot open it. */
static void lock_of_the_parent(void) {
  bolide_db *db = open_disk();
  bolide_collection *notes = create(db, "notes", NULL);
  int closed[2], refused[2];
  char byte = 0;
  pid_t child;
  put(notes, "a", "{}");
  CHECK(pipe(closed) == 0 && pipe(refused) == 0);
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    bolide_db *own = NULL;
    alarm(60);
    FAILS(BOLIDE_FORKED, "parent", bolide_open(BOLIDE_TEXT(path), NULL, &own, &error));
    CHECK(own == NULL && has_writer());
    bolide_collection_free(notes);
    bolide_db_free(db);
    CHECK(has_writer());
    CHECK(write(refused[1], &byte, 1) == 1 && read(closed[0], &byte, 1) == 1);
    CHECK(!has_writer());
    _exit(0);
  }
  CHECK(read(refused[0], &byte, 1) == 1);
  bolide_collection_free(notes);
  OK(bolide_close(db, &error));
  CHECK(write(closed[1], &byte, 1) == 1);
  join(child);
}

/* A child that was forked after the parent has closed the database opens it, and then the parent again. */
static void hand_over(void) {
  bolide_db *db = NULL;
  bolide_collection *notes = NULL;
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(60);
    db = open_disk();
    CHECK(has_writer());
    OK(bolide_collection_open(db, BOLIDE_TEXT("notes"), &notes, &error));
    check_record(notes, "a", "{}");
    put(notes, "b", "{}");
    bolide_collection_free(notes);
    OK(bolide_close(db, &error));
    _exit(0);
  }
  join(child);
  db = open_disk();
  OK(bolide_collection_open(db, BOLIDE_TEXT("notes"), &notes, &error));
  check_record(notes, "b", "{}");
  bolide_collection_free(notes);
  OK(bolide_close(db, &error));
}

static bool is_over;
static pthread_mutex_t over = PTHREAD_MUTEX_INITIALIZER;

static void *asker(void *argument) {
  bool ends = false;
  while (!ends) {
    bool found;
    OK(bolide_has_writer(BOLIDE_TEXT(path), &found, &error));
    pthread_mutex_lock(&over);
    ends = is_over;
    pthread_mutex_unlock(&over);
  }
  return argument;
}

/* Children of a process whose threads are within the library at the fork wait for none of them. */
static void forks_within_calls(void) {
  pthread_t threads[3];
  int at;
  for (at = 0; at < 3; at++) CHECK(pthread_create(&threads[at], NULL, asker, NULL) == 0);
  for (at = 0; at < 200; at++) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      /* A child that waits is ended by the signal. */
      alarm(20);
      has_writer();
      _exit(0);
    }
    join(child);
  }
  pthread_mutex_lock(&over);
  is_over = true;
  pthread_mutex_unlock(&over);
  for (at = 0; at < 3; at++) CHECK(pthread_join(threads[at], NULL) == 0);
}

int main(int count, char **arguments) {
  bolide_db *db = open_memory();
  bolide_collection *notes = create(db, "notes", NULL);
  bolide_cursor *cursor = NULL;
  pid_t child;
  CHECK(count == 2 && strlen(arguments[1]) < sizeof path - 16);
  snprintf(path, sizeof path, "%s/db", arguments[1]);
  put(notes, "a", "{}");
  OK(bolide_cursor_open(notes, NULL, NULL, &cursor, &error));
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    bolide_bytes found;
    FAILS(BOLIDE_FORKED, "parent", bolide_put(notes, BOLIDE_TEXT("b"), BOLIDE_TEXT("{}"), &error));
    FAILS(BOLIDE_FORKED, "parent", bolide_get(notes, BOLIDE_TEXT("a"), NULL, &found, NULL, &error));
    FAILS(BOLIDE_FORKED, "parent", bolide_cursor_first(cursor, NULL, &error));
    FAILS(BOLIDE_FORKED, "parent", bolide_close(db, &error));
    bolide_cursor_free(cursor);
    bolide_collection_free(notes);
    bolide_db_free(db);
    FAILS(BOLIDE_FORKED, "parent", bolide_open(BOLIDE_TEXT(":memory:"), NULL, &db, &error));
    _exit(0);
  }
  join(child);
  OK(bolide_cursor_first(cursor, NULL, &error));
  bolide_cursor_free(cursor);
  bolide_collection_free(notes);
  OK(bolide_close(db, &error));
  lock_of_the_parent();
  hand_over();
  forks_within_calls();
  return 0;
}
