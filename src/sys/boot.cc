// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/boot.h"

#include <fcntl.h>

#include <cstring>

#include "src/sys/kernel.h"

namespace nvcache::sys {

namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

// 32 digits, with hyphens between some of them.
void ReadBootId(uint8_t (&id)[16]) {
  std::memset(id, 0, sizeof(id));
  char text[48] = {};
  const long fd = Openat(AT_FDCWD, "/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const long n = Read(static_cast<int>(fd), text, sizeof(text));
  Close(static_cast<int>(fd));
  uint32_t digits = 0;
  for (long i = 0; i < n && digits < 2 * sizeof(id); ++i) {
    const int digit = HexDigit(text[i]);
    if (digit < 0) continue;
    uint8_t& byte = id[digits++ / 2];
    byte = static_cast<uint8_t>(byte << 4 | digit);
  }
  if (digits < 2 * sizeof(id)) std::memset(id, 0, sizeof(id));
}

}  // namespace nvcache::sys
