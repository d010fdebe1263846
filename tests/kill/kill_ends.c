// SPDX-License-Identifier: BSD-3-Clause
//
// Ends with bytes in its streams, in each way there is.
//
//   kill_ends WAY       (in the folder of its files)
//
// "known" and "plain" are there, and synced three times; "new" is made, and synced never.
#include "tests/kill/kill_ends.h"

#include "tests/kit/program.h"

static const char* g_way = "";
static FILE *g_known, *g_new;
static int g_plain = -1;

int ends_by(const char* way) { return strcmp(way, g_way) == 0; }

void write_more(const char* text) {
  CHECK(fprintf(g_known, "%s\n", text) > 0);
  CHECK(fprintf(g_new, "%s\n", text) > 0);
  CHECK(write(g_plain, text, strlen(text)) == (ssize_t)strlen(text));
}

static void open_files(void) {
  CHECK((g_known = fopen("known", "r+")) != NULL);
  CHECK((g_plain = open("plain", O_RDWR | O_APPEND)) >= 0);
  for (int i = 0; i < 3; ++i) {
    CHECK(fprintf(g_known, "synced %d\n", i) > 0 && fflush(g_known) == 0);
    CHECK(fsync(fileno(g_known)) == 0);
    CHECK(write(g_plain, "synced\n", 7) == 7 && fsync(g_plain) == 0);
  }
  CHECK((g_new = fopen("new", "w")) != NULL);
}

static void at_exit(void) {
  if (ends_by("atexit")) write_more("atexit");
}

static void at_the_quick_exit(void) {
  if (!ends_by("at_quick_exit")) return;
  write_more("at_quick_exit");
  fflush(NULL);
}

__attribute__((destructor)) static void end(void) {
  if (ends_by("destructor")) write_more("destructor");
}

static void* live_longer(void* first) {
  CHECK(pthread_join(*(pthread_t*)first, NULL) == 0);
  write_more("last thread");
  return NULL;
}

static void end_by_last_thread(void) {
  static pthread_t first;
  first = pthread_self();
  pthread_t last;
  CHECK(pthread_create(&last, NULL, live_longer, &first) == 0);
  pthread_exit(NULL);
}

// Goes on in a child, which has the files to itself.
static void become_child(void) {
  const pid_t child = fork();
  if (child == 0) return;
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  _exit(0);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  g_way = argv[1];
  atexit(at_exit);
  CHECK(at_quick_exit(at_the_quick_exit) == 0);
  if (ends_by("child")) become_child();
  open_files();
  write_more("main");
  if (ends_by("return")) return 3;
  if (ends_by("_exit")) _exit(4);
  if (strstr(g_way, "quick_exit") != NULL) quick_exit(5);
  if (ends_by("abort")) abort();
  if (ends_by("last_thread")) end_by_last_thread();
  if (ends_by("fclose")) CHECK(fclose(g_known) == 0 && fclose(g_new) == 0);
#ifdef __GLIBC__
  if (ends_by("fcloseall")) {
    CHECK(fcloseall() == 0);
    write_more("after fcloseall");
  }
#endif
  exit(0);
}
