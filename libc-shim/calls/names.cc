// SPDX-License-Identifier: BSD-3-Clause
#include "libc-shim/calls/names.h"

#include <cstring>

#include "src/sys/kernel.h"

namespace nvcache::calls {

DescriptorPath::DescriptorPath(int fd) {
  constexpr char kPrefix[] = NVCACHE_DESCRIPTORS "/";
  std::memcpy(text_, kPrefix, sizeof(kPrefix));
  char* end = text_ + sizeof(kPrefix) - 1;
  // No descriptor is negative; one that is shall name nothing.
  if (fd < 0) return;
  int divisor = 1;
  while (fd / divisor >= 10) divisor *= 10;
  for (; divisor > 0; divisor /= 10) *end++ = static_cast<char>('0' + fd / divisor % 10);
  *end = '\0';
}

}  // namespace nvcache::calls
