// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/net/channel.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace nvcache::mirror {

namespace {

constexpr size_t kPiece = 64 << 10;        // received at once
constexpr size_t kTurn = size_t{1} << 20;  // then others have their turn
constexpr size_t kKept = size_t{1} << 20;  // memory for what is sent that is not given back
// A connection that is closed while bytes arrive loses what was sent last: so those that the other
// side has sent meanwhile are waited for, and thrown away.
constexpr Time kLinger = 1000000000;
constexpr size_t kMostDiscarded = size_t{64} << 20;

}  // namespace

Channel::Channel(Loop* loop, sys::Descriptor socket, std::unique_ptr<Session> session, Owner* owner,
                 Limits limits, uint64_t number)
    : loop_(*loop),
      socket_(std::move(socket)),
      session_(std::move(session)),
      owner_(owner),
      limits_(limits),
      number_(number) {}

Channel::~Channel() { Close(); }

void Channel::Start() {
  state_ = State::kHandshake;
  events_ = EPOLLIN;
  const std::weak_ptr<Channel> self = weak_from_this();
  watch_ = loop_.Watch(socket_.get(), events_, [self](uint32_t events) {
    if (const auto channel = self.lock()) channel->OnSocket(events);
  });
  loop_.Later([self] {
    const auto channel = self.lock();
    if (channel && channel->state_ == State::kHandshake) channel->Handshake();
  });
}

void Channel::OnSocket(uint32_t events) {
  switch (state_) {
    case State::kHandshake:
      return Handshake();
    case State::kOpen:
      if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) Flush();
      if (has_failed_) return End(session_->why());
      if (!rest_.empty() && backlog() <= limits_.pause) Take(std::exchange(rest_, {}));
      if (state_ == State::kOpen && backlog() <= limits_.pause) Receive();
      return Listen();
    case State::kFinishing:
      if (backlog() != 0) Flush();
      return backlog() == 0 || has_failed_ ? Linger() : Discard();
    default:
      return;
  }
}

void Channel::Handshake() {
  switch (session_->Handshake()) {
    case Io::kDone:
      state_ = State::kOpen;
      owner_->OnReady(this);
      if (state_ != State::kOpen) return;
      Receive();  // the session may have received more than the handshake
      return Listen();
    case Io::kAgain:
      return Listen();
    case Io::kEnded:
    case Io::kFailed:
      return End("no handshake: " + session_->why());
  }
}

void Channel::Receive() {
  std::array<uint8_t, kPiece> piece;
  size_t sum = 0;
  while (state_ == State::kOpen && rest_.empty() && (sum < kTurn || session_->HasMore())) {
    size_t n = 0;
    switch (session_->Receive(piece.data(), piece.size(), &n)) {
      case Io::kDone:
        sum += n;
        Take({piece.data(), n});
        if (n < piece.size() && !session_->HasMore()) return;  // or the loop says so again
        break;
      case Io::kAgain:
        return;
      case Io::kEnded:
        return End("the other side has closed it");
      case Io::kFailed:
        return End(session_->why());
    }
  }
}

void Channel::Take(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    bytes = decoder_.Feed(bytes);
    if (decoder_.refusal() != Refusal::kNone) {
      owner_->OnMalformed(this, decoder_.refusal());
      if (state_ == State::kOpen) Finish();
      return;
    }
    if (decoder_.HasMessage()) owner_->OnMessage(this, decoder_.Take());
    if (state_ != State::kOpen) return;
    if (backlog() > limits_.pause) {
      rest_.assign(bytes.begin(), bytes.end());
      return;
    }
  }
}

void Channel::Send(const Message& message) {
  if (state_ != State::kOpen || has_failed_) return;
  if (sent_ == out_.size()) {
    out_.clear();
    sent_ = 0;
  } else if (sent_ > out_.size() / 2 && sent_ > kPiece) {
    out_.erase(out_.begin(), out_.begin() + static_cast<ptrdiff_t>(sent_));
    sent_ = 0;
  }
  const bool waits = !out_.empty();
  Encode(message, &out_);
  if (!waits) Flush();
  const bool too_much = backlog() > limits_.backlog;
  if (!too_much && !has_failed_) return Listen();
  has_failed_ = true;
  const std::string why = too_much ? "the other side does not take what is sent" : session_->why();
  loop_.Later([self = weak_from_this(), why] {
    const auto channel = self.lock();
    if (channel && channel->state_ == State::kOpen) channel->End(why);
  });
}

void Channel::Flush() {
  while (sent_ < out_.size()) {
    size_t n = 0;
    const Io io = session_->Send(out_.data() + sent_, out_.size() - sent_, &n);
    if (io == Io::kAgain) return;
    if (io != Io::kDone) {
      has_failed_ = true;
      return;
    }
    sent_ += n;
  }
  sent_ = 0;
  if (out_.capacity() > kKept) {
    out_ = {};
  } else {
    out_.clear();
  }
}

void Channel::Finish() {
  if (state_ == State::kClosed || state_ == State::kFinishing) return;
  const auto self = shared_from_this();
  const bool was_open = state_ == State::kOpen;
  state_ = State::kFinishing;
  owner_ = nullptr;
  if (!was_open || has_failed_) return Close();
  // It belongs to nobody but the timer from now on.
  timer_ = loop_.After(kLinger, [self] { self->Close(); });
  if (backlog() == 0) {
    Linger();
  } else {
    Listen();
  }
}

// All is sent.
void Channel::Linger() {
  if (has_failed_) return Close();
  if (!std::exchange(has_shut_, true)) {
    session_->Finish();
    shutdown(socket_.get(), SHUT_WR);
  }
  Discard();
}

void Channel::Discard() {
  std::array<uint8_t, kPiece> piece;
  for (;;) {
    const ssize_t n = recv(socket_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (n > 0) discarded_ += static_cast<size_t>(n);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (n <= 0 || discarded_ > kMostDiscarded) return Close();
  }
  Listen();
}

void Channel::End(const std::string& why) {
  if (state_ == State::kClosed || state_ == State::kFinishing) return;
  const auto self = shared_from_this();
  Owner* const owner = owner_;
  Close();
  owner->OnEnd(this, why);
}

void Channel::Close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  owner_ = nullptr;
  loop_.Unwatch(watch_);
  socket_ = sys::Descriptor();
  loop_.Cancel(timer_);  // the last thing that may hold it
}

// For what it waits.
void Channel::Listen() {
  uint32_t events = EPOLLIN;
  switch (state_) {
    case State::kHandshake:
      if (session_->WantsToWrite()) events = EPOLLOUT;
      break;
    case State::kOpen:
      events = (backlog() <= limits_.pause ? EPOLLIN : 0U) | (backlog() != 0 ? EPOLLOUT : 0U);
      break;
    case State::kFinishing:
      if (backlog() != 0) events |= EPOLLOUT;
      break;
    default:
      return;
  }
  if (events == events_) return;
  events_ = events;
  loop_.Change(watch_, events);
}

}  // namespace nvcache::mirror
