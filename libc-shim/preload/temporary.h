// SPDX-License-Identifier: BSD-3-Clause
//
// mkstemp and its kin, by names of our own: libc would make theirs where we cannot see, and the log
// could not have them.
#ifndef NVCACHE_LIBC_SHIM_PRELOAD_TEMPORARY_H_
#define NVCACHE_LIBC_SHIM_PRELOAD_TEMPORARY_H_

#include <errno.h>

#include <cstdint>
#include <cstring>

#include "src/sys/kernel.h"

namespace nvcache::preload {

// `make` makes what the path leads to, which must not be there: a number, or -1 and errno. The path
// ends in six Xs, but for a suffix of that many bytes; they give way to letters. -1 and EINVAL
// where they are not there, EEXIST where each name that was tried leads somewhere.
template <typename Make>
inline int MakeTemporary(char* path, int suffix_length, Make make) {
  constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  constexpr uint64_t kLetterCount = sizeof(kLetters) - 1;
  constexpr size_t kXs = 6;
  constexpr int kAttempts = kLetterCount * kLetterCount * kLetterCount;
  const int before = errno;
  const size_t length = std::strlen(path), end = kXs + static_cast<size_t>(suffix_length);
  if (suffix_length < 0 || length < end || std::memcmp(path + length - end, "XXXXXX", kXs) != 0) {
    errno = EINVAL;
    return -1;
  }
  char* const xs = path + length - end;
  int result = -1;
  for (int i = 0; i < kAttempts; ++i) {
    uint64_t number = 0;
    sys::Getrandom(&number, sizeof(number));
    for (size_t x = 0; x < kXs; ++x, number /= kLetterCount) {
      xs[x] = kLetters[number % kLetterCount];
    }
    result = make();
    if (result >= 0) errno = before;
    if (result >= 0 || errno != EEXIST) break;
  }
  return result;
}

}  // namespace nvcache::preload

#endif  // NVCACHE_LIBC_SHIM_PRELOAD_TEMPORARY_H_
