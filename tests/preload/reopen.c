// SPDX-License-Identifier: BSD-3-Clause
//
// Syncs a file often, has libc cut it inside freopen, writes to it and syncs it. reopen_test.py
// sees whether the cut is on the disk then, by the calls between the two that are announced.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void) {
  char bytes[100];
  memset(bytes, 'o', sizeof(bytes));
  const int fd = open("file", O_RDWR | O_CREAT, 0644);
  for (int i = 0; i < 70; ++i) {
    if (pwrite(fd, bytes, sizeof(bytes), 0) != sizeof(bytes) || fsync(fd) != 0) return 1;
  }
  FILE* stream = fopen("other", "w");
  access("reopen", F_OK);
  stream = freopen("file", "w", stream);
  if (stream == NULL || fputs("new", stream) < 0 || fflush(stream) != 0) return 2;
  if (fsync(fileno(stream)) != 0 || fsync(fd) != 0) return 3;
  access("end", F_OK);
  return 0;
}
