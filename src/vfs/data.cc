// SPDX-License-Identifier: BSD-3-Clause
//
// Reading and writing.
#include <errno.h>

#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/sys/user_copy.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/heat.h"
#include "src/vfs/engine/settle.h"
#include "src/vfs/engine/space.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/engine/write_call.h"
#include "src/vfs/vfs.h"

namespace nvcache::vfs {

namespace {

using dramcache::Cursor;
using dramcache::TotalLength;

constexpr uint64_t kPageSize = pool::kPageSize;

// The largest file that any of the disk file systems holds in 4 KiB blocks by default (ext4's
// 16 TiB). A program that goes beyond hears it from the kernel.
constexpr uint64_t kMaxFileSize = (uint64_t{1} << 44) - kPageSize;

// For O_SYNC and the like every write is good enough; the others change where it goes.
constexpr int kKnownFlags =
    RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND | RWF_NOAPPEND;

// The kernel refuses it in its own words.
constexpr long kRefused = kNotOurs;

// For a call that we do not know how to make: the kernel does it, from now on.
long ToKernel(int fd) {
  const long error = PassThrough(fd);
  return error < 0 ? error : kNotOurs;
}

// ---------------------------------------------------------------------------------------------
// Reading

// The kernel's bytes, into the program's buffer; zeros beyond its end. As ReadPart.
long ReadFromKernel(File& file, uint64_t offset, uint8_t* out, size_t n) {
  static constexpr uint8_t kZeros[kPageSize] = {};
  size_t done = 0;
  while (done < n) {
    const long got = sys::Pread(file.backing_fd, out + done, n - done, offset + done);
    if (got == -EINTR) continue;
    if (got == -EFAULT || (got < 0 && done > 0)) break;
    if (got < 0) return got;
    if (got == 0) {
      done += sys::CopyToUser(out + done, kZeros, n - done);
      break;
    }
    done += static_cast<size_t>(got);
  }
  return static_cast<long>(done);
}

// One page's part: the bytes read, fewer than `n` if more of the buffer is not there, or a negated
// errno. Without a descriptor (the supply is used up, so the page has none and nothing of it is
// pending) the kernel has the newest bytes.
long ReadPart(File& file, uint64_t offset, uint8_t* out, size_t n) {
  const uint64_t number = offset / kPageSize;
  radix::PageDescriptor* page = file.pages.FindOrMake(engine.supply, number);
  if (page == nullptr) {
    engine.cleaner.RequestTrim();
    return ReadFromKernel(file, offset, out, n);
  }
  sys::Lock lock(page->lock);
  return engine.cache.Read(file, number, *page, offset % kPageSize, n, out);
}

// File lock, shared.
long ReadAt(File& file, Cursor cursor, uint64_t offset, uint64_t wanted) {
  const uint64_t size = file.size.load(std::memory_order_acquire);
  if (offset >= size) return 0;
  const uint64_t total = std::min(wanted, size - offset);
  for (uint64_t done = 0; done < total;) {
    const uint64_t at = offset + done;
    const size_t n = std::min({total - done, kPageSize - at % kPageSize, cursor.contiguous()});
    long got = ReadPart(file, at, cursor.here(), n);
    if (got == -EBADF && engine.own.Check(file) == 0) {
      got = ReadPart(file, at, cursor.here(), n);
    }
    if (got > 0) done += static_cast<uint64_t>(got);
    if (got != static_cast<long>(n)) {
      const long error = got < 0 ? got : -EFAULT;
      return done > 0 ? static_cast<long>(done) : error;
    }
    cursor.Advance(n);
  }
  return static_cast<long>(total);
}

// `offset` null: at the description's, which moves on.
long DoRead(int fd, const iovec* iov, int count, const off_t* offset) {
  Access access;
  if (long r = access.Enter(fd, offset == nullptr ? Access::kOffset : Access::kUnlessKernel);
      r != 0) {
    return r;
  }
  if (!access.cached()) {
    // Only the kernel's offset can move here, and nobody may begin to cache while it does.
    if (offset != nullptr) return kNotOurs;
    const KernelCall at_work(access);
    return sys::Call(SYS_readv, fd, sys::Address(iov), count);
  }
  if (!access.readable()) return -EBADF;
  const int64_t total = TotalLength(iov, count);
  if (total < 0) return kRefused;
  if (total == 0) return 0;
  const uint64_t at =
      offset != nullptr ? static_cast<uint64_t>(*offset) : access.description().offset;
  if (at + static_cast<uint64_t>(total) > INT64_MAX) return -EINVAL;
  const long n = ReadAt(access.file(), Cursor(iov, count), at, static_cast<uint64_t>(total));
  if (offset == nullptr && n > 0) access.MoveOffset(fd, at + static_cast<uint64_t>(n));
  return n;
}

// ---------------------------------------------------------------------------------------------
// Writing

// The longest write from `offset` on that fits into one group.
uint64_t GroupLimit(uint64_t offset) {
  return std::min(nvlog::kMaxGroupBytes,
                  engine.log.max_group_pages() * kPageSize - offset % kPageSize);
}

// As PageCache::Append, and describes the file where that is missing.
long AppendGroup(File& file, uint64_t offset, uint64_t length, Cursor* cursor) {
  long result = ResultOf(engine.cache.Append(file, offset, length, cursor, nullptr));
  if (result != kUndescribed) return result;
  sys::Scratch<pool::FileRecord> record;
  if (long error = Describe(file, record.get()); error < 0) return error;
  return ResultOf(engine.cache.Append(file, offset, length, cursor, record.get()));
}

// Writes as one group after the other; sleeps while the log is full. Returns the bytes written, or,
// if none were, what kept it: kNoDescriptors, kSignal, kNoHope, kAwaitsSync, kUnsettled, -EFAULT,
// or what the disk says to the file's write-back. Buffers are looked at when they turn out not to
// be there, and not before: a program that passes good ones pays nothing.
long WriteGroups(File& file, uint64_t offset, uint64_t length, Cursor* cursor) {
  uint64_t done = 0;
  while (done < length) {
    const uint64_t at = offset + done;
    const uint64_t n = std::min(length - done, GroupLimit(at));
    const uint32_t room = engine.log.RoomSeen();
    long error = engine.cleaner.Refusal(file);
    if (error == 0 && engine.cleaner.Crowds(file)) error = kLogFull;
    if (error == 0 && done == 0) error = Settle(file);
    if (error == 0) error = AppendGroup(file, at, n, cursor);
    if (error == kLogFull && engine.cleaner.overloaded()) error = kNoHope;
    if (error == kLogFull) {
      // Once a part is written, signals wait for the rest, as they do in the kernel.
      if (done == 0 && sys::SignalWaits()) return kSignal;
      pool::Count(engine.statistics()->full_waits);
      engine.log.WaitForRoom(room, done == 0);
      continue;
    }
    if (error == -EFAULT) {
      // Up to where they end, as the kernel does.
      length = done + cursor->Readable(n);
      if (length > done) continue;
    }
    if (error < 0) return done > 0 ? static_cast<long>(done) : error;
    done += n;
  }
  return static_cast<long>(done);
}

// By the time that the kernel meets a bad buffer, it has given the first pages their blocks and the
// file a new mtime.
void TouchAsForBadBuffer(File& file, uint64_t at, uint64_t length) {
  Publish(file);
  sys::Pwrite(file.backing_fd, engine.attachment.unreadable(), std::min(length, kUnreadable), at);
}

// Whether the kernel has the bytes on the disk when the call is over.
bool IsSynced(const WriteCall& call, const Description& description) {
  return (description.flags.load() & O_DSYNC) != 0 || (call.flags & (RWF_SYNC | RWF_DSYNC)) != 0;
}

// The kernel's own call, to a file that it has.
long WriteAll(const WriteCall& call) {
  const long iov = sys::Address(call.iov);
  if (call.flags == 0 && call.offset == nullptr) {
    return sys::Call(SYS_writev, call.fd, iov, call.count);
  }
  const long offset = call.offset != nullptr ? *call.offset : -1;
  if (call.flags == 0) return sys::Call(SYS_pwritev, call.fd, iov, call.count, offset, 0);
  return sys::Call(SYS_pwritev2, call.fd, iov, call.count, offset, 0, call.flags);
}

// The same of what is left behind the first `done` bytes.
long WriteToKernel(const WriteCall& call, uint64_t done) {
  if (done == 0) return WriteAll(call);
  sys::Scratch<iovec[IOV_MAX]> rest;
  int count = 0;
  uint64_t skipped = 0;
  for (int i = 0; i < call.count; ++i) {
    const iovec& piece = call.iov[i];
    const uint64_t skips = std::min(done - skipped, uint64_t{piece.iov_len});
    skipped += skips;
    if (skips == piece.iov_len) continue;
    rest.get()[count++] = {static_cast<uint8_t*>(piece.iov_base) + skips, piece.iov_len - skips};
  }
  const off_t offset = call.offset != nullptr ? *call.offset + static_cast<off_t>(done) : 0;
  return WriteAll(
      {call.fd, rest.get(), count, call.offset != nullptr ? &offset : nullptr, call.flags});
}

// One attempt at a write to a file of the kernel's.
long TryKernel(Access& access, const WriteCall& call, uint64_t total, Attempt* attempt) {
  Passing passing;
  if (passing.Begin(access.file()) != nullptr && !attempt->past) {
    return WriteShared(access, call, total, passing, attempt);
  }
  attempt->by_kernel = true;
  const PastLog past(call.fd, access, passing);
  if (past.error() < 0) return past.error();
  return WriteToKernel(call, attempt->done);
}

// One attempt.
long TryWrite(const WriteCall& call, uint64_t total, Attempt* attempt) {
  Access access;
  const unsigned need = (call.offset == nullptr ? Access::kOffset : Access::kData) |
                        (attempt->grow ? Access::kGrow : Access::kData);
  const Access::Write write = {call.offset, total, call.flags};
  if (long r = access.EnterToWrite(call.fd, need, write); r != 0) return r;
  if (!access.writable()) return -EBADF;
  File& file = access.file();
  attempt->synced = IsSynced(call, access.description());
  if (!access.cached()) {
    if (!attempt->warm && attempt->synced && CountSync(file)) return kIsHot;
    return TryKernel(access, call, total, attempt);
  }
  if (total == 0) return 0;

  const uint64_t size = file.size.load(std::memory_order_acquire);
  uint64_t at =
      call.offset != nullptr ? static_cast<uint64_t>(*call.offset) : access.description().offset;
  if (at + total > INT64_MAX) return -EINVAL;
  if (access.AppendsTo(write)) at = size;
  if (at >= kMaxFileSize || total > kMaxFileSize - at) return -EFBIG;
  const bool grows = at + total > size;
  if (grows && !access.grows()) return kGrows;
  if (grows || file.sparse.load(std::memory_order_relaxed)) {
    if (long error = ReserveSpace(file, at, at + total); error < 0) return error;
  }
  Cursor cursor(call.iov, call.count);
  const long n = WriteGroups(file, at, total, &cursor);
  if (n == -EFAULT) TouchAsForBadBuffer(file, at, total);
  if (n > 0 && call.offset == nullptr) {
    access.MoveOffset(call.fd, at + static_cast<uint64_t>(n));
  }
  return n;
}

// Too large, no room on the disk, no way for recovery to find it; or no room here for an unknown
// time.
bool IsForKernel(long error) {
  return error == -EFBIG || error == -ENOSPC || error == kNoDescriptors || error == kNoHope ||
         error == kUnsettled;
}

// The cause that keeps a write to a shared file was seen to, or the write goes past the log. False:
// it was not that.
bool MendShared(const WriteCall& call, long error, uint32_t room, Attempt* attempt) {
  if (error == kGoesPast || (error == 0 && attempt->left)) {
    attempt->past = true;
  } else if (error == kNeedsPool) {
    attempt->past = !JoinShared(call.fd);
  } else if (error == kUnknown) {
    // Its next fsync settles the file; but one that is written without has to be settled here.
    attempt->past = !attempt->synced || attempt->settled || SettleShared(call.fd) != 0;
    attempt->settled = true;
  } else if (error == kLogFull) {
    attempt->past = !AwaitRoom(room);
  } else {
    return false;
  }
  return true;
}

// The answer of a write to a shared file that nothing can be done about any more: `n` is the last
// attempt's.
long EndShared(const WriteCall& call, long n, const Attempt& attempt) {
  if (attempt.unlogged) SettleShared(call.fd);
  if (attempt.synced) engine.checkpoint.EndUnloggedNames();
  const auto done = static_cast<long>(attempt.done);
  if (attempt.by_kernel && n > 0) return done + n;
  return done > 0 ? done : n;
}

long DoWrite(const WriteCall& call) {
  const int64_t total = TotalLength(call.iov, call.count);
  if (total < 0) return kRefused;
  Attempt attempt;
  for (;;) {
    const uint32_t room = engine.log.RoomSeen();
    long n = TryWrite(call, static_cast<uint64_t>(total), &attempt);
    if (attempt.by_kernel && attempt.done == 0) return n;
    if (attempt.by_kernel) return EndShared(call, n, attempt);
    if (MendShared(call, n, room, &attempt)) continue;
    if (attempt.done > 0) return EndShared(call, n, attempt);
    if (n == kAwaitsSync && (n = SyncAwaited(call.fd)) == 0) continue;
    if (n == kSignal) {
      // The handler has run by now, and the write is as if it had begun after it. The kernel does
      // not let a handler end a write to a file, so nobody expects EINTR.
    } else if (n == kGrows) {
      attempt.grow = true;
    } else if (n == kIsHot) {
      WarmUp(call.fd);
      attempt.warm = true;
    } else if (n == kNoDescriptors && !engine.cleaner.failing()) {
      // Without a lock, for the cleanup thread takes back only what nobody uses. So the pool may be
      // given back meanwhile, and then the file is the kernel's.
      engine.cleaner.RequestTrim();
      engine.log.WaitForRoom(room);
    } else if (IsForKernel(n)) {
      return ToKernel(call.fd);
    } else {
      if (attempt.synced && n > 0) engine.checkpoint.EndUnloggedNames();
      return n;
    }
  }
}

iovec One(const void* buffer, size_t count) { return {const_cast<void*>(buffer), count}; }

// A call with an array that is not there, or too long: the descriptor's faults come first.
long Refuse(int fd, bool writes, long error) {
  Access access;
  if (long r = access.Enter(fd, Access::kData); r != 0) return r;
  const bool allowed = writes ? access.writable() : access.readable();
  return allowed ? error : -EBADF;
}

// Arrays up to this length are copied to the stack, as the kernel does (UIO_FASTIOV).
constexpr int kFewPieces = 8;

// Calls call(array) with a copy of the program's array: that may change meanwhile, or not be there.
template <typename Function>
long WithArray(int fd, const iovec* iov, int count, bool writes, Function call) {
  if (engine.descriptors.Of(fd) == kUntracked) return kNotOurs;
  if (count < 0 || count > IOV_MAX) return Refuse(fd, writes, -EINVAL);
  const size_t bytes = static_cast<size_t>(count) * sizeof(iovec);
  iovec few[kFewPieces];
  sys::Scratch<iovec[IOV_MAX]> many;
  iovec* copy = count <= kFewPieces ? few : many.get();
  if (sys::CopyFromUser(copy, iov, bytes) != bytes) return Refuse(fd, writes, -EFAULT);
  return call(copy);
}

}  // namespace

long Read(int fd, void* buffer, size_t count) {
  const iovec iov = One(buffer, count);
  return DoRead(fd, &iov, 1, nullptr);
}

long Pread(int fd, void* buffer, size_t count, off_t offset) {
  if (offset < 0) return kRefused;
  const iovec iov = One(buffer, count);
  return DoRead(fd, &iov, 1, &offset);
}

long Readv(int fd, const iovec* iov, int iov_count, int rwf_flags) {
  if ((rwf_flags & ~kKnownFlags) != 0) return ToKernel(fd);
  return WithArray(fd, iov, iov_count, false,
                   [=](const iovec* copy) { return DoRead(fd, copy, iov_count, nullptr); });
}

long Preadv(int fd, const iovec* iov, int iov_count, off_t offset, int rwf_flags) {
  if (offset < 0) return kRefused;
  if ((rwf_flags & ~kKnownFlags) != 0) return ToKernel(fd);
  return WithArray(fd, iov, iov_count, false,
                   [=](const iovec* copy) { return DoRead(fd, copy, iov_count, &offset); });
}

long Write(int fd, const void* buffer, size_t count) {
  const iovec iov = One(buffer, count);
  return DoWrite({fd, &iov, 1, nullptr, 0});
}

long Pwrite(int fd, const void* buffer, size_t count, off_t offset) {
  if (offset < 0) return kRefused;
  const iovec iov = One(buffer, count);
  return DoWrite({fd, &iov, 1, &offset, 0});
}

long Writev(int fd, const iovec* iov, int iov_count, int rwf_flags) {
  if ((rwf_flags & ~kKnownFlags) != 0) return ToKernel(fd);
  return WithArray(fd, iov, iov_count, true, [=](const iovec* copy) {
    return DoWrite({fd, copy, iov_count, nullptr, rwf_flags});
  });
}

long Pwritev(int fd, const iovec* iov, int iov_count, off_t offset, int rwf_flags) {
  if (offset < 0) return kRefused;
  if ((rwf_flags & ~kKnownFlags) != 0) return ToKernel(fd);
  return WithArray(fd, iov, iov_count, true, [=](const iovec* copy) {
    return DoWrite({fd, copy, iov_count, &offset, rwf_flags});
  });
}

}  // namespace nvcache::vfs
