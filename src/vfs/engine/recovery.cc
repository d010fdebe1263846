// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/recovery.h"

#include <errno.h>
#include <sys/wait.h>

#include <algorithm>
#include <new>

#include "src/pool/glance.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/sys/sharing.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/stack.h"

namespace nvcache::vfs {

namespace {

// For another process that recovers the pool.
constexpr uint64_t kRecoveryPatienceNs = 60ull * 1000 * 1000 * 1000;
constexpr uint64_t kRecoveryPollNs = 1000 * 1000;
// For the kernel, to free what a dead process held.
constexpr uint64_t kDyingPatienceNs = 5ull * 1000 * 1000 * 1000;

bool ReplayAll(pool::Pool& pool, replay::Summary* summary) {
  return replay::Replay(pool, {}, {}, summary);
}

}  // namespace

bool Recovery::BeforeUse() {
  for (uint64_t begin = 0;;) {
    const Outcome result = RecoverOnce();
    if (result == Outcome::kDone || result == Outcome::kFailed) return result == Outcome::kDone;
    if (begin == 0) begin = sys::Now(CLOCK_MONOTONIC);
    const uint64_t patience =
        result == Outcome::kByAnother ? kRecoveryPatienceNs : kDyingPatienceNs;
    if (sys::Now(CLOCK_MONOTONIC) - begin >= patience) return true;
    sys::Pause(kRecoveryPollNs);
  }
}

bool Recovery::BeforeUseOnOwnStack() {
  return OnOwnStack([this] { return BeforeUse(); });
}

Recovery::Outcome Recovery::RecoverOnce() {
  switch (Inspect()) {
    case Found::kNothing:
      return Outcome::kDone;
    case Found::kRecovering:
      return Outcome::kByAnother;
    case Found::kDying:
      return Outcome::kLater;
    case Found::kNoPool:
      return Outcome::kFailed;
    default:
      return RecoverWhole();
  }
}

// Whether a dead process has left anything in the pool. kNoPool: it can be no pool of ours.
Recovery::Found Recovery::Inspect() {
  using Kind = pool::Glance::Kind;
  const settings::Settings& settings = engine.settings;
  const uint32_t deaths = engine.leases.deaths();
  const pool::Glance glance = pool::GlanceAt(settings.pool.c_str());
  // One that cannot be followed cannot be attached, either.
  if (glance.id != 0) engine.mirror.Follow(settings.pool.c_str(), glance.id, glance.commit);
  if (glance.kind == Kind::kLost) return Found::kToRecover;
  const bool is_made = glance.kind == Kind::kMissing && settings.size > 0;
  if (glance.kind == Kind::kClean || is_made) return Found::kNothing;
  if (glance.id != 0 && engine.file_table.WasLookedAt(glance.id, settings.emulate)) {
    return Found::kNothing;
  }
  sys::Scratch<pool::Problem> problem;
  pool::Pool& pool = engine.pool();
  if (!pool.Open(settings.pool.c_str(), pool::Mode::kInspect, settings.emulate, nullptr,
                 problem.get())) {
    if (problem->error == ENOENT && settings.size > 0) return Found::kNothing;
    engine.notice.RefusePool(*problem);
    return Found::kNoPool;
  }
  engine.mirror.Follow(settings.pool.c_str(), pool.id(), pool.view().superblock->commit);
  const Found found = FoundIn(pool);
  if (found == Found::kNothing && engine.file_table.IsOf(pool.id())) {
    engine.file_table.NoteLook(deaths, pool.durability() == pmem::Durability::kProcess);
  }
  pool.Close();
  return found;
}

Recovery::Found Recovery::FoundIn(const pool::Pool& pool) const {
  const pool::Seats& seats = pool.seats();
  if (!pool.dirty()) return Found::kNothing;
  if (!seats.AnybodyLives() || seats.HasOrphans(pool::kNoSeat) || seats.HasUnresolved()) {
    return Found::kToRecover;
  }
  if (seats.IsReplaying(pool::kNoSeat)) return Found::kRecovering;
  return SomebodyDies(seats) ? Found::kDying : Found::kNothing;
}

Recovery::Outcome Recovery::RecoverWhole() {
  sys::Scratch<pool::Problem> problem;
  pool::Pool& pool = engine.pool();
  if (!pool.Open(engine.settings.pool.c_str(), pool::Mode::kShared, engine.settings.emulate,
                 nullptr, problem.get())) {
    if (problem->error == EBUSY) return Outcome::kByAnother;
    engine.notice.RefusePool(*problem);
    return Outcome::kFailed;
  }
  const bool clean = AdoptDead();
  if (pool.alone() && clean && engine.file_table.IsOf(pool.id())) {
    engine.file_table.RaiseCheckpoint(pool.checkpoint());
  }
  pool.Close();
  if (clean && recovered_.damaged_groups == 0) return Outcome::kDone;
  RefuseUnresolved(clean);
  return Outcome::kFailed;
}

// It opens files, and closes them, of which the program may have POSIX locks: so not in the
// program's table of descriptors (I11).
bool Recovery::Replay(bool (*replay)(pool::Pool& pool, replay::Summary* summary)) {
  pool::Pool& pool = engine.pool();
  has_table_ = false;
  return OnOwnTable(pool.fd(), pool.own_journal().fd(), [&pool, replay, this] {
    has_table_ = true;
    return replay(pool, &recovered_);
  });
}

const char* Recovery::WhyLeft() const {
  return has_table_ ? ": unresolved records were found"
                    : ": records of a dead process were found, and there is no thread with "
                      "descriptors of its own to bring them to the files";
}

void Recovery::RefuseUnresolved(bool clean) {
  sys::Text<512> text;
  text.Append(engine.settings.pool.c_str());
  text.Append(clean ? ": damaged records were found" : WhyLeft());
  text.Append("; run 'nvcache recover' on it. Running without the cache");
  engine.notice.Refuse(text.c_str());
}

// A process is on its way out: somebody has found it dead, and the kernel has not freed its life
// byte yet.
bool Recovery::SomebodyDies(const pool::Seats& seats) const {
  for (uint32_t seat = 0; seat < seats.end(); ++seat) {
    const uint64_t life = seats.LeaseOf(seat);
    const bool is_taken = seats.State(seat) == pool::kSeatTaken;
    if (seat == engine.pool().seat() || life == 0 || !is_taken) continue;
    if (engine.leases.IsOver(life) && seats.Lives(seat)) return true;
  }
  return false;
}

// A pool that this process has alone is recovered as a whole.
bool Recovery::AdoptDead(uint64_t patience_ns) {
  const pool::Pool& pool = engine.pool();
  const bool attached = pool.seat() != pool::kNoSeat;
  NVCACHE_CHECK(!attached || engine.table_lock.IsLocked());
  recovered_ = {};
  if (pool.alone()) return !pool.dirty() || Replay(&ReplayAll);
  const pool::Seats& seats = pool.seats();
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  for (bool met = false, resolved = true;; met = true) {
    const bool orphans = seats.HasOrphans(pool.seat());
    const bool replaying = orphans || seats.IsReplaying(pool.seat());
    const uint64_t patience = replaying ? kRecoveryPatienceNs : kDyingPatienceNs;
    const bool late = sys::Now(CLOCK_MONOTONIC) - begin >= std::min(patience, patience_ns);
    if ((met && late) || (!replaying && !SomebodyDies(seats))) {
      if (met && attached) TellOfDead(resolved);
      return resolved;
    }
    if (!met) engine.file_table.ForgetLook();
    if (orphans) engine.mirror.AwaitTold();
    resolved = (!orphans || Replay(&replay::ReplayOrphans)) && !seats.HasUnresolved();
    if (met) sys::Pause(kRecoveryPollNs);
  }
}

// This process goes on with the files that it has in its cache, for none of the groups that stay is
// of these, and takes no other.
void Recovery::TellOfDead(bool resolved) {
  if (!resolved) engine.files.BecomeFull();
  if (engine.notice.said() || (resolved && recovered_.damaged_groups == 0)) return;
  sys::Text<512> text;
  text.Append(engine.pool().path()).Append(": a dead process has left ");
  text.Append(resolved ? "damaged records, which are lost"
                       : "records that no file takes; run 'nvcache recover' on it");
  engine.notice.Say(text.c_str());
}

bool Recovery::KnowsOfDeaths() const { return engine.leases.deaths() != deaths_seen_.load(); }

void Recovery::BeginToNoticeDeaths() { deaths_seen_.store(engine.leases.deaths()); }

// The bytes of a file that a dead process held exclusively are in its pool only. If that is ours,
// too, they go to the files before anyone looks at these.
void Recovery::NoticeDeaths() {
  if (!engine.leases.is_open() || !KnowsOfDeaths()) return;
  TableLock lock;
  if (KnowsOfDeaths()) LookAfterDeaths();
}

void Recovery::LookAfterDeaths() {
  const uint32_t deaths = engine.leases.deaths();
  if (engine.attached()) {
    AdoptDead();
  } else if (engine.attachment.MayAttach() && !BeforeUseOnOwnStack()) {
    engine.BecomeFinal();
  }
  deaths_seen_.store(deaths);
}

// The tables and locks of a child that shares our memory are its parent's: a process of its own,
// which has a copy, does the recovery.
bool Recovery::LookAfterDeathsInCopy() {
  if (!KnowsOfDeaths()) return true;
  const uint32_t deaths = engine.leases.deaths();
  const sys::SignalsBlocked blocked;
  const long copy = sys::Call(SYS_clone, 0);  // nobody is told of its end
  if (copy == 0) {
    sys::sharing = 0;
    sys::ForgetScratch();
    new (&engine.pool()) pool::Pool;  // other threads, not here, may have used it
    sys::ExitGroup(BeforeUse() ? 0 : 1);
  }
  int status = 1;
  while (copy > 0 && sys::Call(SYS_wait4, copy, sys::Address(&status), __WALL) == -EINTR) {
  }
  if (copy > 0 && status == 0) deaths_seen_.store(deaths);
  return copy > 0 && status == 0;
}

}  // namespace nvcache::vfs
