// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/own_descriptors.h"

#include <errno.h>
#include <sys/resource.h>

#include <algorithm>

#include "src/replay/resolve.h"
#include "src/sys/born_stat.h"
#include "src/sys/check.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine/engine.h"
#include "src/vfs/engine/states.h"

namespace nvcache::vfs {

namespace {

bool FindLock(int fd, struct flock* found) {
  *found = {};
  found->l_type = F_WRLCK;
  return sys::Fcntl(fd, F_OFD_GETLK, sys::Address(found)) == 0;
}

// Moves it by sys::MoveHigh, which closes the number that it had, if nothing is lost by that. It
// does not go to a number that another file of ours has still: that one was closed unseen, and its
// file would take this one's bytes for its own. A negated errno: there is no number.
int OutOfTheWay(int fd) {
  if (HoldsLock(fd)) return fd;
  int moved = sys::MoveHigh(fd);
  while (moved >= 0 && engine.descriptors.Of(moved) == Internal()) {
    const long next = sys::Fcntl(moved, F_DUPFD_CLOEXEC, moved + 1);
    sys::Close(moved);
    moved = static_cast<int>(next);
  }
  return moved;
}

// Another descriptor of the same inode, ours alone. The program's own will not do: it may lack a
// direction, append (pwrite would ignore the offset), or be closed while we write.
long OpenBacking(int fd) {
  const sys::FdLink path = sys::LinkTo(fd);
  constexpr int kFlags = O_RDWR | O_CLOEXEC;
  // We do not always read what the program reads, and it may have asked for O_NOATIME: that is
  // for a file's owner alone.
  long backing = sys::Openat(AT_FDCWD, path.c_str(), kFlags | O_NOATIME);
  if (backing == -EPERM) backing = sys::Openat(AT_FDCWD, path.c_str(), kFlags);
  return backing < 0 ? backing : OutOfTheWay(static_cast<int>(backing));
}

// For a file that can do without: not where the program will soon need the numbers itself, nor
// where those of the pool, the leases and the checkpoint lie if the limit is low.
long OpenBackingIfRoom(int fd) {
  const long backing = OpenBacking(fd);
  if (backing < 0) return backing;
  const uint64_t limit = sys::SoftLimit(RLIMIT_NOFILE), number = static_cast<uint64_t>(backing);
  const uint64_t kept = std::max(limit / 16, uint64_t{3});
  if (number >= sys::HighFrom(limit) && number + kept < limit) return backing;
  OwnDescriptors::Return(static_cast<int>(backing));
  engine.notice.Hinder(lease::Hindrance::kDescriptors);
  return -EMFILE;
}

// One of ours has another number now, or could get none.
long Renumbered(int from, int to) {
  if (from == to) return -EMFILE;
  engine.descriptors.Set(to, Internal());
  engine.descriptors.Set(from, kUntracked);
  return 0;
}

bool IsInode(int fd, const File& file) {
  struct stat st;
  return sys::LookUntimed(fd, &st) == 0 && st.st_dev == file.device && st.st_ino == file.inode;
}

// A descriptor that OpenBacking opened, or as good.
bool IsBacking(int fd, const File& file) {
  return IsInode(fd, file) && (sys::Fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND)) == O_RDWR;
}

}  // namespace

// A lock of a description conflicts with those of every process, ours included.
bool IsLocked(int fd) {
  struct flock found;
  return !FindLock(fd, &found) || found.l_type != F_UNLCK;
}

bool HoldsLock(int fd) {
  struct flock found;
  return FindLock(fd, &found) && found.l_type != F_UNLCK && found.l_pid == sys::Getpid();
}

void NoteOwn(int fd) { engine.descriptors.Store(fd, Internal()); }

bool ForgetOwn(int fd) {
  if (engine.descriptors.Of(fd) != Internal()) return false;
  engine.descriptors.Store(fd, kUntracked);
  return true;
}

