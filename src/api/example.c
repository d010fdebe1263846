/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Appends lines to a journal; each is durable when nvcache_write returns.
 *
 *   cc example.c $(pkg-config --cflags --libs nvcache) -o example
 *   NVCACHE_POOL=/dev/shm/pool NVCACHE_SIZE=64M NVCACHE_EMULATE=1 ./example journal
 */
#include <nvcache.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  int fd = nvcache_open(argv[1], O_RDWR | O_CREAT | O_APPEND, 0644);
  if (fd < 0) return perror(argv[1]), 1;

  char line[32];
  for (int i = 0; i < 1000; ++i) {
    int length = snprintf(line, sizeof(line), "record %d\n", i);
    if (nvcache_write(fd, line, (size_t)length) != length) return perror("write"), 1;
  }

  struct stat st;
  if (nvcache_fstat(fd, &st) != 0) return perror("fstat"), 1;
  ssize_t n = nvcache_pread(fd, line, strlen("record 0"), 0);
  printf("%lld bytes, the first are: %.*s\n", (long long)st.st_size, (int)n, line);

  if (nvcache_close(fd) != 0) return perror("close"), 1;
  return 0;
}
