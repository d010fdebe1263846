// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/mirror.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "src/pool/view.h"
#include "src/sys/check.h"
#include "src/sys/deferral.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/lock.h"
#include "src/sys/memory.h"
#include "src/sys/scratch.h"
#include "src/sys/sharing.h"
#include "src/vfs/engine/mirror_wait.h"

namespace nvcache::vfs {

namespace {

constexpr uint64_t kSayAfterNs = 2ull * 1000 * 1000 * 1000;
// A leader that has died wakes nobody; one that may not write the journal is not waited for longer.
constexpr uint64_t kTurnNs = 10 * 1000 * 1000;
constexpr uint64_t kUnableNs = 1000ull * 1000 * 1000;
// A change takes two calls of the kernel's, at most.
constexpr uint64_t kChangeNs = 10 * 1000;

bool IsChanging(uint32_t generation) { return generation % 2 != 0; }

// While it lives, the words change.
class Change {
 public:
  explicit Change(std::atomic<uint32_t>* generation) : generation_(*generation) {
    generation_.fetch_add(1);
  }
  ~Change() { generation_.fetch_add(1); }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  std::atomic<uint32_t>& generation_;
};

// One call's wait for the pool's checkpointer to leave a journal that has failed
// (vfs/checkpointer.h). Each turn is a sign of its life; without one, calls would wait for ever.
class Leaving {
 public:
  void Begin(const pool::MirrorWords& words) {
    if (since_ == 0) Note(words.turn());
  }
  bool IsInVain(const pool::MirrorWords& words) {
    if (since_ == 0) return false;
    if (const uint32_t turn = words.turn(); turn != turn_) Note(turn);
    return sys::Now(CLOCK_MONOTONIC) - since_ >= kLeaveNs;
  }

 private:
  static constexpr uint64_t kLeaveNs = 10ull * 1000 * 1000 * 1000;

  void Note(uint32_t turn) {
    turn_ = turn;
    since_ = sys::Now(CLOCK_MONOTONIC);
  }

