/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef NVCACHE_TESTS_MUSL_CHECK_H_
#define NVCACHE_TESTS_MUSL_CHECK_H_

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                    \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, strerror(errno)); \
      exit(1);                                                                              \
    }                                                                                       \
  } while (0)

#endif /* NVCACHE_TESTS_MUSL_CHECK_H_ */
