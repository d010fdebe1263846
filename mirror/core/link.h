// SPDX-License-Identifier: BSD-3-Clause
//
// A writer's way to one server: promise, a whole copy, and then on. It knows of one connection at a
// time; when that ends, or the server is silent for too long, another one is made after a while.
//
//   kClosed ──Tick──▶ kConnecting ──Connected──▶ kPromising ──kPromised──▶ kCopying
//      ▲                   │                         │                        │ whole one stored
//      └───────────────────┴── Closed, silence ──────┴────────────────────────┴──▶ kFollowing
//
// Invariants
//   kFollowing: the server's image is of this writer's epoch, at `position`.
//   What was sent and not answered is at most Options::window bytes and one message.
#ifndef NVCACHE_MIRROR_CORE_LINK_H_
#define NVCACHE_MIRROR_CORE_LINK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "mirror/core/message.h"
#include "mirror/core/source.h"

namespace nvcache::mirror {

class Link {
 public:
  enum class Stage { kClosed, kConnecting, kPromising, kCopying, kFollowing };

  struct Options {
    Time silence = 1'000'000'000;  // a server that owes an answer for so long is left
    Time retry = 200'000'000;      // before it is tried again
    size_t window = size_t{8} << 20;
  };

  // The network's side.
  class Wire {
   public:
    virtual ~Wire() = default;
    // Connected() or Closed() follows, later.
    virtual void Connect() = 0;
    // Closed() does not follow.
    virtual void Close() = 0;
    virtual void Send(Message message) = 0;
  };

  // A writer says this on each connection.
  struct Claim {
    std::string name;
    Epoch epoch = 0;  // 0: it only looks (Type::kPromise)
    Id lineage;
    uint64_t pool_size = 0;
  };

  Link(const Options& options, std::unique_ptr<Wire> wire)
      : options_(options), wire_(std::move(wire)) {}

  Stage stage() const { return stage_; }
  bool IsFollowing() const { return stage_ == Stage::kFollowing; }
  // The server that promised last; none before that.
  const Id& incarnation() const { return incarnation_; }
  // Its image's position, once kFollowing; else 0.
  Position position() const { return IsFollowing() ? position_ : 0; }
  // kPromised, as it came: of use in kCopying.
  const Message& promised() const { return promised_; }
  // Since it was made; for people.
  struct Counters {
    uint64_t connections = 0;
    uint64_t copies = 0;   // that became whole
    uint64_t batches = 0;  // that were sent
    uint64_t bytes = 0;    // the pool's, in these
  };
  const Counters& counters() const { return counters_; }
  // Bytes that were sent and not answered, and since when an answer is owed (0: none is).
  size_t in_flight() const { return in_flight_; }

  // Connects when it is time to.
  void Tick(Time now);
  void Connected(const Claim& claim, Version version, Time now);
  // For another epoch, of a server that has answered.
  void AskPromise(const Claim& claim, Version version, Time now);
  void Closed(Time now);
  // Ends the connection, and waits before the next one. `problem` is told once.
  void Leave(std::string problem, Time now);

  // A promise was made: the copy begins.
  void Begin(const Claim& claim, std::unique_ptr<Cursor> cursor);
  // The image of a server that has it already becomes one of this epoch.
  void Mark(const Claim& claim, Version version, Time now);
  // Has the server send what its image has from `offset` on: kPiece.
  void Fetch(const Claim& claim, uint64_t offset, Time now);
  // Sends what there is to send, as far as the window goes.
  void Pump(const Claim& claim, Version version, Time now);
  // False: the message was out of turn, and the link is closed.
  bool Take(const Message& message, Time now);

  // One line, or empty: why it is not following.
  const std::string& problem() const { return problem_; }

 private:
  struct Sent {
    uint64_t number;
    size_t bytes;
    bool whole;
  };

  void Reset(Time now);
  bool TakeStored(const Message& message, Time now);
  void Owe(Time now);

  const Options options_;
  std::unique_ptr<Wire> wire_;
  Stage stage_ = Stage::kClosed;
  Time retry_at_ = 0;
  Time heard_ = 0;
  Time owed_since_ = 0;
  bool pinged_ = false;
  bool fetches_ = false;
  Message promised_;
  Id incarnation_;
  Position position_ = 0;
  std::unique_ptr<Cursor> cursor_;
  uint64_t number_ = 0;
  bool whole_sent_ = false;
  std::deque<Sent> sent_;
  size_t in_flight_ = 0;
  std::string problem_;
  Counters counters_;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_CORE_LINK_H_
