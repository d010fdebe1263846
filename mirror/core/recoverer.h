// SPDX-License-Identifier: BSD-3-Clause
//
// Takes from the servers what the lost memory of a pool's machine held (docs/mirror.md: A
// recovery). Like Writer, it knows of no sockets, no clock and no thread. It may be killed
// anywhere, and run again.
//
//   kReading ─▶ kLooking ─▶ kTaking ─▶ kPromising ─▶ kFetching ─▶ kSpreading
//       │          ▲           │         ▲               │            │
//       │          └───────────┘         └───────────────┘            ▼
//       │     the record has changed     the server is lost      kCondemning
//       ▼                                                             │
//   kNothing                       kDone ◀─ kClosing ◀─ kReplaying ◀──┘
//
// Invariants
//   Nothing is changed, in etcd or at a server, before a majority of the holders has answered; or,
//   where the record says `real`, before etcd has said that its mirror lives no more.
//   Only holders with the incarnation of the record are counted, and a majority of them has
//   promised this epoch before an image is chosen (M2, M6). A majority has the chosen image in this
//   epoch before any of it is replayed.
//   No file changes before the record says `recovering`. Until then the mirror of a machine that
//   lives takes its name back by a higher epoch.
#ifndef NVCACHE_MIRROR_CORE_RECOVERER_H_
#define NVCACHE_MIRROR_CORE_RECOVERER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mirror/core/link.h"
#include "mirror/core/register.h"

namespace nvcache::mirror {

class Recoverer {
 public:
  enum class Phase {
    kReading,
    kNothing,  // the images count for nothing: there is nothing to do
    kLooking,  // whether a majority answers, or, of a record that says `real`, its mirror lives
    kTaking,
    kPromising,
    kFetching,
    kSpreading,
    kCondemning,  // the record becomes `recovering`
    kReplaying,
    kClosing,
    kDone,
  };

  struct Options {
    std::string name;
    std::string self;  // for people; no other process has the same
    Link::Options link = {};
  };

  class Host : public Register::Keeper {
   public:
    // In the place of one that is gone, if there was one for `holder`.
    virtual std::unique_ptr<Link::Wire> MakeWire(size_t holder, const std::string& address) = 0;
    // Whether a mirror of this name lives: HeardOfMirror() follows, later, if etcd knows.
    virtual void AskForMirror() = 0;
    // A pool of zeros, in the place of one that was there. False: there is no room.
    virtual bool Prepare(const Id& lineage, uint64_t pool_size) = 0;
    virtual void WritePool(const Range& range, const uint8_t* bytes) = 0;
    // A cursor of the pool that was written: it ends at `position`.
    virtual std::unique_ptr<Cursor> OpenCursor(Position position) = 0;
    // Brings the pool to the files and these to the disk, and calls Replayed() then.
    virtual void Replay() = 0;
  };

  Recoverer(Options options, Host* host);

  // Calls of the owner.
  void Tick(Time now);
  void Found(bool reached, const std::optional<Record>& record, uint64_t revision, Time now);
  void Written(Outcome outcome, uint64_t revision, Time now);
  void HeardOfMirror(bool lives);
  void Connected(size_t holder, Time now);
  void Closed(size_t holder, Time now);
  void Take(size_t holder, const Message& message, Time now);
  void Replayed(bool done);

  Phase phase() const { return phase_; }
  // One line: why it cannot go on. Else empty.
  const std::string& failure() const { return failure_; }
  const Register& record() const { return register_; }
  const std::vector<Link>& links() const { return links_; }
  // Whether the holder has answered, or promised once the epoch is taken, and remembers.
  bool Counts(size_t holder) const;
  // etcd has said so: it keeps a record that says `real`.
  bool MirrorLives() const { return mirror_lives_.value_or(false); }
  // Bytes of the pool that were looked at, of Record::pool_size.
  uint64_t fetched() const { return fetched_; }

 private:
  void Heard(Register::News news, Time now);
  void Look();
  void MakeLinks(const Record& record);
  void AskAgain(Time now);
  void TakeEpoch();
  void Taken(Time now);
  void Condemn();
  void Replay();
  void Choose(Time now);
  void TakePiece(const Message& message, Time now);
  void Spread(size_t holder, Time now);
  void Update(Time now);
  size_t CountAnswers() const;
  size_t CountFollowing() const;
  void Fail(std::string why) { failure_ = std::move(why); }

  const Options options_;
  Host& host_;
  Register register_;
  std::vector<Link> links_;
  std::vector<std::string> asked_;  // the addresses that were asked
  Link::Claim claim_;               // its epoch is 0 until it is taken
  std::optional<bool> mirror_lives_;
  Time again_ = 0;  // when etcd is asked again in kLooking
  Phase phase_ = Phase::kReading;
  size_t chosen_ = 0;      // the holder whose image is taken
  Position position_ = 0;  // that image's
  uint64_t fetched_ = 0;
  std::string failure_;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_CORE_RECOVERER_H_
