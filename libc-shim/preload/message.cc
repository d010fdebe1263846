// SPDX-License-Identifier: BSD-3-Clause
//
// sendmsg, recvmsg and their plurals.
#include "libc-shim/preload/message.h"

#include <cstddef>
#include <cstdint>

namespace nvcache::preload {
namespace {

// Calls action(fd) for each descriptor that the message carries, until one says false. Neither the
// message nor its control part need be there.
template <typename Action>
bool ForEachDescriptor(const msghdr* address, Action action) {
  msghdr message;
  if (!Fetch(&message, address)) return true;
  const auto* part = static_cast<const uint8_t*>(message.msg_control);
  size_t left = part != nullptr ? message.msg_controllen : 0;
  cmsghdr header;
  while (left >= sizeof(header) && Fetch(&header, part)) {
    if (header.cmsg_len < CMSG_LEN(0) || header.cmsg_len > left) break;
    const bool rights = header.cmsg_level == SOL_SOCKET && header.cmsg_type == SCM_RIGHTS;
    const size_t count = rights ? (header.cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
    int fd;
    for (size_t i = 0; i < count && Fetch(&fd, part + CMSG_LEN(i * sizeof(int))); ++i) {
      if (!action(fd)) return false;
    }
    const size_t step = CMSG_ALIGN(header.cmsg_len);
    if (step > left) break;
    part += step;
    left -= step;
  }
  return true;
}

}  // namespace

bool BeforeSend(const msghdr* message) { return ForEachDescriptor(message, ToKernelForGood); }

void AfterReceive(msghdr* message) {
  ForEachDescriptor(message, [](int fd) {
    Tell<vfs::AdoptPassThrough>(fd);
    return true;
  });
}

}  // namespace nvcache::preload

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
