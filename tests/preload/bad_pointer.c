// SPDX-License-Identifier: BSD-3-Clause
//
// The kernel answers a bad pointer with EFAULT, and the program lives on.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc < 2 || chdir(argv[1]) != 0) return 2;
  void* volatile bad = (void*)8;
  const int fd = open("a", O_RDWR | O_CREAT | O_TRUNC, 0644);
  printf("%zd\n", write(fd, "0123456789", 10));
  printf("%zd %d\n", write(fd, bad, 10), errno == EFAULT);
  printf("%zd %d\n", pread(fd, bad, 4, 0), errno == EFAULT);
  printf("%zd\n", write(fd, "0123456789", 10));
  return close(fd);
}
