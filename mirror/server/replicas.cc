// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/server/replicas.h"

#include <utility>

#include "mirror/core/error.h"

namespace nvcache::mirror {

void Replicas::OnMessage(Connection connection, const Message& message) {
  if (message.type == Type::kPromise) {
    if (const Refusal why = Enter(connection, message); why != Refusal::kNone) {
      return Refuse(connection, why);
    }
  }
  const auto found = connections_.find(connection);
  if (found == connections_.end()) {
    // A ping is no promise, and nobody's.
    if (message.type != Type::kPing) return Refuse(connection, Refusal::kOrder);
    return Send(connection, {.type = Type::kPong, .number = message.number});
  }
  Replica* const replica = found->second.replica;
  try {
    replica->Take(connection, message);
  } catch (const NoRoom& error) {  // nothing was changed
    say_(error.what());
    Refuse(connection, Refusal::kFull);
  }
}

// A connection is for one name.
Refusal Replicas::Enter(Connection connection, const Message& message) {
  const auto found = connections_.find(connection);
  if (found != connections_.end()) {
    return found->second.name == message.name ? Refusal::kNone : Refusal::kOrder;
  }
  if (!server_->MayUse(connection, message.name)) return Refusal::kForbidden;
  std::string why;
  MemoryStore* const store = memories_.Get(message.name, &why);
  if (store == nullptr) {
    say_(why);
    return Refusal::kFull;
  }
  auto& replica = replicas_[message.name];
  Replica::Host* const host = this;
  if (!replica) replica = std::make_unique<Replica>(store, host);
  connections_[connection] = {message.name, replica.get()};
  return Refusal::kNone;
}

void Replicas::OnClosed(Connection connection) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  Replica* const replica = found->second.replica;
  connections_.erase(found);
  replica->Closed(connection);
}

void Replicas::Refuse(Connection connection, Refusal why) {
  Send(connection, {.type = Type::kRefused, .why = why});
  // The writer that sends what it must not is no writer any more.
  OnClosed(connection);
  server_->Close(connection);
}

void Replicas::Close(Connection connection) {
  connections_.erase(connection);
  server_->Close(connection);
}

void Replicas::Send(Connection connection, Message message) { server_->Send(connection, message); }

}  // namespace nvcache::mirror
