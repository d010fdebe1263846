// SPDX-License-Identifier: BSD-3-Clause
//
// Opening, duplicating and closing descriptors.
#include <errno.h>
#include <linux/close_range.h>

#include <algorithm>

#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/vfs/access.h"
#include "src/vfs/heat.h"
#include "src/vfs/settle.h"
#include "src/vfs/through.h"

namespace nvcache::vfs {

namespace {

// Forgets what a number stood for before the kernel gave it to somebody new. Table lock held.
void Vacate(int fd) {
  Description* old = engine.SlotOf(fd);
  engine.SetSlot(fd, kUntracked);
  if (IsDescription(old)) engine.DropReference(*old);
  if (old == Internal()) engine.LostInternal(fd);
}

bool Writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY; }

bool IsGiven(const File& file) {
  for (Description* d = file.descriptions; d != nullptr; d = d->next) {
    if (d->given.load()) return true;
  }
  return false;
}

// Starts to track what was just opened. Table lock held.
void Track(int fd, int flags, const struct stat& st) {
  File* file = engine.FindFile(st.st_dev, st.st_ino);
  if (file == nullptr) {
    file = engine.NewFile(st);
    // It may get a name by which it would be cached, while this descriptor is still open.
    if (file != nullptr && !engine.Cacheable(fd, st)) engine.PassThrough(*file);
  }
  const bool number_fits = engine.MakeSlot(static_cast<uint32_t>(fd));
  Description* description =
      file != nullptr && number_fits ? engine.NewDescription(*file, flags, st) : nullptr;
  if (description == nullptr) {
    // No room to remember it. Nobody may cache the file while this descriptor is open, and we
    // shall not know when it is closed.
    engine.TableFull(file);
    return;
  }
  engine.SetSlot(fd, description);
  if (file->state.load() == State::kForeign) engine.GiveBack(*file);
  if (file->state.load() == State::kPassThrough) return;
  if ((flags & O_DIRECT) != 0) {
    engine.PassThrough(*file);
  } else if (Writes(flags) && IsHotFromTheStart() && file->state.load() == State::kKernel) {
    const bool may = !engine.full() && !engine.replacing() && !IsGiven(*file) && engine.Attach();
    if (!may || !engine.BeginCaching(*file, fd)) engine.PassThrough(*file);
  }
}

bool CanCut(int flags) {
  const int access = flags & O_ACCMODE;
  constexpr int kNew = O_CREAT | O_EXCL;
  return (flags & kNew) != kNew && (access == O_WRONLY || access == O_RDWR) &&
         (flags & (O_PATH | O_DIRECTORY)) == 0;
}

// Each byte of the file is on the disk or in a log of write-through.
bool IsKnownShared(const struct stat& st) {
  if (!engine.leases.is_open() || sys::IsSharing()) return false;
  const lease::Tally* tally = engine.tallies.Find(lease::TagOf(st.st_dev, st.st_ino));
  return tally != nullptr && lease::Tallies::StandingOf(*tally).known;
}

// Table lock held; both numbers are the kernel's by now. `stays`: `to`, over exec.
void Share(int from, int to, bool stays) {
  Vacate(to);
  Description* description = engine.SlotOf(from);
  if (!IsDescription(description)) return;
  if (stays) description->flags.fetch_and(~O_CLOEXEC);
  ++description->references;
  engine.SetSlot(to, description);
}

// What an open with these flags finds under the path. The kernel takes RESOLVE_CACHED for no open
// that cuts, so its being there does not matter.
long Look(int dirfd, const char* path, int flags, uint64_t resolve, struct stat* st) {
  const int nofollow = flags & O_NOFOLLOW;
  if (resolve == 0) {
    return sys::Fstatat(dirfd, path, st, nofollow != 0 ? AT_SYMLINK_NOFOLLOW : 0);
  }
  open_how how = {};
  how.flags = static_cast<uint64_t>(O_PATH | O_CLOEXEC | nofollow);
  how.resolve = resolve & ~uint64_t{RESOLVE_CACHED};
  const long fd = sys::Openat2(dirfd, path, how);
  if (fd < 0) return fd;
  const long result = sys::Fstat(static_cast<int>(fd), st);
  sys::Close(static_cast<int>(fd));
  return result;
}

// The kernel does not tell a process which locks it has. Before the first one, a file that may
// become hot gets its descriptor: closing any later would drop the locks (I11).
void NoteLock(int fd) {
  // Before a child has its first lock: then it closes what it has of its parent's.
  if (engine.asleep()) const TableLock wakes;
  Description* description = engine.SlotOf(fd);
  const File* known = IsDescription(description) ? description->file.load() : nullptr;
  if (known == nullptr || known->locked.load(std::memory_order_relaxed)) return;
  TableLock lock;
  description = engine.SlotOf(fd);
  if (!IsDescription(description)) return;
  File& file = *description->file.load();
  if (file.locked.load()) return;
  if (Writes(description->flags.load())) engine.PrepareBacking(file, fd);
  file.locked.store(true);
}

// Table lock held; the slot is a description. The kernel gives the number to the next thread that
// asks, for a socket perhaps, of which we do not hear: by then the number is nobody's.
long CloseTracked(int fd) {
  Description* description = engine.SlotOf(fd);
  if (description->references == 1) NoteLeft(fd, *description);
  engine.SetSlot(fd, Closing());
  const long error = engine.DropReference(*description);
  engine.SetSlot(fd, kUntracked);
  const long result = sys::Close(fd);
  engine.Reap();
  return result < 0 ? result : error;
}

}  // namespace

