// SPDX-License-Identifier: BSD-3-Clause
//
// A model of connections: what is sent arrives in order, late, or not at all from some point on. An
// end hears of the other one's end late or never. What was sent over one connection may arrive
// after what was sent later over another.
#ifndef NVCACHE_TESTS_MIRROR_SIMULATION_NET_H_
#define NVCACHE_TESTS_MIRROR_SIMULATION_NET_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "mirror/core/message.h"
#include "mirror/core/replica.h"
#include "tests/mirror/simulation/schedule.h"

namespace nvcache::simulation {

using mirror::Connection;
using mirror::Message;

// An end of connections. A machine that is stopped hears of everything when it goes on.
class End {
 public:
  virtual ~End() = default;
  virtual void Connected(Connection connection) = 0;
  virtual void Arrived(Connection connection, const Message& message) = 0;
  virtual void Ended(Connection connection) = 0;
};

class Net {
 public:
  Net(Schedule* schedule, kit::Random* random) : schedule_(*schedule), random_(*random) {}

  // From a client to a server. `server` is null: it cannot be reached.
  Connection Connect(std::weak_ptr<End> client, std::weak_ptr<End> server);
  // An end closes: it hears nothing more, and the other one hears of it after what was sent.
  void CloseClient(Connection connection) { Close(connection, true); }
  void CloseServer(Connection connection) { Close(connection, false); }
  void ToServer(Connection connection, Message message) {
    Send(connection, true, std::move(message));
  }
  void ToClient(Connection connection, Message message) {
    Send(connection, false, std::move(message));
  }
  // The network loses the connection.
  void Cut(Connection connection);
  // One that is open, at random; 0: there is none.
  Connection Any();
  void set_slow(bool slow) { slow_ = slow; }

 private:
  struct Side {
    std::weak_ptr<End> end;
    bool open = true;
    bool cut = false;  // nothing arrives here any more
    Time last = 0;     // when the last thing arrives
  };
  struct Pipe {
    Side client, server;
  };

  void Send(Connection connection, bool to_server, Message message);
  void Close(Connection connection, bool is_client);
  void Tell(Connection connection, bool to_server, std::function<void(End&)> what);

  Schedule& schedule_;
  kit::Random& random_;
  bool slow_ = false;
  Connection last_ = 0;
  std::map<Connection, Pipe> pipes_;
};

}  // namespace nvcache::simulation

#endif  // NVCACHE_TESTS_MIRROR_SIMULATION_NET_H_
