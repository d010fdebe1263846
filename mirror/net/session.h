// SPDX-License-Identifier: BSD-3-Clause
//
// A session makes a connected socket a stream of bytes from somebody who is known: by TLS 1.3 with
// keys that both sides have, or by nothing at all.
#ifndef NVCACHE_MIRROR_NET_SESSION_H_
#define NVCACHE_MIRROR_NET_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mirror/net/keys.h"

namespace nvcache::mirror {

// How a call on a socket that does not block has ended.
enum class Io : uint8_t {
  kDone,
  kAgain,   // when the socket is ready
  kEnded,   // the other side has ended it
  kFailed,  // why() says how
};

class Session {
 public:
  virtual ~Session() = default;
  virtual Io Handshake() = 0;
  // The handshake waits until it may write; else, for something to read.
  virtual bool WantsToWrite() const = 0;
  virtual Io Receive(uint8_t* bytes, size_t n, size_t* received) = 0;
  // It has received bytes that the socket does not show any more.
  virtual bool HasMore() const = 0;
  // After kAgain, the same bytes have to be sent next.
  virtual Io Send(const uint8_t* bytes, size_t n, size_t* sent) = 0;
  // Says that nothing more is sent, if it can be said at once.
  virtual void Finish() = 0;
  // After the handshake: whose key it is. Empty: nobody's.
  virtual std::string identity() const = 0;
  virtual std::string why() const = 0;
};

std::unique_ptr<Session> MakePlainSession(int fd);

// Sessions share this. Their sockets may be anybody's.
class Tls {
 public:
  virtual ~Tls() = default;
  // nullptr: no memory.
  virtual std::unique_ptr<Session> MakeSession(int fd) = 0;
};
// A NetError: GnuTLS is broken.
std::unique_ptr<Tls> MakeServerTls(std::vector<Key> keys);
std::unique_ptr<Tls> MakeClientTls(const Key& key);

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_NET_SESSION_H_
