// SPDX-License-Identifier: BSD-3-Clause
//
// What is done around a call that starts asynchronous I/O.
#ifndef NVCACHE_LIBC_SHIM_CALLS_ASYNC_H_
#define NVCACHE_LIBC_SHIM_CALLS_ASYNC_H_

#include <linux/aio_abi.h>

#include "libc-shim/calls/calls.h"

namespace nvcache::calls {

// The kernel's (and libaio's) requests. False: the call must fail.
inline bool BeforeRequest(const struct iocb& request) {
  const auto fd = static_cast<int>(request.aio_fildes);
  switch (request.aio_lio_opcode) {
    case IOCB_CMD_PREAD:
    case IOCB_CMD_PREADV:
      return ToReaders(fd);
    case IOCB_CMD_POLL:
    case IOCB_CMD_NOOP:
      return true;
    default:
      return ToKernel(fd);
  }
}

inline bool BeforeSubmit(long count, struct iocb* const* requests) {
  void* address;
  struct iocb request;
  for (long i = 0; i < count; ++i) {
    if (!Fetch(&address, &requests[i]) || !Fetch(&request, address)) break;
    if (!BeforeRequest(request)) return false;
  }
  return true;
}

// An io_uring takes its requests from memory: on which files, and which descriptors they open and
// close, we cannot see. So a program that makes a ring runs without the cache from then on.
template <typename RealCall>
inline auto MakeRing(RealCall real) {
  TurnOff();
  return real();
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_ASYNC_H_
