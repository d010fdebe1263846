// SPDX-License-Identifier: BSD-3-Clause
//
// Offsets, sizes and durability.
#include "src/vfs/sizes.h"

#include <errno.h>
#include <linux/falloc.h>

#include <algorithm>
#include <cstdint>

#include "src/sys/kernel.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/claim.h"
#include "src/vfs/engine/heat.h"
#include "src/vfs/engine/settle.h"
#include "src/vfs/engine/space.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/folder.h"
#include "src/vfs/vfs.h"

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
  if (cuts || file.size.load() < size) AwaitSync(file);
  file.changes.fetch_add(1);
  return result;
}

// A file that the program's call may change here, with everybody else kept out; or nullptr.
File* Changeable(const ExclusiveAccess& access) {
  if (!access.entered() || !access.cached()) return nullptr;
  File& file = access.file();
  return file.failing.load() == 0 && engine.own.Check(file) == 0 ? &file : nullptr;
}

// The kernel gets what it lacks of the page that `offset` lies within, so that a part of it can be
// erased. 0, or what the file system says.
long WriteBackAround(File& file, uint64_t offset) {
  if (offset % pool::kPageSize == 0) return 0;
  const uint64_t number = offset / pool::kPageSize;
  radix::PageDescriptor* page = file.pages.Find(engine.supply, number);
  if (page == nullptr) return 0;
  sys::Lock lock(page->lock);
  return engine.cache.WriteBack(file, number, *page);
}

// Calls append() until it finds room in the log, or there is no hope of that.
template <typename Append>
long WithRoom(Append append) {
  for (;;) {
    const uint32_t room = engine.log.RoomSeen();
    const long error = append();
    if (error != kLogFull) return error;
    if (engine.cleaner.overloaded()) return kUnsettled;
    engine.log.WaitForRoom(room);
  }
}

// The log first: its records of these bytes may reach the disk no more when the kernel has lost
// them. A write-back that is under way ends before the page is forgotten, so before the kernel
// erases. `erase` is the kernel's part; the cleanup thread makes up for a part that it refuses. As
// AppendMark; unless it is 0, nothing has happened.
template <typename Erase>
long TryErase(File& file, nvlog::Kind kind, const dramcache::Erasure& range, Erase erase) {
  const bool cuts = range.end == dramcache::Erasure::kToTheEnd;
  sys::Lock lock(file.erase_lock);
  nvlog::Lsn lsn;
  const uint64_t length = cuts ? 0 : range.end - range.begin;
  if (long error = AppendMark(file, kind, range.begin, length, &lsn); error < 0) return error;
  file.erasures.Add({lsn, range.begin, range.end});
  const uint64_t first = range.begin / pool::kPageSize;
  file.pages.ForEach(engine.supply, [&](uint64_t number, radix::PageDescriptor& page) {
    if (number < first || (!cuts && number * pool::kPageSize >= range.end)) return;
    sys::Lock page_lock(page.lock);
    engine.cache.ForgetBytes(page);
  });
  if (const long error = erase(); error < 0) file.erase_error.store(static_cast<int>(-error));
  file.erased.store(true);
  return 0;
}

// Room is waited for without erase_lock: the cleanup thread passes no erasure of the file while
// somebody has that. 0, or nothing has happened.
template <typename Erase>
long EraseLogged(File& file, nvlog::Kind kind, const dramcache::Erasure& range, Erase erase) {
  const bool cuts = range.end == dramcache::Erasure::kToTheEnd;
  if (!file.erasures.HasRoom()) return kUnsettled;
  if (WriteBackAround(file, range.begin) < 0) return kUnsettled;
  if (!cuts && WriteBackAround(file, range.end) < 0) return kUnsettled;
  return WithRoom([&] { return TryErase(file, kind, range, erase); });
}

