// SPDX-License-Identifier: BSD-3-Clause
//
// What becomes of a file: cached, or left to the kernel.
#include <errno.h>
#include <linux/magic.h>
#include <sys/resource.h>

#include "src/replay/resolve.h"
#include "src/sys/check.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine.h"
#include "src/vfs/heat.h"
#include "src/vfs/settle.h"
#include "src/vfs/space.h"
#include "src/vfs/through.h"

namespace nvcache::vfs {

namespace {

// File systems that keep data on a disk, by statfs f_type. Any other is cached only when a pattern
// of NVCACHE_INCLUDE names the file.
constexpr long kDiskFileSystems[] = {
    EXT4_SUPER_MAGIC,  // ext2, ext3, ext4
    XFS_SUPER_MAGIC,  BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC, NILFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC,
    0x2fc12fc1,  // ZFS
    0xca451a4e,  // bcachefs
    0x3153464a,  // JFS
};

Storage KindOf(const struct statfs& fs) {
  // What has no blocks stores nothing: /proc, /sys and their like.
  if (fs.f_blocks == 0) return Storage::kNone;
  for (long type : kDiskFileSystems) {
    if (fs.f_type == type) return Storage::kDisk;
  }
  return Storage::kOther;
}

// Whose syncfs is known to write all files back and to commit what names them. Others have been
// known to do nothing (FUSE), or are made of several file systems.
bool SyncsWhole(const struct statfs& fs) {
  return fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == XFS_SUPER_MAGIC ||
         fs.f_type == BTRFS_SUPER_MAGIC;
}

// Another descriptor of the same inode, ours alone. The program's own will not do: it may lack a
// direction, append (pwrite would ignore the offset), or be closed while we write.
long OpenBacking(int fd) {
  sys::Text<32> path;
  path.Append(NVCACHE_DESCRIPTORS "/").AppendNumber(static_cast<uint64_t>(fd));
  constexpr int kFlags = O_RDWR | O_CLOEXEC;
  // What we read is not always what the program reads, and it may have asked for O_NOATIME: that is
  // for a file's owner alone.
  long backing = sys::Openat(AT_FDCWD, path.c_str(), kFlags | O_NOATIME);
  if (backing == -EPERM) backing = sys::Openat(AT_FDCWD, path.c_str(), kFlags);
  return backing < 0 ? backing : sys::MoveHigh(static_cast<int>(backing));
}

// For a file that can do without: not where the program will soon need the numbers itself.
long OpenBackingIfRoom(int fd) {
  const long backing = OpenBacking(fd);
  if (backing < 0) return backing;
  const uint64_t limit = sys::SoftLimit(RLIMIT_NOFILE), number = static_cast<uint64_t>(backing);
  if (number >= sys::HighFrom(limit) && number < limit - limit / 16) return backing;
  sys::Close(static_cast<int>(backing));
  return -EMFILE;
}

bool IsInode(int fd, const File& file) {
  struct stat st;
  return sys::Fstat(fd, &st) == 0 && st.st_dev == file.device && st.st_ino == file.inode;
}

// For the calls that the kernel is at work on. One may wait for more than the disk: for the end of
// a freeze, which may need a lock that is held here. False: not in this time.
bool AwaitKernel(const File& file) {
  constexpr uint64_t kPatienceNs = 100 * 1000 * 1000, kPauseNs = 100 * 1000;
  for (uint64_t waited = 0; file.in_kernel.load() != 0; waited += kPauseNs) {
    if (waited >= kPatienceNs) return false;
    sys::Word word{0};
    sys::FutexWait(&word, 0, kPauseNs);
  }
  return true;
}

// What OpenBacking opened, or as good.
bool IsBacking(int fd, const File& file) {
  return IsInode(fd, file) && (sys::Fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND)) == O_RDWR;
}

}  // namespace

// A lock of a description conflicts with those of every process, ours included.
bool IsLocked(int fd) {
  struct flock any = {};
  any.l_type = F_WRLCK;
  return sys::Fcntl(fd, F_OFD_GETLK, sys::Address(&any)) < 0 || any.l_type != F_UNLCK;
}

