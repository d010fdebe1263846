// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/open.h"

#include <errno.h>

#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/vfs/births.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/heat.h"
#include "src/vfs/engine/settle.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/output.h"
#include "src/vfs/sizes.h"
#include "src/vfs/unseen.h"

namespace nvcache::vfs {

namespace {

bool Writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY; }

bool IsGiven(const File& file) {
  for (Description* d = file.descriptions; d != nullptr; d = d->next) {
    if (d->given.load()) return true;
  }
  return false;
}

// Starts to track the file that was just opened. False: no call on it will be followed, for there
// is no room, or the file passes through. Table lock held.
bool Track(int fd, int flags, const sys::BornStat& st) {
  File* file = engine.files.Find(st.st_dev, st.st_ino);
  if (file == nullptr) {
    file = engine.files.New(st);
    // It may get a name by which it would be cached, while this descriptor is still open.
    if (file != nullptr && !engine.file_systems.Cacheable(fd, st)) PassThrough(*file);
  }
  const bool number_fits = engine.descriptors.MakeRoomFor(static_cast<uint32_t>(fd));
  Description* description =
      file != nullptr && number_fits ? engine.files.NewDescription(*file, flags, st) : nullptr;
  if (description == nullptr) {
    // No room to remember it, and we shall not know when it is closed.
    engine.files.TableFull(file, st);
    return false;
  }
  engine.descriptors.Set(fd, description);
  if (file->state.load() == State::kForeign) GiveBack(*file);
  if (!IsFollowed(file->state.load())) return false;
  if ((flags & O_DIRECT) != 0 || (Writes(flags) && engine.callers.are_raw())) {
    PassThrough(*file);
  } else if (Writes(flags) && IsHotFromTheStart() && file->state.load() == State::kKernel &&
             !IsGiven(*file) && engine.attachment.Attach()) {
    BeginCaching(*file, fd);  // or else Opened() settles it
  }
  return IsFollowed(file->state.load());
}

// By the rule that it is hot from the start, and is not cached: groups of it count still, or others
// use it. Table lock held.
bool IsToBeSettled(int fd, int flags) {
  const Description* description = engine.descriptors.Of(fd);
  return Writes(flags) && IsHotFromTheStart() && IsDescription(description) &&
         IsKernels(description->file.load()->state.load());
}

// An error that the kernel tells us here it tells nobody again: it is the open's. No lock.
long SettleOpened(int fd) {
  const long heard = SyncThrough(fd);
  if (heard < 0 && heard != kNotOurs) return heard;
  WarmUp(fd);
  const long error = SyncThrough(fd);  // if it is cached now, that is nothing
  return error == kNotOurs ? 0 : error;
}

bool CanCut(int flags) {
  const int access = flags & O_ACCMODE;
  constexpr int kNew = O_CREAT | O_EXCL;
  return (flags & kNew) != kNew && (access == O_WRONLY || access == O_RDWR) &&
         (flags & (O_PATH | O_DIRECTORY)) == 0;
}

// Each byte of the file is on the disk or in a log of write-through.
bool IsKnownThrough(const sys::BornStat& st) {
  if (!engine.leases.is_open() || sys::IsSharing()) return false;
  const lease::FileEntry* entry = engine.file_table.Find(lease::TagOf(st));
  return entry != nullptr && lease::FileTable::CoverageOf(*entry).known;
}

// The file that an open with these flags finds under the path. The kernel takes RESOLVE_CACHED for
// no open that cuts, so its being there does not matter.
long Look(int dirfd, const char* path, int flags, uint64_t resolve, sys::BornStat* st) {
  const int nofollow = flags & O_NOFOLLOW;
  if (resolve == 0) {
    return sys::LookAt(dirfd, path, st, nofollow != 0 ? AT_SYMLINK_NOFOLLOW : 0);
  }
  open_how how = {};
  how.flags = static_cast<uint64_t>(O_PATH | O_CLOEXEC | nofollow);
  how.resolve = resolve & ~uint64_t{RESOLVE_CACHED};
  const long fd = sys::Openat2(dirfd, path, how);
  if (fd < 0) return fd;
  const long result = sys::Look(static_cast<int>(fd), st);
  sys::Close(static_cast<int>(fd));
  return result;
}

}  // namespace

