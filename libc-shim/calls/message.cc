// SPDX-License-Identifier: BSD-3-Clause
#include "libc-shim/calls/message.h"

#include <cstddef>
#include <cstdint>

namespace nvcache::calls {
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

bool BeforeSend(const msghdr* message) {
  return MayLeave(vfs::Output::kSocket) && ForEachDescriptor(message, ToOthersForGood);
}

void AfterReceive(msghdr* message) {
  ForEachDescriptor(message, [](int fd) {
    vfs::Adopt(fd);
    return true;
  });
}

}  // namespace nvcache::calls