Engine::FileSystem Engine::FileSystemOf(int fd, uint64_t device) {
  FileSystem* place = nullptr;
  for (FileSystem& fs : file_systems_) {
    if (fs.known && fs.device == device) return fs;
    if (!fs.known) {
      place = &fs;
      break;
    }
  }
  FileSystem fs = {device, Storage::kNone, false, true};
  struct statfs kind;
  if (sys::Fstatfs(fd, &kind) == 0) {
    fs.storage = KindOf(kind);
    fs.syncs_whole = SyncsWhole(kind);
  }
  if (place != nullptr) *place = fs;
  return fs;
}

bool Engine::Trackable(int fd, const struct stat& st) {
  return S_ISREG(st.st_mode) && FileSystemOf(fd, st.st_dev).storage != Storage::kNone;
}

bool Engine::Cacheable(int fd, const struct stat& st) {
  if (st.st_nlink == 0 || IsPool(st)) return false;
  const Storage storage = FileSystemOf(fd, st.st_dev).storage;
  const bool includes = settings.include.size() > 0;
  const bool excludes = settings.exclude.size() > 0;
  if (!includes && !excludes) return storage == Storage::kDisk;
  sys::Text<32> link;
  link.Append(NVCACHE_DESCRIPTORS "/").AppendNumber(static_cast<uint64_t>(fd));
  sys::Scratch<char[pool::kMaxPath]> scratch;
  char* path = scratch.get();
  const long n = sys::Readlinkat(AT_FDCWD, link.c_str(), path, pool::kMaxPath - 1);
  if (n < 0) return false;
  path[n] = '\0';
  if (excludes && settings::AnyGlobMatches(settings.exclude.c_str(), path)) return false;
  return includes ? settings::AnyGlobMatches(settings.include.c_str(), path)
                  : storage == Storage::kDisk;
}

void Engine::PrepareBacking(File& file, int fd) {
  NVCACHE_CHECK(table_lock.IsLocked() && !file.locked.load());
  const bool may_be_hot = settings.write_back == settings::WriteBack::kAuto;
  if (!may_be_hot || file.state.load() != State::kKernel || file.backing_fd >= 0) return;
  const long backing = OpenBackingIfRoom(fd);
  if (backing < 0) return;
  SetSlot(static_cast<int>(backing), Internal());
  file.backing_fd = static_cast<int>(backing);
}

// The one that was prepared, or one that can be closed again without harm.
long Engine::BackingToBegin(const File& file, int fd) {
  if (const int prepared = file.backing_fd; prepared >= 0) {
    return IsBacking(prepared, file) ? prepared : -EBADF;
  }
  return file.locked.load() ? -EBUSY : OpenBackingIfRoom(fd);
}

bool Engine::BeginCaching(File& file, int fd) {
  NVCACHE_CHECK(table_lock.IsLocked() && file.state.load() == State::kKernel);
  if (!leases.is_open() || !Employ() || !leases.TryExclude(file.device, file.inode)) return false;
  const long backing = BackingToBegin(file, fd);
  // From here on no call goes to the kernel before it is known whose the file is.
  file.lock.Lock();
  struct stat st;
  const bool has_another = file.backing_fd >= 0 && file.backing_fd != backing;
  if (backing < 0 || has_another || !AwaitKernel(file) || !EndShared(file) ||
      sys::Fstat(static_cast<int>(backing), &st) < 0 ||
      !WithinSizeLimit(static_cast<uint64_t>(st.st_size))) {
    file.lock.Unlock();
    if (backing >= 0 && backing != file.backing_fd) sys::Close(static_cast<int>(backing));
    leases.Downgrade(file.device, file.inode);
    return false;
  }
  file.exclusive = true;
  SetSlot(static_cast<int>(backing), Internal());
  file.backing_fd = static_cast<int>(backing);
  file.sync_device = FileSystemOf(fd, st.st_dev).syncs_whole ? file.device : 0;
  // Before the first record: whatever happens to the disk from then on is told to us.
  file.publishes = !IsHotFromTheStart() && OpenThrough(fd, st);
  TakeSize(file, st);
  file.changes.fetch_add(1);
  // What the kernel shows need not be on the disk, whoever did it: fewer bytes than there were, or
  // more, another name, or the file at all. So the first record waits for a sync.
  file.awaited.fetch_add(1);
  file.tag.Undeclare();
  file.removed.store(false);
  for (Description* d = file.descriptions; d != nullptr; d = d->next) {
    const long offset = sys::Lseek(DescriptorOf(*d), 0, SEEK_CUR);
    d->offset = offset < 0 ? 0 : static_cast<uint64_t>(offset);
  }
  cleaner.Add(file);
  SetState(file, State::kCached);
  file.lock.Unlock();
  return true;
}

