// SPDX-License-Identifier: BSD-3-Clause
//
// The mirror of one pool (docs/mirror.md: A mirror): it takes an epoch, has servers follow, tells
// programs up to where a majority does, and says what a sync has to do. It knows of no sockets, no
// clock and no thread: its owner calls it, one call at a time, and hands on what has come.
//
// Invariants
//   M2: a position is published only if a majority of the holders of the record has it, and of
//   those that may be the record's.
//   M3: kMirrored and kReal are published only when the record is known to say so; from before an
//   attempt to make the record `real` until its outcome is known, no position is published.
//   The position that was published never goes down.
//   A mirror that may live is not fenced before a majority of the servers has answered.
#ifndef NVCACHE_MIRROR_CORE_WRITER_H_
#define NVCACHE_MIRROR_CORE_WRITER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mirror/core/link.h"
#include "mirror/core/register.h"
#include "mirror/core/state.h"

namespace nvcache::mirror {

class Writer {
 public:
  // Syncs that no majority answers go to the disk, wait, or fail.
  enum class Below { kReal, kBlock, kError };

  struct Options {
    std::string name;
    std::string self;                       // for people; no other process has the same
    std::vector<std::string> servers = {};  // addresses: an odd number, at most kMaxHolders
    Id lineage = {};
    uint64_t pool_size = 0;
    // Takes the name from a writer that has not ended; its pool is not needed any more.
    bool takes_over = false;
    Below below = Below::kReal;
    Time patience = 2'000'000'000;  // somebody waits, and nothing moves
    Link::Options link = {};
  };

  class Host : public Register::Keeper {
   public:
    virtual std::unique_ptr<Link::Wire> MakeWire(size_t server) = 0;
    virtual std::unique_ptr<Cursor> OpenCursor() = 0;
    // An LSN that nobody else draws, newer than all that was stored in the pool so far.
    virtual Position Draw() = 0;
    // Programs see this from now on.
    virtual void Publish(State state, Position position) = 0;
    // Brings all below `position` to the disk, and calls Drained(position) then. Only the last call
    // counts.
    virtual void Drain(Position position) = 0;
  };

  // `before`: what the pool's shared state has of a mirror that came before.
  Writer(Options options, Host* host, State before, Position published);

  // Calls of the owner.
  void Tick(Time now);
  void Found(bool reached, const std::optional<Record>& record, uint64_t revision, Time now);
  void Written(Outcome outcome, uint64_t revision, Time now);
  void Connected(size_t server, Time now);
  void Closed(size_t server, Time now);
  void Take(size_t server, const Message& message, Time now);
  void Drained(Position position);
  // The pool has something new. `wanted`: the highest LSN that a program waits to be below the
  // position; 0: nobody waits.
  void Wake(Position wanted, Time now);
  // Leaves in order: HasEnded() once no image is needed any more.
  void End(Time now);

  State state() const { return state_; }
  Position published() const { return published_; }
  bool HasEnded() const;
  // One line: why it can never go on. Else empty.
  const std::string& failure() const { return failure_; }
  const Register& record() const { return register_; }
  const Link& link(size_t server) const { return links_[server]; }
  Epoch epoch() const { return claim_.epoch; }

 private:
  bool IsOwner() const { return claim_.epoch != 0; }
  Version version() const { return register_.known() ? register_.known()->version : 0; }

  void Heard(Register::News news, Time now);
  void TakeEpoch();
  void BecomeOwner(Time now);
  // A majority of the servers has answered, which shows that they listen to this mirror.
  bool IsHeard() const;
  void Promised(size_t server, Time now);

  // The highest position that a majority of the holders has.
  Position Majority(const Record& record) const;
  Position Acknowledged() const;
  std::vector<Holder> WantedHolders() const;
  void Update(Time now);
  void UpdatePosition(Time now);
  void UpdateHolders();
  void UpdateState(Time now);
  void UpdateReal(Time now);
  void UpdateJoining(Time now);
  void UpdateMirrored(Time now);
  void UpdateLeaving(Time now);
  bool IsStarved(Time now) const;
  void Enter(State state, Time now);
  void Change(Mode mode, bool free);
  void Fail(State state, std::string why);

  const Options options_;
  Host& host_;
  Register register_;
  std::vector<Link> links_;
  Link::Claim claim_;   // its epoch is 0 until it is taken
  bool looks_ = false;  // before it takes the name from a mirror that may live
  Time look_at_ = 0;    // the record again, meanwhile
  State state_;
  Position published_;
  Position wanted_ = 0;
  Time moved_ = 0;    // when published_ has moved, or nobody waited
  Position bar_ = 0;  // an LSN drawn when the state was entered
  bool drained_ = false;
  bool changes_mode_ = false;  // a change of the mode is under way
  bool ending_ = false;
  std::string failure_;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_CORE_WRITER_H_
