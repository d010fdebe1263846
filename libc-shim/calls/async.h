// SPDX-License-Identifier: BSD-3-Clause
//
// The brackets around calls that start asynchronous I/O.
#ifndef NVCACHE_LIBC_SHIM_CALLS_ASYNC_H_
#define NVCACHE_LIBC_SHIM_CALLS_ASYNC_H_

#include <linux/aio_abi.h>
#include <sys/uio.h>

#include "libc-shim/calls/calls.h"

namespace nvcache::calls {

// The kernel is about to change the file, and to sync it if `syncs`: nobody waits for a mirror
// then. False, of this and of what follows: the call must fail.
inline bool ToKernelLater(int fd, bool syncs) {
  if (!MayLeave(vfs::Output::kFile) || !ToKernel(fd)) return false;
  const bool promises = vfs::IsMirrored() && (syncs || vfs::PromisesDurability(fd, 0));
  return !promises || FromAnswer(vfs::AwaitMirrorOfKernel()) == 0;
}

// The kernel's (and libaio's) requests.
inline bool BeforeRequest(const struct iocb& request) {
  const auto fd = static_cast<int>(request.aio_fildes);
  const bool writes_through = (request.aio_rw_flags & (RWF_SYNC | RWF_DSYNC)) != 0;
  switch (request.aio_lio_opcode) {
    case IOCB_CMD_FSYNC:
    case IOCB_CMD_FDSYNC:
      return ToKernelLater(fd, true);
    case IOCB_CMD_PREAD:
    case IOCB_CMD_PREADV:
      return ToReaders(fd);
    case IOCB_CMD_POLL:
    case IOCB_CMD_NOOP:
      return true;
    default:
      return ToKernelLater(fd, writes_through);
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
  TurnOff(vfs::Hindrance::kRing);
  return real();
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_ASYNC_H_