void Engine::DescribeAnew() {
  NVCACHE_CHECK(table_lock.IsLocked());
  ForEachFile([](File& file) {
    if (file.state.load() != State::kKernel) return;
    file.lock.Lock();
    file.changes.fetch_add(1);
    file.tag.Undeclare();
    file.lock.Unlock();
  });
}

long Engine::CheckBacking(File& file) {
  if (IsBacking(file.backing_fd, file)) return 0;
  sys::Lock lock(backing_lock_);
  if (IsBacking(file.backing_fd, file)) return 0;
  const long opened = Reopen(file);
  if (opened < 0) return -EBADF;
  Store(static_cast<int>(opened), Internal());
  DisownBacking(file);
  file.backing_fd.store(static_cast<int>(opened));
  // Meanwhile somebody may have read from what has the number now.
  file.pages.ForEach(supply, [&](uint64_t, radix::PageDescriptor& page) {
    sys::Lock page_lock(page.lock);
    if (page.has_frame()) frames.Detach(page);
  });
  return 0;
}

// By a descriptor of the program's, or else as recovery finds it.
long Engine::Reopen(File& file) {
  for (int fd = 0; fd < static_cast<int>(descriptor_end()); ++fd) {
    const Description* description = SlotOf(fd);
    if (!IsDescription(description) || description->file.load() != &file) continue;
    if (!IsInode(fd, file)) continue;
    const long opened = OpenBacking(fd);
    if (opened >= 0) return opened;
  }
  sys::Scratch<pool::FileRecord> record;
  if (!log.CopyFileRecord(file.tag, record.get()) || record->inode != file.inode) return -EBADF;
  const long opened = recovery::OpenRecorded(*record);
  if (opened < 0) return opened;
  sys::Fcntl(static_cast<int>(opened), F_SETFL, O_NOATIME);  // as OpenBacking, if it is allowed
  return sys::MoveHigh(static_cast<int>(opened));
}

// The number is the program's now.
void Engine::DisownBacking(File& file) {
  const int fd = file.backing_fd.exchange(-1);
  if (SlotOf(fd) == Internal()) Store(fd, kUntracked);
}

// Which would drop the program's fcntl locks. After a sync that is under way.
void Engine::CloseBacking(File& file) {
  if (file.backing_fd < 0) return;
  sys::Lock lock(file.sync_lock);
  const int fd = file.backing_fd;
  const bool ours = SlotOf(fd) == Internal() && IsBacking(fd, file);
  DisownBacking(file);
  if (ours) sys::Close(fd);
}

void Engine::LostInternal(int fd) {
  NVCACHE_CHECK(table_lock.IsLocked());
  // Others take us for dead, and what we hold for theirs.
  if (fd == leases.fd()) ReleaseAll(true);
  ForEachFile([&](File& file) {
    if (file.backing_fd == fd) CheckBacking(file);
  });
}

long Engine::MoveInternal(int fd) {
  NVCACHE_CHECK(table_lock.IsLocked());
  if (fd == pool_.fd()) {
    pool_.Renumber();
    if (fd == pool_.fd()) return -EMFILE;
    SetSlot(pool_.fd(), Internal());
    SetSlot(fd, kUntracked);
    return 0;
  }
  if (fd == leases.fd()) {
    leases.Renumber(fd + 1);
    if (fd == leases.fd()) return -EMFILE;
    SetSlot(leases.fd(), Internal());
    SetSlot(fd, kUntracked);
    relock_due_ = true;
    return 0;
  }
  if (fd == through_fd_) {
    sys::Lock lock(through_lock_);
    through_fd_ = sys::MoveHigh(fd);
    SetSlot(fd, kUntracked);
    SetSlot(through_fd_, Internal());
    return through_fd_ == fd ? -EMFILE : 0;
  }
  long result = -EBADF;
  ForEachFile([&](File& file) {
    if (file.backing_fd != fd) return;
    file.lock.Lock();
    // Nobody uses the number when nothing is pending.
    result = DrainExclusively(file);
    if (result == 0) {
      sys::Lock lock(file.sync_lock);
      file.backing_fd.store(sys::MoveHigh(fd));
      SetSlot(fd, kUntracked);
      SetSlot(file.backing_fd, Internal());
      if (file.backing_fd == fd) result = -EMFILE;
    }
    file.lock.Unlock();
  });
  return result;
}

