// SPDX-License-Identifier: BSD-3-Clause
//
// sendmsg, recvmsg and their plurals.
#include "libc-shim/calls/message.h"

#include "libc-shim/preload/wrapper.h"

using namespace nvcache::calls;
using namespace nvcache::preload;

NVCACHE_EXPORT ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  if (!BeforeSend(message)) return -1;
  return NVCACHE_REAL(sendmsg)(fd, message, flags);
}

NVCACHE_EXPORT int sendmmsg(int fd, struct mmsghdr* messages, unsigned int count, int flags) {
  if (!BeforeSendMany(messages, count)) return -1;
  return NVCACHE_REAL(sendmmsg)(fd, messages, count, flags);
}

NVCACHE_EXPORT ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
  return AfterReceiveOne(NVCACHE_REAL(recvmsg)(fd, message, flags), message);
}

NVCACHE_EXPORT int recvmmsg(int fd, struct mmsghdr* messages, unsigned int count, int flags,
                            struct timespec* timeout) {
  return AfterReceiveMany(NVCACHE_REAL(recvmmsg)(fd, messages, count, flags, timeout), messages);
}
