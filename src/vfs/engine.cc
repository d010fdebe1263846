// SPDX-License-Identifier: BSD-3-Clause
//
// Start, attach, detach, stop.
#include "src/vfs/engine.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>

#include <cstring>
#include <new>

#include "src/pmem/persist.h"
#include "src/sys/check.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/root.h"
#include "src/sys/scratch.h"
#include "src/sys/user_copy.h"
#include "src/vfs/access.h"
#include "src/vfs/space.h"
#include "src/vfs/through.h"

namespace nvcache::vfs {

constinit Engine engine;
constinit File* Engine::buckets_[kFileBuckets] = {};

namespace {

constexpr int kExitRequired = 125;  // as env(1) and `nvcache run`: the program did not run

// Descriptors of pages beyond those with a frame, per page of log: the log holds more records than
// pages when they are small. Who needs more waits for the cleanup thread, as with a full log.
constexpr uint64_t kDescriptorsPerLogPage = 4;
constexpr uint64_t kSpareDescriptors = 1u << 16;

// For another process that recovers the pool.
constexpr uint64_t kRecoveryPatienceNs = 60ull * 1000 * 1000 * 1000;
constexpr uint64_t kRecoveryPollNs = 1000 * 1000;
// For the kernel, to free what a dead process held.
constexpr uint64_t kDyingPatienceNs = 5ull * 1000 * 1000 * 1000;

// Pages and log are somebody else's from now on.
void ForgetCache(File& file) {
  new (&file.pages) radix::Tree;
  file.erasures.Clear();
  file.in_batch = false;
}

void Pause(uint64_t ns) {
  sys::Word word{0};
  sys::FutexWait(&word, 0, ns);
}

}  // namespace

// One line, once; then the program runs without the cache, or not at all.
void Engine::Refuse(const char* text) {
  if (!said_) sys::Report(text);
  said_ = true;
  if (settings.required) sys::ExitGroup(kExitRequired);
}

// That others use the pool, or that it is another user's, is nothing wrong where processes come and
// go: a service that starts as root has given both to all that it starts.
void Engine::RefusePool(const pool::Problem& problem) {
  const bool ordinary = problem.error == EBUSY || problem.error == EUSERS ||
                        problem.error == EACCES || problem.error == EPERM;
  if (!ordinary || settings.notice || settings.required) Refuse(problem.text.c_str());
}

void Engine::RefuseCache(const char* text) {
  sys::Text<480> line;
  line.Append(text);
  line.Append(settings.required ? "; the program is not started (NVCACHE_REQUIRED)"
                                : "; the program runs without the cache");
  Refuse(line.c_str());
}

void Engine::Start(const Host& host, char** environment) {
  host_ = &host;
  pid_ = sys::Getpid();
  sys::Text<480> wrong;
  if (!settings::FromEnvironment(&settings, environment, &wrong)) {
    Refuse(wrong.c_str());
    return;
  }
  if (settings.pool.size() == 0) return;
  sys::RememberRoot();
  OpenTables();
  {
    TableLock lock;
    if (!OpenLeases() || !RecoverIfDirty()) return;
    active_.store(true, std::memory_order_release);
  }
  AdoptInherited();
  if (settings.required) {
    TableLock lock;
    Attach();
  }
}

void Engine::RefuseStart(char** environment, const char* text) {
  sys::Text<480> wrong;
  if (!settings::FromEnvironment(&settings, environment, &wrong)) return;
  if (settings.pool.size() != 0) RefuseCache(text);
}

bool Engine::OpenLeases() {
  const char* why = "";
  if (leases.Open(lease_folder, &why)) {
    SetSlot(leases.fd(), Internal());
    // Whoever dies from now on is noticed; the pools of the others are looked at next.
    deaths_seen_.store(leases.deaths());
    return true;
  }
  sys::Text<480> text;
  text.Append(lease_folder).Append(": ").Append(why);
  RefuseCache(text.c_str());
  return false;
}

// The pool can be looked at without being taken: a mistake in the settings shows at once, and a
// pool that a dead process left is recovered before the first file call. If another process does
// so just now, that is waited for.
bool Engine::RecoverIfDirty() {
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  for (;;) {
    const Recovery result = TryRecovery();
    if (result == Recovery::kDone || result == Recovery::kFailed) return result == Recovery::kDone;
    const uint64_t patience =
        result == Recovery::kByAnother ? kRecoveryPatienceNs : kDyingPatienceNs;
    if (sys::Now(CLOCK_MONOTONIC) - begin >= patience) return true;
    Pause(kRecoveryPollNs);
  }
}

bool Engine::RecoverOnOwnStack() {
  return OnOwnStack([this] { return RecoverIfDirty(); });
}

Engine::Recovery Engine::TryRecovery() {
  switch (Inspect()) {
    case Found::kNothing:
      return Recovery::kDone;
    case Found::kRecovering:
      return Recovery::kByAnother;
    case Found::kDying:
      return Recovery::kLater;
    case Found::kNoPool:
      return Recovery::kFailed;
    default:
      return OnOwnStack([this] { return Recover(); });
  }
}

// Whether a dead process has left anything in the pool. kNoPool: it can be no pool of ours.
Engine::Found Engine::Inspect() {
  using Glance = pool::Pool::Glance;
  uint64_t id;
  const uint32_t deaths = leases.deaths();
  const Glance glance = pool::Pool::GlanceAt(settings.pool.c_str(), &id);
  const bool is_made = glance == Glance::kMissing && settings.size > 0;
  if (glance == Glance::kClean || is_made) return Found::kNothing;
  if (id != 0 && tallies.WasLookedAt(id, settings.emulate)) return Found::kNothing;
  sys::Scratch<pool::Problem> problem;
  if (!pool_.Open(settings.pool.c_str(), pool::Access::kInspect, settings.emulate, nullptr,
                  problem.get())) {
    if (problem->error == ENOENT && settings.size > 0) return Found::kNothing;
    RefusePool(*problem);
    return Found::kNoPool;
  }
  const pool::Seats& seats = pool_.seats();
  Found found = Found::kNothing;
  if (pool_.dirty() &&
      (!seats.AnybodyLives() || seats.HasOrphans(pool::kNoSeat) || seats.HasUnresolved())) {
    found = Found::kToRecover;
  } else if (pool_.dirty() && seats.IsReplaying(pool::kNoSeat)) {
    found = Found::kRecovering;
  } else if (pool_.dirty() && SomebodyDies(seats)) {
    found = Found::kDying;
  }
  if (found == Found::kNothing && tallies.IsOf(pool_.id())) {
    tallies.NoteLook(deaths, pool_.durability() == pmem::Durability::kProcess);
  }
  pool_.Close();
  return found;
}

namespace {

uint32_t RuleOf(settings::WriteBack rule) {
  switch (rule) {
    case settings::WriteBack::kAuto:
      return pool::kRuleAuto;
    case settings::WriteBack::kAlways:
      return pool::kRuleAlways;
    case settings::WriteBack::kNever:
      return pool::kRuleNever;
  }
  return pool::kRuleUnknown;
}

}  // namespace

Engine::Recovery Engine::Recover() {
  pool::Problem problem;
  if (!pool_.Open(settings.pool.c_str(), pool::Access::kShared, settings.emulate, nullptr,
                  &problem)) {
    if (problem.error == EBUSY) return Recovery::kByAnother;
    RefusePool(problem);
    return Recovery::kFailed;
  }
  const bool alone = pool_.alone();
  const bool clean = alone ? recovery::Replay(pool_, {}, {}, &recovered_) : ReplayOrphans();
  if (alone && clean && tallies.IsOf(pool_.id())) tallies.RaiseCheckpoint(pool_.checkpoint());
  pool_.Close();
  if (clean && recovered_.damaged_groups == 0) return Recovery::kDone;
  RefuseUnresolved(clean);
  return Recovery::kFailed;
}

void Engine::RefuseUnresolved(bool clean) {
  sys::Text<480> text;
  text.Append(settings.pool.c_str()).Append(clean ? ": damaged" : ": unresolved");
  text.Append(" records were found; run 'nvcache recover' on it. Running without the cache");
  Refuse(text.c_str());
}

// A process is on its way out: somebody has found it dead, and the kernel has not freed its life
// byte yet.
bool Engine::SomebodyDies(const pool::Seats& seats) const {
  for (uint32_t seat = 0; seat < seats.end(); ++seat) {
    const uint64_t life = seats.LeaseOf(seat);
    if (seat == pool_.seat() || life == 0 || seats.State(seat) != pool::kSeatTaken) continue;
    if (leases.IsOver(life) && seats.Lives(seat)) return true;
  }
  return false;
}

// And waits for those that other processes replay just now, and for the gate. True: all was applied
// that is whole.
bool Engine::ReplayOrphans() {
  recovered_ = {};
  tallies.ForgetLook();
  const pool::Seats& seats = pool_.seats();
  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);
  for (;;) {
    const bool resolved = recovery::ReplayOrphans(pool_, &recovered_);
    const bool replaying = seats.IsReplaying(pool_.seat()) || seats.HasOrphans(pool_.seat());
    if (!replaying && !SomebodyDies(seats)) return resolved;
    const uint64_t patience = replaying ? kRecoveryPatienceNs : kDyingPatienceNs;
    if (sys::Now(CLOCK_MONOTONIC) - begin >= patience) return resolved;
    Pause(kRecoveryPollNs);
  }
}

