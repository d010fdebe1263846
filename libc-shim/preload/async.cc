// SPDX-License-Identifier: BSD-3-Clause
//
// POSIX AIO, libaio, liburing.
#include "libc-shim/calls/async.h"

#include <aio.h>

#include "libc-shim/preload/wrapper.h"

using namespace nvcache::calls;
using namespace nvcache::preload;

namespace {

// struct aiocb and struct aiocb64. False: the call must fail. A sync that is not seen may be of
// bytes that are not in the log yet, so it is no better than a write.

template <typename Request>
bool BeforeAio(const Request* request, bool reads, bool syncs = false) {
  int fd;
  if (!Fetch(&fd, &request->aio_fildes)) return true;
  return reads ? ToReaders(fd) : ToKernelLater(fd, syncs);
}

template <typename Request>
bool BeforeList(Request* const* requests, int count) {
  void* address;
  for (int i = 0; i < count && Fetch(&address, &requests[i]); ++i) {
    const auto* request = static_cast<const Request*>(address);
    int operation;
    if (!Fetch(&operation, &request->aio_lio_opcode) || operation == LIO_NOP) continue;
    if (!BeforeAio(request, operation == LIO_READ)) return false;
  }
  return true;
}

}  // namespace

#define NVCACHE_DEFINE_AIO(suffix)                                                              \
  NVCACHE_EXPORT int aio_read##suffix(struct aiocb##suffix* request) noexcept {                 \
    if (!BeforeAio(request, true)) return -1;                                                   \
    return NVCACHE_REAL(aio_read##suffix)(request);                                             \
  }                                                                                             \
  NVCACHE_EXPORT int aio_write##suffix(struct aiocb##suffix* request) noexcept {                \
    if (!BeforeAio(request, false)) return -1;                                                  \
    return NVCACHE_REAL(aio_write##suffix)(request);                                            \
  }                                                                                             \
  NVCACHE_EXPORT int aio_fsync##suffix(int operation, struct aiocb##suffix* request) noexcept { \
    if (!BeforeAio(request, false, true)) return -1;                                            \
    return NVCACHE_REAL(aio_fsync##suffix)(operation, request);                                 \
  }                                                                                             \
  NVCACHE_EXPORT int lio_listio##suffix(int mode, struct aiocb##suffix* const requests[],       \
                                        int count, struct sigevent* event) noexcept {           \
    if (!BeforeList(requests, count)) return -1;                                                \
    return NVCACHE_REAL(lio_listio##suffix)(mode, requests, count, event);                      \
  }

NVCACHE_DEFINE_AIO()
NVCACHE_DEFINE_AIO(64)

// The functions of other libraries. They answer with a negated errno.

NVCACHE_EXPORT int io_submit(void* context, long count, struct iocb** requests) {
  const auto real = NVCACHE_REAL(io_submit);
  if (real == nullptr) return -ENOSYS;
  if (!BeforeSubmit(count, requests)) return -errno;
  return real(context, count, requests);
}

NVCACHE_EXPORT int io_uring_setup(unsigned entries, struct io_uring_params* parameters) {
  const auto real = NVCACHE_REAL(io_uring_setup);
  if (real == nullptr) return -ENOSYS;
  return MakeRing([=] { return real(entries, parameters); });
}

NVCACHE_EXPORT int io_uring_queue_init(unsigned entries, struct io_uring* ring, unsigned flags) {
  const auto real = NVCACHE_REAL(io_uring_queue_init);
  if (real == nullptr) return -ENOSYS;
  return MakeRing([=] { return real(entries, ring, flags); });
}

NVCACHE_EXPORT int io_uring_queue_init_params(unsigned entries, struct io_uring* ring,
                                              struct io_uring_params* parameters) {
  const auto real = NVCACHE_REAL(io_uring_queue_init_params);
  if (real == nullptr) return -ENOSYS;
  return MakeRing([=] { return real(entries, ring, parameters); });
}