void OwnDescriptors::Return(int fd) {
  const bool stays = HoldsLock(fd);
  const bool tracks = !sys::IsSharing() && (stays || engine.descriptors.Of(fd) != kUntracked);
  if (tracks) engine.descriptors.Store(fd, stays ? Internal() : kUntracked);
  if (!stays) sys::Close(fd);
}

void OwnDescriptors::Track(int fd, bool ours) {
  if (ours) return engine.descriptors.Store(fd, Internal());
  if (engine.descriptors.Of(fd) == Internal()) engine.descriptors.Store(fd, kUntracked);
}

void OwnDescriptors::Prepare(File& file, int fd) {
  NVCACHE_CHECK(engine.table_lock.IsLocked() && !file.locked.load());
  const bool may_be_hot = engine.settings.write_back != settings::WriteBack::kNever;
  if (!may_be_hot || file.state.load() != State::kKernel || file.backing_fd >= 0) return;
  if (HoldsLock(fd)) return;  // a system call of its own has taken it
  const long backing = OpenBackingIfRoom(fd);
  if (backing < 0) return;
  engine.descriptors.Set(static_cast<int>(backing), Internal());
  file.backing_fd = static_cast<int>(backing);
}

long OwnDescriptors::ToBegin(const File& file, int fd) {
  if (const int prepared = file.backing_fd; prepared >= 0) {
    return IsBacking(prepared, file) ? prepared : -EBADF;
  }
  return file.locked.load() || IsLocked(fd) ? -EBUSY : OpenBackingIfRoom(fd);
}

long OwnDescriptors::Check(File& file) {
  if (IsBacking(file.backing_fd, file)) return 0;
  sys::Lock lock(lock_);
  if (IsBacking(file.backing_fd, file)) return 0;
  const long opened = Reopen(file);
  if (opened < 0) return -EBADF;
  engine.descriptors.Store(static_cast<int>(opened), Internal());
  Disown(file);
  file.backing_fd.store(static_cast<int>(opened));
  // Meanwhile somebody may have read from what has the number now.
  file.pages.ForEach(engine.supply, [&](uint64_t, radix::PageDescriptor& page) {
    sys::Lock page_lock(page.lock);
    if (page.has_frame()) engine.frames.Detach(page);
  });
  return 0;
}

// Opens the file by a descriptor of the program's, or else as recovery finds it.
long OwnDescriptors::Reopen(File& file) {
  for (int fd = 0; fd < static_cast<int>(engine.descriptors.end()); ++fd) {
    const Description* description = engine.descriptors.Of(fd);
    if (!IsDescription(description) || description->file.load() != &file) continue;
    if (!IsInode(fd, file)) continue;
    const long opened = OpenBacking(fd);
    if (opened >= 0) return opened;
  }
  sys::Scratch<pool::FileRecord> record;
  if (!engine.log.CopyFileRecord(file.tag, record.get()) || record->inode != file.inode)
    return -EBADF;
  const long opened = replay::OpenRecorded(*record);
  if (opened < 0) return opened;
  sys::Fcntl(static_cast<int>(opened), F_SETFL, O_NOATIME);  // like OpenBacking, if it is allowed
  return OutOfTheWay(static_cast<int>(opened));
}

// The number is the program's now.
void OwnDescriptors::Disown(File& file) {
  const int fd = file.backing_fd.exchange(-1);
  if (engine.descriptors.Of(fd) == Internal()) engine.descriptors.Store(fd, kUntracked);
}

void OwnDescriptors::Close(File& file) {
  if (file.backing_fd < 0) return;
  sys::Lock lock(file.sync_lock);
  const int fd = file.backing_fd;
  const bool ours = engine.descriptors.Of(fd) == Internal() && IsBacking(fd, file);
  if (!ours) return Disown(file);
  file.backing_fd.store(-1);
  Return(fd);
}

void OwnDescriptors::Lost(int fd) {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  // Others take us for dead, and our files for theirs.
  if (fd == engine.leases.fd()) engine.attachment.ReleaseAll(true);
  engine.kept_folders.Lost(fd);
  engine.files.ForEach([&](File& file) {
    if (file.backing_fd == fd) Check(file);
  });
}

