// SPDX-License-Identifier: BSD-3-Clause
#include "tests/mirror/simulation/net.h"

#include <algorithm>
#include <utility>

namespace nvcache::simulation {

Connection Net::Connect(std::weak_ptr<End> client, std::weak_ptr<End> server) {
  const Connection connection = ++last_;
  const bool reached = !server.expired();
  Pipe& pipe = pipes_[connection];
  pipe.client.end = std::move(client);
  pipe.server.end = std::move(server);
  if (reached) {
    Tell(connection, true, [connection](End& end) { end.Connected(connection); });
    Tell(connection, false, [connection](End& end) { end.Connected(connection); });
  } else {
    pipe.server.open = false;
    Tell(connection, false, [connection](End& end) { end.Ended(connection); });
  }
  return connection;
}

// In order, at some time; if neither end has closed or lost the connection by then.
void Net::Tell(Connection connection, bool to_server, std::function<void(End&)> what) {
  Pipe& pipe = pipes_[connection];
  Side& side = to_server ? pipe.server : pipe.client;
  const Time most = slow_ ? 300 * kMillisecond : 2 * kMillisecond;
  const Time delay = random_.OneIn(4) ? schedule_.Within(most) : schedule_.Soon(most);
  side.last = std::max(side.last, schedule_.now() + delay);
  schedule_.At(side.last, [this, connection, to_server, what = std::move(what)] {
    const auto found = pipes_.find(connection);
    if (found == pipes_.end()) return;
    Side& to = to_server ? found->second.server : found->second.client;
    const std::shared_ptr<End> end = to.end.lock();
    if (to.open && !to.cut && end != nullptr) what(*end);
  });
}

void Net::Send(Connection connection, bool to_server, Message message) {
  const auto found = pipes_.find(connection);
  if (found == pipes_.end()) return;
  Tell(connection, to_server,
       [connection, message = std::move(message)](End& end) { end.Arrived(connection, message); });
}

void Net::Close(Connection connection, bool is_client) {
  const auto found = pipes_.find(connection);
  if (found == pipes_.end()) return;
  (is_client ? found->second.client : found->second.server).open = false;
  Tell(connection, is_client, [this, connection, is_client](End& end) {
    Pipe& pipe = pipes_[connection];
    (is_client ? pipe.server : pipe.client).open = false;
    end.Ended(connection);
  });
}

void Net::Cut(Connection connection) {
  for (const bool server : {false, true}) {
    schedule_.After(schedule_.Soon(5 * kMillisecond), [this, connection, server] {
      const auto found = pipes_.find(connection);
      if (found == pipes_.end()) return;
      Side& side = server ? found->second.server : found->second.client;
      side.cut = true;
      if (random_.OneIn(2)) return;  // it never hears of it
      schedule_.After(schedule_.Soon(kSecond), [this, connection, server] {
        Side& other = server ? pipes_[connection].server : pipes_[connection].client;
        const std::shared_ptr<End> end = other.end.lock();
        if (std::exchange(other.open, false) && end != nullptr) end->Ended(connection);
      });
    });
  }
}

Connection Net::Any() {
  std::vector<Connection> open;
  for (const auto& [connection, pipe] : pipes_) {
    if (pipe.client.open && pipe.server.open && !pipe.client.cut) open.push_back(connection);
  }
  return open.empty() ? 0 : open[random_.Below(open.size())];
}

}  // namespace nvcache::simulation
