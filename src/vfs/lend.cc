// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/lend.h"

//
// Changes by others to a file where no call of the program's shows them.
#include <errno.h>
#include <sys/mman.h>

#include "src/sys/kernel.h"
#include "src/vfs/descriptors.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/claim.h"
#include "src/vfs/engine/states.h"
#include "src/vfs/engine/through.h"
#include "src/vfs/life.h"
#include "src/vfs/output.h"
#include "src/vfs/unseen.h"

namespace nvcache::vfs {

namespace {

long NotTracked(int fd) { return IsInternal(fd) ? -EBADF : 0; }

}  // namespace

// --------------------------------------------------------------------------------------- Once

void Publish(int fd) {
  if (!engine.files.AnyInCaches()) return;
  if (!IsDescription(engine.descriptors.Of(fd)) || TakeOver(fd) < 0) return;
  ExclusiveAccess access(fd);
  if (!access.entered() || !access.cached()) return;
  Publish(access.file());
  PublishOffsets(access.file());
}

void TakeOffset(int fd) {
  if (!IsDescription(engine.descriptors.Of(fd))) return;
  Access access;
  if (access.Enter(fd, Access::kOffset) != 0 || !access.cached()) return;
  const long offset = sys::Lseek(fd, 0, SEEK_CUR);
  if (offset >= 0) access.description().offset = static_cast<uint64_t>(offset);
}

// ---------------------------------------------------------------------------------- By descriptor

long Lend(int fd, bool forever) {
  if (!IsDescription(engine.descriptors.Of(fd))) return NotTracked(fd);
  if (long error = TakeOver(fd); error < 0) return error;
  TableLock lock;
  const Description* description = engine.descriptors.Of(fd);
  return IsDescription(description) ? Lend(*description->file.load(), forever) : 0;
}

long HandOn(int fd, bool forever) {
  if (long error = Lend(fd, forever); error < 0) return error;
  InFlight in_flight;
  {
    TableLock lock;
    Description* description = engine.descriptors.Of(fd);
    if (!IsDescription(description)) return 0;
    description->given.store(true);
    if (!description->writes() || !HandOn(*description->file.load())) return 0;
  }
  return BypassLogOf(fd, &in_flight);
}

long PassThrough(int fd, bool forever) {
  if (!IsDescription(engine.descriptors.Of(fd))) return NotTracked(fd);
  InFlight in_flight;
  if (long error = BypassLogOf(fd, &in_flight); error < 0) return error;
  TableLock lock;
  Description* description = engine.descriptors.Of(fd);
  if (!IsDescription(description)) return 0;
  File& file = *description->file.load();
  if (long error = PassThrough(file); error < 0) return error;
  if (forever) engine.files.MakeLasting(file);
  return 0;
}

// ----------------------------------------------------------------------------------------- By name

namespace {

// Any file may be the one that is changed next.
long ReleaseUnseen() {
  UnseenCall call;
  call.Begin();
  return 0;
}

}  // namespace

long LendPath(int dirfd, const char* path, bool forever) {
  if (!engine.active()) return 0;
  if (!SeesPaths()) {
    Release();
    return 0;
  }
  TableLock lock;
  File* file = engine.files.FindByPath(dirfd, path, true);
  if (file == nullptr) return 0;
  const long error = Lend(*file, forever);
  engine.files.Reap();
  return error;
}

long PassThroughPath(int dirfd, const char* path) {
  if (!engine.active()) return 0;
  if (!SeesPaths()) return ReleaseUnseen();
  InFlight in_flight;
  {
    TableLock lock;
    const File* file = engine.files.FindByPath(dirfd, path, true);
    if (file == nullptr) return 0;
    in_flight.Begin(*file);
  }
  if (long error = in_flight.Bypass(-1); error < 0) return error;
  TableLock lock;
  File* file = engine.files.FindByPath(dirfd, path, true);
  if (file == nullptr) return 0;
  const long error = PassThrough(*file);
  engine.files.Reap();  // a closed file can be cached again: nothing of it is pending now
  return error;
}

long GiveAwayPath(int dirfd, const char* path) {
  if (!engine.active()) return 0;
  if (!SeesPaths()) return ReleaseUnseen();
  vfs::Claim claim;
  if (long error = claim.TakePath(dirfd, path, true); error < 0) return error;
  if (long error = claim.ToChange(); error < 0) return error;
  TableLock lock;
  sys::BornStat st;
  if (sys::LookAt(dirfd, path, &st, 0) < 0 || !S_ISREG(st.st_mode)) return 0;
  File* file = engine.files.Find(st.st_dev, st.st_ino);
  if (file == nullptr) file = engine.files.New(st);
  if (file == nullptr) {
    engine.files.TableFull(nullptr, st);
    return 0;
  }
  if (long error = PassThrough(*file); error < 0) return error;
  engine.files.MakeLasting(*file);
  return 0;
}

// ---------------------------------------------------------------------------------------- Mappings

namespace {

using Range = Mappings::Range;

Range RangeOf(const void* address, size_t length) {
  constexpr uintptr_t kPage = pool::kPageSize;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  return {begin, begin + (length + kPage - 1) / kPage * kPage};
}

bool IsAny(const File& /*file*/) { return true; }
bool IsWatched(const File& file) { return IsFollowed(file.state.load()); }

// A mapped file, which stays known to us.
long PassThroughMapped(File& file) {
  InFlight in_flight;
  in_flight.Begin(file);
  if (long error = in_flight.Bypass(-1); error < 0) return error;
  TableLock lock;
  return PassThrough(file);
}

bool AreMapped() { return !engine.mappings.empty() && !sys::IsSharing(); }

}  // namespace

MapGuard::MapGuard(int fd, bool shared, int protection) {
  const bool writes = shared && (protection & PROT_WRITE) != 0;
  error_ = writes ? PassThrough(fd, true) : Lend(fd, true);
  if (error_ < 0 || writes || !shared) return;
  TableLock lock;
  const Description* description = engine.descriptors.Of(fd);
  if (!IsDescription(description) || !description->writes()) return;
  File& file = *description->file.load();
  if (IsWatched(file)) file_ = &file;
}

void MapGuard::Mapped(const void* address, size_t length) const {
  if (file_ == nullptr) return;
  {
    TableLock lock;
    if (engine.mappings.Add(RangeOf(address, length), *file_)) return;
  }
  PassThroughMapped(*file_);
}

long Protect(const void* address, size_t length, int protection) {
  if (!AreMapped() || (protection & PROT_WRITE) == 0) return 0;
  for (;;) {
    File* file;
    {
      TableLock lock;
      file = engine.mappings.Find(RangeOf(address, length), IsWatched);
    }
    if (file == nullptr) return 0;
    if (long error = LeaveUnseen(); error < 0) return error;
    if (long error = PassThroughMapped(*file); error < 0) return error;
  }
}

// Under the table lock, so that a mapping that comes into the place of another is noted after it.

long Unmap(void* address, size_t length) {
  if (!AreMapped()) return kNotOurs;
  TableLock lock;
  const Range range = RangeOf(address, length);
  if (engine.mappings.Find(range, IsAny) == nullptr) return kNotOurs;
  const long result = sys::Call(SYS_munmap, sys::Address(address), static_cast<long>(length));
  if (result == 0) engine.mappings.Remove(range);
  return result;
}

long Remap(void* address, size_t length, size_t new_length, int flags, void* new_address) {
  if (!AreMapped()) return kNotOurs;
  File* file;
  long result;
  {
    TableLock lock;
    // A length of 0 makes another mapping of a shared one.
    file = engine.mappings.Find(RangeOf(address, length != 0 ? length : 1), IsAny);
    if (file == nullptr) return kNotOurs;
    result = sys::Call(SYS_mremap, sys::Address(address), static_cast<long>(length),
                       static_cast<long>(new_length), flags, sys::Address(new_address));
    if (sys::IsError(result)) return result;
    if ((flags & MREMAP_DONTUNMAP) == 0) engine.mappings.Remove(RangeOf(address, length));
    const Range moved = RangeOf(reinterpret_cast<void*>(result), new_length);
    if (engine.mappings.Add(moved, *file)) return result;
  }
  PassThroughMapped(*file);
  return result;
}

}  // namespace nvcache::vfs