// Opening a fifo waits for somebody, who may need the lock first; nothing of it can be truncated.
OpenGuard::OpenGuard(int dirfd, const char* path, int flags, mode_t mode, uint64_t resolve,
                     bool plain)
    : flags_(flags), path_(path), names_((flags & O_CREAT) != 0), dirfd_(dirfd) {
  if (!engine.active() && !sys::IsSharing()) return;
  if ((flags & O_CREAT) != 0) names_.Create(dirfd, path, flags, mode, !plain);
  error_ = names_.error();
  // A new file has nothing to cut off.
  if ((flags & O_TRUNC) != 0 && error_ == 0 && !names_.logs()) PrepareToCut(resolve, plain);
}

void OpenGuard::PrepareToCut(uint64_t resolve, bool plain) {
  const int dirfd = dirfd_, flags = flags_;
  const char* path = path_;
  struct stat st;
  const bool exists = !names_.is_free() && Look(dirfd, path, flags, resolve, &st) == 0;
  if (exists && !S_ISREG(st.st_mode)) return;
  if (exists) error_ = by_path_.Take(st.st_dev, st.st_ino);
  cuts_shared_ = plain && error_ == 0 && exists && IsKnownShared(st) && CanCut(flags);
  if (cuts_shared_) return;
  if (exists && error_ == 0) error_ = by_path_.ToChange();
  if (error_ < 0 || sys::IsSharing()) return;
  LockTable();
  if (!engine.HasFilesInCaches()) return;
  if (Look(dirfd, path, flags, resolve, &st) < 0 || !S_ISREG(st.st_mode)) return;
  File* file = engine.FindFile(st.st_dev, st.st_ino);
  if (file == nullptr || file->state.load() != State::kCached) return;
  file->lock.Lock();
  file_ = file;
  // Of an open without O_TRUNC, the kernel looks at the right to write only if it is to write; and
  // one that must fail shall fail.
  const int access = flags & O_ACCMODE;
  const bool fails = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
  replaces_ = plain && !fails && (access == O_WRONLY || access == O_RDWR) &&
              (flags & (O_PATH | O_DIRECTORY)) == 0 && file->failing.load() == 0;
  if (!replaces_) Drain();
}

// The kernel is about to cut the file.
void OpenGuard::Drain() {
  File& file = *static_cast<File*>(file_);
  replaces_ = false;
  error_ = engine.DrainExclusively(file);
  cuts_ = file.size.load() > 0;
  if (error_ == 0) return;
  file.lock.Unlock();
  file_ = nullptr;
}

// The name was free. If somebody has given it away by now, the file is opened as it is; if that has
// gone as well, once more. A link that leads nowhere is free for one of the two alone: what the
// kernel makes by it has another name.
long OpenGuard::Create() {
  constexpr int kAttempts = 4;
  for (int i = 0; i < kAttempts; ++i) {
    long result = names_.Make();
    if (result != -EEXIST || (flags_ & O_EXCL) != 0) return result;
    result = sys::Openat(dirfd_, path_, flags_ & ~O_CREAT);
    if (result != -ENOENT) return result;
  }
  return kNotOurs;
}

