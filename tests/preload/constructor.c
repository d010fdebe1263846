// SPDX-License-Identifier: BSD-3-Clause
//
// A constructor of the program's own writes, and nobody else: what it writes goes through the
// cache, for the engine's constructor has run before it.
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((constructor)) static void Write(void) {
  const int fd = open("written", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  printf("%zd\n", write(fd, "early\n", 6));
  close(fd);
}

int main(void) { return 0; }