// The file has grown, by the kernel's own call: the log says so. fsync and the next record wait for
// a sync if it cannot.
void GrewTo(File& file, uint64_t size) {
  nvlog::Lsn lsn;
  file.sparse.store(true);
  file.size.store(size);
  const auto append = [&] { return AppendMark(file, nvlog::Kind::kTruncate, size, 0, &lsn); };
  if (WithRoom(append) == 0) return;
  file.awaited.fetch_add(1);
  file.changes.fetch_add(1);
}

// kNotOurs: not by way of the log, if at all.
long TruncateLogged(int fd, uint64_t length) {
  if (long error = TakeOver(fd); error < 0) return error;
  if (SyncAwaited(fd) < 0) return kNotOurs;
  ExclusiveAccess access(fd);
  File* file = Changeable(access);
  if (file == nullptr) return kNotOurs;
  const uint64_t size = file->size.load();
  // Of this size, as SQLite does it at each checkpoint: no byte that the log has is touched. The
  // kernel's size may lag behind, and is right afterwards; its time and the blocks behind the end
  // are its business.
  const auto end = static_cast<off_t>(length);
  if (length >= size) {
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
  if (SyncAwaited(fd) < 0) return kNotOurs;
  ExclusiveAccess access(fd);
  File* file = Changeable(access);
  if (file == nullptr) return kNotOurs;
  const uint64_t size = file->size.load();
  const auto last = static_cast<uint64_t>(end);
  const bool grows = (mode & FALLOC_FL_KEEP_SIZE) == 0 && last > size;
  if (allocates) {
    const long result = sys::Fallocate(fd, mode, offset, length);
    if (result == 0 && grows) GrewTo(*file, last);
    file->changes.fetch_add(1);  // the blocks are in no log
    return result;
  }
  if (grows || static_cast<uint64_t>(offset) >= size) return kNotOurs;
  // Whether the file system can, and the program may: beyond the end there is nothing to lose.
  const auto beyond = static_cast<off_t>((size / pool::kPageSize + 2) * pool::kPageSize);
  if (sys::Fallocate(fd, kHole, beyond, pool::kPageSize) < 0) return kNotOurs;
  // The kernel may not know of the size yet, and nobody writes the erased bytes. If it does, it
  // would drop the blocks that the program has allocated beyond the end.
  struct stat st;
  if (sys::Fstat(file->backing_fd, &st) < 0) return kNotOurs;
  const auto known = static_cast<uint64_t>(st.st_size);
  if (known < size && sys::Ftruncate(file->backing_fd, static_cast<off_t>(size)) < 0) {
    return kNotOurs;
  }
  const dramcache::Erasure range = {0, static_cast<uint64_t>(offset), std::min(last, size)};
  const long result = EraseLogged(*file, nvlog::Kind::kErase, range, [&] {
    return sys::Fallocate(file->backing_fd, mode, offset, length);
  });
  if (result < 0) return kNotOurs;
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
  if (engine.own.Check(file) < 0) return kNotOurs;
  if (long error = sys::Ftruncate(file.backing_fd, whole); error < 0) return error;
  const dramcache::Erasure range = {0, length, dramcache::Erasure::kToTheEnd};
  const auto end = static_cast<off_t>(length);
  const long result = EraseLogged(file, nvlog::Kind::kTruncate, range,
                                  [&] { return sys::Ftruncate(file.backing_fd, end); });
  if (result < 0) return kNotOurs;
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

long SyncCached(int fd);

}  // namespace

long Fsync(int fd) {
  bool hot = false;
  {
    Access access;
    const long entered = access.Enter(fd, Access::kData);
    if (entered != 0) return entered == kNotOurs ? SyncFolder(fd) : entered;
    hot = !access.cached() && CountSync(access.file());
  }
  if (hot) WarmUp(fd);
  const long shared = SyncShared(fd);
  return shared != kNotOurs ? shared : SyncCached(fd);
}

namespace {

// The same of a cached file; kNotOurs of any other.
long SyncCached(int fd) {
  Access access;
  if (long r = access.Enter(fd, Access::kData); r != 0) return r;
  if (!access.cached()) {
    access.Leave();
    WarmFolderOf(fd);
    return kNotOurs;
  }
  File& file = access.file();
  const Description& description = access.description();
  const int error = file.errors.Take(&access.description().errors_heard);
  const uint32_t changes = file.changes.load();
  const uint32_t awaited = file.awaited.load();
  const uint32_t drops = description.drops.load();
  const bool owes = error != 0 || file.changes_synced.load() != changes;
  access.Leave();
  if (!owes && engine.checkpoint.EndUnloggedNames()) return 0;
  WarmFolderOf(fd);
  // By the program's own descriptor: each hears once of an error, after which the kernel may have
  // dropped bytes, and an error that ours has to hear is for the cleanup thread (I10). If there was
  // one, the program's has it, too, and should not tell it a second time.
  const long result = sys::Fsync(fd);
  if (error != 0) return -error;
  if (result < 0) return result;
  // Unless the number was another file's meanwhile.
  if (access.Enter(fd, Access::kData) != 0 || &access.description() != &description ||
      description.drops.load() != drops || !access.cached()) {
    return 0;
  }
  // After it: another thread's fsync that finds all of them covered returns at once. Attributes may
  // have been set meanwhile.
  file.changes_synced.store(changes);
  file.awaited_synced.store(awaited);
  return 0;
}

}  // namespace

long SyncRange(int fd) {
  {
    Access access;
    if (const long r = access.Enter(fd, Access::kData); r != 0) return r;
    if (access.cached()) {
      access.Leave();
      return SyncCached(fd);
    }
  }
  return BytesAreInLog(fd) ? 0 : kNotOurs;
}

namespace {

// Of a file of the kernel's. `past_log`: not by way of the log.
long TruncateKernel(int fd, Access& access, off_t length, bool past_log) {
  Passing passing;
  if (passing.Begin(access.file()) != nullptr && !past_log) {
    bool unlogged = false;
    const auto end = static_cast<uint64_t>(length);
    const long result = TruncateShared(access, fd, end, passing, &unlogged);
    if (unlogged) {
      access.Leave();
      SettleShared(fd);
    }
    if (result != kGoesPast) return result;
  }
  const PastLog past(fd, access, passing);
  return past.error() < 0 ? past.error() : sys::Ftruncate(fd, length);
}

}  // namespace

long Ftruncate(int fd, off_t length) {
  for (bool past_log = false;;) {
    const uint32_t room = engine.log.RoomSeen();
    long result;
    {
      Access access;
      if (long r = access.Enter(fd, Access::kData); r != 0) return r;
      if (!access.writable() || length < 0) return -EINVAL;
      if (access.cached()) break;
      result = TruncateKernel(fd, access, length, past_log);
    }
    if (result != kNeedsPool && result != kLogFull) return result;
    past_log = result == kNeedsPool ? !JoinShared(fd) : !AwaitRoom(room);
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
      Passing passing;
      passing.Begin(access.file());
      const PastLog past(fd, access, passing);
      return past.error() < 0 ? past.error() : sys::Fallocate(fd, mode, offset, length);
    }
  }
  if (const long r = FallocateLogged(fd, mode, offset, length); r != kNotOurs) return r;
  const bool cuts = (mode & ~FALLOC_FL_KEEP_SIZE) != 0;
  return WithKernel(fd, cuts, [&] { return sys::Fallocate(fd, mode, offset, length); });
}

// The bytes that the kernel syncs may be newer than the log's, and not yet in the log: so the log's
// must not come back.
void DrainAll() {
  if (!engine.active()) return;
  {
    TableLock lock;
    if (engine.attached() && engine.attachment.busy()) engine.cleaner.DrainAll();
  }
  engine.checkpoint.EndPending();
}

long Drain(int fd) {
  Access access;
  if (long r = access.Enter(fd, Access::kData); r != 0) return r;
  return access.cached() ? engine.cleaner.Drain(access.file()) : kNotOurs;
}

}  // namespace nvcache::vfs
