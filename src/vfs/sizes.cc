// SPDX-License-Identifier: BSD-3-Clause
//
// Offsets and sizes.
#include "src/vfs/sizes.h"

#include <errno.h>
#include <linux/falloc.h>

#include <algorithm>
#include <cstdint>

#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/claim.h"
#include "src/vfs/engine/settle.h"
#include "src/vfs/engine/space.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/mend.h"

namespace nvcache::vfs {

namespace {

// No disk file system refuses an offset up to here.
constexpr int64_t kAnywhere = INT32_MAX;

// Makes the kernel's copy the newest and calls `change`, which may alter the file's size; with
// everybody else kept out, and nothing in the log that replay could bring back over it (I9). Nor
// may bytes that it `cuts`, or that the file loses by being shorter, come back under a later
// record.
template <typename Change>
long WithKernel(int fd, bool cuts, Change change) {
  if (long error = TakeOver(fd); error < 0) return error;
  ExclusiveAccess access(fd);
  if (!access.entered() || !access.cached()) return kNotOurs;
  File& file = access.file();
  if (long error = DrainExclusively(file); error < 0) return error;
  const uint64_t size = file.size.load();
  const long result = change();
  Resync(file);
  if (cuts || file.size.load() < size) RaiseBarrier(file);
  file.changes.fetch_add(1);
  return result;
}

// A file that the program's call may change here, with everybody else kept out; or nullptr.
File* Changeable(const ExclusiveAccess& access) {
  if (!access.entered() || !access.cached()) return nullptr;
  File& file = access.file();
  return file.failing.load() == 0 && engine.own.Check(file) == 0 ? &file : nullptr;
}

// The kernel gets what was written before, to whichever file: who looks without us sees no size,
// and no hole, before what came first. 0, or a negated errno.
long PublishAllBefore(File& file) { return std::min(engine.cleaner.WriteBackBefore(file), 0L); }

// Calls append() until it finds room in the log, or there is no hope of that.
template <typename Append>
Next WithRoom(Append append) {
  for (;;) {
    const uint32_t room = engine.log.RoomSeen();
    const Next next = append();
    if (next != Next::kAwaitRoom) return next;
    if (engine.cleaner.overloaded()) return Next::kPassThrough;
    engine.log.WaitForRoom(room);
  }
}

[[gnu::noinline]] void ForgetBytesOf(const File& file, const dramcache::Erasure& range) {
  file.pages.ForEach(engine.supply, [&](uint64_t number, radix::PageDescriptor& page) {
    const bool is_before = number < range.begin / pool::kPageSize;
    if (is_before || number > (range.end - 1) / pool::kPageSize) return;
    sys::Lock page_lock(page.lock);
    engine.cache.ForgetBytes(page);
  });
}

// The log first: its records of these bytes may reach the disk no more when the kernel has lost
// them. `erase` is the kernel's part; the cleanup thread makes up for a part that it refuses. As
// AppendMark; unless it is kDone, nothing has happened.
template <typename Erase>
Next TryErase(File& file, nvlog::Kind kind, const dramcache::Erasure& range, Erase erase) {
  const bool cuts = range.end == dramcache::Erasure::kToTheEnd;
  sys::Lock lock(file.erase_lock);
  nvlog::Lsn lsn;
  const uint64_t length = cuts ? 0 : range.end - range.begin;
  const Next next = AppendMark(file, kind, range.begin, length, &lsn);
  if (next != Next::kDone) return next;
  file.erasures.Add({lsn, range.begin, range.end});
  ForgetBytesOf(file, range);
  if (const long error = erase(); error < 0) file.erase_error.store(static_cast<int>(-error));
  file.erased.store(true);
  return Next::kDone;
}

// Room is waited for without erase_lock: the cleanup thread passes no erasure of the file while
// somebody has that. False: nothing has happened.
template <typename Erase>
bool EraseLogged(File& file, nvlog::Kind kind, const dramcache::Erasure& range, Erase erase) {
  if (!file.erasures.HasRoom() || PublishAllBefore(file) < 0) return false;
  return WithRoom([&] { return TryErase(file, kind, range, erase); }) == Next::kDone;
}

// The file has grown, by the kernel's own call: the log says so. fsync and the next record wait for
// a sync if it cannot.
void GrewTo(File& file, uint64_t size) {
  nvlog::Lsn lsn;
  file.sparse.store(true);
  file.size.store(size);
  const auto append = [&] { return AppendMark(file, nvlog::Kind::kTruncate, size, 0, &lsn); };
  if (WithRoom(append) == Next::kDone) return;
  file.barriers.fetch_add(1);
  file.changes.fetch_add(1);
}

bool KernelHasSize(const File& file, uint64_t size) {
  struct stat st;
  return sys::Fstat(file.backing_fd, &st) == 0 && static_cast<uint64_t>(st.st_size) == size;
}

// kNotOurs: not by way of the log, if at all.
long TruncateLogged(int fd, uint64_t length) {
  if (long error = TakeOver(fd); error < 0) return error;
  if (!SyncBarrier(fd)) return kNotOurs;
  ExclusiveAccess access(fd);
  File* file = Changeable(access);
  if (file == nullptr) return kNotOurs;
  const uint64_t size = file->size.load();
  // No byte that the log has is touched if the file keeps its size, as SQLite has it do at each
  // checkpoint, or grows. The kernel's size may lag behind, and is right afterwards; its time and
  // the blocks behind the end are its business.
  const auto end = static_cast<off_t>(length);
  if (length >= size) {
    const dramcache::KernelChange change(*file);
    if (!KernelHasSize(*file, length) && PublishAllBefore(*file) < 0) return kNotOurs;
    const long result = sys::Ftruncate(file->backing_fd, end);
    if (result == 0 && length > size) GrewTo(*file, length);
    return result;
  }
  return CutLogged(*file, length);
}

constexpr int kHole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

// A hole, or zeros, within the file; or room for it, which may let it grow. kNotOurs: as above.
long FallocateLogged(int fd, int mode, off_t offset, off_t length) {
  const bool erases = mode == kHole || (mode & ~FALLOC_FL_KEEP_SIZE) == FALLOC_FL_ZERO_RANGE;
  const bool allocates = (mode & ~FALLOC_FL_KEEP_SIZE) == 0;
  int64_t end;
  if ((!erases && !allocates) || offset < 0 || length <= 0 ||
      __builtin_add_overflow(offset, length, &end)) {
    return kNotOurs;
  }
  if (long error = TakeOver(fd); error < 0) return error;
  if (!SyncBarrier(fd)) return kNotOurs;
  ExclusiveAccess access(fd);
  File* file = Changeable(access);
  if (file == nullptr) return kNotOurs;
  const uint64_t size = file->size.load();
  const auto last = static_cast<uint64_t>(end);
  const dramcache::KernelChange change(*file);
  const bool grows = (mode & FALLOC_FL_KEEP_SIZE) == 0 && last > size;
  if (allocates) {
    if (grows && PublishAllBefore(*file) < 0) return kNotOurs;
    const long result = sys::Fallocate(fd, mode, offset, length);
    if (result == 0 && grows) GrewTo(*file, last);
    file->changes.fetch_add(1);  // the blocks are in no log
    return result;
  }
  if (grows || static_cast<uint64_t>(offset) >= size) return kNotOurs;
  // Whether the file system can, and the program may: beyond the end there is nothing to lose.
  const auto beyond = static_cast<off_t>((size / pool::kPageSize + 2) * pool::kPageSize);
  if (sys::Fallocate(fd, kHole, beyond, pool::kPageSize) < 0) return kNotOurs;
  const dramcache::Erasure range = {0, static_cast<uint64_t>(offset), std::min(last, size)};
  const bool erased = EraseLogged(*file, nvlog::Kind::kErase, range, [&] {
    return sys::Fallocate(file->backing_fd, mode, offset, length);
  });
  if (!erased) return kNotOurs;
  file->sparse.store(true);
  return 0;
}

// A hole or data of the kernel's, once it has the bytes that we have.
long SeekData(Access& access, int fd, off_t offset, int whence) {
  if (long error = Publish(access.file()); error < 0) return error;
  return sys::Lseek(fd, offset, whence);
}

}  // namespace

long CutLogged(File& file, uint64_t length) {
  // Whether it may be cut at all; nothing can be taken back later. Not to the kernel's own size:
  // the cleanup thread may just write beyond that.
  const auto whole = static_cast<off_t>(file.size.load());
  if (engine.own.Check(file) < 0 || Publish(file) < 0) return kNotOurs;
  const dramcache::KernelChange change(file);
  if (long error = sys::Ftruncate(file.backing_fd, whole); error < 0) return error;
  const dramcache::Erasure range = {0, length, dramcache::Erasure::kToTheEnd};
  const auto end = static_cast<off_t>(length);
  const bool cut = EraseLogged(file, nvlog::Kind::kTruncate, range,
                               [&] { return sys::Ftruncate(file.backing_fd, end); });
  if (!cut) return kNotOurs;
  file.size.store(length);
  if (length == 0) file.sparse.store(false);
  return 0;
}

long Lseek(int fd, off_t offset, int whence) {
  Access access;
  if (long r = access.Enter(fd, Access::kOffset); r != 0) return r;
  if (!access.cached()) return sys::Lseek(fd, offset, whence);
  const uint64_t shared = access.description().offset;
  const uint64_t size = access.file().size.load(std::memory_order_acquire);
  int64_t base = 0;
  switch (whence) {
    case SEEK_SET:
      break;
    case SEEK_CUR:
      base = static_cast<int64_t>(shared);
      break;
    case SEEK_END:
      base = static_cast<int64_t>(size);
      break;
    case SEEK_DATA:
    case SEEK_HOLE: {
      const long found = SeekData(access, fd, offset, whence);
      if (found >= 0) access.MoveOffset(fd, static_cast<uint64_t>(found));
      return found;
    }
    default:
      return -EINVAL;
  }
  int64_t target;
  if (__builtin_add_overflow(base, offset, &target) || target < 0) return -EINVAL;
  if (target > kAnywhere) {
    // How far one may go is the file system's to say.
    if (const long error = sys::Lseek(fd, target, SEEK_SET); error < 0) return error;
  }
  access.MoveOffset(fd, static_cast<uint64_t>(target));
  return target;
}

namespace {

// One attempt at a cut of a file of the kernel's.
Next TruncateKernel(int fd, Access& access, off_t length, Attempt* attempt) {
  InFlight in_flight;
  File& file = access.file();
  lease::FileEntry* entry = in_flight.Begin(file);
  if (entry != nullptr && engine.turns.IsNews(file)) engine.turns.Look(file, fd, *entry, 1);
  if (entry != nullptr && !attempt->Took(Next::kBypass)) {
    const auto end = static_cast<uint64_t>(length);
    const Next next = TruncateThrough(access, fd, end, in_flight, attempt);
    if (attempt->unlogged) {
      access.Leave();
      SettleThrough(fd);
    }
    if (next != Next::kBypass) return next;
  }
  const BypassingCall past(fd, access, in_flight);
  return attempt->End(past.error() < 0 ? past.error() : sys::Ftruncate(fd, length));
}

}  // namespace

long Ftruncate(int fd, off_t length) {
  for (Attempt attempt;;) {
    const uint32_t room = engine.log.RoomSeen();
    Next next;
    {
      Access access;
      if (long r = access.Enter(fd, Access::kData); r != 0) return r;
      if (!access.writable() || length < 0) return -EINVAL;
      if (access.cached()) break;
      next = TruncateKernel(fd, access, length, &attempt);
    }
    if (next == Next::kDone) return attempt.Answer();
    next = Mend(next, fd, room, &attempt);
    NVCACHE_CHECK(next != Next::kPassThrough);
  }
  const long r = TruncateLogged(fd, static_cast<uint64_t>(length));
  if (r != kNotOurs) return r;
  return WithKernel(fd, false, [&] { return sys::Ftruncate(fd, length); });
}

long Fallocate(int fd, int mode, off_t offset, off_t length) {
  {
    Access access;
    if (const long r = access.Enter(fd, Access::kData); r != 0) return r;
    if (!access.cached()) {
      InFlight in_flight;
      in_flight.Begin(access.file());
      const BypassingCall past(fd, access, in_flight);
      return past.error() < 0 ? past.error() : sys::Fallocate(fd, mode, offset, length);
    }
  }
  if (const long r = FallocateLogged(fd, mode, offset, length); r != kNotOurs) return r;
  const bool cuts = (mode & ~FALLOC_FL_KEEP_SIZE) != 0;
  return WithKernel(fd, cuts, [&] { return sys::Fallocate(fd, mode, offset, length); });
}

}  // namespace nvcache::vfs
