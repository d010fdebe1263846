// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/attachment.h"

#include <errno.h>

#include <algorithm>
#include <new>

#include "src/sys/check.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/memory_group.h"
#include "src/sys/root.h"
#include "src/sys/scratch.h"
#include "src/sys/user_copy.h"
#include "src/vfs/engine/outside.h"
#include "src/vfs/engine/stack.h"
#include "src/vfs/engine/states.h"

namespace nvcache::vfs {

namespace {

constexpr char kNoMeans[] = "not enough memory or threads for the cache";

// Descriptors of pages beyond those with a frame, per page of log: the log holds more records than
// pages when they are small. A thread that needs more waits for the cleanup thread, as with a full
// log.
constexpr uint64_t kDescriptorsPerLogPage = 4;
constexpr uint64_t kSpareDescriptors = 1u << 16;

constexpr uint64_t kUnreadable = 2u << 20;  // the kernel takes in as much at a time

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

bool Attachment::Attach() {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  if (engine.files.full() || engine.standing.replacing()) return false;
  if (engine.attached()) return true;
  if (!engine.callers.are_known()) return false;
  if (MayAttach()) {
    AttachPool();
  } else {
    SayWhatHinders();
  }
  return engine.attached();
}

void Attachment::SayWhatHinders() {
  if (engine.stage() == Stage::kDetached && !engine.leases.HasSaid(lease::Hindrance::kRights) &&
      engine.standing.IsOurs() && !engine.standing.HasItsRights()) {
    engine.notice.Hinder(lease::Hindrance::kRights);
  }
}

bool Attachment::MayAttach() const {
  return engine.stage() == Stage::kDetached && sys::Now(CLOCK_MONOTONIC) >= attach_after_ &&
         engine.standing.MayMapPool();
}

void Attachment::AttachLater() { attach_after_ = sys::Now(CLOCK_MONOTONIC) + kAttachAgainNs; }

void Attachment::AttachPool() {
  sys::Scratch<pool::Problem> problem;
  sys::InitializeUserCopy();
  sys::ExamineRoot();
  if (!TakePool(problem.get())) return RefuseAttach(*problem);
  pool_.seats().NoteLease(pool_.seat(), engine.leases.life());
  pool_.seats().NoteRule(pool_.seat(), RuleOf(engine.settings.write_back));
  engine.kept.Open();
  attached_at_ = sys::Now(CLOCK_MONOTONIC);
  if (!OpenRest() || !OpenLog()) {
    engine.notice.RefuseCache(kNoMeans);
    return CloseUnused();
  }
  engine.SetStage(Stage::kIdle);
  if (engine.settings.required && !StartThreads()) return CloseUnused();
  engine.descriptors.Set(pool_.fd(), Internal());
  if (pool_.own_journal().is_open()) OwnDescriptors::Track(pool_.own_journal().fd(), true);
  pool_id_ = pool_.id();
  pinnable_.store(true);
  engine.notice.SayLevel();
}

void Attachment::CloseUnused() {
  pool_.Leave();
  CloseParts();
  engine.BecomeFinal();
  if (engine.attached()) BecomeDetached();
}

// With what dead processes have left brought to the files, and a seat.
bool Attachment::TakePool(pool::Problem* problem) {
  bool open = OnScratchStack([=, this] { return OpenPool(problem); });
  if (!open && problem->error == ENOENT && engine.settings.size > 0) {
    open = OnOwnStack([=, this] { return CreatePool(problem); });
  }
  if (open && !engine.recovery.AdoptDead()) {
    open = false;
    problem->error = EUCLEAN;
    problem->text.Append(engine.settings.pool.c_str());
    problem->text.Append(engine.recovery.WhyLeft()).Append("; run 'nvcache recover' on it");
  }
  return open && OnScratchStack([=, this] { return TakeSeat(problem); });
}

bool Attachment::OpenPool(pool::Problem* problem) {
  if (!pool_.Open(engine.settings.pool.c_str(), pool::Mode::kShared, engine.settings.emulate,
                  nullptr, problem)) {
    return false;
  }
  return engine.mirror.Follow(pool_.path(), pool_.id(), pool_.view().superblock->commit) ||
         pool::Fail(problem, pool_.path(), EIO, "is mirrored, and cannot be mapped once more",
                    "check whether another pool has replaced it");
}

bool Attachment::CreatePool(pool::Problem* problem) {
  const uint64_t wanted = engine.settings.size;
  const char* const path = engine.settings.pool.c_str();
  const bool emulate = engine.settings.emulate;
  const pool::CreateOptions options = {pool::Pool::SizeWithin(path, wanted, emulate), emulate};
  const bool is_made = pool::Pool::Create(path, options, nullptr, problem);
  if (is_made && options.size < wanted) engine.notice.SaySize(options.size);
  // Somebody else may just have made it.
  return (is_made || problem->error == EEXIST) && OpenPool(problem);
}

bool Attachment::TakeSeat(pool::Problem* problem) {
  return (!engine.settings.frames_in_pool ||
          nvlog::HasRoomForFrames(pool_, engine.settings.frame_bytes(), problem)) &&
         pool_.Join(problem);
}

void Attachment::RefuseAttach(const pool::Problem& problem) {
  if (pool_.is_open()) pool_.Close();
  const bool full = problem.error == EMFILE;
  if (problem.error != EBUSY && problem.error != EUSERS && !full) engine.BecomeFinal();
  // Somebody may be stopped who has the gate. Or it is the program that needs the descriptors.
  if (problem.error == EBUSY || full) AttachLater();
  if (!full || pool_id_ == 0) engine.notice.RefusePool(problem);
}

// Where another process has some of the pool's last segments, frames lie in DRAM.
bool Attachment::OpenLog() {
  frame_segments_ = 0;
  if (engine.settings.frames_in_pool) {
    frame_segments_ =
        static_cast<uint32_t>(nvlog::FrameSegments(pool_.view(), engine.settings.frame_bytes()));
  }
  bool open = engine.log.Open(&pool_, frame_segments_);
  if (!open && frame_segments_ > 0) open = engine.log.Open(&pool_, frame_segments_ = 0);
  return open;
}

// Page frames in DRAM are memory of the process's control groups, which end it for too much. Other
// processes there have frames as well, and the program needs memory of its own.
uint64_t Attachment::FramePages() const {
  constexpr uint64_t kShare = 4, kLeast = 16;
  const uint64_t wanted = engine.settings.frame_bytes() / pool::kPageSize;
  const uint64_t free = OnScratchStack([] { return sys::FreeInGroups(); });
  const uint64_t share = free / kShare / pool::kPageSize;
  if (frame_segments_ > 0 || wanted <= share) return wanted;
  const uint64_t taken = std::min(wanted, std::max(share, kLeast));
  constexpr uint64_t kKib = 1024;
  sys::Text<40> frames;
  frames.AppendNumber(taken * pool::kPageSize / kKib).Append(" of ");
  frames.AppendNumber(wanted * pool::kPageSize / kKib).Append(" KiB of frames");
  engine.notice.Hinder(lease::Hindrance::kMemory, frames.c_str());
  return taken;
}

bool Attachment::OpenFrames() {
  const uint64_t log_pages = pool_.view().superblock->pool_size / pool::kPageSize;
  const uint64_t frame_pages = FramePages();
  const uint64_t pages = frame_pages + log_pages * kDescriptorsPerLogPage + kSpareDescriptors;
  if (pages >= radix::kMaxPages || !engine.supply.Open(static_cast<uint32_t>(pages))) return false;
  engine.frames.SetDelay(engine.settings.frame_delay_ns);
  return frame_segments_ > 0
             ? engine.frames.OpenInPool(pool_.view(), frame_segments_, &engine.supply.pages)
             : engine.frames.Open(static_cast<uint32_t>(frame_pages), &engine.supply.pages,
                                  engine.statistics());
}

void Attachment::WakeThread() { engine.log.Ring(); }

bool Attachment::NeedsThreads() const {
  return IsIdle(engine.stage()) && !threadless_.load() &&
         sys::Now(CLOCK_MONOTONIC) - attached_at_ >= kBusyAfterNs;
}

bool Attachment::StartThreads() {
  NVCACHE_CHECK(engine.table_lock.IsLocked() && pool_.is_open());
  if (engine.busy() || threadless_.load()) return engine.busy();
  const settings::Settings& settings = engine.settings;
  const cleanup::Limits limits = {settings.batch_min, settings.batch_max,
                                  settings.batch_delay_ms * 1000000};
  const cleanup::Calls calls = {
      .file_of = [](uint32_t number) -> dramcache::CachedFile& { return engine.files.At(number); },
      .check =
          [](dramcache::CachedFile& cached) {
            auto& file = static_cast<File&>(cached);
            const long error = engine.own.Check(file);
            if (error == 0) LookForOutsiders(file);
            return error;
          },
      .hold = [] { engine.mirror.AwaitTold(); },
      .written = [](dramcache::CachedFile& file) { NoteWritten(static_cast<File&>(file)); },
      .drained =
          [] {
            if (engine.files.HasLingering()) engine.leases.Nudge();
          },
      .starved = [] { engine.responder.LookForRoomSoon(); },
      .besides =
          [](bool hurried) {
            const uint64_t ahead = engine.mirror.KeepAhead(false);
            return std::min({engine.responder.WatchName(), engine.checkpoint.Tick(hurried), ahead});
          },
      .cover = [] { return engine.checkpoint.Sync(); },
  };
  if (OpenFrames() && engine.cleaner.Start(*engine.host, limits, calls) &&
      engine.responder.Start()) {
    engine.SetStage(Employed(engine.stage()));
    engine.checkpoint.Stay();
    return true;
  }
  StopThreads();
  threadless_.store(true);
  engine.notice.Hinder(lease::Hindrance::kThreads);
  engine.notice.RefuseFrames(kNoMeans);
  return false;
}

void Attachment::StopThreads() {
  engine.responder.Stop();
  engine.cleaner.Stop();
  engine.frames.Close();
  engine.supply.Close();
}

void Attachment::CloseParts() {
  StopThreads();
  engine.log.Close();
  pool_.Close();
}

void Attachment::ForgetNumber() {
  if (engine.descriptors.Of(pool_.fd()) == Internal()) {
    engine.descriptors.Set(pool_.fd(), kUntracked);
  }
  if (pool_.own_journal().is_open()) OwnDescriptors::Track(pool_.own_journal().fd(), false);
}

void Attachment::BecomeDetached() {
  threadless_.store(false);
  engine.SetStage(Detached(engine.stage()));
}

// Groups in the log by now were handed over, if they are not on the disk.
void Attachment::Detach() {
  if (!engine.attached()) return;
  AwaitPins();
  if (engine.busy() && !LeavesToOthers()) engine.cleaner.DrainAll();
  engine.cleaner.Stop();
  const bool left = engine.checkpoint.is_open() && !engine.checkpoint.End();
  NVCACHE_CHECK(left || engine.kept.units() == 0);
  if (!left || engine.checkpoint.handed_over() == 0) {
    pool_.StoreSeatCheckpoint(engine.log.newest() + 1);
  }
  engine.recovery.AdoptDead(0);
  pool_.Leave(left);
  ForgetNumber();
  CloseParts();
  BecomeDetached();
  engine.log.AnnounceRoom();  // to a writer that waits for a page
}

// The process ends, and another one brings to the disk what the kernel has.
bool Attachment::LeavesToOthers() const {
  const bool ends = IsFinal(engine.stage()) || engine.standing.IsReplaced();
  return ends && engine.attached() && engine.checkpoint.is_open() &&
         engine.checkpoint.SomebodyStays();
}

long Attachment::ReleaseAll(bool for_good) {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  const bool leaves = !for_good && LeavesToOthers();
  long error = 0;
  engine.files.ForEach([&](File& file) {
    const State state = file.state.load();
    if (state == State::kForeign || (IsKernels(state) && !for_good)) return;
    // Once is enough: the first to be refused has had all that fail tried again.
    if (error < 0 && file.failing.load() != 0) return;
    if (long e = for_good ? PassThrough(file) : GiveBack(file, leaves); e < 0) error = e;
  });
  engine.files.Reap();
  if (error == 0) Detach();
  return error;
}

// Bytes that the disk refuses stay in the pool, for recovery. A process that uses such a file
// afterwards hears of an error: the kernel's bytes of it are old. Nothing attaches again: there
// would be such records to recover, and threads may still be on their way out of the log and the
// cleaner.
void Attachment::Abandon() {
  sys::Text<512> text;
  text.Append(pool_.path());
  text.Append(": the file system refuses some bytes, and the process gives up rights; ");
  text.Append("they stay in the pool for 'nvcache recover'");
  sys::Report(text.c_str());
  engine.BecomeFinal();
  engine.responder.Stop();
  AwaitPins();
  if (engine.checkpoint.is_open()) engine.checkpoint.End();
  const auto for_each_cached = [](auto function) {
    engine.files.ForEach([&](File& file) {
      if (file.state.load() == State::kCached) function(file);
    });
  };
  for_each_cached([](File& file) { file.lock.Lock(); });
  engine.cleaner.Abandon();
  for_each_cached([](File& file) {
    Lose(file);
    file.lock.Unlock();
  });
  ForgetNumber();
  CloseParts();
  BecomeDetached();
}

// Some of their locks may be held, by threads that are not here.
void Attachment::LeaveToParent() {
  engine.responder.LeaveToParent();
  pinnable_.store(false);
  engine.checkpoint.Close();
  engine.cleaner.LeaveToParent();
  engine.log.Close();
  engine.frames.Close();
  engine.supply.Close();
  new (&engine.log) nvlog::Log;
  new (&engine.supply) radix::Supply;
  new (&engine.frames) dramcache::Frames;
  new (&engine.kept) nvlog::Kept(engine.log);
  new (&engine.cleaner) cleanup::Cleaner(engine.log, engine.cache);
  BecomeDetached();
}

// From then on a descriptor of ours can be stored without the table lock.
bool Attachment::OpenRest() {
  if (!engine.descriptors.MakeRoomFor(kMaxDescriptors - 1) || !sys::OpenScratch()) return false;
  if (unreadable_ != nullptr) return true;
  constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;
  const long page = sys::MapUnlocked(kUnreadable, PROT_NONE, kAnonymous, -1);
  if (sys::IsError(page)) return false;
  unreadable_ = reinterpret_cast<void*>(page);
  return true;
}

void Attachment::WriteUnreadable(int fd, uint64_t at, uint64_t length) const {
  sys::Pwrite(fd, unreadable_, std::min(length, kUnreadable), at);
}

bool Attachment::Pin() {
  pins_.fetch_add(1);
  if (pinnable_.load()) return true;
  pins_.fetch_sub(1);
  return false;
}

// Nobody has a pin from here on. A thread that has one waits for no lock of ours that is held here.
void Attachment::AwaitPins() {
  pinnable_.store(false);
  while (pins_.load() != 0) sys::Pause(kPollNs);
}

}  // namespace nvcache::vfs