// What stays is for `nvcache recover`: this process goes on with the files that it has in its
// cache, for none of what stays is of these, and takes no other.
void Engine::LookForOrphans() {
  NVCACHE_CHECK(table_lock.IsLocked() && attached());
  const pool::Seats& seats = pool_.seats();
  const uint32_t own = pool_.seat();
  if (!seats.HasOrphans(own) && !seats.IsReplaying(own) && !SomebodyDies(seats)) return;
  const bool resolved = OnOwnStack([this] { return ReplayOrphans(); });
  full_ = full_ || !resolved;
  if (said_ || (resolved && recovered_.damaged_groups == 0)) return;
  sys::Text<512> text;
  text.Append(pool_.path()).Append(": a dead process has left ");
  text.Append(resolved ? "damaged records, which are lost"
                       : "records that no file takes; run 'nvcache recover' on it");
  sys::Report(text.c_str());
  said_ = true;
}

namespace {

constexpr int kAsked = 256;  // descriptors that are asked for by their numbers

// Whether one with this number or a higher one may be open. select() leaves out those that lie
// beyond the kernel's table, and says of any other that it is not open.
bool MayHaveFrom(int number) {
  constexpr int kBits = 64;
  uint64_t wanted[kAsked / kBits + 1] = {};
  wanted[number / kBits] = uint64_t{1} << number % kBits;
  timeval at_once = {};
  return sys::Fcntl(number, F_GETFD) >= 0 ||
         sys::Call(SYS_select, number + 1, sys::Address(wanted), 0, 0, sys::Address(&at_once)) != 0;
}

// Of so many numbers from `first` on, those that are open, a bit each; all, where the kernel does
// not say.
constexpr int kAtOnce = sys::kFirstTable;
uint64_t OpenFrom(int first) {
  static_assert(kAtOnce == 64 && kAsked % kAtOnce == 0);
  pollfd asked[kAtOnce] = {};
  for (int i = 0; i < kAtOnce; ++i) asked[i].fd = first + i;
  if (sys::Call(SYS_poll, sys::Address(asked), kAtOnce, 0) < 0) return ~uint64_t{0};
  uint64_t open = 0;
  for (int i = 0; i < kAtOnce; ++i) {
    if ((asked[i].revents & POLLNVAL) == 0) open |= uint64_t{1} << i;
  }
  return open;
}

}  // namespace

