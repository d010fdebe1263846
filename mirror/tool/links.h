// SPDX-License-Identifier: BSD-3-Clause
//
// The connections of a mirror or a recovery, one to each server, and its etcd client, on one loop.
#ifndef NVCACHE_MIRROR_TOOL_LINKS_H_
#define NVCACHE_MIRROR_TOOL_LINKS_H_

#include <map>
#include <memory>
#include <string>

#include "mirror/core/link.h"
#include "mirror/etcd/client.h"
#include "mirror/net/client.h"
#include "mirror/net/loop.h"
#include "mirror/tool/identity.h"

namespace nvcache::tool {

class Links : private mirror::Client::Listener {
 public:
  // The links tell their owner what comes in, never within a call of Wire's.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void OnConnected(size_t server) = 0;
    virtual void OnMessage(size_t server, const mirror::Message& message) = 0;
    virtual void OnClosed(size_t server, const std::string& why) = 0;
  };

  Links(const Connecting& connecting, mirror::Loop* loop, Owner* owner);
  ~Links() override;

  // To a server, by its number. The one before, if there was one, is gone.
  std::unique_ptr<mirror::Link::Wire> MakeWire(size_t server, const std::string& address);
  mirror::EtcdClient& etcd() { return etcd_; }
  mirror::Loop& loop() { return loop_; }

 private:
  class Wire;

  size_t ServerOf(const mirror::Client* client) const { return servers_.at(client); }
  void OnConnected(mirror::Client* client) override { owner_.OnConnected(ServerOf(client)); }
  void OnMessage(mirror::Client* client, const mirror::Message& message) override {
    owner_.OnMessage(ServerOf(client), message);
  }
  void OnClosed(mirror::Client* client, const std::string& why) override {
    owner_.OnClosed(ServerOf(client), why);
  }

  mirror::Loop& loop_;
  Owner& owner_;
  const mirror::Identity identity_;
  std::map<const mirror::Client*, size_t> servers_;  // by the wires that there are
  mirror::EtcdClient etcd_;
  mirror::Loop::Handle watch_ = 0;
};

}  // namespace nvcache::tool

#endif  // NVCACHE_MIRROR_TOOL_LINKS_H_
