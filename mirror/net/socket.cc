// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/net/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "mirror/core/error.h"

namespace nvcache::mirror {

namespace {

constexpr int kQueue = 128;

uint16_t PortOf(int socket) {
  Address address;
  address.length = sizeof(address.storage);
  getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  const bool is_6 = address.storage.ss_family == AF_INET6;
  return ntohs(is_6 ? reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_port
                    : reinterpret_cast<const sockaddr_in&>(address.storage).sin_port);
}

// Removes what one has left that was killed; one that listens still is not to lose its place.
void RemoveDead(const Address& address, const std::string& path) {
  const sys::Descriptor socket = MakeSocket(address);
  const bool is_dead =
      connect(socket.get(), address.get(), address.length) != 0 && errno == ECONNREFUSED;
  if (is_dead) unlink(path.c_str());
}

}  // namespace

sys::Descriptor MakeSocket(const Address& address) {
  return sys::Descriptor(
      socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void SetUp(int socket, unsigned patience) {
  constexpr int kProbes = 3;
  const int seconds = std::max(1, static_cast<int>(patience / 1000 / (kProbes + 1)));
  const auto set = [socket](int level, int name, int value) {
    setsockopt(socket, level, name, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(patience));
}

Listening ListenAt(const Address& address) {
  Listening listening;
  if (address.IsUnix()) {
    listening.path = reinterpret_cast<const sockaddr_un&>(address.storage).sun_path;
    RemoveDead(address, listening.path);
  }
  listening.socket = MakeSocket(address);
  const int fd = listening.socket.get(), yes = 1;
  if (!address.IsUnix()) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (address.storage.ss_family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes));
  }
  if (fd < 0 || bind(fd, address.get(), address.length) != 0 || listen(fd, kQueue) != 0) {
    throw NetError("address " + address.Text() + " cannot be listened to: " + Why(errno));
  }
  if (!address.IsUnix()) listening.port = PortOf(fd);
  return listening;
}

}  // namespace nvcache::mirror
