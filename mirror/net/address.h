// SPDX-License-Identifier: BSD-3-Clause
//
// Where a server is: "HOST:PORT", "[ADDRESS]:PORT", or a path with a '/' for a UNIX socket.
#ifndef NVCACHE_MIRROR_NET_ADDRESS_H_
#define NVCACHE_MIRROR_NET_ADDRESS_H_

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mirror/net/loop.h"

namespace nvcache::mirror {

struct Address {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  bool IsUnix() const { return storage.ss_family == AF_UNIX; }
  // Nobody but this machine can be there: 127.0.0.0/8, ::1, a UNIX socket.
  bool IsLoopback() const;
  std::string Text() const;
};

// A NetError: it is none, or nobody knows the host. May wait for a name server.
std::vector<Address> Resolve(const std::string& text);
// A NetError: it cannot be one.
void CheckAddress(const std::string& text);

// "127.0.0.1:0" as "127.0.0.1:41234"; `port` 0: as it is.
std::string WithPort(const std::string& text, uint16_t port);

// Calls `done` on the loop's thread, never before it returns; with no address, and why, if there is
// none. A name server is waited for by another thread.
using Resolved = std::function<void(std::vector<Address>, std::string why)>;
void ResolveLater(Loop* loop, const std::string& text, Resolved done);

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_NET_ADDRESS_H_
