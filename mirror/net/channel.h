// SPDX-License-Identifier: BSD-3-Clause
//
// One connection: a socket, its session, messages both ways.
//
// Invariants
//   After Finish(), and after OnEnd(), the owner hears nothing more of it.
//   The owner is never called within Send() or Finish().
//   What it has not sent yet is bounded: the connection ends instead.
#ifndef NVCACHE_MIRROR_NET_CHANNEL_H_
#define NVCACHE_MIRROR_NET_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mirror/core/message.h"
#include "mirror/net/loop.h"
#include "mirror/net/session.h"
#include "mirror/wire/frame.h"
#include "src/sys/descriptor.h"

namespace nvcache::mirror {

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // The handshake is done.
    virtual void OnReady(Channel* channel) = 0;
    virtual void OnMessage(Channel* channel, Message message) = 0;
    // The bytes that have arrived are no message; the owner may answer, and calls Finish().
    virtual void OnMalformed(Channel* channel, Refusal why) = 0;
    virtual void OnEnd(Channel* channel, const std::string& why) = 0;
  };

  struct Limits {
    size_t backlog = size_t{64} << 20;  // bytes that were not sent yet
    size_t pause = ~size_t{0};          // with more of them, nothing is received
  };

  // The socket is connected, and does not block. `number` is the owner's.
  Channel(Loop* loop, sys::Descriptor socket, std::unique_ptr<Session> session, Owner* owner,
          Limits limits, uint64_t number);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void Start();
  void Send(const Message& message);
  // Sends what is there, if the other side takes it soon, and closes.
  void Finish();

  uint64_t number() const { return number_; }
  bool IsReady() const { return state_ == State::kOpen; }
  size_t backlog() const { return out_.size() - sent_; }
  std::string identity() const { return session_->identity(); }

 private:
  enum class State : uint8_t { kNew, kHandshake, kOpen, kFinishing, kClosed };

  void OnSocket(uint32_t events);
  void Handshake();
  void Receive();
  void Take(std::span<const uint8_t> bytes);
  void Flush();
  void Linger();
  void Discard();
  void End(const std::string& why);
  void Close();
  void Listen();

  Loop& loop_;
  sys::Descriptor socket_;
  std::unique_ptr<Session> session_;
  Owner* owner_;
  Limits limits_;
  uint64_t number_;
  State state_ = State::kNew;
  Loop::Handle watch_ = 0, timer_ = 0;
  uint32_t events_ = 0;
  Decoder decoder_;
  std::vector<uint8_t> rest_;  // received, and not taken, because too much waits to be sent
  std::vector<uint8_t> out_;
  size_t sent_ = 0;  // bytes of it
  size_t discarded_ = 0;
  bool has_failed_ = false;  // to send
  bool has_shut_ = false;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_NET_CHANNEL_H_
