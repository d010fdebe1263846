// SPDX-License-Identifier: BSD-3-Clause
//
// The connections of a memory server: who may have one, and for how long without saying anything.
#ifndef NVCACHE_MIRROR_NET_SERVER_H_
#define NVCACHE_MIRROR_NET_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mirror/core/replica.h"
#include "mirror/net/address.h"
#include "mirror/net/channel.h"
#include "mirror/net/keys.h"
#include "mirror/net/loop.h"
#include "mirror/net/session.h"
#include "mirror/net/socket.h"

namespace nvcache::mirror {

class Server : private Channel::Owner {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnMessage(Connection connection, const Message& message) = 0;
    // It has ended by itself, and not by Close().
    virtual void OnClosed(Connection connection) = 0;
    // A connection that was refused: one line for people.
    virtual void OnRefused(const std::string& line) = 0;
  };

  struct Limits {
    size_t connections = 256;
    Time greeting = 5000000000;      // ns until a connection has sent its first message
    unsigned patience = 20000;       // ms of silence until the network counts as cut
    size_t pause = size_t{8} << 20;  // bytes that wait to be sent, with which nothing is received
  };

  // Without keys, everybody who can connect may use every name: for loopback addresses alone.
  Server(Loop* loop, Handler* handler, std::vector<Key> keys, Limits limits);
  Server(Loop* loop, Handler* handler, std::vector<Key> keys);
  ~Server() override;

  // A NetError: it cannot. All addresses that the name has; the port of the last one is returned.
  uint16_t Listen(const std::string& address);
  // Ends all connections; no new ones.
  void StopAll();

  bool MayUse(Connection connection, const std::string& name) const;
  void Send(Connection connection, const Message& message);
  // The handler hears nothing more of it.
  void Close(Connection connection);
  size_t connections() const { return peers_.size(); }

 private:
  struct Listener {
    Listening listening;
    Loop::Handle watch;
  };
  struct Peer {
    std::shared_ptr<Channel> channel;
    Loop::Handle timer;  // 0: it has sent a message
    std::string address;
    const Key* key;
  };

  void Accept(int listener);
  void Add(sys::Descriptor socket, const Address& from);
  bool MakeRoom();
  void Drop(Connection connection, const std::string& why);

  void OnReady(Channel* channel) override;
  void OnMessage(Channel* channel, Message message) override;
  void OnMalformed(Channel* channel, Refusal why) override;
  void OnEnd(Channel* channel, const std::string& why) override;

  Loop& loop_;
  Handler& handler_;
  std::vector<Key> keys_;
  std::unique_ptr<Tls> tls_;  // nullptr: without
  Limits limits_;
  Connection last_ = 0;
  std::vector<Listener> listeners_;
  std::map<Connection, Peer> peers_;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_NET_SERVER_H_
