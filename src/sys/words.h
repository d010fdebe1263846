// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_SYS_WORDS_H_
#define NVCACHE_SYS_WORDS_H_

#include <cstddef>
#include <cstdint>

namespace nvcache::sys {

// Copies memory that another process may be changing, each aligned word in one piece. Whether the
// words belong together is for a checksum of the copy to say.
inline void CopyWords(void* out, const void* from, size_t bytes) {
  using Aliased [[gnu::may_alias]] = uint64_t;
  auto* to = static_cast<Aliased*>(out);
  auto* words = static_cast<const Aliased*>(from);
  for (size_t i = 0; i < bytes / sizeof(Aliased); ++i) {
    to[i] = __atomic_load_n(&words[i], __ATOMIC_ACQUIRE);
  }
}

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_WORDS_H_