// It is cut when the process follows it, by way of the log if that is still possible then.
long OpenGuard::OpenToCut() {
  const long opened = sys::Openat(dirfd_, path_, flags_ & ~(O_TRUNC | O_CREAT));
  if (opened != -ENOENT) return opened;
  cuts_shared_ = false;
  names_.MakesElsewhere();
  return kNotOurs;
}

// A call that would make a file if it were gone by now could not be in the log.
long OpenGuard::OpenThere() {
  const long opened = sys::Openat(dirfd_, path_, flags_ & ~O_CREAT);
  if (opened != -ENOENT) return opened;
  names_.MakesElsewhere();
  return kNotOurs;
}

// Whoever has the name by now gets what the kernel would have done.
long OpenGuard::Replace() {
  if (names_.logs()) {
    const long result = Create();
    if (result != kNotOurs && result != kBeginAnew) return result;
    names_.GoPastAfterwards();
    return kNotOurs;
  }
  if (cuts_shared_) return OpenToCut();
  if (!replaces_) return names_.is_there() ? OpenThere() : kNotOurs;
  const long opened = sys::Openat(dirfd_, path_, flags_ & ~(O_TRUNC | O_CREAT));
  if (opened == -ENOENT) {
    names_.MakesElsewhere();
    Drain();
    return error_ < 0 ? error_ : kNotOurs;
  }
  if (opened < 0) return opened;
  File& file = *static_cast<File*>(file_);
  const auto fd = static_cast<int>(opened);
  struct stat st;
  const bool same = sys::Fstat(fd, &st) == 0 && st.st_dev == file.device && st.st_ino == file.inode;
  const bool cuts = same && file.size.load() > 0;
  if (cuts && CutLogged(file, 0) == 0) return opened;
  if (cuts) Drain();
  const long error = error_ < 0 ? error_ : sys::Ftruncate(fd, 0);
  if (error == 0) return opened;
  sys::Close(fd);
  return error;
}

OpenGuard::~OpenGuard() {
  if (file_ != nullptr) static_cast<File*>(file_)->lock.Unlock();
  UnlockTable();
}

void OpenGuard::LockTable() {
  if (locked_) return;
  sys::EnterEngine();
  engine.LockTable();
  locked_ = true;
}

void OpenGuard::UnlockTable() {
  if (!locked_) return;
  engine.table_lock.Unlock();
  sys::LeaveEngine();
  locked_ = false;
}

// The times change, even if there is nothing to cut.
long OpenGuard::Cut(int fd) {
  struct stat st;
  const bool is_empty = sys::Fstat(fd, &st) == 0 && st.st_size == 0;
  const long result = is_empty ? kNotOurs : Ftruncate(fd, 0);
  return result == kNotOurs ? sys::Ftruncate(fd, 0) : result;
}

// By a child that shares our memory: its descriptors are none of ours.
long OpenGuard::OpenedInChild(int fd) {
  struct stat st;
  const bool opened = fd >= 0 && (flags_ & O_PATH) == 0 && sys::Fstat(fd, &st) == 0;
  return opened && S_ISREG(st.st_mode) ? by_descriptor_.Take(st.st_dev, st.st_ino) : 0;
}

