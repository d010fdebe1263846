// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/net/client.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "mirror/core/error.h"
#include "mirror/net/socket.h"

namespace nvcache::mirror {

namespace {}  // namespace

Client::Client(Loop* loop, std::string address, const Identity* identity, Listener* listener)
    : Client(loop, std::move(address), identity, listener, Limits()) {}

Client::Client(Loop* loop, std::string address, const Identity* identity, Listener* listener,
               Limits limits)
    : loop_(*loop),
      address_(std::move(address)),
      identity_(*identity),
      listener_(*listener),
      limits_(limits) {}

Client::~Client() { Close(); }

void Client::Connect() {
  if (attempt_) return;
  attempt_ = std::make_shared<int>();
  const std::weak_ptr<int> attempt = attempt_;
  timer_ =
      loop_.After(limits_.connecting, [this] { Fail(why_.empty() ? "it does not answer" : why_); });
  ResolveLater(&loop_, address_, [this, attempt](std::vector<Address> found, std::string why) {
    if (attempt.expired()) return;
    left_ = std::move(found);
    std::reverse(left_.begin(), left_.end());
    why_ = std::move(why);
    TryNext();
  });
}

void Client::TryNext() {
  while (!left_.empty()) {
    const Address address = left_.back();
    left_.pop_back();
    if (identity_.tls() == nullptr && !address.IsLoopback()) {
      why_ = "without a key, only this machine is spoken to";
      continue;
    }
    socket_ = MakeSocket(address);
    if (socket_.IsOpen()) {
      SetUp(socket_.get(), limits_.patience);
      const bool done = connect(socket_.get(), address.get(), address.length) == 0;
      if (done || errno == EINPROGRESS) {
        watch_ = loop_.Watch(socket_.get(), EPOLLOUT, [this](uint32_t) { OnSocket(); });
        return;
      }
    }
    why_ = Why(errno);
  }
  Fail(why_);
}

// It is connected, or cannot be.
void Client::OnSocket() {
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  loop_.Unwatch(std::exchange(watch_, 0));
  if (error == 0) return Begin();
  socket_ = sys::Descriptor();
  why_ = Why(error);
  TryNext();
}

void Client::Begin() {
  const int fd = socket_.get();
  auto session =
      identity_.tls() != nullptr ? identity_.tls()->MakeSession(fd) : MakePlainSession(fd);
  if (!session) return Fail(Why(ENOMEM));
  Channel::Limits limits;
  limits.backlog = limits_.backlog;
  Channel::Owner* const owner = this;
  channel_ =
      std::make_shared<Channel>(&loop_, std::move(socket_), std::move(session), owner, limits, 0);
  channel_->Start();
}

void Client::Fail(std::string why) {
  Reset();
  listener_.OnClosed(this, why);
}

void Client::Reset() {
  attempt_.reset();
  left_.clear();
  why_.clear();
  loop_.Cancel(std::exchange(timer_, 0));
  loop_.Unwatch(std::exchange(watch_, 0));
  socket_ = sys::Descriptor();
  if (const auto channel = std::exchange(channel_, nullptr)) channel->Finish();
}

void Client::Close() { Reset(); }

void Client::Send(const Message& message) {
  if (channel_) channel_->Send(message);
}

void Client::OnReady(Channel* /*channel*/) {
  loop_.Cancel(std::exchange(timer_, 0));
  listener_.OnConnected(this);
}

void Client::OnMessage(Channel* /*channel*/, Message message) {
  listener_.OnMessage(this, message);
}

void Client::OnMalformed(Channel* /*channel*/, Refusal why) {
  Fail(std::string("the server is not understood: ") + Text(why));
}

void Client::OnEnd(Channel* /*channel*/, const std::string& why) { Fail(why); }

}  // namespace nvcache::mirror