// Opening a fifo waits for somebody, who may need the lock first; nothing of it can be truncated.
OpenGuard::OpenGuard(int dirfd, const char* path, int flags, mode_t mode, uint64_t resolve,
                     bool plain)
    : error_(HoldsOutputs() ? HoldOpen(dirfd, path, flags) : 0),
      flags_(flags),
      path_(path),
      names_((flags & O_CREAT) != 0),
      dirfd_(dirfd) {
  if (error_ < 0) return;
  if (!engine.active() && !sys::IsSharing()) return;
  if (IsHotFromTheStart() && Writes(flags) && !sys::IsSharing()) engine.callers.Know();
  if (!SeesPaths()) {
    constexpr int kNew = O_CREAT | O_EXCL;
    cuts_unseen_ = (flags & O_TRUNC) != 0 && (flags & kNew) != kNew && (flags & O_PATH) == 0;
    return;
  }
  if ((flags & O_CREAT) != 0) names_.Create(dirfd, path, flags, mode, !plain);
  error_ = names_.error();
  // A new file has nothing to cut off.
  if ((flags & O_TRUNC) != 0 && error_ == 0 && !names_.logs()) PrepareToCut(resolve, plain);
}

void OpenGuard::PrepareToCut(uint64_t resolve, bool plain) {
  const int dirfd = dirfd_, flags = flags_;
  const char* path = path_;
  sys::BornStat st;
  const bool exists = !names_.is_free() && Look(dirfd, path, flags, resolve, &st) == 0;
  if (exists && !S_ISREG(st.st_mode)) return;
  if (exists) error_ = by_path_.Take(st);
  cuts_through_ = plain && error_ == 0 && exists && IsKnownThrough(st) && CanCut(flags);
  if (cuts_through_) return;
  if (exists && error_ == 0) error_ = by_path_.ToChange();
  if (error_ < 0 || sys::IsSharing()) return;
  LockTable();
  if (!engine.files.AnyInCaches()) return;
  if (Look(dirfd, path, flags, resolve, &st) < 0 || !S_ISREG(st.st_mode)) return;
  File* file = engine.files.Find(st.st_dev, st.st_ino);
  if (file == nullptr || file->state.load() != State::kCached) return;
  file->lock.Lock();
  file_ = file;
  // The kernel looks at the right to write in an open without O_TRUNC only if it is to write; and
  // one that must fail shall fail.
  const int access = flags & O_ACCMODE;
  const bool fails = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
  replaces_ = plain && !fails && (access == O_WRONLY || access == O_RDWR) &&
              (flags & (O_PATH | O_DIRECTORY)) == 0 && file->failing.load() == 0;
  if (!replaces_) Drain();
}

// The kernel is about to cut the file.
void OpenGuard::Drain() {
  File& file = *file_;
  replaces_ = false;
  error_ = DrainExclusively(file);
  cuts_ = file.size.load() > 0;
  if (error_ == 0) return;
  file.lock.Unlock();
  file_ = nullptr;
}

// The name was free. If somebody has given it away by now, the file is opened as it is; if that has
// gone as well, once more. A link that leads nowhere is free for one of the two alone: a file that
// the kernel makes by it has another name.
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
  cuts_through_ = false;
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

namespace {

// Apart, so that its words are not on the stack while the file is cut.
[[gnu::noinline]] bool IsOf(const File& file, int fd) {
  struct stat st;
  return sys::Fstat(fd, &st) == 0 && st.st_dev == file.device && st.st_ino == file.inode;
}

}  // namespace

// The file that has the name by now is treated as the kernel would have treated it.
long OpenGuard::Replace() {
  if (names_.logs()) {
    const long result = Create();
    if (result != kNotOurs && result != kBeginAnew) return result;
    names_.MadeUnlogged();
    return kNotOurs;
  }
  if (cuts_through_) return OpenToCut();
  if (!replaces_) return names_.is_there() ? OpenThere() : kNotOurs;
  const long opened = sys::Openat(dirfd_, path_, flags_ & ~(O_TRUNC | O_CREAT));
  if (opened == -ENOENT) {
    names_.MakesElsewhere();
    Drain();
    return error_ < 0 ? error_ : kNotOurs;
  }
  if (opened < 0) return opened;
  File& file = *file_;
  const auto fd = static_cast<int>(opened);
  const bool cuts = IsOf(file, fd) && file.size.load() > 0;
  if (cuts && CutLogged(file, 0) == 0) return opened;
  if (cuts) Drain();
  const dramcache::KernelChange change(file);
  const long error = error_ < 0 ? error_ : sys::Ftruncate(fd, 0);
  if (error == 0) return opened;
  OwnDescriptors::Return(fd);
  return error;
}