long OpenGuard::Opened(int fd) {
  if (fd >= 0 && names_.is_free() && !names_.has_created()) names_.MadeByKernel();
  if (sys::IsSharing()) return OpenedInChild(fd);
  if (!engine.active()) return 0;
  LockTable();
  if (auto* file = static_cast<File*>(file_); file != nullptr) {
    if (!replaces_) {
      engine.Resync(*file);
      if (cuts_) AwaitSync(*file);
      file->changes.fetch_add(1);
    }
    file->lock.Unlock();
    file_ = nullptr;
  }
  struct stat st;
  const bool trackable = fd >= 0 && (flags_ & O_PATH) == 0 && sys::Fstat(fd, &st) == 0 &&
                         S_ISREG(st.st_mode) && engine.Trackable(fd, st);
  if (trackable) {
    UnlockTable();
    error_ = by_descriptor_.Take(st.st_dev, st.st_ino);
    if ((flags_ & O_DIRECT) != 0 && error_ == 0) error_ = by_descriptor_.ToChange();
    LockTable();
    // Whoever has let go of the file has brought it up to date.
    if (error_ == 0 && by_descriptor_.has_waited()) error_ = sys::Fstat(fd, &st);
  }
  if (fd >= 0) Vacate(fd);
  if (trackable && error_ == 0 && engine.active()) {
    engine.ForgetClosed(st);
    Track(fd, flags_, st);
  }
  const bool creates = names_.has_created() || names_.creates_elsewhere();
  if ((creates || cuts_shared_) && fd >= 0 && error_ == 0) {
    UnlockTable();
    names_.End();
    if (names_.creates_elsewhere()) NameCall::CreatedElsewhere(fd);
    if (names_.has_created()) BeginKnown(fd, names_.created());
    if (cuts_shared_) error_ = Cut(fd);
    LockTable();
  }
  engine.Reap();
  return error_;
}

long Adopt(int fd) {
  if (!engine.active() || fd < 0) return 0;
  struct stat st;
  const auto flags = static_cast<int>(sys::Fcntl(fd, F_GETFL));
  const bool trackable =
      flags >= 0 && (flags & O_PATH) == 0 && sys::Fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
  const bool passes = IsHotFromTheStart() || (flags & O_DIRECT) != 0;
  Claim claim;
  if (trackable) {
    if (long error = claim.Take(st.st_dev, st.st_ino); error < 0) return error;
    if (long error = passes ? claim.ToChange() : 0; error < 0) return error;
  }
  TableLock lock;
  Vacate(fd);
  if (!trackable || !engine.active()) return 0;
  File* file = engine.FindFile(st.st_dev, st.st_ino);
  if (file == nullptr) file = engine.NewFile(st);
  if (file != nullptr) {
    const long error = passes ? engine.PassThrough(*file) : engine.GiveBack(*file);
    if (error < 0) return error;
  }
  const bool number_fits = engine.MakeSlot(static_cast<uint32_t>(fd));
  Description* description =
      file != nullptr && number_fits ? engine.NewDescription(*file, flags, st) : nullptr;
  if (description == nullptr) {
    engine.TableFull(file);
    return 0;
  }
  description->forks.store(kShared);
  engine.SetSlot(fd, description);
  return 0;
}

void Forget(int fd) {
  if (!engine.active()) return;
  TableLock lock;
  if (!IsDescription(engine.SlotOf(fd))) return;
  Vacate(fd);
  engine.Reap();
}

bool Tracks(int fd) { return IsDescription(engine.SlotOf(fd)); }

// In a child of fork, to take the lock is to close what it has of its parent's.
bool MakeRoom() {
  if (!engine.active()) return false;
  const uint32_t before = engine.CountInternal();
  TableLock lock;
  return engine.MakeRoom(before);
}

bool IsInternal(int fd) { return engine.SlotOf(fd) == Internal(); }

namespace {

// A child that shares our memory makes another descriptor of what it has, which may stay open over
// exec. If it has put something else in the place of `fd`, that was noted before.
void NoteCopyInChild(int fd) {
  Description* description = sys::IsSharing() ? engine.SlotOfParent(fd) : kUntracked;
  const File* file = IsDescription(description) ? description->file.load() : nullptr;
  if (file == nullptr || description->given.exchange(true) || !description->writes()) return;
  Passing passing;
  passing.Begin(*file);
  if (engine.leases.is_open()) engine.leases.HandOn(file->device, file->inode);
  passing.GoPast(-1);
}

// Its own descriptor of the file of leases tells it who lives.
long CloseRangeInChild(unsigned first, unsigned last, int flags) {
  const auto ours = static_cast<unsigned>(engine.leases.fd());
  if (!engine.leases.is_open() || ours < first || ours > last) return kNotOurs;
  // The program has put another one in its place.
  if ((sys::Fcntl(engine.leases.fd(), F_GETFD) & FD_CLOEXEC) == 0) return kNotOurs;
  long result = 0;
  if (ours > first) result = sys::Call(SYS_close_range, first, ours - 1, flags);
  if (ours < last && result == 0) result = sys::Call(SYS_close_range, ours + 1, last, flags);
  return result;
}

}  // namespace

