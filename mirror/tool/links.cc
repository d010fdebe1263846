// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/tool/links.h"

#include <sys/epoll.h>

namespace nvcache::tool {

class Links::Wire : public mirror::Link::Wire {
 public:
  explicit Wire(mirror::Client* client) : client_(*client) {}
  void Connect() override { client_.Connect(); }
  void Close() override { client_.Close(); }
  void Send(mirror::Message message) override { client_.Send(message); }

 private:
  mirror::Client& client_;
};

Links::Links(const Connecting& connecting, mirror::Loop* loop, Owner* owner)
    : loop_(*loop), owner_(*owner), identity_(IdentityOf(connecting)), etcd_(connecting.etcd) {
  watch_ = loop_.Watch(etcd_.fd(), EPOLLIN, [this](uint32_t) { etcd_.Dispatch(); });
}

Links::~Links() { loop_.Unwatch(watch_); }

std::unique_ptr<mirror::Link::Wire> Links::MakeWire(const std::string& address) {
  mirror::Client::Listener* const self = this;
  clients_.push_back(std::make_unique<mirror::Client>(&loop_, address, &identity_, self));
  return std::make_unique<Wire>(clients_.back().get());
}

size_t Links::ServerOf(const mirror::Client* client) const {
  size_t server = 0;
  while (clients_[server].get() != client) ++server;
  return server;
}

}  // namespace nvcache::tool
