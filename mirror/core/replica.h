// SPDX-License-Identifier: BSD-3-Clause
//
// A server's part for one mirror name: which connection may write, and what it answers
// (docs/mirror.md: A server, M4, M5, M6). It knows of no sockets and no clock.
//
// Invariants
//   The promise is in the store before it is answered, and never goes down.
//   At most one connection writes: the one that was promised last. The one before is closed before
//   its promise is answered.
//   What only looks (a promise of epoch 0) changes nothing, and disturbs nobody.
//   A copy is dropped with the connection that began it.
#ifndef NVCACHE_MIRROR_CORE_REPLICA_H_
#define NVCACHE_MIRROR_CORE_REPLICA_H_

#include <cstdint>
#include <optional>

#include "mirror/core/message.h"
#include "mirror/core/store.h"

namespace nvcache::mirror {

using Connection = uint64_t;  // a number that is never used twice; 0: none

class Replica {
 public:
  // The owner looks after the connections.
  class Host {
   public:
    virtual ~Host() = default;
    // Nothing that arrived over it and was not handed to Take() yet is handed over any more.
    virtual void Close(Connection connection) = 0;
    virtual void Send(Connection connection, Message message) = 0;
  };

  Replica(Store* store, Host* host) : store_(*store), host_(*host) {}

  // A message has arrived over `connection`, which is open. Answers may be sent before it returns;
  // kRefused is followed by Close().
  void Take(Connection connection, const Message& message);
  // The connection has ended, or Close() was asked for.
  void Closed(Connection connection);

 private:
  void Promise(Connection connection, const Message& message);
  void SayPromised(Connection connection);
  Refusal Write(const Message& message);
  Refusal Append(const Message& message);
  bool AreInside(const std::vector<Range>& ranges, size_t bytes, uint64_t size) const;
  void SendPiece(uint64_t offset);
  void Refuse(Connection connection, Refusal why);

  Store& store_;
  Host& host_;
  Connection writer_ = 0;
  uint64_t number_ = 0;     // the writer's last kAppend's or kMark's
  bool following_ = false;  // the writer's copy has become the image
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_CORE_REPLICA_H_
