// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/boot.h"

#include <fcntl.h>

#include <atomic>
#include <cstring>

#include "src/sys/kernel.h"

namespace nvcache::sys {

namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// 32 digits, with hyphens between some of them.
void ReadFromKernel(uint8_t (&id)[16]) {
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

// A process sees one run of the kernel; but that of tests/crash is several machines.
#ifdef NVCACHE_RECORD
constexpr bool kKeeps = false;
#else
constexpr bool kKeeps = true;
#endif

// What was read; the second is stored last.
constinit std::atomic<uint64_t> boot_id_begin{0}, boot_id_end{0};

}  // namespace

void ReadBootId(uint8_t (&id)[16]) {
  uint64_t words[2] = {0, boot_id_end.load(std::memory_order_acquire)};
  static_assert(sizeof(words) == sizeof(id));
  if (kKeeps && words[1] != 0) {
    words[0] = boot_id_begin.load(std::memory_order_relaxed);
    std::memcpy(id, words, sizeof(id));
    return;
  }
  ReadFromKernel(id);
  std::memcpy(words, id, sizeof(id));
  boot_id_begin.store(words[0], std::memory_order_relaxed);
  boot_id_end.store(words[1], std::memory_order_release);
}

}  // namespace nvcache::sys
