// SPDX-License-Identifier: BSD-3-Clause
//
// A library that the program needs: its constructor runs before that of a library which is
// preloaded, and its destructor after. So what it has registered comes last.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "tests/kill/kill_ends.h"

static void at_exit(void) {
  if (ends_by("early_atexit")) write_more("early atexit");
}

#ifdef __GLIBC__
static void on_the_exit(int status, void* unused) {
  (void)status, (void)unused;
  if (ends_by("early_on_exit")) write_more("early on_exit");
}
#endif

static void at_the_quick_exit(void) {
  if (!ends_by("early_quick_exit")) return;
  write_more("early at_quick_exit");
  fflush(NULL);
}

__attribute__((constructor)) static void begin(void) {
  atexit(at_exit);
  at_quick_exit(at_the_quick_exit);
#ifdef __GLIBC__
  on_exit(on_the_exit, NULL);
#endif
}

__attribute__((destructor)) static void end(void) {
#ifdef __GLIBC__
  if (ends_by("early_fcloseall")) fcloseall();
#endif
  if (ends_by("early_destructor") || ends_by("early_fcloseall")) write_more("early destructor");
}
