// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/descriptors.h"

#include <errno.h>
#include <linux/close_range.h>

#include <algorithm>

#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/claim.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/lend.h"

namespace nvcache::vfs {

namespace {

// Table lock held; both numbers are the kernel's by now. `stays`: `to`, over exec.
void Share(int from, int to, bool stays) {
  engine.files.Vacate(to);
  Description* description = engine.descriptors.Of(from);
  if (!IsDescription(description)) return;
  if (stays) description->flags.fetch_and(~O_CLOEXEC);
  ++description->references;
  engine.descriptors.Set(to, description);
}

// The kernel does not tell a process which locks it has. Before the first one, a file that may
// become hot gets its descriptor: closing any later would drop the locks (I11).
void NoteLock(int fd) {
  // Before a child has its first lock: then it closes what it has of its parent's.
  if (engine.standing.asleep()) const TableLock wakes;
  Description* description = engine.descriptors.Of(fd);
  const File* known = IsDescription(description) ? description->file.load() : nullptr;
  if (known == nullptr || known->locked.load(std::memory_order_relaxed)) return;
  TableLock lock;
  description = engine.descriptors.Of(fd);
  if (!IsDescription(description)) return;
  File& file = *description->file.load();
  if (file.locked.load()) return;
  if (description->writes()) engine.own.Prepare(file, fd);
  file.locked.store(true);
}

// A descriptor is about to be closed. If the program has asked for a lock on its file, that may end
// it. Table lock held.
void NoteEndOfTurn(const Description* description) {
  const File* file = IsDescription(description) ? description->file.load() : nullptr;
  if (file != nullptr && (file->locks.load() & kLockAsked) != 0) engine.turns.End();
}

// Table lock held; the number means a description. The kernel gives the number to the next thread
// that asks, for a socket perhaps, of which we do not hear: by then the number is nobody's.
long CloseTracked(int fd) {
  Description* description = engine.descriptors.Of(fd);
  NoteEndOfTurn(description);
  if (description->references == 1) NoteCloseStamp(fd, *description);
  engine.descriptors.Set(fd, Closing());
  const long error = engine.files.DropReference(*description);
  engine.descriptors.Set(fd, kUntracked);
  const long result = sys::Close(fd);
  engine.files.Reap();
  return result < 0 ? result : error;
}

// A child that shares our memory makes another descriptor of what it has, which may stay open over
// exec. If it has put something else in the place of `fd`, that was noted before.
void NoteCopyInChild(int fd) {
  Description* description = sys::IsSharing() ? engine.descriptors.OfParent(fd) : kUntracked;
  const File* file = IsDescription(description) ? description->file.load() : nullptr;
  if (file == nullptr || description->given.exchange(true) || !description->writes()) return;
  InFlight in_flight;
  in_flight.Begin(*file);
  if (engine.leases.is_open()) engine.leases.HandOn(file->device, file->inode);
  in_flight.Bypass(-1);
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

long Adopt(int fd) {
  if (!engine.active() || fd < 0) return 0;
  sys::BornStat st;
  const auto flags = static_cast<int>(sys::Fcntl(fd, F_GETFL));
  const bool trackable =
      flags >= 0 && (flags & O_PATH) == 0 && sys::Look(fd, &st) == 0 && S_ISREG(st.st_mode);
  const bool passes = (flags & O_DIRECT) != 0;
  Claim claim;
  if (trackable) {
    if (long error = claim.Take(st); error < 0) return error;
    if (long error = passes ? claim.ToChange() : 0; error < 0) return error;
  }
  {
    TableLock lock;
    engine.files.Vacate(fd);
    if (!trackable || !engine.active()) return 0;
    File* file = engine.files.Find(st.st_dev, st.st_ino);
    if (file == nullptr) file = engine.files.New(st);
    if (file != nullptr) {
      const long error = passes ? PassThrough(*file) : GiveBack(*file);
      if (error < 0) return error;
    }
    const bool number_fits = engine.descriptors.MakeRoomFor(static_cast<uint32_t>(fd));
    Description* description =
        file != nullptr && number_fits ? engine.files.NewDescription(*file, flags, st) : nullptr;
    if (description != nullptr) {
      description->forks.store(kShared);
      engine.descriptors.Set(fd, description);
      return 0;
    }
    engine.files.TableFull(file, st);
  }
  return passes ? 0 : claim.ToChange();
}

void Forget(int fd) {
  NoteClosing(fd);
  if (!engine.active()) return;
  TableLock lock;
  if (!IsDescription(engine.descriptors.Of(fd))) return;
  engine.files.Vacate(fd);
  engine.files.Reap();
}

bool Tracks(int fd) { return IsDescription(engine.descriptors.Of(fd)); }

// In a child of fork, to take the lock is to close what it has of its parent's.
bool MakeRoom() {
  if (!engine.active()) return false;
  const uint32_t before = engine.descriptors.CountInternal();
  TableLock lock;
  return engine.own.MakeRoom(before);
}

long Close(int fd) {
  NoteClosing(fd);
  if (engine.descriptors.Of(fd) == kUntracked) return kNotOurs;
  TableLock lock;
  Description* description = engine.descriptors.Of(fd);
  if (description == kUntracked) return kNotOurs;
  return IsDescription(description) ? CloseTracked(fd) : -EBADF;
}

void Return(int fd) {
  Forget(fd);
  OwnDescriptors::Return(fd);
}

long Dup(int fd) { return Fcntl(fd, F_DUPFD, 0); }

long Dup2(int from, int to) {
  if (from != to) return Dup3(from, to, 0);
  return IsInternal(from) ? -EBADF : kNotOurs;
}

long Dup3(int from, int to, int flags) {
  NoteCopyInChild(from);
  NoteClosing(to);
  if (engine.descriptors.Of(from) == kUntracked && engine.descriptors.Of(to) == kUntracked)
    return kNotOurs;
  if (from == to) return -EINVAL;
  TableLock lock;
  if (IsInternal(from)) return -EBADF;
  if (IsInternal(to)) {
    if (long error = engine.own.Move(to); error < 0) return error;
  }
  NoteEndOfTurn(engine.descriptors.Of(to));
  const long result = sys::Dup3(from, to, flags);
  if (result >= 0) Share(from, to, (flags & O_CLOEXEC) == 0);
  engine.files.Reap();
  return result;
}

void NoteKeptOnExec(int fd) {
  NoteCopyInChild(fd);
  Description* description = engine.descriptors.Of(fd);
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
  if (!IsDescription(engine.descriptors.Of(fd))) return kNotOurs;
  if (command == F_SETFL) {
    if (long error = TakeOver(fd); error < 0) return error;
    if ((argument & O_DIRECT) != 0) {
      if (long error = PassThrough(fd); error < 0) return error;
    }
  }
  TableLock lock;
  Description* description = engine.descriptors.Of(fd);
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
  for (unsigned fd = first; fd <= last && fd < kFewDescriptors; ++fd)
    NoteClosing(static_cast<int>(fd));
  if (sys::IsSharing() && first <= last) return CloseRangeInChild(first, last, flags);
  if (!engine.active() || first > last) return kNotOurs;
  TableLock lock;
  constexpr int kUnshare = CLOSE_RANGE_UNSHARE;
  constexpr int kCloseOnExec = CLOSE_RANGE_CLOEXEC;
  if ((flags & ~(kUnshare | kCloseOnExec)) != 0) return -EINVAL;
  if ((flags & kUnshare) != 0) engine.attachment.ReleaseAll(true);
  const bool closes = (flags & kCloseOnExec) == 0;
  unsigned piece = first;
  const unsigned tracked_end =
      std::min(engine.descriptors.end(), last == UINT32_MAX ? last : last + 1);
  for (unsigned fd = first; fd < tracked_end; ++fd) {
    Description* found = engine.descriptors.Of(static_cast<int>(fd));
    if (IsDescription(found) && closes) CloseTracked(static_cast<int>(fd));
    if (found != Internal()) continue;
    if (piece < fd) sys::Call(SYS_close_range, piece, fd - 1, flags);
    piece = fd + 1;
  }
  if (piece > last) return 0;
  return sys::Call(SYS_close_range, piece, last, flags);
}

}  // namespace nvcache::vfs
