// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "src/pool/format.h"
#include "src/sys/kernel.h"

namespace nvcache::crash {

namespace {

constexpr int kFirstDescriptor = 1 << 24;
constexpr char kOpenFiles[] = NVCACHE_DESCRIPTORS "/";
constexpr uint64_t kFirstInode = uint64_t{1} << 40;  // of files that recovery creates

// Of the pool's first page, mapped to hold its lock.
alignas(4096) char lock_page[4096];

template <typename T>
T* At(long address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace

std::string BootText(uint32_t boot) {
  char text[40];
  std::snprintf(text, sizeof(text), "b0070000-0000-4000-8000-%012x\n", boot);
  return text;
}

Machine::Machine(size_t pool_size) : size_(pool_size) {
  pool_ = static_cast<uint8_t*>(::mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
}

Machine::~Machine() { ::munmap(pool_, size_); }

Machine::File* Machine::Find(const std::string& path) {
  for (File& file : files_) {
    if (file.named && file.identity.path == path) return &file;
  }
  return nullptr;
}

void Machine::Begin() {
  trace_ = {};
  lines_.clear();
  descriptors_.clear();
  inodes_ = 0;
  next_ = kFirstDescriptor;
  for (const File& file : files_) {
    trace_.files.push_back({file.identity, file.named, file.content, false});
    if (file.identity.inode >= kFirstInode) inodes_ = file.identity.inode - kFirstInode;
  }
}

void Machine::Store(uint8_t* to, const uint8_t* from, size_t n) {
  std::memcpy(to, from, n);
  if (to < pool_ || to >= pool_ + size_) return;
  const auto begin = static_cast<uint64_t>(to - pool_);
  if (begin >= pool::kSharedOffset && begin < pool::kSegmentsOffset) return;  // never durable
  NoteStore(begin, from, n);
  for (uint64_t line = begin / kLine; line * kLine < begin + n; ++line) {
    lines_.push_back(static_cast<uint32_t>(line));
  }
}

void Machine::Pwb(const uint8_t* address, size_t n, Step step) {
  if (address < pool_ || address >= pool_ + size_) return;
  NotePwb(static_cast<uint64_t>(address - pool_), n, step);
}

void Machine::Fence(Step step) { Note(Event::kFence, 0, 0, 0, 0, step); }

int Machine::New(Descriptor descriptor) {
  descriptors_[next_] = std::move(descriptor);
  return next_++;
}

bool Machine::IsFolder(const std::string& path) const {
  return std::any_of(files_.begin(), files_.end(), [&](const File& file) {
    const std::string& name = file.identity.path;
    return name.substr(0, name.rfind('/') + 1) == path;
  });
}

void Machine::Renumber(File* file) {
  file->identity.inode = kFirstInode + ++inodes_;
  file->identity.birth_seconds += static_cast<int64_t>(inodes_);
  file->identity.handle = "new" + std::to_string(inodes_);
}

long Machine::Open(const std::string& path, long flags) {
  if (path == kPoolPath) return New({Descriptor::kPool, 0, path});
  if (path == kDevicePath) return New({Descriptor::kDevice, 0, path});
  if (path.rfind("/sys/dev/char/", 0) == 0) return New({Descriptor::kDeviceSize, 0, path});
  if (path == kBootPath) return New({Descriptor::kBoot, 0, path});
  if ((flags & O_DIRECTORY) != 0) {
    return IsFolder(path) ? New({Descriptor::kFolder, 0, path}) : -ENOENT;
  }
  if (path.rfind(kOpenFiles, 0) == 0) {
    const auto open = descriptors_.find(std::atoi(path.c_str() + sizeof(kOpenFiles) - 1));
    return open == descriptors_.end() ? -ENOENT : New(open->second);
  }
  for (uint32_t i = 0; i < files_.size(); ++i) {
    if (files_[i].named && files_[i].identity.path == path) {
      return New({Descriptor::kFile, i, path});
    }
  }
  return -ENOENT;
}

void Machine::File::Stat(uint32_t links, void* out) const {
  struct stat st = {};
  st.st_dev = identity.device;
  st.st_ino = identity.inode;
  st.st_mode = identity.mode;
  st.st_uid = identity.uid;
  st.st_gid = identity.gid;
  st.st_size = static_cast<off_t>(content.size());
  st.st_nlink = links;
  std::memcpy(out, &st, sizeof(st));
}

void Machine::File::StatX(uint32_t links, void* out) const {
  auto* st = static_cast<struct statx*>(out);
  *st = {};
  st->stx_mask = STATX_BASIC_STATS | STATX_BTIME;
  st->stx_ino = identity.inode;
  st->stx_mode = static_cast<uint16_t>(identity.mode);
  st->stx_uid = identity.uid;
  st->stx_gid = identity.gid;
  st->stx_nlink = links;
  st->stx_size = content.size();
  st->stx_btime.tv_sec = identity.birth_seconds;
  st->stx_btime.tv_nsec = identity.birth_nanoseconds;
}

long Machine::File::Handle(void* out) const {
  auto* handle = static_cast<sys::FileHandle*>(out);
  handle->type = identity.handle_type;
  handle->size = static_cast<uint32_t>(identity.handle.size());
  std::memcpy(handle->bytes, identity.handle.data(), handle->size);
  return handle->size > 0 ? 0 : -EOPNOTSUPP;
}

void Machine::FillStat(const Descriptor& descriptor, void* out) const {
  struct stat st = {};
  st.st_nlink = 1;
  switch (descriptor.kind) {
    case Descriptor::kPool:
      st.st_mode = S_IFREG | 0600;
      st.st_size = static_cast<off_t>(size_);
      break;
    case Descriptor::kDevice:
      st.st_mode = S_IFCHR | 0600;
      st.st_rdev = makedev(250, 1);
      break;
    case Descriptor::kFolder:
      st.st_mode = S_IFDIR | 0700;
      break;
    default:
      return files_[descriptor.file].Stat(files_[descriptor.file].named ? 1 : 0, out);
  }
  std::memcpy(out, &st, sizeof(st));
}

void Machine::Changed(uint32_t number) {
  trace_.Do(trace_.events.back(), &files_[number].content);
  files_[number].identity.change = kAnyTime;
}

void Machine::Write(uint32_t number, const void* bytes, size_t n, uint64_t at) {
  NoteWrite(number, at, bytes, n);
  Changed(number);
}

// Nobody else is there who could have locked anything.
long Machine::Control(const Descriptor& descriptor, long command, long argument) {
  if (command == F_OFD_SETLK) return 0;
  if (command != F_OFD_GETLK) return New(descriptor);  // F_DUPFD_CLOEXEC
  At<struct flock>(argument)->l_type = F_UNLCK;
  return 0;
}

// The calls on an open file.
long Machine::OfDescriptor(Descriptor& descriptor, long number, long fd, long b, long c, long d,
                           long e) {
  File* file = descriptor.kind == Descriptor::kFile ? &files_[descriptor.file] : nullptr;
  switch (number) {
    case SYS_close:
      descriptors_.erase(static_cast<int>(fd));
      return 0;
    case SYS_fcntl:
      return Control(descriptor, b, c);
    case SYS_flock:
    case SYS_fchmod:
    case SYS_fchown:
      return 0;
    case SYS_fstat:
      FillStat(descriptor, At<void>(b));
      return 0;
    case SYS_read: {
      const std::string text =
          descriptor.kind == Descriptor::kBoot ? BootText(boot_) : std::to_string(size_) + "\n";
      std::memcpy(At<void>(b), text.data(), text.size());
      return static_cast<long>(text.size());
    }
    case SYS_pread64:
      std::memcpy(At<void>(b), pool_ + d, static_cast<size_t>(c));
      return c;
    case SYS_fstatfs: {
      auto* fs = At<struct statfs>(b);
      *fs = {};
      fs->f_blocks = 1;  // it stores something
      for (const File& other : files_) {
        const bool is = file == &other || (descriptor.kind == Descriptor::kFolder &&
                                           other.identity.path.rfind(descriptor.path, 0) == 0);
        if (is) std::memcpy(&fs->f_fsid, &other.identity.file_system, sizeof(fs->f_fsid));
      }
      return 0;
    }
    case SYS_statx:
      file->StatX(file->named ? 1 : 0, At<void>(e));
      return 0;
    case SYS_name_to_handle_at:
      return file->Handle(At<void>(c));
    case SYS_ftruncate:
      Note(Event::kTruncate, descriptor.file, static_cast<uint64_t>(b));
      Changed(descriptor.file);
      return 0;
    case SYS_fallocate: {  // a hole
      const auto begin = static_cast<size_t>(c);
      const size_t end = std::min(begin + static_cast<size_t>(d), file->content.size());
      if (begin >= end) return 0;
      Note(Event::kErase, descriptor.file, begin, static_cast<uint32_t>(end - begin));
      Changed(descriptor.file);
      return 0;
    }
    case SYS_pwrite64:
      Write(descriptor.file, At<void>(b), static_cast<size_t>(c), static_cast<uint64_t>(d));
      return c;
    case SYS_pwritev: {
      // Each piece on its own: the disk may have any of them.
      const auto* pieces = At<const iovec>(b);
      auto at = static_cast<uint64_t>(d);
      for (long i = 0; i < c; at += pieces[i++].iov_len) {
        Write(descriptor.file, pieces[i].iov_base, pieces[i].iov_len, at);
      }
      return static_cast<long>(at) - d;
    }
    case SYS_sync_file_range:  // promises nothing
      return 0;
    case SYS_fsync:
    case SYS_fdatasync:
      if (file != nullptr) {
        Note(Event::kSyncBegin, descriptor.file);
        Note(Event::kSyncEnd, descriptor.file);
        return 0;
      }
      [[fallthrough]];
    default:
      std::fprintf(stderr, "crash: the machine does not know system call %ld\n", number);
      std::_Exit(3);
  }
}

long Machine::Call(long number, long a, long b, long c, long d, long e, long f) {
  switch (number) {
    case SYS_openat:
      return Open(At<const char>(b), c);
    case SYS_openat2:
      return Open(At<const char>(b), static_cast<long>(At<open_how>(c)->flags));
    case SYS_open_by_handle_at:
      return -EPERM;
    case SYS_newfstatat: {
      const long fd = Open(At<const char>(b), 0);
      if (fd < 0) return fd;
      FillStat(descriptors_[static_cast<int>(fd)], At<void>(c));
      descriptors_.erase(static_cast<int>(fd));
      return 0;
    }
    case SYS_mmap:
      if (e < kFirstDescriptor) break;
      return c == PROT_NONE ? sys::Address(lock_page) : sys::Address(pool_);
    case SYS_munmap:
      if (a == sys::Address(lock_page) || a == sys::Address(pool_)) return 0;
      break;
    case SYS_madvise:  // the pool's memory is no file that would keep what is unmapped
      if (a >= sys::Address(pool_) && a < sys::Address(pool_) + static_cast<long>(size_)) return 0;
      break;
    case SYS_fchmodat:
      return 0;
    default:
      break;
  }
  if (a >= kFirstDescriptor && a < next_) {
    const auto found = descriptors_.find(static_cast<int>(a));
    if (found != descriptors_.end()) return OfDescriptor(found->second, number, a, b, c, d, e);
  }
  return sys::CallKernel(number, a, b, c, d, e, f);
}

}  // namespace nvcache::crash
