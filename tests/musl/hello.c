/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <linux/fs.h>
#include <stdio.h>

#ifdef LIBRARY
const char* Name(void);
const char* Name(void) { return "library"; }
#else
int main(int argc, char** argv) {
  if (argc < 2) return puts("hello") < 0;
  void* library = dlopen(argv[1], RTLD_NOW);
  const char* (*name)(void) = library ? (const char* (*)(void))dlsym(library, "Name") : NULL;
  return printf("hello, %s\n", name ? name() : dlerror()) < 0;
}
#endif
