// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/data.h"

#include <errno.h>

#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/sys/user_copy.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/heat.h"
#include "src/vfs/engine/settle.h"
#include "src/vfs/engine/space.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/engine/through_file.h"
#include "src/vfs/lend.h"
#include "src/vfs/mend.h"
#include "src/vfs/plain_write.h"

namespace nvcache::vfs {

namespace {

using dramcache::Cursor;
using dramcache::TotalLength;
using nvlog::Outcome;

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

// The kernel's bytes, into the program's buffer; zeros beyond its end. It returns what ReadPart
// does.
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

// The kernel shall write what it can, and say or send the rest.
Next Refuse(long error, Attempt* attempt) {
  const bool is_for_kernel = error == -EFBIG || error == -ENOSPC;
  return is_for_kernel ? Next::kPassThrough : attempt->End(error);
}

// Describes the file where that is missing.
Next AppendGroup(File& file, uint64_t offset, uint64_t length, Cursor* cursor, Attempt* attempt) {
  if (const long error = engine.cleaner.Refusal(file); error < 0) return Refuse(error, attempt);
  if (engine.cleaner.Crowds(file)) return Next::kAwaitRoom;
  if (attempt->done == 0) {
    if (const Next next = MayLog(file); next != Next::kDone) return next;
  }
  Outcome outcome = engine.cache.Append(file, offset, length, cursor, nullptr);
  if (outcome == Outcome::kUndeclared) {
    sys::Scratch<pool::FileRecord> record;
    if (!Describe(file, record.get())) return Next::kPassThrough;
    outcome = engine.cache.Append(file, offset, length, cursor, record.get());
  }
  if (outcome == Outcome::kBadBuffer) return attempt->End(-EFAULT);
  if (outcome == Outcome::kDone) attempt->done += length;
  return NextOf(outcome);
}

// Appends one group after the other; sleeps while the log is full. What keeps the first one, or
// kDone. Buffers are looked at when they turn out not to be there, and not before: a program that
// passes good ones pays nothing.
Next AppendGroups(File& file, uint64_t offset, uint64_t length, Cursor* cursor, Attempt* attempt) {
  while (attempt->done < length) {
    const uint64_t done = attempt->done;
    const uint64_t n = std::min(length - done, GroupLimit(offset + done));
    const uint32_t room = engine.log.RoomSeen();
    Next next = AppendGroup(file, offset + done, n, cursor, attempt);
    if (next == Next::kAwaitRoom && engine.cleaner.overloaded()) next = Next::kPassThrough;
    if (next == Next::kAwaitRoom) {
      // Once a part is written, signals wait for the rest, as they do in the kernel.
      if (done == 0 && sys::SignalWaits()) return Next::kHandle;
      pool::Count(engine.statistics()->full_waits);
      engine.log.WaitForRoom(room, done == 0);
    } else if (attempt->result == -EFAULT) {
      // Up to where they end, as the kernel does.
      length = done + cursor->Readable(n);
      if (length > done) attempt->result = 0;
    } else if (attempt->done == done) {
      return done == 0 ? next : Next::kDone;
    }
  }
  return Next::kDone;
}

// The bytes are to be durable when the call is over.
bool PromisesSync(const WriteCall& call, const Description& description) {
  return (description.flags.load() & O_DSYNC) != 0 || (call.flags & (RWF_SYNC | RWF_DSYNC)) != 0;
}

// The kernel's own call, to a file that it has.
long CallKernel(const WriteCall& call) {
  engine.mirror.AwaitTold();
  const long iov = sys::Address(call.iov);
  if (call.flags == 0 && call.offset == nullptr) {
    return sys::Call(SYS_writev, call.fd, iov, call.count);
  }
  const long offset = call.offset != nullptr ? *call.offset : -1;
  if (call.flags == 0) return sys::Call(SYS_pwritev, call.fd, iov, call.count, offset, 0);
  return sys::Call(SYS_pwritev2, call.fd, iov, call.count, offset, 0, call.flags);
}

// Has the kernel write what is left behind the first `done` bytes.
long WriteToKernel(const WriteCall& call, uint64_t done) {
  if (done == 0) return CallKernel(call);
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
  return CallKernel(
      {call.fd, rest.get(), count, call.offset != nullptr ? &offset : nullptr, call.flags});
}

// One attempt at a write to a file of the kernel's.
[[gnu::noinline]] Next TryKernel(Access& access, const WriteCall& call, uint64_t total,
                                 Attempt* attempt) {
  InFlight in_flight;
  File& file = access.file();
  lease::FileEntry* entry = in_flight.Begin(file);
  if (entry != nullptr && engine.turns.IsNews(file)) engine.turns.Look(file, call.fd, *entry, 1);
  if (entry != nullptr && !attempt->Took(Next::kBypass)) {
    return WriteThrough(access, call, total, in_flight, attempt);
  }
  const BypassingCall past(call.fd, access, in_flight);
  return attempt->End(past.error() < 0 ? past.error() : WriteToKernel(call, attempt->done));
}

// One attempt at a write to a cached file.
Next TryCached(Access& access, const WriteCall& call, uint64_t total, Attempt* attempt) {
  // It was the kernel's when a part was written, which counts.
  if (total == 0 || attempt->done > 0) return attempt->End(0);
  File& file = access.file();
  const uint64_t size = file.size.load(std::memory_order_acquire);
  uint64_t at =
      call.offset != nullptr ? static_cast<uint64_t>(*call.offset) : access.description().offset;
  if (at + total > INT64_MAX) return attempt->End(-EINVAL);
  if (access.AppendsTo({call.offset, total, call.flags})) at = size;
  if (at >= kMaxFileSize || total > kMaxFileSize - at) return Next::kPassThrough;
  const bool grows = at + total > size;
  if (grows && !access.grows()) return Next::kGrow;
  if (grows || file.sparse.load(std::memory_order_relaxed)) {
    if (long error = ReserveSpace(file, at, at + total); error < 0) return Refuse(error, attempt);
  }
  Cursor cursor(call.iov, call.count);
  const Next next = AppendGroups(file, at, total, &cursor, attempt);
  if (attempt->done > 0 && call.offset == nullptr) access.MoveOffset(call.fd, at + attempt->done);
  if (attempt->Answer() == -EFAULT) {
    Publish(file);
    const dramcache::KernelChange change(file);
    engine.attachment.WriteUnreadable(file.backing_fd, at, total);
  }
  return next;
}

Next TryWrite(const WriteCall& call, uint64_t total, Attempt* attempt) {
  Access access;
  const unsigned need = (call.offset == nullptr ? Access::kOffset : Access::kData) |
                        (attempt->Took(Next::kGrow) ? Access::kGrow : Access::kData);
  const Access::Write write = {call.offset, total, call.flags};
  if (long r = access.EnterToWrite(call.fd, need, write); r != 0) return attempt->End(r);
  if (!access.writable()) return attempt->End(-EBADF);
  attempt->promises_sync = PromisesSync(call, access.description());
  if (access.cached()) return TryCached(access, call, total, attempt);
  const bool counts = attempt->promises_sync && attempt->done == 0;
  if (counts && !attempt->Took(Next::kWarmUp) && CountSync(access.file())) return Next::kWarmUp;
  return TryKernel(access, call, total, attempt);
}

long EndWrite(const WriteCall& call, const Attempt& attempt) {
  if (attempt.unlogged) SettleThrough(call.fd);
  if (attempt.promises_sync && (attempt.done > 0 || attempt.unlogged)) {
    engine.checkpoint.EndUnloggedNames();
  }
  return attempt.Answer();
}

long DoWrite(const WriteCall& call) {
  const int64_t total = TotalLength(call.iov, call.count);
  if (total < 0) return kRefused;
  for (Attempt attempt;;) {
    const uint32_t room = engine.log.RoomSeen();
    const Next next = TryWrite(call, static_cast<uint64_t>(total), &attempt);
    if (next == Next::kDone) return EndWrite(call, attempt);
    if (Mend(next, call.fd, room, &attempt) == Next::kPassThrough) return ToKernel(call.fd);
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
constexpr int kFewPieces = 6;

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

long WriteWithMore(int fd, const void* buffer, size_t count) {
  const iovec iov = One(buffer, count);
  return DoWrite({fd, &iov, 1, nullptr, 0});
}

long Write(int fd, const void* buffer, size_t count) {
  if (PlainWrite write(fd); write.is_on_file() && write.Begin()) {
    const long result = sys::Write(fd, buffer, count);
    if (write.End()) PlainWrite::Deliver();
    return result;
  }
  return WriteWithMore(fd, buffer, count);
}

long PwriteWithMore(int fd, const void* buffer, size_t count, off_t offset) {
  if (offset < 0) return kRefused;
  const iovec iov = One(buffer, count);
  return DoWrite({fd, &iov, 1, &offset, 0});
}

long Pwrite(int fd, const void* buffer, size_t count, off_t offset) {
  if (PlainWrite write(fd); write.is_on_file() && write.Begin()) {
    const long result = sys::Pwrite(fd, buffer, count, static_cast<uint64_t>(offset));
    if (write.End()) PlainWrite::Deliver();
    return result;
  }
  return PwriteWithMore(fd, buffer, count, offset);
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
