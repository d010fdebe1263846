// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/net/server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "mirror/core/error.h"
#include "mirror/net/socket.h"

namespace nvcache::mirror {

namespace {

constexpr int kAccepted = 32;  // in one turn

}  // namespace

Server::Server(Loop* loop, Handler* handler, std::vector<Key> keys)
    : Server(loop, handler, std::move(keys), Limits()) {}

Server::Server(Loop* loop, Handler* handler, std::vector<Key> keys, Limits limits)
    : loop_(*loop), handler_(*handler), keys_(std::move(keys)), limits_(limits) {
  if (!keys_.empty()) tls_ = MakeServerTls(keys_);
}

Server::~Server() { StopAll(); }

uint16_t Server::Listen(const std::string& text) {
  uint16_t port = 0;
  for (const Address& address : Resolve(text)) {
    if (!tls_ && !address.IsLoopback()) {
      throw NetError("address " + text + " can be reached by other machines, so it takes keys");
    }
    Listening listening = ListenAt(address);
    const int fd = listening.socket.get();
    if (listening.port != 0) port = listening.port;
    const Loop::Handle watch = loop_.Watch(fd, EPOLLIN, [this, fd](uint32_t) { Accept(fd); });
    listeners_.push_back({std::move(listening), watch});
  }
  return port;
}

void Server::Accept(int listener) {
  for (int i = 0; i < kAccepted; ++i) {
    Address from;
    from.length = sizeof(from.storage);
    sys::Descriptor socket(accept4(listener, reinterpret_cast<sockaddr*>(&from.storage),
                                   &from.length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.IsOpen()) {
      Add(std::move(socket), from);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // Those that wait in the kernel would be told of without end.
      if (!MakeRoom()) return;
    } else if (errno != ECONNABORTED && errno != EINTR) {
      return;
    }
  }
}

void Server::Add(sys::Descriptor socket, const Address& from) {
  if (peers_.size() >= limits_.connections && !MakeRoom()) {
    handler_.OnRefused("a connection from " + from.Text() + " was refused: there are " +
                       std::to_string(peers_.size()) + " already");
    return;
  }
  SetUp(socket.get(), limits_.patience);
  const int fd = socket.get();
  auto session = tls_ ? tls_->MakeSession(fd) : MakePlainSession(fd);
  if (!session) return;
  const Connection number = ++last_;
  Channel::Limits limits;
  limits.pause = limits_.pause;
  Channel::Owner* const owner = this;
  auto channel = std::make_shared<Channel>(&loop_, std::move(socket), std::move(session), owner,
                                           limits, number);
  const Loop::Handle timer =
      loop_.After(limits_.greeting, [this, number] { Drop(number, "it says nothing"); });
  peers_[number] = {channel, timer, from.Text(), nullptr};
  channel->Start();
}

// The oldest one goes of those that have said nothing yet.
bool Server::MakeRoom() {
  const auto found = std::find_if(peers_.begin(), peers_.end(),
                                  [](const auto& each) { return each.second.timer != 0; });
  if (found == peers_.end()) return false;
  Drop(found->first, "others have come since, and it says nothing");
  return true;
}

void Server::Drop(Connection connection, const std::string& why) {
  const auto found = peers_.find(connection);
  if (found == peers_.end()) return;
  const std::string address = found->second.address;
  Close(connection);
  handler_.OnRefused("a connection from " + address + " was refused: " + why);
}

void Server::StopAll() {
  for (const Listener& listener : listeners_) {
    loop_.Unwatch(listener.watch);
    const std::string& path = listener.listening.path;
    if (!path.empty()) unlink(path.c_str());
  }
  listeners_.clear();
  while (!peers_.empty()) Close(peers_.begin()->first);
}

bool Server::MayUse(Connection connection, const std::string& name) const {
  const auto found = peers_.find(connection);
  if (found == peers_.end()) return false;
  return !tls_ || (found->second.key != nullptr && found->second.key->MayUse(name));
}

void Server::Send(Connection connection, const Message& message) {
  const auto found = peers_.find(connection);
  if (found != peers_.end()) found->second.channel->Send(message);
}

void Server::Close(Connection connection) {
  const auto found = peers_.find(connection);
  if (found == peers_.end()) return;
  const Peer peer = std::move(found->second);
  peers_.erase(found);
  loop_.Cancel(peer.timer);
  peer.channel->Finish();
}

void Server::OnReady(Channel* channel) {
  if (!tls_) return;
  const std::string identity = channel->identity();
  for (const Key& key : keys_) {
    if (key.identity == identity) peers_[channel->number()].key = &key;
  }
}

void Server::OnMessage(Channel* channel, Message message) {
  const Connection connection = channel->number();
  const auto found = peers_.find(connection);
  if (found == peers_.end()) return;
  loop_.Cancel(std::exchange(found->second.timer, 0));
  handler_.OnMessage(connection, message);
}

void Server::OnMalformed(Channel* channel, Refusal why) {
  const Connection connection = channel->number();
  const auto found = peers_.find(connection);
  if (found == peers_.end()) return;
  const bool was_known = found->second.timer == 0;
  channel->Send({.type = Type::kRefused, .why = why});
  Drop(connection, Text(why));
  if (was_known) handler_.OnClosed(connection);
}

void Server::OnEnd(Channel* channel, const std::string& why) {
  const Connection connection = channel->number();
  const auto found = peers_.find(connection);
  if (found == peers_.end()) return;
  if (found->second.timer != 0) return Drop(connection, why);
  peers_.erase(found);
  handler_.OnClosed(connection);
}

}  // namespace nvcache::mirror
