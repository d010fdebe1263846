// SPDX-License-Identifier: BSD-3-Clause
//
// Descriptors: opening, duplicating, closing, locks, mappings. And the buffers of all the others.
#include "tests/differential/calls.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/differential/libc.h"

namespace nvcache::differential {
namespace {

constexpr size_t kPage = 4096;

uint8_t* g_buffer;

constexpr uint64_t Mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

}  // namespace

void MakeBuffers() {
  void* memory =
      mmap(nullptr, kBuffer + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) abort();
  g_buffer = static_cast<uint8_t*>(memory);
  mprotect(g_buffer + kBuffer, kPage, PROT_NONE);
}

uint8_t* Buffer() { return g_buffer; }

void Fill(uint8_t* bytes, size_t size, uint64_t seed) {
  for (size_t i = 0; i < size; i += 8) {
    const uint64_t word = Mix(seed * 0x9e3779b97f4a7c15 + i + 1);
    std::memcpy(bytes + i, &word, std::min<size_t>(8, size - i));
  }
}

uint64_t Hash(const void* bytes, size_t size) {
  const auto* at = static_cast<const uint8_t*>(bytes);
  uint64_t hash = size;
  for (size_t i = 0; i < size; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at + i, std::min<size_t>(8, size - i));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return hash;
}

uint8_t* ProgramBuffer(const Operation& op, size_t* readable) {
  const std::string kind = op.Text("buf");
  const auto length = static_cast<size_t>(op.Number("len"));
  *readable = 0;
  if (kind == "null") return nullptr;
  if (kind == "bad") return g_buffer + kBuffer;
  if (kind == "half") {
    *readable = std::min(length / 2 + 1, kBuffer);
    return g_buffer + kBuffer - *readable;
  }
  // Direct I/O wants lengths and addresses aligned.
  const size_t shift = length % 512 == 0 ? 0 : static_cast<size_t>(op.Number("data")) % 16;
  *readable = std::min(length, kBuffer - shift);
  return g_buffer + shift;
}

int Descriptor(const Operation& op, const char* key) {
  const long place = op.Number(key, -1);
  if (place < 0 || place >= kDescriptors) return static_cast<int>(place);
  return Me().descriptors[place];
}

void Keep(const Call& call, int fd, const char* key) {
  call.line.Result(fd);
  const long place = call.op.Number(key, 0);
  if (fd < 0 || place < 0 || place >= kDescriptors) return;
  int& old = Me().descriptors[place];
  if (old >= 3 && old != fd && !BelongsToStream(old)) call.line.Add("closed=%d", close(old));
  old = fd;
}

int DirectoryOf(const Operation& op) { return op.Has("at") ? Descriptor(op, "at") : AT_FDCWD; }

namespace {

// ---------------------------------------------------------------------------------------------
// Opening.

void Open(const Call& call) {
  const std::string path = Path(call.op);
  const int flags = static_cast<int>(call.op.Number("flags"));
  const auto mode = static_cast<mode_t>(call.op.Number("mode", 0644));
  Keep(call, call.op.Has("at") ? openat(Descriptor(call.op, "at"), path.c_str(), flags, mode)
                               : open(path.c_str(), flags, mode));
}

// `dir=` is a folder's name, of a descriptor that lives as long as the call. With RESOLVE_IN_ROOT
// it is what `/` stands for, and whatever lies above it.
void Openat2(const Call& call) {
  struct open_how how = {};
  how.flags = static_cast<uint64_t>(call.op.Number("flags"));
  how.mode = (how.flags & O_CREAT) != 0 ? 0644 : 0;
  how.resolve = static_cast<uint64_t>(call.op.Number("resolve"));
  const bool rooted = (how.resolve & RESOLVE_IN_ROOT) != 0;
  const std::string path = rooted ? call.op.Text("path") : Path(call.op);
  const int folder = open(Path(call.op, "dir").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  const long fd = syscall(SYS_openat2, folder, path.c_str(), &how, sizeof(how));
  const int error = errno;
  if (folder >= 0) close(folder);
  errno = error;
  Keep(call, static_cast<int>(fd));
}

void Creat(const Call& call) { Keep(call, creat(Path(call.op).c_str(), 0644)); }

void OpenByNumber(const Call& call) {
  const std::string path = "/proc/self/fd/" + std::to_string(Descriptor(call.op));
  Keep(call, open(path.c_str(), static_cast<int>(call.op.Number("flags")), 0644));
}

// A random name would differ; the file gets a known one at once.
void MakeTemporary(const Call& call) {
  char name[] = "temporaryXXXXXX";
  const int fd = mkostemp(name, static_cast<int>(call.op.Number("flags")));
  const int renamed = rename(name, Path(call.op).c_str());
  const int error = errno;
  if (renamed < 0) unlink(name);
  Keep(call, fd);
  errno = error;
  call.line.Result(renamed);
}

// ---------------------------------------------------------------------------------------------
// Descriptors.

void Close(const Call& call) {
  if (BelongsToStream(Descriptor(call.op))) return call.line.Add("skipped");
  call.line.Result(close(Descriptor(call.op)));
}

void Dup(const Call& call) { Keep(call, dup(Descriptor(call.op))); }

// In place of another one, or at a number of its own.
int Target(const Call& call) {
  const int over = Descriptor(call.op, "over");
  return over >= 3 && !BelongsToStream(over) ? over : 20 + static_cast<int>(call.op.Number("over"));
}
void KeepDuplicate(const Call& call, int result) {
  call.line.Result(result);
  const long place = call.op.Number("over");
  if (result >= 0 && place >= 0 && place < kDescriptors) Me().descriptors[place] = result;
}
void Dup2(const Call& call) { KeepDuplicate(call, dup2(Descriptor(call.op), Target(call))); }
void Dup3(const Call& call) {
  const int flags = static_cast<int>(call.op.Number("flags"));
  KeepDuplicate(call, dup3(Descriptor(call.op), Target(call), flags));
}

void DupAbove(const Call& call) {
  const int command = call.op.Number("cloexec") != 0 ? F_DUPFD_CLOEXEC : F_DUPFD;
  Keep(call, fcntl(Descriptor(call.op), command, static_cast<int>(call.op.Number("least"))));
}

void GetFlags(const Call& call) {
  const int flags = fcntl(Descriptor(call.op), F_GETFL);
  call.line.Result(flags);
}
void SetFlags(const Call& call) {
  call.line.Result(fcntl(Descriptor(call.op), F_SETFL, static_cast<int>(call.op.Number("flags"))));
}
void GetDescriptorFlags(const Call& call) { call.line.Result(fcntl(Descriptor(call.op), F_GETFD)); }
void SetDescriptorFlags(const Call& call) {
  call.line.Result(fcntl(Descriptor(call.op), F_SETFD, static_cast<int>(call.op.Number("flags"))));
}

// musl's ioctl takes the request as an int.
template <typename Argument>
int Control(int fd, unsigned long request, Argument argument) {
#ifdef __GLIBC__
  return ioctl(fd, request, argument);
#else
  return ioctl(fd, static_cast<int>(request), argument);
#endif
}

// Those of chattr(1). What a file system has besides is its own.
constexpr int kFileFlags = FS_NODUMP_FL | FS_NOATIME_FL | FS_SYNC_FL;

void GetFileFlags(const Call& call) {
  int flags = 0;
  call.line.Result(Control(Descriptor(call.op), FS_IOC_GETFLAGS, &flags));
  call.line.Add("flags=%#x", static_cast<unsigned>(flags & kFileFlags));
}
void SetFileFlags(const Call& call) {
  int flags = 0;
  if (Control(Descriptor(call.op), FS_IOC_GETFLAGS, &flags) != 0) return call.line.Result(-1);
  flags = (flags & ~kFileFlags) | static_cast<int>(call.op.Number("flags"));
  call.line.Result(Control(Descriptor(call.op), FS_IOC_SETFLAGS, &flags));
}

constexpr unsigned kExtendedFlags = FS_XFLAG_NODUMP | FS_XFLAG_NOATIME | FS_XFLAG_SYNC;

void GetExtendedFlags(const Call& call) {
  struct fsxattr attributes = {};
  call.line.Result(Control(Descriptor(call.op), FS_IOC_FSGETXATTR, &attributes));
  call.line.Add("flags=%#x", attributes.fsx_xflags & kExtendedFlags);
}
void SetExtendedFlags(const Call& call) {
  struct fsxattr attributes = {};
  const int fd = Descriptor(call.op);
  if (Control(fd, FS_IOC_FSGETXATTR, &attributes) != 0) return call.line.Result(-1);
  attributes.fsx_xflags =
      (attributes.fsx_xflags & ~kExtendedFlags) | static_cast<unsigned>(call.op.Number("flags"));
  call.line.Result(Control(fd, FS_IOC_FSSETXATTR, &attributes));
}

// As many blocks as the file system says; where they are is its business.
void BlockSize(const Call& call) {
  int size = 0;
  call.line.Result(Control(Descriptor(call.op), FIGETBSZ, &size));
  call.line.Add("size=%d", size);
}
void Waiting(const Call& call) {
  int bytes = 0;
  call.line.Result(Control(Descriptor(call.op), FIONREAD, &bytes));
  call.line.Add("bytes=%d", bytes);
}
// A control that no file system knows.
void UnknownControl(const Call& call) {
  call.line.Result(Control(Descriptor(call.op), _IO(0xee, 1), 0));
}

bool StreamFrom(int first) {
  for (int fd = first; fd < 100; ++fd) {
    if (BelongsToStream(fd)) return true;
  }
  return false;
}

void CloseRange(const Call& call) {
  const int first = Descriptor(call.op, "first");
  const int last = Descriptor(call.op, "last");
  if (first < 3 || StreamFrom(first)) return call.line.Add("skipped");
  call.line.Result(close_range(static_cast<unsigned>(first), static_cast<unsigned>(last),
                               static_cast<int>(call.op.Number("flags"))));
}
void CloseFrom(const Call& call) {
  const int first = Descriptor(call.op, "first");
  if (first < 3 || StreamFrom(first)) return call.line.Add("skipped");
  closefrom(first);
  call.line.Add("done");
}

// ---------------------------------------------------------------------------------------------
// Locks.

struct flock LockOf(const Operation& op) {
  struct flock lock = {};
  lock.l_type = static_cast<short>(op.Number("type"));
  lock.l_whence = static_cast<short>(op.Number("whence"));
  lock.l_start = op.Number("off");
  lock.l_len = op.Number("len");
  return lock;
}

void SetLock(const Call& call) {
  struct flock lock = LockOf(call.op);
  const int command = call.op.Number("ofd") != 0 ? F_OFD_SETLK : F_SETLK;
  call.line.Result(fcntl(Descriptor(call.op), command, &lock));
}

void GetLock(const Call& call) {
  struct flock lock = LockOf(call.op);
  const int command = call.op.Number("ofd") != 0 ? F_OFD_GETLK : F_GETLK;
  const int result = fcntl(Descriptor(call.op), command, &lock);
  call.line.Result(result);
  if (result == 0) {
    call.line.Add("type=%d start=%ld len=%ld", lock.l_type, static_cast<long>(lock.l_start),
                  static_cast<long>(lock.l_len));
  }
}

void Flock(const Call& call) {
  const int operation = static_cast<int>(call.op.Number("type")) | LOCK_NB;
  call.line.Result(flock(Descriptor(call.op), operation));
}

void Lockf(const Call& call) {
  int command = static_cast<int>(call.op.Number("type"));
  if (command == F_LOCK) command = F_TLOCK;
  call.line.Result(lockf(Descriptor(call.op), command, call.op.Number("len")));
}

// ---------------------------------------------------------------------------------------------
// Mappings.

constexpr int kMappings = 4;
struct Mapping {
  uint8_t* bytes;
  size_t size;
};
Mapping g_mappings[kMappings];

Mapping& MappingOf(const Operation& op) {
  return g_mappings[static_cast<size_t>(op.Number("map")) % kMappings];
}

void Map(const Call& call) {
  Mapping& mapping = MappingOf(call.op);
  if (mapping.bytes != nullptr) munmap(mapping.bytes, mapping.size);
  mapping = {nullptr, static_cast<size_t>(call.op.Number("len"))};
  void* memory =
      mmap(nullptr, mapping.size, static_cast<int>(call.op.Number("prot")),
           static_cast<int>(call.op.Number("flags")), Descriptor(call.op), call.op.Number("off"));
  if (memory == MAP_FAILED) return call.line.Result(-1);
  mapping.bytes = static_cast<uint8_t*>(memory);
  call.line.Result(0);
}

sigjmp_buf g_fault;
void OnFault(int number) { siglongjmp(g_fault, number); }

// Calls `touch`, page by page; a page beyond the file's end is SIGBUS.
template <typename Touch>
void OnMapping(const Call& call, Touch touch) {
  const Mapping& mapping = MappingOf(call.op);
  if (mapping.bytes == nullptr) return call.line.Add("skipped");
  const auto from = static_cast<size_t>(call.op.Number("off"));
  const auto length = static_cast<size_t>(call.op.Number("len"));
  if (from >= mapping.size) return call.line.Add("skipped");
  static volatile size_t at;
  const size_t end = std::min(mapping.size, from + length);
  struct sigaction ours = {};
  struct sigaction old_bus;
  struct sigaction old_segv;
  ours.sa_handler = OnFault;
  sigaction(SIGBUS, &ours, &old_bus);
  sigaction(SIGSEGV, &ours, &old_segv);
  at = from;
  const int fault = sigsetjmp(g_fault, 1);
  if (fault == 0) {
    while (at < end) {
      const size_t n = std::min(end - at, kPage - at % kPage);
      touch(mapping.bytes + at, at - from, n);
      at = at + n;
    }
  }
  sigaction(SIGBUS, &old_bus, nullptr);
  sigaction(SIGSEGV, &old_segv, nullptr);
  call.line.Add("touched=%zu fault=%d", at - from, fault);
}

void ReadMapping(const Call& call) {
  static volatile uint64_t hash;
  hash = 0;
  OnMapping(call, [](const uint8_t* bytes, size_t, size_t n) {
    uint8_t copy[kPage];
    std::memcpy(copy, bytes, n);
    hash = hash * 31 + Hash(copy, n);
  });
  call.line.Add("h=%016llx", static_cast<unsigned long long>(hash));
}

void WriteMapping(const Call& call) {
  const auto seed = static_cast<uint64_t>(call.op.Number("data"));
  OnMapping(call, [seed](uint8_t* bytes, size_t at, size_t n) {
    uint8_t copy[kPage];
    Fill(copy, n, seed + at);
    std::memcpy(bytes, copy, n);
  });
}

void SyncMapping(const Call& call) {
  const Mapping& mapping = MappingOf(call.op);
  if (mapping.bytes == nullptr) return call.line.Add("skipped");
  call.line.Result(msync(mapping.bytes, mapping.size, static_cast<int>(call.op.Number("flags"))));
}

void Unmap(const Call& call) {
  Mapping& mapping = MappingOf(call.op);
  if (mapping.bytes == nullptr) return call.line.Add("skipped");
  call.line.Result(munmap(mapping.bytes, mapping.size));
  mapping.bytes = nullptr;
}

}  // namespace

bool DoDescriptorCall(const Call& call) {
  static const std::map<std::string, void (*)(const Call&)> kCalls = {
      {"open", Open},
      {"creat", Creat},
      {"openat2", Openat2},
      {"open_by_number", OpenByNumber},
      {"mkstemp", MakeTemporary},
      {"close", Close},
      {"dup", Dup},
      {"dup2", Dup2},
      {"dup3", Dup3},
      {"dup_above", DupAbove},
      {"getfl", GetFlags},
      {"setfl", SetFlags},
      {"getfd", GetDescriptorFlags},
      {"setfd", SetDescriptorFlags},
      {"getflags", GetFileFlags},
      {"setflags", SetFileFlags},
      {"fsgetxattr", GetExtendedFlags},
      {"fssetxattr", SetExtendedFlags},
      {"figetbsz", BlockSize},
      {"fionread", Waiting},
      {"unknown_control", UnknownControl},
      {"close_range", CloseRange},
      {"closefrom", CloseFrom},
      {"setlk", SetLock},
      {"getlk", GetLock},
      {"flock", Flock},
      {"lockf", Lockf},
      {"mmap", Map},
      {"map_read", ReadMapping},
      {"map_write", WriteMapping},
      {"msync", SyncMapping},
      {"munmap", Unmap},
  };
  const auto found = kCalls.find(call.op.name());
  if (found != kCalls.end()) found->second(call);
  return found != kCalls.end();
}

}  // namespace nvcache::differential
