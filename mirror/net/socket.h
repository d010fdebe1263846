// SPDX-License-Identifier: BSD-3-Clause
//
// Sockets that do not block, and are closed by exec.
#ifndef NVCACHE_MIRROR_NET_SOCKET_H_
#define NVCACHE_MIRROR_NET_SOCKET_H_

#include "mirror/core/descriptor.h"
#include "mirror/net/address.h"

namespace nvcache::mirror {

// None, with errno: it cannot be had.
Descriptor MakeSocket(const Address& address);
// Small messages leave at once; a peer that is gone is noticed: what was sent and not confirmed for
// `patience` ms, or as long a silence, ends the connection. Nothing of it, on a UNIX socket.
void SetUp(int socket, unsigned patience);

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_NET_SOCKET_H_
