// SPDX-License-Identifier: BSD-3-Clause
//
// A memory server: its connections, and a Replica over a MemoryStore for each mirror name.
#ifndef NVCACHE_MIRROR_SERVER_REPLICAS_H_
#define NVCACHE_MIRROR_SERVER_REPLICAS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "mirror/core/replica.h"
#include "mirror/net/server.h"
#include "mirror/store/memories.h"

namespace nvcache::mirror {

class Replicas : public Server::Handler, private Replica::Host {
 public:
  // One line for people.
  using Say = std::function<void(const std::string&)>;

  Replicas(Memories* memories, Say say) : memories_(*memories), say_(std::move(say)) {}
  // Before the first connection.
  void SetServer(Server* server) { server_ = server; }

  void OnMessage(Connection connection, const Message& message) override;
  void OnClosed(Connection connection) override;
  void OnRefused(const std::string& line) override { say_(line); }

 private:
  struct Named {
    std::string name;
    Replica* replica;
  };

  Refusal Enter(Connection connection, const Message& message);
  void Refuse(Connection connection, Refusal why);
  void Close(Connection connection) override;
  void Send(Connection connection, Message message) override;

  Memories& memories_;
  Say say_;
  Server* server_ = nullptr;
  std::map<std::string, std::unique_ptr<Replica>> replicas_;
  std::map<Connection, Named> connections_;  // that have promised, or tried to
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_SERVER_REPLICAS_H_
