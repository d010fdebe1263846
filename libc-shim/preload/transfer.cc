// SPDX-License-Identifier: BSD-3-Clause
//
// sendfile, copy_file_range, splice.
#include "libc-shim/calls/transfer.h"

#include <fcntl.h>
#include <sys/sendfile.h>

#include "libc-shim/preload/wrapper.h"

using namespace nvcache::calls;
using namespace nvcache::preload;

NVCACHE_EXPORT ssize_t sendfile64(int to, int from, off64_t* offset, size_t count) noexcept {
  return Transfer(from, offset == nullptr, to,
                  [=] { return NVCACHE_REAL(sendfile64)(to, from, offset, count); });
}
NVCACHE_EXPORT_ALIAS(sendfile, sendfile64);

NVCACHE_EXPORT ssize_t copy_file_range(int from, off64_t* from_offset, int to, off64_t* to_offset,
                                       size_t count, unsigned flags) {
  return Transfer(from, from_offset == nullptr, to, [=] {
    return NVCACHE_REAL(copy_file_range)(from, from_offset, to, to_offset, count, flags);
  });
}

NVCACHE_EXPORT ssize_t splice(int from, off64_t* from_offset, int to, off64_t* to_offset,
                              size_t count, unsigned flags) {
  return Transfer(from, from_offset == nullptr, to, [=] {
    return NVCACHE_REAL(splice)(from, from_offset, to, to_offset, count, flags);
  });
}