long Close(int fd) {
  if (engine.SlotOf(fd) == kUntracked) return kNotOurs;
  TableLock lock;
  Description* description = engine.SlotOf(fd);
  if (description == kUntracked) return kNotOurs;
  return IsDescription(description) ? CloseTracked(fd) : -EBADF;
}

long Dup(int fd) { return Fcntl(fd, F_DUPFD, 0); }

long Dup2(int from, int to) {
  if (from != to) return Dup3(from, to, 0);
  return IsInternal(from) ? -EBADF : kNotOurs;
}

long Dup3(int from, int to, int flags) {
  NoteCopyInChild(from);
  if (engine.SlotOf(from) == kUntracked && engine.SlotOf(to) == kUntracked) return kNotOurs;
  if (from == to) return -EINVAL;
  TableLock lock;
  if (IsInternal(from)) return -EBADF;
  if (IsInternal(to)) {
    if (long error = engine.MoveInternal(to); error < 0) return error;
  }
  const long result = sys::Dup3(from, to, flags);
  if (result >= 0) Share(from, to, (flags & O_CLOEXEC) == 0);
  engine.Reap();
  return result;
}

void NoteKeptOnExec(int fd) {
  NoteCopyInChild(fd);
  Description* description = engine.SlotOf(fd);
  if (IsDescription(description)) description->flags.fetch_and(~O_CLOEXEC);
}

long Fcntl(int fd, int command, long argument) {
  if (IsInternal(fd)) return -EBADF;
  // A lease wants to be alone with the file, and our descriptor would be in its way.
  if (command == F_SETLEASE) {
    const long error = PassThrough(fd);
    return error < 0 ? error : kNotOurs;
  }
  if (command == F_SETLK || command == F_SETLKW) {
    NoteLock(fd);
    return kNotOurs;
  }
  if (command == F_DUPFD) NoteCopyInChild(fd);
  if (command == F_SETFD && (argument & FD_CLOEXEC) == 0) NoteKeptOnExec(fd);
  if (command != F_DUPFD && command != F_DUPFD_CLOEXEC && command != F_SETFL) return kNotOurs;
  if (!IsDescription(engine.SlotOf(fd))) return kNotOurs;
  if (command == F_SETFL) {
    if (long error = engine.TakeOver(fd); error < 0) return error;
    if ((argument & O_DIRECT) != 0) {
      if (long error = PassThrough(fd); error < 0) return error;
    }
  }
  TableLock lock;
  Description* description = engine.SlotOf(fd);
  if (!IsDescription(description)) return kNotOurs;
  const long result = sys::Fcntl(fd, command, argument);
  if (result < 0) return result;
  if (command != F_SETFL) {
    Share(fd, static_cast<int>(result), command == F_DUPFD);
    return result;
  }
  const int kept = description->flags.load() & ~O_APPEND;
  description->flags.store(kept | (static_cast<int>(argument) & O_APPEND));
  return result;
}

// Ours lie somewhere in the range, so it is closed in pieces around them.
long CloseRange(unsigned first, unsigned last, int flags) {
  if (sys::IsSharing() && first <= last) return CloseRangeInChild(first, last, flags);
  if (!engine.active() || first > last) return kNotOurs;
  TableLock lock;
  constexpr int kUnshare = CLOSE_RANGE_UNSHARE;
  constexpr int kCloseOnExec = CLOSE_RANGE_CLOEXEC;
  if ((flags & ~(kUnshare | kCloseOnExec)) != 0) return -EINVAL;
  if ((flags & kUnshare) != 0) engine.ReleaseAll(true);
  const bool closes = (flags & kCloseOnExec) == 0;
  unsigned piece = first;
  const unsigned tracked_end =
      std::min(engine.descriptor_end(), last == UINT32_MAX ? last : last + 1);
  for (unsigned fd = first; fd < tracked_end; ++fd) {
    Description* slot = engine.SlotOf(static_cast<int>(fd));
    if (IsDescription(slot) && closes) CloseTracked(static_cast<int>(fd));
    if (slot != Internal()) continue;
    if (piece < fd) sys::Call(SYS_close_range, piece, fd - 1, flags);
    piece = fd + 1;
  }
  if (piece > last) return 0;
  return sys::Call(SYS_close_range, piece, last, flags);
}

}  // namespace nvcache::vfs