long OwnDescriptors::Move(int fd) {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  if (fd == engine.pool().fd()) {
    engine.pool().Renumber();
    if (fd == engine.pool().fd()) return -EMFILE;
    engine.descriptors.Set(engine.pool().fd(), Internal());
    engine.descriptors.Set(fd, kUntracked);
    return 0;
  }
  if (pool::Journal& journal = engine.pool().own_journal(); fd == journal.fd()) {
    journal.Renumber();
    return Renumbered(fd, journal.fd());
  }
  if (fd == engine.mirror.journal_fd()) {
    engine.mirror.RenumberJournal();
    return Renumbered(fd, engine.mirror.journal_fd());
  }
  if (fd == engine.leases.fd()) {
    engine.leases.Renumber(fd + 1);
    if (fd == engine.leases.fd()) return -EMFILE;
    engine.descriptors.Set(engine.leases.fd(), Internal());
    engine.descriptors.Set(fd, kUntracked);
    engine.files.RelockSoon();
    return 0;
  }
  if (const long moved = engine.checkpoint.MoveDescriptor(fd); moved <= 0) return moved;
  if (const long moved = engine.kept_folders.Move(fd); moved <= 0) return moved;
  long result = -EBADF;
  engine.files.ForEach([&](File& file) {
    if (file.backing_fd != fd) return;
    file.lock.Lock();
    // Nobody uses the number when nothing is pending.
    result = DrainExclusively(file);
    // The call that takes the number closes ours.
    if (result == 0 && IsLocked(fd)) result = -EBUSY;
    if (result == 0) {
      sys::Lock lock(file.sync_lock);
      file.backing_fd.store(sys::MoveHigh(fd));
      engine.descriptors.Set(fd, kUntracked);
      engine.descriptors.Set(file.backing_fd, Internal());
      if (file.backing_fd == fd) result = -EMFILE;
    }
    file.lock.Unlock();
  });
  return result;
}

// Idle files first: those cost no wait.
bool OwnDescriptors::MakeRoom(uint32_t before) {
  NVCACHE_CHECK(engine.table_lock.IsLocked());
  engine.kept_folders.Close();
  for (const bool all : {false, true}) {
    if (engine.descriptors.CountInternal() < before) return true;
    engine.files.ForEach([&](File& file) {
      if (file.state.load() == State::kCached && (all || file.pending.load() == 0)) GiveBack(file);
    });
    engine.files.Reap();
  }
  if (engine.descriptors.CountInternal() < before) return true;
  if (engine.attached()) engine.attachment.AttachLater();
  engine.attachment.ReleaseAll();
  return engine.descriptors.CountInternal() < before || MoveLeases();
}

// The limit is one of numbers: a number beyond it is none of the program's. So for the time of the
// call it is higher by one, where the hard limit allows that.
bool OwnDescriptors::MoveLeases() {
  const int old = engine.leases.fd();
  uint64_t limit[2];
  sys::Call(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, sys::Address(limit));
  const uint64_t number = limit[0], raised[2] = {number + 1, limit[1]};
  const bool fits = number < limit[1] && number < kMaxDescriptors;
  if (!engine.leases.is_open() || static_cast<uint64_t>(old) >= number || !fits) return false;
  if (!engine.descriptors.MakeRoomFor(static_cast<uint32_t>(number))) return false;
  sys::Call(SYS_prlimit64, 0, RLIMIT_NOFILE, sys::Address(raised), 0);
  engine.leases.Renumber(static_cast<int>(number));
  sys::Call(SYS_prlimit64, 0, RLIMIT_NOFILE, sys::Address(limit), 0);
  if (engine.leases.fd() == old) return false;
  engine.descriptors.Set(engine.leases.fd(), Internal());
  engine.descriptors.Set(old, kUntracked);
  sys::Close(old);
  if (!engine.leases.Relock()) engine.attachment.ReleaseAll(true);  // others take us for dead
  return true;
}

}  // namespace nvcache::vfs
