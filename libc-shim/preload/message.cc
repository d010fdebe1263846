// SPDX-License-Identifier: BSD-3-Clause
//
// sendmsg, recvmsg and their plurals.
#include "libc-shim/preload/message.h"

#include <cstring>

namespace nvcache::preload {
namespace {

// Calls action(fd) for each descriptor that the message carries.
template <typename Action>
void ForEachDescriptor(const msghdr* message, Action action) {
  if (message == nullptr || message->msg_control == nullptr) return;
  auto* headers = const_cast<msghdr*>(message);
  for (cmsghdr* header = CMSG_FIRSTHDR(headers); header != nullptr;
       header = CMSG_NXTHDR(headers, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    if (header->cmsg_len < CMSG_LEN(0)) return;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      action(fd);
    }
  }
}

}  // namespace

void BeforeSend(const msghdr* message) {
  ForEachDescriptor(message, [](int fd) { Tell<vfs::PassThrough>(fd, true); });
}

void AfterReceive(msghdr* message) {
  ForEachDescriptor(message, [](int fd) { Tell<vfs::AdoptPassThrough>(fd); });
}

}  // namespace nvcache::preload

using namespace nvcache::preload;

NVCACHE_EXPORT ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  BeforeSend(message);
  return NVCACHE_REAL(sendmsg)(fd, message, flags);
}

NVCACHE_EXPORT int sendmmsg(int fd, struct mmsghdr* messages, unsigned int count, int flags) {
  BeforeSendMany(messages, count);
  return NVCACHE_REAL(sendmmsg)(fd, messages, count, flags);
}

NVCACHE_EXPORT ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
  return AfterReceiveOne(NVCACHE_REAL(recvmsg)(fd, message, flags), message);
}

NVCACHE_EXPORT int recvmmsg(int fd, struct mmsghdr* messages, unsigned int count, int flags,
                            struct timespec* timeout) {
  return AfterReceiveMany(NVCACHE_REAL(recvmmsg)(fd, messages, count, flags, timeout), messages);
}
