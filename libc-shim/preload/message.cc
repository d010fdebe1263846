// SPDX-License-Identifier: BSD-3-Clause
//
// sendmsg, recvmsg and their plurals.
#include "libc-shim/preload/message.h"

#include <cstring>

namespace nvcache::preload {
namespace {

// Calls action(fd) for each descriptor that the message carries, until one says false.
template <typename Action>
bool ForEachDescriptor(const msghdr* message, Action action) {
  if (message == nullptr || message->msg_control == nullptr) return true;
  auto* headers = const_cast<msghdr*>(message);
  for (cmsghdr* header = CMSG_FIRSTHDR(headers); header != nullptr;
       header = CMSG_NXTHDR(headers, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    if (header->cmsg_len < CMSG_LEN(0)) return true;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      if (!action(fd)) return false;
    }
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