  uint32_t turn_ = 0;
  uint64_t since_ = 0;
};

static_assert(pool::kSharedOffset + sizeof(pool::SharedState) <= pool::kMinPoolSize);

}  // namespace

bool Mirror::Follow(const char* path, uint64_t id, uint32_t commit) {
  if (commit == pool::kCommitOwn) {
    if (commit_.load() != pool::kCommitOwn) Close(true);
    return true;
  }
  if (id_.load() != id && !Open(path, id)) return false;
  commit_.store(commit);
  return true;
}

// Of the pool behind `named`, or of the memory that belongs to it. An address, or a negated errno.
long Mirror::MapWords(int named, bool has_journal) {
  journal::Header header;
  const sys::Descriptor memory(has_journal ? pool::Journal::OpenMemory(named, true, &header) : -1);
  const int fd = has_journal ? memory.get() : named;
  struct stat st = {};
  if (const long error = sys::Fstat(fd, &st); error < 0) return error;
  if (S_ISREG(st.st_mode) && st.st_size < off_t{pool::kMinPoolSize}) return -EINVAL;
  return sys::MapUnlocked(kMapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
}

// Words of a pool that another one has replaced: who waits for them syncs, and waits for these.
bool Mirror::Open(const char* path, uint64_t id) {
  const sys::Descriptor named(sys::Openat(AT_FDCWD, path, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!named.IsOpen()) return false;
  const bool has_journal = pool::Journal::IsOne(named.get());
  const long mapped = MapWords(named.get(), has_journal);
  if (sys::IsError(mapped)) return false;
  auto* base = reinterpret_cast<uint8_t*>(mapped);
  const auto& superblock = *reinterpret_cast<const pool::Superblock*>(base);
  if (!pool::HasMagic(superblock) || pool::IdOf(superblock) != id) {
    sys::UnmapUnlocked(base, kMapped);
    return false;
  }
  const Change change(&generation_);
  CloseJournal();
  if (has_journal && !OpenJournal(path, named.get())) {
    sys::UnmapUnlocked(base, kMapped);
    return false;
  }
  if (uint8_t* const place = place_.load(); place != nullptr) {
    const long moved = sys::Call(SYS_mremap, mapped, long{kMapped}, long{kMapped},
                                 MREMAP_MAYMOVE | MREMAP_FIXED, sys::Address(place));
    NVCACHE_CHECK(!sys::IsError(moved));
    sys::ForgetUnlocked(base);
  } else {
    place_.store(base);
  }
  id_.store(id);
  return true;
}

void Mirror::Close(bool kept) {
  const Change change(&generation_);
  if (kept) commit_.store(pool::kCommitOwn);
  CloseJournal();
  if (id_.load() == 0) return;
  id_.store(0);
  uint8_t* const place = place_.load();
  constexpr int kInPlace = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
  const long address = sys::Mmap(place, kMapped, PROT_READ | PROT_WRITE, kInPlace, -1, 0);
  NVCACHE_CHECK(address == sys::Address(place));
  sys::ForgetUnlocked(place);
  sys::KeepUnlocked(place, kMapped);
}

// Nothing that was read counts unless the generation is the same afterwards. A wait may be counted
// in words that have just come; that is for people alone.
long Mirror::AwaitBy(long (*sync)(int), int argument, bool is_output) {
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  for (;;) {
    const uint32_t generation = generation_.load();
    const bool closed = id_.load() == 0, lost = closed && commit() != pool::kCommitOwn;
    if (IsChanging(generation) || generation_.load() != generation) {
      sys::Pause(kChangeNs);
      continue;
    }
    if (closed) return lost ? -EIO : sync(argument);
    pool::View view;
    view.base = place_.load();
    const pool::MirrorWords words(view);
    Leaving leaving;
    bool fails = false;
    const auto goes_on = [&] {
      if (words.state() == pool::kMirrorNone) SayWaiting(begin);
      if (leaving.IsInVain(words)) words.ChangeState(pool::kMirrorLeaving, pool::kMirrorFailing);
      return generation_.load() == generation && !fails;
    };
    const auto lead = [&] {
      using Outcome = pool::JournalLeader::Outcome;
      const Outcome outcome = Lead(generation);
      fails = outcome == Outcome::kUnable;
      if (outcome == Outcome::kFailed) leaving.Begin(words);
      return outcome == Outcome::kLed;
    };
    const auto sync_now = [&] { return sync(argument); };
    const long waited = is_output ? AwaitMirror<OutputWait>(words, sync_now, goes_on, lead)
                                  : AwaitMirror<MirrorWait>(words, sync_now, goes_on, lead);
    const long result = fails ? -EIO : waited;
    if (generation_.load() == generation) {
      words.CountWait(sys::Now(CLOCK_MONOTONIC) - begin, result < 0);
      return result;
    }
    if (const long error = sync(argument); error < 0) return error;
  }
}

long Mirror::Await(long (*sync)(int), int argument) { return AwaitBy(sync, argument, false); }

// ---------------------------------------------------------------------------------------------
// Commit at output.

long Mirror::Promise(long (*sync)(int), int argument) {
  return tells() && Tell() ? 0 : Await(sync, argument);
}

// The state is looked at once more: a journal that has failed meanwhile is left with what is in the
// log by now, and that has all that the call covers, but it must not count as told afterwards.
bool Mirror::Tell() {
  const uint32_t generation = generation_.load();
  if (IsChanging(generation) || id_.load() == 0) return false;
  pool::View view;
  view.base = place_.load();
  const pool::MirrorWords words(view);
  if (words.state() != pool::kMirrorMirrored) return false;
  const bool told = words.Tell(sys::Now(CLOCK_MONOTONIC), ahead_ns_);
  if (told && keeper_sleeps_.load() && keeper_sleeps_.exchange(false)) wake_();
  const bool counts = words.state() == pool::kMirrorMirrored && generation_.load() == generation;
  return told && counts;
}

long Mirror::AwaitOutput(pool::Output output) {
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  const long error = AwaitBy([](int) { return 0L; }, -1, true);
  pool::View view;
  view.base = place_.load();
  const uint64_t end = sys::Now(CLOCK_MONOTONIC);
  pool::MirrorWords(view).CountOutput(output, end, end - begin);
  return error;
}

// No handler of the program's runs, and no state is waited for that others reach only when they
// have the locks: while a journal is left, the files are written first. A process that cannot lead
// waits until another one would have done it, for what was told is too far ahead.
void Mirror::AwaitToldNow() {
  const uint32_t generation = generation_.load();
  if (IsChanging(generation)) return;
  pool::View view;
  view.base = place_.load();
  const pool::MirrorWords words(view);
  const pool::Lsn told = words.told();
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  words.RingBell();
  const auto lacks = [&] { return words.mirrored() < told && words.told() >= told; };
  while (generation_.load() == generation && words.state() == pool::kMirrorMirrored && lacks()) {
    const uint32_t turn = words.turn();
    using Outcome = pool::JournalLeader::Outcome;
    const Outcome outcome = lacks() ? Lead(generation) : Outcome::kLed;
    const bool late = sys::Now(CLOCK_MONOTONIC) - begin >= ahead_ns_ + kUnableNs;
    if (outcome == Outcome::kFailed) break;
    if (outcome == Outcome::kUnable && late) GiveUp(generation);
    if (outcome != Outcome::kLed) words.AwaitTurn(turn, kTurnNs);
  }
  const uint64_t end = sys::Now(CLOCK_MONOTONIC);
  words.CountOutput(pool::Output::kFile, end, end - begin);
}

// Whoever tells after the flag is set wakes; who has told before is seen.
uint64_t Mirror::KeepAhead(bool everywhere) {
  const uint32_t generation = generation_.load();
  if (commit() != pool::kCommitOutput) return sys::kForever;
  if (IsChanging(generation) || id_.load() == 0) return ahead_ns_;
  pool::View view;
  view.base = place_.load();
  const pool::MirrorWords words(view);
  if (words.IsTold() && words.state() == pool::kMirrorMirrored) {
    const uint64_t now = sys::Now(CLOCK_MONOTONIC);
    const uint64_t age = now - std::min(now, words.told_since());
    if (age < ahead_ns_) return ahead_ns_ - age;
    words.RingBell();
    if (Lead(generation) == pool::JournalLeader::Outcome::kBusy) return ahead_ns_;
  }
  const pool::Lsn told = words.told();
  if (kept_.exchange(told) != told) return ahead_ns_;
  keeper_sleeps_.store(true);
  if (everywhere) words.SleepUntilTold();
  return words.told() == told ? sys::kForever : ahead_ns_;
}

// ---------------------------------------------------------------------------------------------
// The journal. The words may have been another pool's: who waits for them is told by the change.

bool Mirror::OpenJournal(const char* path, int named) {
  sys::Scratch<pool::Problem> problem;
  lead_lock_.Lock();
  const sys::Descriptor memory(journal_.Open(path, named, problem.get()));
  const bool opened = memory.IsOpen() && journal_.Map(memory.get());
  if (memory.IsOpen() && !opened) journal_.Close();
  lead_lock_.Unlock();
  if (!opened) return false;
  path_.Clear();
  path_.Append(path);
  track_(journal_.fd(), true);
  return true;
}

void Mirror::CloseJournal() {
  lead_lock_.Lock();
  const int fd = journal_.fd();
  journal_.Close();
  inherited_ = false;
  lead_lock_.Unlock();
  if (fd >= 0) track_(fd, false);
}

void Mirror::RenumberJournal() {
  lead_lock_.Lock();
  journal_.Renumber();
  lead_lock_.Unlock();
}

// The parent's threads are not here.
void Mirror::BecomeChild() {
  lead_lock_.Reset();
  inherited_ = journal_.is_open();
}

// Its open file has the lock, and so have we: until the next round of ours.
void Mirror::EndSharing() {
  if (!led_by_child_.exchange(false)) return;
  lead_lock_.Reset();
  if (journal_.is_used()) journal_.Abandon();
}

// The descriptor is inherited, and its locks with it, or it was closed: this process gets an open
// file of its own.
bool Mirror::ReopenJournal(const char* path) {
  const int old = journal_.fd();
  sys::Scratch<pool::Problem> problem;
  if (!journal_.Reopen(path, problem.get())) return false;
  inherited_ = false;
  track_(old, false);
  track_(journal_.fd(), true);
  return true;
}

pool::JournalLeader::Outcome Mirror::LeadHere() {
  using Outcome = pool::JournalLeader::Outcome;
  if (inherited_ && !ReopenJournal(sys::LinkTo(journal_.fd()).c_str()) &&
      !ReopenJournal(path_.c_str())) {
    return Outcome::kUnable;
  }
  const bool is_child = sys::IsSharing();
  if (is_child) led_by_child_.store(true);
  Outcome outcome = journal_.Lead();
  if (outcome == Outcome::kUnable && ReopenJournal(path_.c_str())) outcome = journal_.Lead();
  if (is_child) led_by_child_.store(false);
  return outcome;
}

// Another thread of ours that leads is as good as another process. Who is woken finds the lock
// free.
pool::JournalLeader::Outcome Mirror::Lead(uint32_t generation) {
  using Outcome = pool::JournalLeader::Outcome;
  const sys::InEngine inside;
  if (!lead_lock_.TryLock()) return Outcome::kBusy;
  Outcome outcome = Outcome::kBusy;
  if (generation_.load() == generation && journal_.is_used()) outcome = LeadHere();
  lead_lock_.Unlock();
  if (outcome == Outcome::kLed) {
    pool::View view;
    view.base = place_.load();
    pool::MirrorWords(view).TakeTurn();
  }
  return outcome;
}

// The data would go before the log: so the journal has failed, and who was told waits for the disk.
void Mirror::GiveUp(uint32_t generation) {
  if (!lead_lock_.TryLock()) return;
  if (generation_.load() == generation && journal_.is_used()) journal_.GiveUp();
  lead_lock_.Unlock();
}

void Mirror::SayWaiting(uint64_t since) {
  if (sys::Now(CLOCK_MONOTONIC) - since < kSayAfterNs || said_.exchange(true)) return;
  sys::Report(
      "the pool is mirrored, and no mirror has come yet: calls that sync wait for one; run "
      "'nvcache mirror'");
}

}  // namespace nvcache::vfs
