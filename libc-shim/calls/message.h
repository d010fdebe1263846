// SPDX-License-Identifier: BSD-3-Clause
//
// Descriptors that travel through a socket. The receiver uses the file where we cannot see, and
// for as long as it likes; the files that we receive were opened where we could not see.
#ifndef NVCACHE_LIBC_SHIM_CALLS_MESSAGE_H_
#define NVCACHE_LIBC_SHIM_CALLS_MESSAGE_H_

#include <sys/socket.h>

#include "libc-shim/calls/calls.h"

namespace nvcache::calls {

// False: the call must fail.
bool BeforeSend(const msghdr* message);
void AfterReceive(msghdr* message);

template <typename Result>
inline Result AfterReceiveOne(Result length, msghdr* message) {
  if (length >= 0) AfterReceive(message);
  return length;
}

// The plurals: a message each, and its length.

inline bool BeforeSendMany(const mmsghdr* messages, unsigned count) {
  constexpr unsigned kMost = 1024;  // that the kernel looks at
  for (unsigned i = 0; i < count && i < kMost; ++i) {
    if (!BeforeSend(&messages[i].msg_hdr)) return false;
  }
  return true;
}

template <typename Result>
inline Result AfterReceiveMany(Result received, mmsghdr* messages) {
  for (Result i = 0; i < received; ++i) AfterReceive(&messages[i].msg_hdr);
  return received;
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_MESSAGE_H_