OpenGuard::~OpenGuard() {
  if (file_ != nullptr) file_->lock.Unlock();
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

// A descriptor that only reads cuts nothing, but the open would have. The link is no path of the
// program's.
long OpenGuard::CutReader(int fd) {
  UnseenCall call;
  call.Begin();
  return sys::Truncate(sys::LinkTo(fd).c_str(), 0);
}

// The function behind may have opened what it likes.
long OpenGuard::CutOpened(int fd) {
  struct stat st;
  if (sys::Fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) return 0;
  if ((sys::Fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) return CutReader(fd);
  const long result = sys::IsSharing() ? kNotOurs : Ftruncate(fd, 0);
  return result == kNotOurs ? sys::Ftruncate(fd, 0) : result;
}

// The times change, even if there is nothing to cut.
long OpenGuard::Cut(int fd) {
  struct stat st;
  const bool is_empty = sys::Fstat(fd, &st) == 0 && st.st_size == 0;
  const long result = is_empty ? kNotOurs : Ftruncate(fd, 0);
  return result == kNotOurs ? sys::Ftruncate(fd, 0) : result;
}

// A child that shares our memory has opened it: its descriptors are none of ours.
long OpenGuard::OpenedInChild(int fd) {
  sys::BornStat st;
  const bool opened = fd >= 0 && (flags_ & O_PATH) == 0 && sys::Look(fd, &st) == 0;
  if (!opened || !S_ISREG(st.st_mode)) return 0;
  long error = by_descriptor_.Take(st);
  if (!cuts_unseen_) return error;
  if (error == 0) error = by_descriptor_.ToChange();
  return error < 0 ? error : CutOpened(fd);
}

long OpenGuard::Opened(int fd) {
  const bool made_unseen = !SeesPaths() && (flags_ & O_CREAT) != 0;
  if (fd >= 0 && ((names_.is_free() && !names_.has_created()) || made_unseen)) {
    names_.MadeByKernel();
  }
  if (sys::IsSharing()) return OpenedInChild(fd);
  if (!engine.active()) return cuts_unseen_ && fd >= 0 ? CutOpened(fd) : 0;
  LockTable();
  if (File* const file = file_; file != nullptr) {
    if (!replaces_) {
      Resync(*file);
      if (cuts_) RaiseBarrier(*file);
      file->changes.fetch_add(1);
    }
    file->lock.Unlock();
    file_ = nullptr;
  }
  sys::BornStat st;
  const bool seen =
      fd >= 0 && (flags_ & O_PATH) == 0 && (names_.GetMade(&st) || sys::Look(fd, &st) == 0);
  const bool trackable = seen && S_ISREG(st.st_mode) && engine.file_systems.Trackable(fd, st);
  if (trackable) {
    UnlockTable();
    error_ = by_descriptor_.Take(st);
    if ((flags_ & O_DIRECT) != 0 && error_ == 0) error_ = by_descriptor_.ToChange();
    LockTable();
    // The process that has let go of the file has brought it up to date.
    if (error_ == 0 && by_descriptor_.has_waited()) error_ = sys::Look(fd, &st);
  }
  if (fd >= 0) engine.files.Vacate(fd);
  if (trackable && error_ == 0 && engine.active()) {
    engine.files.ForgetClosed(st);
    // Other processes, dead ones as well, may have left groups of it in the log: a recovery would
    // lay them over what is written by this descriptor.
    const bool followed = Track(fd, flags_, st);
    const bool unseen = Writes(flags_) || !IsDescription(engine.descriptors.Of(fd));
    if (!followed && unseen && (flags_ & O_DIRECT) == 0) {
      UnlockTable();
      error_ = by_descriptor_.ToChange();
      LockTable();
    } else if (IsToBeSettled(fd, flags_)) {
      UnlockTable();
      error_ = SettleOpened(fd);
      LockTable();
    }
  }
  const bool creates = names_.has_created() || names_.creates_elsewhere();
  if ((creates || cuts_through_ || cuts_unseen_) && fd >= 0 && error_ == 0) {
    UnlockTable();
    names_.End();
    if (names_.creates_elsewhere()) SyncElsewhere(fd);
    if (names_.has_created()) BeginKnown(fd, names_.created(), names_.born());
    if (cuts_through_) error_ = Cut(fd);
    if (cuts_unseen_) error_ = CutOpened(fd);
    LockTable();
  }
  engine.files.Reap();
  return error_;
}

}  // namespace nvcache::vfs