uint32_t Engine::CountInternal() const {
  uint32_t count = 0;
  for (uint32_t fd = 0; fd < descriptor_end(); ++fd) {
    if (SlotOf(static_cast<int>(fd)) == Internal()) ++count;
  }
  return count;
}

// Idle files first: those cost no wait.
bool Engine::MakeRoom(uint32_t before) {
  NVCACHE_CHECK(table_lock.IsLocked());
  for (const bool all : {false, true}) {
    if (CountInternal() < before) return true;
    ForEachFile([&](File& file) {
      if (file.state.load() == State::kCached && (all || file.pending.load() == 0)) GiveBack(file);
    });
    Reap();
  }
  if (CountInternal() < before) return true;
  if (attached()) attach_after_ = sys::Now(CLOCK_MONOTONIC) + kAttachAgainNs;
  ReleaseAll();
  return CountInternal() < before || MoveLeases();
}

// The limit is one of numbers: what lies beyond it is none of the program's. So for the time of the
// call it is higher by one, where the hard limit allows that.
bool Engine::MoveLeases() {
  const int old = leases.fd();
  uint64_t limit[2];
  sys::Call(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, sys::Address(limit));
  const uint64_t number = limit[0], raised[2] = {number + 1, limit[1]};
  const bool fits = number < limit[1] && number < kMaxDescriptors;
  if (!leases.is_open() || static_cast<uint64_t>(old) >= number || !fits) return false;
  if (!MakeSlot(static_cast<uint32_t>(number))) return false;
  sys::Call(SYS_prlimit64, 0, RLIMIT_NOFILE, sys::Address(raised), 0);
  leases.Renumber(static_cast<int>(number));
  sys::Call(SYS_prlimit64, 0, RLIMIT_NOFILE, sys::Address(limit), 0);
  if (leases.fd() == old) return false;
  SetSlot(leases.fd(), Internal());
  SetSlot(old, kUntracked);
  sys::Close(old);
  if (!leases.Relock()) ReleaseAll(true);  // others take us for dead
  return true;
}

// Unless it is known that no file there can have a tally.
bool Engine::MayBeShared(uint64_t device) const {
  for (const FileSystem& fs : file_systems_) {
    if (fs.known && fs.device == device) return fs.syncs_whole;
  }
  return true;
}

// Whoever has waited for what is pending of the file (Passing::GoPast) counts as passing until it
// is marked.
void Engine::LeaveLog(const File& file) {
  if (!leases.is_open() || !MayBeShared(file.device)) return;
  leases.MarkHandedOn(file.device, file.inode);
  lease::Tally* tally = tallies.Find(lease::TagOf(file.device, file.inode));
  if (tally == nullptr) return;
  const uint64_t lock = tallies.Lock(*tally);
  lease::Tallies::Forget(*tally);
  tallies.Unlock(*tally, lock);
}

long Engine::PassThrough(File& file) {
  if (const long error = LeaveToKernel(file, State::kPassThrough, false); error < 0) return error;
  LeaveLog(file);
  return 0;
}

// It may be hot for several processes now, or for this one again. That rule is not for files that
// are cached from the start.
long Engine::GiveBack(File& file, bool may_publish) {
  if (settings.write_back == settings::WriteBack::kAlways) return PassThrough(file);
  return LeaveToKernel(file, State::kKernel, may_publish);
}

long Engine::Lend(File& file, bool forever) {
  if (const long error = GiveBack(file); error < 0) return error;
  file.lent = true;
  if (forever) MakeLasting(file);
  return 0;
}

bool Engine::HandOn(const File& file) {
  NVCACHE_CHECK(table_lock.IsLocked());
  if (!leases.is_open() || !MayBeShared(file.device)) return false;
  leases.HandOn(file.device, file.inode);
  return tallies.Find(lease::TagOf(file.device, file.inode)) != nullptr;
}

