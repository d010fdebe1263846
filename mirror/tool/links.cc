// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/tool/links.h"

#include <sys/epoll.h>

namespace nvcache::tool {

class Links::Wire : public mirror::Link::Wire {
 public:
  Wire(Links* links, size_t server, const std::string& address)
      : links_(*links), client_(&links->loop_, address, &links->identity_, links) {
    links_.servers_[&client_] = server;
  }
  ~Wire() override { links_.servers_.erase(&client_); }
  void Connect() override { client_.Connect(); }
  void Close() override { client_.Close(); }
  void Send(mirror::Message message) override { client_.Send(message); }

 private:
  Links& links_;
  mirror::Client client_;
};

Links::Links(const Connecting& connecting, mirror::Loop* loop, Owner* owner)
    : loop_(*loop), owner_(*owner), identity_(IdentityOf(connecting)), etcd_(connecting.etcd) {
  watch_ = loop_.Watch(etcd_.fd(), EPOLLIN, [this](uint32_t) { etcd_.Dispatch(); });
}

Links::~Links() { loop_.Unwatch(watch_); }

std::unique_ptr<mirror::Link::Wire> Links::MakeWire(size_t server, const std::string& address) {
  return std::make_unique<Wire>(this, server, address);
}

}  // namespace nvcache::tool
