// SPDX-License-Identifier: BSD-3-Clause
//
// A connection to one memory server, which comes and goes.
#ifndef NVCACHE_MIRROR_NET_CLIENT_H_
#define NVCACHE_MIRROR_NET_CLIENT_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mirror/net/address.h"
#include "mirror/net/channel.h"
#include "mirror/net/keys.h"
#include "mirror/net/loop.h"
#include "mirror/net/session.h"

namespace nvcache::mirror {

// The clients of a process share this. Without a key they speak to loopback addresses alone.
class Identity {
 public:
  Identity() = default;
  explicit Identity(const Key& key) : tls_(MakeClientTls(key)) {}
  // nullptr: without.
  Tls* tls() const { return tls_.get(); }

 private:
  std::unique_ptr<Tls> tls_;
};

class Client : private Channel::Owner {
 public:
  // Called by the loop, never within a call of Client's.
  class Listener {
   public:
    virtual ~Listener() = default;
    // The server has proved that it has the key as well.
    virtual void OnConnected(Client* client) = 0;
    virtual void OnMessage(Client* client, const Message& message) = 0;
    // After Connect(), once: it could not be had, or has ended. Not after Close().
    virtual void OnClosed(Client* client, const std::string& why) = 0;
  };

  struct Limits {
    Time connecting = 3000000000;  // ns until OnConnected(), over all addresses of the name
    unsigned patience = 3000;      // ms; as Server has it
    size_t backlog = size_t{64} << 20;
  };

  // `identity` lives longer. The address is looked up each time.
  Client(Loop* loop, std::string address, const Identity* identity, Listener* listener,
         Limits limits);
  Client(Loop* loop, std::string address, const Identity* identity, Listener* listener);
  ~Client() override;

  // Not while it is connected, or is about to be.
  void Connect();
  void Close();
  // Nothing, unless it is connected.
  void Send(const Message& message);
  bool IsConnected() const { return channel_ && channel_->IsReady(); }
  // Bytes that wait to be sent; with more than limits.backlog, the connection ends.
  size_t backlog() const { return channel_ ? channel_->backlog() : 0; }
  const std::string& address() const { return address_; }

 private:
  void TryNext();
  void OnSocket();
  void Begin();
  void Fail(std::string why);  // which may be why_
  void Reset();

  void OnReady(Channel* channel) override;
  void OnMessage(Channel* channel, Message message) override;
  void OnMalformed(Channel* channel, Refusal why) override;
  void OnEnd(Channel* channel, const std::string& why) override;

  Loop& loop_;
  std::string address_;
  const Identity& identity_;
  Listener& listener_;
  Limits limits_;
  // Callbacks of an attempt that is over find another one.
  std::shared_ptr<int> attempt_;
  std::vector<Address> left_;  // to be tried, the next one last
  std::string why_;            // the last one was none
  sys::Descriptor socket_;     // not connected yet
  Loop::Handle watch_ = 0, timer_ = 0;
  std::shared_ptr<Channel> channel_;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_NET_CLIENT_H_