long Engine::LeaveToKernel(File& file, State state, bool may_publish) {
  NVCACHE_CHECK(table_lock.IsLocked());
  if (file.state.load() == State::kPassThrough) return file.lost.load() ? -EIO : 0;
  if (file.state.load() == State::kForeign && leases.is_open()) {
    ShareInherited(file);
  }
  file.lock.Lock();
  if (file.state.load() == State::kCached) {
    const bool published = may_publish && PublishForGood(file);
    if (long error = published ? 0 : DrainExclusively(file); error < 0) {
      file.lock.Unlock();
      return error;
    }
    PublishOffsets(file);
    Resync(file);
    file.pages.Trim(supply);
    cleaner.Remove(file);
    // Not those that only go their way: closed, or open at the program's end.
    if (file.descriptions != nullptr && !hopeless_) {
      pool::Count(statistics()->pass_through_files);
    }
  }
  SetState(file, state);
  // While ours is open, the file cannot be executed, its file system not be unmounted. A thread may
  // be about to lock it if one ever has.
  const bool closed = file.descriptions == nullptr;
  if (file.backing_fd >= 0 && (closed || (!file.locked.load() && !IsLocked(file.backing_fd)))) {
    CloseBacking(file);
  }
  file.lock.Unlock();
  // Whoever waits for the file reads it now.
  if (file.exclusive) leases.Downgrade(file.device, file.inode);
  file.exclusive = false;
  return 0;
}

// The kernel gets what it lacks, without a sync, and the log says so. What might still become of
// the file on its way to the disk must be told to us (`publishes`), and recovery must find it: so
// it has a name that is on the disk.
bool Engine::PublishForGood(File& file) {
  if (!file.publishes || file.removed.load() || file.failing.load() != 0 ||
      file.pending.load() == 0 || pool_.seats().ThroughFailed() != 0) {
    return false;
  }
  return Publish(file) >= 0 && PublishShared(file);
}

long Engine::DrainExclusively(File& file) {
  NVCACHE_CHECK(file.lock.IsLockedExclusive());
  while (file.pending.load() > 0) {
    if (long error = cleaner.Drain(file); error < 0) return error;
  }
  reap_due_ = true;
  return 0;
}

void Engine::Resync(File& file) {
  NVCACHE_CHECK(file.lock.IsLockedExclusive() && file.pending.load() == 0);
  file.pages.ForEach(supply, [&](uint64_t, radix::PageDescriptor& page) {
    sys::Lock lock(page.lock);
    if (page.has_frame()) frames.Detach(page);
  });
  struct stat st;
  if (CheckBacking(file) == 0 && sys::Fstat(file.backing_fd, &st) == 0) TakeSize(file, st);
}

void Engine::TakeSize(File& file, const struct stat& st) {
  constexpr int64_t kStatBlock = 512;
  file.size.store(static_cast<uint64_t>(st.st_size));
  file.sparse.store(st.st_blocks * kStatBlock < st.st_size);
}

long Engine::Publish(File& file) {
  long pages = 0, error = 0;
  if (file.pending.load() == 0) return 0;
  sys::Lock one_at_a_time(file.publish_lock);
  if (!file.pages.HasMarked(supply)) return 0;
  if (long lost = CheckBacking(file); lost < 0) return lost;
  file.pages.TakeMarked(supply, [&](uint64_t number, radix::PageDescriptor& page) {
    sys::Lock lock(page.lock);
    ++pages;
    const long refused = cache.WriteBack(file, number, page);
    if (refused == 0) return;
    file.pages.Mark(supply, number);
    error = refused;
  });
  return error < 0 ? error : pages;
}

void Engine::PublishOffsets(File& file, bool news) {
  for (Description* d = file.descriptions; d != nullptr; d = d->next) {
    if (news && IsForked(*d)) continue;
    const int fd = DescriptorOf(*d);
    if (fd >= 0) sys::Lseek(fd, static_cast<off_t>(d->offset), SEEK_SET);
  }
}

// The program holds no descriptor of the inode now, so closing ours cannot drop its fcntl locks
// (I11).
void Engine::Destroy(File& file) {
  NVCACHE_CHECK(file.descriptions == nullptr && file.pending.load() == 0);
  if (file.state.load() == State::kCached) LeaveKnown(file);
  if (file.state.load() != State::kForeign) LeaveToKernel(file, State::kPassThrough, false);
  CloseBacking(file);
  if (file.leased && leases.is_open()) leases.Drop(file.device, file.inode, false);
  SetState(file, State::kPassThrough);
  RemoveFromBucket(file);
  files_.Free(files_.IndexOf(&file));
}

}  // namespace nvcache::vfs
