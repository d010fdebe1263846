// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/states.h"

#include <errno.h>

#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/vfs/engine/engine.h"
#include "src/vfs/engine/space.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/engine/through_file.h"

namespace nvcache::vfs {

namespace {

// For the calls that the kernel is at work on. One may wait for more than the disk: for the end of
// a freeze, which may need a lock that is held here. False: not in this time.
bool AwaitKernel(const File& file) {
  constexpr uint64_t kInUseNs = 100 * 1000 * 1000, kPauseNs = 100 * 1000;
  for (uint64_t waited = 0; file.in_kernel.load() != 0; waited += kPauseNs) {
    if (waited >= kInUseNs) return false;
    sys::Pause(kPauseNs);
  }
  return true;
}

// The one place where a state changes, but for that of a new file (File::Begin).
void SetState(File& file, State state) {
  const State before = file.state.load();
  NVCACHE_CHECK(engine.table_lock.IsLocked() && file.lock.IsLockedExclusive());
  NVCACHE_CHECK(MayBecome(before, state));
  NVCACHE_CHECK(state != State::kCached || file.backing_fd >= 0);
  if (before == State::kCached) file.EndCaching();
  engine.files.CountInCaches(IsInCache(before), IsInCache(state));
  file.state.store(state);
  CheckFields(file);
}

// The kernel gets what it lacks, without a sync, and the log says so. All that might still happen
// to the file on its way to the disk must be told to us (`may_hand_over`), and recovery must find
// it: so it has a name that is on the disk.
bool TryHandOver(File& file) {
  if (!file.may_hand_over || file.removed.load() || file.failing.load() != 0 ||
      file.pending.load() == 0 || engine.pool().seats().ThroughFailed() != 0) {
    return false;
  }
  return Publish(file) >= 0 && HandOverFile(file);
}

long LeaveToKernel(File& file, State state, bool may_hand_over) {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  const State before = file.state.load();
  if (before == State::kLost) return -EIO;
  const bool stays = before == State::kLent && state == State::kKernel;
  if (before == State::kPassThrough || before == state || stays) return 0;
  if (before == State::kForeign && engine.leases.is_open()) ShareInherited(file);
  file.lock.Lock();
  if (before == State::kCached) {
    const bool handed_over = may_hand_over && TryHandOver(file);
    if (long error = handed_over ? 0 : DrainExclusively(file); error < 0) {
      file.lock.Unlock();
      return error;
    }
    PublishOffsets(file);
    Resync(file);
    file.pages.Trim(engine.supply);
    engine.cleaner.Remove(file);
    // Not those that only go their way: closed, or open at the program's end.
    if (file.descriptions != nullptr && !IsFinal(engine.stage())) {
      pool::Count(engine.statistics()->pass_through_files);
    }
  }
  SetState(file, state);
  // While ours is open, the file cannot be executed, its file system not be unmounted. A thread may
  // be about to lock it if one ever has.
  const bool closed = file.descriptions == nullptr;
  if (file.backing_fd >= 0 && (closed || (!file.locked.load() && !IsLocked(file.backing_fd)))) {
    engine.own.Close(file);
  }
  file.lock.Unlock();
  // A thread that waits for the file reads it now.
  if (before == State::kCached) engine.leases.Downgrade(file.device, file.inode);
  return 0;
}

}  // namespace

// This process did not see files being handed on before (Leases::HandOn).
void ShareInherited(File& file) {
  engine.leases.AddUser(file.device, file.inode);
  if (engine.leases.HandedOnSince(engine.standing.hand_ons())) {
    for (const Description* d = file.descriptions; d != nullptr; d = d->next) {
      file.handed_on |= d->writes();
    }
  }
  if (file.handed_on) ForgetEntry(file);
}

void CheckFields(const File& file) {
  const State state = file.state.load();
  if (state == State::kCached) {
    NVCACHE_CHECK(!file.forever);
    return;
  }
  NVCACHE_CHECK(file.pages.empty() && file.erasures.empty());
  NVCACHE_CHECK(!file.removed.load() && !file.may_hand_over && file.close_stamp == 0);
  NVCACHE_CHECK(file.written_stamp == 0 && !file.written_outside.load());
  if (state == State::kLost) {
    NVCACHE_CHECK(file.forever);
    return;
  }
  NVCACHE_CHECK(file.pending.load() == 0 && file.failing.load() == 0);
  NVCACHE_CHECK(state != State::kForeign || file.backing_fd < 0);
}

bool BeginCaching(File& file, int fd) {
  NVCACHE_CHECK(engine.table_lock.IsLocked() && file.state.load() == State::kKernel);
  if (!engine.leases.is_open() || engine.callers.in_unseen() ||
      engine.file_systems.HasQuota(fd, file.device) || !engine.attachment.StartThreads() ||
      !engine.leases.TryExclusive(file.device, file.inode)) {
    return false;
  }
  const long backing = engine.own.ToBegin(file, fd);
  // From here on no call goes to the kernel before it is known whose the file is.
  file.lock.Lock();
  struct stat st;
  const bool has_another = file.backing_fd >= 0 && file.backing_fd != backing;
  if (backing < 0 || has_another || !AwaitKernel(file) || !EndThrough(file) ||
      sys::Fstat(static_cast<int>(backing), &st) < 0 ||
      !WithinSizeLimit(static_cast<uint64_t>(st.st_size))) {
    file.lock.Unlock();
    if (backing >= 0 && backing != file.backing_fd) engine.own.Return(static_cast<int>(backing));
    engine.leases.Downgrade(file.device, file.inode);
    return false;
  }
  engine.descriptors.Set(static_cast<int>(backing), Internal());
  file.backing_fd = static_cast<int>(backing);
  file.sync_device = FileSystems::Ask(fd, st.st_dev).syncs_whole ? file.device : 0;
  // Before the first record: all that happens to the disk from then on is told to us.
  file.may_hand_over = engine.checkpoint.UseFileSystem(fd, st);
  TakeSize(file, st);
  file.changes.fetch_add(1);
  // The kernel may show changes, of any process, that are not on the disk: fewer bytes than there
  // were, or more, another name, or the file at all. So the first record waits for a sync.
  file.barriers.fetch_add(1);
  file.tag.Undeclare();
  for (Description* d = file.descriptions; d != nullptr; d = d->next) {
    const long offset = sys::Lseek(engine.descriptors.NumberOf(*d), 0, SEEK_CUR);
    d->offset = offset < 0 ? 0 : static_cast<uint64_t>(offset);
  }
  file.BeginToWatch(st);
  engine.cleaner.Add(file);
  SetState(file, State::kCached);
  file.lock.Unlock();
  return true;
}

void DescribeAnew() {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  engine.files.ForEach([](File& file) {
    if (!IsKernels(file.state.load())) return;
    file.lock.Lock();
    file.changes.fetch_add(1);
    file.tag.Undeclare();
    file.lock.Unlock();
  });
}

// A process that has waited for the file's pending groups (InFlight::Bypass) counts as in flight
// until it is marked.
void ForgetEntry(const File& file) {
  if (!engine.leases.is_open() || !engine.file_systems.MayBeShared(file.device)) return;
  engine.leases.MarkHandedOn(file.device, file.inode);
  lease::FileEntry* entry = engine.file_table.Find(TagOf(file));
  if (entry == nullptr) return;
  const uint64_t lock = engine.file_table.Lock(*entry);
  lease::FileTable::Forget(*entry);
  engine.file_table.Unlock(*entry, lock);
}

long PassThrough(File& file) {
  if (const long error = LeaveToKernel(file, State::kPassThrough, false); error < 0) return error;
  ForgetEntry(file);
  return 0;
}

// It may be hot for several processes now, or for this one again.
long GiveBack(File& file, bool may_hand_over) {
  return LeaveToKernel(file, State::kKernel, may_hand_over);
}

long Lend(File& file, bool forever) {
  const long error = LeaveToKernel(file, State::kLent, true);
  if (error == 0 && forever) engine.files.MakeLasting(file);
  return error;
}

// Its lease and its pages are the parent's.
void LeaveToParent(File& file) {
  file.lock.Lock();
  file.ForgetCache();
  file.pending.store(0);
  file.failing.store(0);
  file.errors.Clear();
  SetState(file, State::kForeign);
  file.lock.Unlock();
}

// It is failing still, for those who wait for it.
void Lose(File& file) {
  file.ForgetCache();
  engine.files.MakeLasting(file);
  SetState(file, State::kLost);
  engine.leases.Downgrade(file.device, file.inode);
}

// The program holds no descriptor of the inode now, so closing ours cannot drop its fcntl locks
// (I11).
void Close(File& file) {
  NVCACHE_CHECK(file.descriptions == nullptr && file.pending.load() == 0);
  const State before = file.state.load();
  if (before == State::kForeign) {
    file.lock.Lock();
    SetState(file, State::kPassThrough);
    file.lock.Unlock();
  } else {
    LeaveToKernel(file, State::kPassThrough, false);
  }
  engine.own.Close(file);
  if (before != State::kForeign && engine.leases.is_open()) {
    engine.leases.RemoveUser(file.device, file.inode, false);
  }
}

bool HandOn(const File& file) {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  if (!engine.leases.is_open() || !engine.file_systems.MayBeShared(file.device)) return false;
  engine.leases.HandOn(file.device, file.inode);
  return engine.file_table.Find(TagOf(file)) != nullptr;
}

long DrainExclusively(File& file) {
  NVCACHE_CHECK(file.lock.IsLockedExclusive());
  while (file.pending.load() > 0) {
    if (long error = engine.cleaner.Drain(file); error < 0) return error;
  }
  engine.files.ReapSoon();
  return 0;
}

void Resync(File& file) {
  NVCACHE_CHECK(file.lock.IsLockedExclusive() && file.pending.load() == 0);
  file.pages.ForEach(engine.supply, [&](uint64_t, radix::PageDescriptor& page) {
    sys::Lock lock(page.lock);
    if (page.has_frame()) engine.frames.Detach(page);
  });
  struct stat st;
  if (engine.own.Check(file) == 0 && sys::Fstat(file.backing_fd, &st) == 0) TakeSize(file, st);
}

void TakeSize(File& file, const struct stat& st) {
  constexpr int64_t kStatBlock = 512;
  file.size.store(static_cast<uint64_t>(st.st_size));
  file.sparse.store(st.st_blocks * kStatBlock < st.st_size);
}

long Publish(File& file) {
  if (file.pending.load() == 0) return 0;
  return engine.cleaner.WriteBack(file);
}

void PublishOffsets(File& file, bool news) {
  for (Description* d = file.descriptions; d != nullptr; d = d->next) {
    if (news && engine.standing.IsForked(*d)) continue;
    const int fd = engine.descriptors.NumberOf(*d);
    if (fd >= 0) sys::Lseek(fd, static_cast<off_t>(d->offset), SEEK_SET);
  }
}

}  // namespace nvcache::vfs