// Descriptors from before us are shared with whoever gave them to us: never cached. Most programs
// have three, and the kernel a table of 64 for them. To list them, by /proc, takes as long as four
// hundred calls.
void Engine::AdoptInherited() {
  int end = sys::kFirstTable;
  while (MayHaveFrom(end)) {
    if (end == kAsked) return ListInherited();
    end *= 2;
  }
  for (int first = 0; first < end; first += kAtOnce) {
    for (uint64_t open = OpenFrom(first); open != 0; open &= open - 1) {
      const int fd = first + __builtin_ctzll(open);
      struct stat st;
      if (SlotOf(fd) == Internal()) continue;
      if (sys::Fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) Adopt(fd);
    }
  }
}

void Engine::ListInherited() {
  const long directory =
      sys::Openat(AT_FDCWD, NVCACHE_DESCRIPTORS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  sys::Scratch<char[sys::kScratchSize]> scratch;
  const char* buffer = scratch.get();
  for (;;) {
    const long n =
        sys::Call(SYS_getdents64, directory, sys::Address(buffer), long{sys::kScratchSize});
    if (n <= 0) break;
    for (long at = 0; at < n;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      at += entry->d_reclen;
      int fd = 0;
      for (const char* p = entry->d_name; *p != '\0'; ++p) {
        fd = *p >= '0' && *p <= '9' ? fd * 10 + (*p - '0') : INT32_MIN;
        if (fd < 0) break;
      }
      if (fd >= 0 && fd != directory && SlotOf(fd) != Internal()) Adopt(fd);
    }
  }
  sys::Close(static_cast<int>(directory));
}

bool Engine::Attach() {
  NVCACHE_CHECK(table_lock.IsLocked());
  if (!attached() && MayAttach()) attached_.store(AttachPool());
  return attached();
}

// A process that has given up rights must not have a pool that is recovered with them. And one that
// shares our memory and descriptors as a thread does must start no threads, which would be its own.
bool Engine::MayAttach() {
  return !hopeless_ && sys::Getpid() == pid_ && sys::Now(CLOCK_MONOTONIC) >= attach_after_ &&
         freezes_ == 0 && rights_changing_.load() == 0 && rights_.AreCurrent();
}

bool Engine::AttachPool() {
  sys::Scratch<pool::Problem> scratch;
  pool::Problem* problem = scratch.get();
  sys::InitializeUserCopy();
  sys::ExamineRoot();
  bool open = OnScratchStack([=, this] { return OpenPool(problem); });
  if (!open && problem->error == ENOENT && settings.size > 0) {
    open = OnOwnStack([=, this] { return CreatePool(problem); });
  }
  if (open && MustRecover()) open = OnOwnStack([=, this] { return RecoverAttached(problem); });
  if (open) open = OnScratchStack([=, this] { return TakeSeat(problem); });
  if (!open) return RefuseAttach(*problem);
  pool_.seats().NoteLease(pool_.seat(), leases.life());
  pool_.seats().NoteRule(pool_.seat(), RuleOf(settings.write_back));
  kept.Open();
  attached_at_ = sys::Now(CLOCK_MONOTONIC);
  cannot_be_busy_.store(false);
  if (!OpenRest() || !OpenLog() || (settings.required && !Employ())) {
    pool_.Leave();
    CloseParts();
    hopeless_ = true;
    RefuseCache("not enough memory or threads for the cache");
    return false;
  }
  SetSlot(pool_.fd(), Internal());
  pool_id_ = pool_.id();
  pinnable_.store(true);
  SayEmulated();
  return true;
}

bool Engine::OpenPool(pool::Problem* problem) {
  return pool_.Open(settings.pool.c_str(), pool::Access::kShared, settings.emulate, nullptr,
                    problem);
}

bool Engine::CreatePool(pool::Problem* problem) {
  const pool::CreateOptions options = {settings.size, settings.emulate};
  // Somebody else may just have made it.
  return (pool::Pool::Create(settings.pool.c_str(), options, nullptr, problem) ||
          problem->error == EEXIST) &&
         OpenPool(problem);
}

// A dead process has left something, or another one brings it to the files just now.
bool Engine::MustRecover() const {
  if (pool_.alone()) return pool_.dirty();
  const pool::Seats& seats = pool_.seats();
  return seats.HasOrphans(pool::kNoSeat) || seats.IsReplaying(pool::kNoSeat) || SomebodyDies(seats);
}

bool Engine::RecoverAttached(pool::Problem* problem) {
  const bool resolved =
      pool_.alone() ? recovery::Replay(pool_, {}, {}, &recovered_) : ReplayOrphans();
  if (resolved) return true;
  problem->error = EUCLEAN;
  problem->text.Append(settings.pool.c_str());
  problem->text.Append(": unresolved records were found; run 'nvcache recover' on it");
  return false;
}

bool Engine::TakeSeat(pool::Problem* problem) {
  return (!settings.frames_in_pool ||
          nvlog::HasRoomForFrames(pool_, settings.frame_bytes(), problem)) &&
         pool_.Join(problem);
}

bool Engine::RefuseAttach(const pool::Problem& problem) {
  if (pool_.is_open()) pool_.Close();
  const bool full = problem.error == EMFILE;
  hopeless_ = problem.error != EBUSY && problem.error != EUSERS && !full;
  // Somebody may be stopped who has the gate. Or it is the program that needs the descriptors.
  if (problem.error == EBUSY || full) attach_after_ = sys::Now(CLOCK_MONOTONIC) + kAttachAgainNs;
  if (!full || pool_id_ == 0) RefusePool(problem);
  return false;
}

void Engine::SayEmulated() {
  const bool lasts = pool_.durability() != pmem::Durability::kProcess;
  if (lasts || !settings.notice || said_) return;
  sys::Text<512> text;
  text.Append(pool_.path());
  text.Append(" is emulated: writes survive the death of the process, not a power failure");
  sys::Report(text.c_str());
  said_ = true;
}

// Where another process has some of the pool's last segments, frames lie in DRAM.
bool Engine::OpenLog() {
  frame_segments_ = 0;
  if (settings.frames_in_pool) {
    frame_segments_ =
        static_cast<uint32_t>(nvlog::FrameSegments(pool_.view(), settings.frame_bytes()));
  }
  bool open = log.Open(&pool_, frame_segments_);
  if (!open && frame_segments_ > 0) open = log.Open(&pool_, frame_segments_ = 0);
  if (open) through.Open(&log);
  return open;
}

bool Engine::OpenFrames() {
  const uint64_t log_pages = pool_.view().superblock->pool_size / pool::kPageSize;
  const uint64_t frame_pages = settings.frame_bytes() / pool::kPageSize;
  const uint64_t pages = frame_pages + log_pages * kDescriptorsPerLogPage + kSpareDescriptors;
  if (pages >= radix::kMaxPages || !supply.Open(static_cast<uint32_t>(pages))) return false;
  frames.SetDelay(settings.frame_delay_ns);
  return frame_segments_ > 0
             ? frames.OpenInPool(pool_.view(), frame_segments_, &supply.pages)
             : frames.Open(static_cast<uint32_t>(frame_pages), &supply.pages, statistics());
}

bool Engine::IsToBeBusy() const {
  return !busy() && !cannot_be_busy_.load() &&
         sys::Now(CLOCK_MONOTONIC) - attached_at_ >= kBusyAfterNs;
}

bool Engine::Employ() {
  NVCACHE_CHECK(table_lock.IsLocked() && pool_.is_open());
  if (busy() || cannot_be_busy_.load()) return busy();
  const cleanup::Limits limits = {settings.batch_min, settings.batch_max,
                                  settings.batch_delay_ms * 1000000};
  const cleanup::Calls calls = {
      .check =
          [](dramcache::CachedFile& file) { return engine.CheckBacking(static_cast<File&>(file)); },
      .drained =
          [] {
            if (engine.lingering_.load()) engine.leases.Nudge();
          },
      .starved =
          [] {
            engine.starving_.store(true);
            engine.leases.Nudge();
          },
      .besides = [](bool hurried) { return engine.CareForThrough(hurried); },
      .cover = [] { return engine.SyncThrough(); },
  };
  busy_.store(OpenFrames() && cleaner.Start(*host_, limits, kMaxFiles, calls) && StartKeeper());
  if (busy()) return true;
  Dismiss();
  cannot_be_busy_.store(true);
  if (attached()) RefuseCache("not enough memory or threads for the cache");
  return false;
}

void Engine::Dismiss() {
  StopKeeper();
  cleaner.Stop();
  frames.Close();
  supply.Close();
  busy_.store(false);
}

void Engine::CloseParts() {
  Dismiss();
  log.Close();
  pool_.Close();
}

// What is in the log by now was published, if it is not on the disk.
void Engine::Detach() {
  if (!attached()) return;
  AwaitPins();
  if (busy() && !LeavesToOthers()) cleaner.DrainAll();
  cleaner.Stop();
  const bool left = SharesDevices() && !EndThrough();
  NVCACHE_CHECK(left || kept.units() == 0);
  if (!left || published() == 0) pool_.StoreSeatCheckpoint(log.newest() + 1);
  if (pool_.seats().HasOrphans(pool_.seat())) {
    OnOwnStack([this] { return recovery::ReplayOrphans(pool_, &recovered_); });
  }
  pool_.Leave(left);
  if (SlotOf(pool_.fd()) == Internal()) SetSlot(pool_.fd(), kUntracked);
  CloseParts();
  attached_.store(false);
  log.AnnounceRoom();  // to a writer that waits for a page
}

// The process ends, and another one has had the file system open for longer: that one brings to the
// disk what the kernel has.
bool Engine::LeavesToOthers() const {
  const bool ends = hopeless_ || replacing_ > 0;
  return ends && attached() && SharesDevices() && !pool_.seats().IsFirstThrough(pool_.seat());
}

long Engine::ReleaseAll(bool for_good) {
  NVCACHE_CHECK(table_lock.IsLocked());
  const bool leaves = !for_good && LeavesToOthers();
  long error = 0;
  ForEachFile([&](File& file) {
    const State state = file.state.load();
    if (state == State::kForeign || (state == State::kKernel && !for_good)) return;
    // Once is enough: the first to be refused has had all that fail tried again.
    if (error < 0 && file.failing.load() != 0) return;
    if (long e = for_good ? PassThrough(file) : GiveBack(file, leaves); e < 0) error = e;
  });
  Reap();
  if (error == 0) Detach();
  return error;
}

// The pool is given back as well: it may lie on that file system.
long Engine::BeginFreeze() {
  const long error = ReleaseAll();
  if (error == 0) ++freezes_;
  return error;
}

void Engine::PrepareRights() {
  NVCACHE_CHECK(table_lock.IsLocked());
  rights_.Take();
  rights_changing_.fetch_add(1);
  if (!attached()) return;
  ReleaseAll();
  if (attached()) Abandon();
}

// What the disk refuses stays in the pool, for recovery. Who uses such a file afterwards hears of
// an error: what the kernel has of it is old. Nothing attaches again: there would be such records
// to recover, and threads may still be on their way out of the log and the cleaner.
void Engine::Abandon() {
  sys::Text<512> text;
  text.Append(pool_.path());
  text.Append(
      ": the file system refuses some bytes, and the process gives up rights; they stay in the "
      "pool "
      "for 'nvcache recover'");
  sys::Report(text.c_str());
  hopeless_ = true;
  StopKeeper();
  AwaitPins();
  if (SharesDevices()) EndThrough();
  ForEachFile([](File& file) {
    if (file.state.load() == State::kCached) file.lock.Lock();
  });
  cleaner.Abandon();
  ForEachFile([&](File& file) {
    if (file.state.load() != State::kCached) return;
    ForgetCache(file);  // it is failing still, for those who wait for it
    file.lost.store(true);
    MakeLasting(file);
    SetState(file, State::kPassThrough);
    if (file.exclusive) leases.Downgrade(file.device, file.inode);
    file.exclusive = false;
    file.lock.Unlock();
  });
  if (SlotOf(pool_.fd()) == Internal()) SetSlot(pool_.fd(), kUntracked);
  CloseParts();
  attached_.store(false);
}

// A child that shares our memory ends without us, and so does one that was forked where we could
// not see, which has none of our threads.
[[gnu::hot]] void Engine::Stop() {
  if (active() && !asleep() && sys::Getpid() == pid_) StopOwn();
}

void Engine::StopOwn() {
  TableLock lock;
  hopeless_ = true;  // nothing attaches again
  if (settings.drain_at_exit) ReleaseAll();
  if (attached() && settings.drain_at_exit) {
    sys::Text<512> text;
    text.Append(pool_.path());
    text.Append(
        ": the file system refuses some bytes; they stay in the pool for 'nvcache recover'");
    sys::Report(text.c_str());
  }
  // What is left (a setting asked for it, or the disk refuses) stays in the log, and stays cached:
  // the next user of the pool recovers it.
}

void Engine::Retire() {
  if (!active()) return;
  TableLock lock;
  hopeless_ = true;
  ReleaseAll(true);
}

// The files keep their leases, for the program may go on writing to them.
void Engine::Leave() {
  TableLock lock;
  hopeless_ = true;
  ReleaseAll(true);
  if (attached()) return;
  ForEachFile([&](File& file) {
    if (!file.locked.load()) CloseBacking(file);
  });
  for (uint32_t fd = 0; fd < descriptor_end(); ++fd) Store(static_cast<int>(fd), kUntracked);
  active_.store(false);
}

// Descriptors that it would close are its parent's, and so are its record locks: it can have no
// slot among the leases.
void Engine::LeaveInChild() {
  active_.store(false);
  attached_.store(false);
  slot_count_.store(0);
}

void Engine::BeginReplacing() {
  NVCACHE_CHECK(table_lock.IsLocked());
  if (sys::Getpid() == pid_) ++replacing_;
}

void Engine::EndReplacing() {
  NVCACHE_CHECK(table_lock.IsLocked());
  if (sys::Getpid() == pid_) --replacing_;
}

void Engine::PrepareFork() {
  NVCACHE_CHECK(table_lock.IsLocked());
  if (HasFilesInCaches()) {
    ForEachFile([&](File& file) {
      if (file.descriptions == nullptr || file.state.load() != State::kCached) return;
      file.lock.Lock();
      PublishOffsets(file, true);
      Publish(file);  // for what the child may start that does not know of us
      file.lock.Unlock();
    });
  }
  NoteFork();
  NoteHandOns();
}

// For the child. If files are foreign here, the number from when they became so is for them, too.
void Engine::NoteHandOns() {
  if (asleep() || !leases.is_open()) return;
  const uint32_t hand_ons = leases.hand_ons();
  // What is written after a fork costs a fault.
  if (!any_foreign_ && hand_ons_ != hand_ons) hand_ons_ = hand_ons;
  if (!leases.RemembersHandOns()) return;
  ForEachFile(
      [&](File& file) { file.handed_on |= leases.RemembersHandOn(file.device, file.inode); });
}

// Each page that a child touches, of code as well, costs it a fault: so what nearly every child
// runs is `hot`, and the linker puts it together.
//
// What files there are is the parent's affair until this process uses one: by then it may be a
// program that knows nothing of them. But with the pool, it would hold its parent's life byte; and
// what is mapped is used without a call.
[[gnu::hot]] void Engine::BecomeChild() {
  NVCACHE_CHECK(table_lock.IsLocked());
  pid_ = sys::Getpid();
  rights_changing_.store(0);  // the calls of other threads
  replacing_ = 0;             // threads of the parent
  children_.store(0);
  leases.LeaveSlotToParent();
  if (attached()) {
    SetSlot(pool_.fd(), kUntracked);
    pool_.Close();
  }
  asleep_.store(true);
  if (any_lasting_) Wake();
}

void Engine::Wake() {
  NVCACHE_CHECK(table_lock.IsLocked() && asleep());
  asleep_.store(false);
  // Other threads of the parent may have looked at a file at the moment of the fork. They are not
  // here.
  ForEachFile([&](File& file) {
    file.lock.Reset();
    file.in_kernel.store(0);
    file.grow_lock.Reset();
    file.publish_lock.Reset();
    file.sync_lock.Reset();
    file.erase_lock.Reset();
    for (Description* d = file.descriptions; d != nullptr; d = d->next) {
      d->offset_lock.Reset();
    }
    // We have no fcntl locks yet that this could end, and nobody shall wait for us.
    CloseBacking(file);
  });
  backing_lock_.Reset();
  through_lock_.Reset();
  pins_.store(0);
  ResetSpaceLocks();
  sys::ForgetScratch();
  if (attached()) LeaveToParent();
  ShareAgain();
  // Somebody may have had a file in his cache while this process slept, and have died.
  if (leases.is_open() && KnowsOfDeaths()) LookAfterDeaths();
}

bool Engine::BeginSharing() {
  NVCACHE_CHECK(table_lock.IsLocked());
  if (HasFilesInCaches()) return false;
  children_.fetch_add(1);
  return true;
}

// Pool, log, frames and the two threads are the parent's, and so are the files in its cache: it may
// have written more by the time that we come to look at them.
void Engine::LeaveToParent() {
  ForEachFile([&](File& file) {
    if (file.state.load() != State::kCached) return;
    ForgetCache(file);
    file.pending.store(0);
    file.failing.store(0);
    file.errors.Clear();
    file.exclusive = file.leased = false;
    any_foreign_ = true;
    SetState(file, State::kForeign);
  });
  keeper_ = nullptr;
  pinnable_.store(false);
  CloseThrough();
  cleaner.LeaveToParent();
  busy_.store(false);
  log.Close();
  frames.Close();
  supply.Close();
  // Some of their locks may be held, by threads that are not here.
  new (&log) nvlog::Log;
  new (&through) nvlog::ThroughLog;
  new (&supply) radix::Supply;
  new (&frames) dramcache::Frames;
  new (&kept) nvlog::Kept(log);
  new (&cleaner) cleanup::Cleaner(log, cache);
  attached_.store(false);
}

// What was handed on before, this process did not see (Leases::HandOn).
void Engine::ShareInherited(File& file) {
  leases.Share(file.device, file.inode);
  file.leased = true;
  if (leases.HandedOnSince(hand_ons_)) {
    for (const Description* d = file.descriptions; d != nullptr; d = d->next) {
      file.handed_on |= d->writes();
    }
  }
  if (file.handed_on) LeaveLog(file);
}

// The parent's leases are not the child's. Nobody has a file in its cache when this returns, but
// for the foreign ones; and none of these has been used by us.
void Engine::ShareAgain() {
  if (!leases.is_open()) return;
  SetSlot(leases.fd(), kUntracked);
  const char* why = "";
  if (!leases.AfterForkInChild(&why)) {
    hopeless_ = true;
    return;
  }
  SetSlot(leases.fd(), Internal());
  ForEachFile([&](File& file) {
    if (file.state.load() == State::kForeign) return;
    ShareInherited(file);
    // The parent used it when we began, but may be gone.
    if (leases.HeldElsewhere(file.device, file.inode)) {
      leases.AwaitRelease(file.device, file.inode, kRecoveryPatienceNs);
    }
  });
}

}  // namespace nvcache::vfs
