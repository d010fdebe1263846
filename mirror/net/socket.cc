// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/net/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace nvcache::mirror {

Descriptor MakeSocket(const Address& address) {
  return Descriptor(
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

}  // namespace nvcache::mirror
