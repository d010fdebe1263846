// SPDX-License-Identifier: BSD-3-Clause
//
// Sockets that do not block, and are closed by exec.
#ifndef NVCACHE_MIRROR_NET_SOCKET_H_
#define NVCACHE_MIRROR_NET_SOCKET_H_

#include <cstdint>
#include <string>

#include "mirror/net/address.h"
#include "src/sys/descriptor.h"

namespace nvcache::mirror {

// None, with errno: it cannot be had.
sys::Descriptor MakeSocket(const Address& address);
// Small messages leave at once; a peer that is gone is noticed: what was sent and not confirmed for
// `patience` ms, or as long a silence, ends the connection. Nothing of it, on a UNIX socket.
void SetUp(int socket, unsigned patience);

// A socket to accept connections from.
struct Listening {
  sys::Descriptor socket;
  uint16_t port = 0;  // 0: a UNIX socket
  std::string path;   // a UNIX socket's: whoever ends it removes that
};
// A NetError: the address cannot be listened to, for one because somebody else does.
Listening ListenAt(const Address& address);

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_NET_SOCKET_H_
