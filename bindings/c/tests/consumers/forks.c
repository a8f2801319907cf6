/* In a child process the objects of the parent are unusable, and freeing them does nothing. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  bolide_db *db = open_memory();
  bolide_collection *notes = create(db, "notes", NULL);
  bolide_cursor *cursor = NULL;
  pid_t child;
  int status = 0;
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
    /* A database of its own works. */
    db = open_memory();
    notes = create(db, "notes", NULL);
    put(notes, "a", "{}");
    bolide_collection_free(notes);
    OK(bolide_close(db, &error));
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  OK(bolide_cursor_first(cursor, NULL, &error));
  bolide_cursor_free(cursor);
  bolide_collection_free(notes);
  OK(bolide_close(db, &error));
  return 0;
}
