// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/name_machine.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "src/pool/name_record.h"
#include "src/sys/kernel.h"

namespace nvcache::crash {

namespace {

constexpr char kOpenFiles[] = NVCACHE_DESCRIPTORS "/";
constexpr char kMounts[] = "/proc/self/mountinfo";
constexpr long kNoReplace = 1;  // RENAME_NOREPLACE

template <typename T>
T* At(long address) {
  return reinterpret_cast<T*>(address);
}

// The part of a path before its first slash, which goes from it.
std::string TakeFirst(std::string* path) {
  const size_t end = path->find('/');
  std::string first = path->substr(0, end);
  *path = end == std::string::npos ? "" : path->substr(end + 1);
  return first;
}

}  // namespace

void NameMachine::Begin() {
  Machine::Begin();
  trace_.root = root_;
  trace_.names = names_;
}

// ------------------------------------------------------------------------------------------
// Entries

uint32_t NameMachine::FileOf(long fd) const {
  const auto open = descriptors_.find(static_cast<int>(fd));
  const bool is_file = open != descriptors_.end() && open->second.kind == Descriptor::kFile;
  return is_file ? open->second.file : kNobody;
}

// False: the path is none of ours. No last symbolic link is followed.
bool NameMachine::Lookup(long dirfd, long address, Place* place) const {
  std::string path = At<const char>(address);
  const std::string& root = files_[root_].identity.path;
  if (path.rfind(kOpenFiles, 0) == 0) {
    *place = {kNobody, "", FileOf(std::atoi(path.c_str() + sizeof(kOpenFiles) - 1))};
    return place->file != kNobody;
  }
  if (path == root || path.rfind(root + "/", 0) == 0) {
    *place = {kNobody, "", root_};
    path = path.substr(std::min(path.size(), root.size() + 1));
  } else if (path.rfind('/', 0) == 0) {
    return false;
  } else {
    *place = {kNobody, "", FileOf(dirfd)};
    if (place->file == kNobody) return false;
  }
  while (!path.empty()) {
    const std::string name = TakeFirst(&path);
    if (name == ".") continue;
    const bool in_folder = place->file != kNobody && IsFolder(place->file);
    *place = {in_folder ? place->file : kNobody, name,
              in_folder ? crash::FileOf(names_, place->file, name) : kNobody};
  }
  return true;
}

bool NameMachine::IsFolder(uint32_t file) const { return S_ISDIR(files_[file].identity.mode); }

bool NameMachine::IsEmpty(uint32_t folder) const {
  return std::none_of(names_.begin(), names_.end(),
                      [folder](const auto& entry) { return entry.first.first == folder; });
}

uint32_t NameMachine::LinksOf(uint32_t file) const {
  if (IsFolder(file)) return 2;
  return static_cast<uint32_t>(std::count_if(
      names_.begin(), names_.end(), [file](const auto& entry) { return entry.second == file; }));
}

// It has a name, and so has its folder.
bool NameMachine::IsThere(uint32_t file) const {
  if (file == root_) return true;
  return std::any_of(names_.begin(), names_.end(), [&](const auto& entry) {
    return entry.second == file && IsThere(entry.first.first);
  });
}

void NameMachine::Set(uint32_t folder, const std::string& name, uint32_t file, bool more) {
  SetName(&names_, folder, name, file);
  files_[folder].identity.change = kAnyTime;
  trace_.events.push_back(trace_.EntryEvent(0, {folder, name, more}, file));
}

// ------------------------------------------------------------------------------------------ Calls

uint32_t NameMachine::Make(uint32_t folder, uint32_t mode, const std::string& content) {
  File file = {files_[folder].identity, true, content};
  file.identity.path = "";
  static_cast<Attributes&>(file.identity) = {mode};
  Renumber(&file);
  files_.push_back(file);
  trace_.files.push_back({file.identity, true, content, false});
  return static_cast<uint32_t>(files_.size() - 1);
}

long NameMachine::MakeAt(long dirfd, long path, uint32_t mode, const std::string& content) {
  Place place;
  if (!Lookup(dirfd, path, &place) || place.folder == kNobody) return -ENOENT;
  if (place.file != kNobody) return -EEXIST;
  Set(place.folder, place.name, Make(place.folder, mode, content));
  return 0;
}

long NameMachine::Open(long dirfd, long path, long flags, long mode) {
  if ((flags & O_CREAT) != 0) {
    const long made = MakeAt(dirfd, path, S_IFREG | static_cast<uint32_t>(mode), "");
    if (made < 0) return made;
  }
  Place place;
  Lookup(dirfd, path, &place);
  if (place.file == kNobody) return -ENOENT;
  if ((flags & O_DIRECTORY) != 0 && !IsFolder(place.file)) return -ENOTDIR;
  return New({Descriptor::kFile, place.file, ""});
}

// What is in no folder any more is gone.
long NameMachine::OpenByHandle(const void* address) {
  if (!privileged_) return -EPERM;
  const auto* handle = static_cast<const sys::FileHandle*>(address);
  const std::string bytes(reinterpret_cast<const char*>(handle->bytes), handle->size);
  for (uint32_t i = 0; i < files_.size(); ++i) {
    const Identity& identity = files_[i].identity;
    const bool same = identity.handle_type == handle->type && identity.handle == bytes;
    if (same && IsThere(i)) return New({Descriptor::kFile, i, ""});
  }
  return -ESTALE;
}

// 0, or there is no such file.
template <typename Function>
long NameMachine::Of(long dirfd, long path, Function function) const {
  const uint32_t file = FileAt(dirfd, path);
  return file == kNobody ? -ENOENT : function(files_[file], LinksOf(file));
}

long NameMachine::Stat(long dirfd, long path, void* out) const {
  return Of(dirfd, path, [out](const File& file, uint32_t links) {
    file.Stat(links, out);
    return 0;
  });
}

long NameMachine::FileSystem(long path, void* out) const {
  Place place;
  if (!Lookup(AT_FDCWD, path, &place) || place.file == kNobody) return -ENOENT;
  auto* fs = static_cast<struct statfs*>(out);
  *fs = {};
  fs->f_blocks = 1;  // it stores something
  std::memcpy(&fs->f_fsid, &files_[place.file].identity.file_system, sizeof(fs->f_fsid));
  return 0;
}

long NameMachine::Link(long from_dirfd, long from, long dirfd, long path) {
  Place source, place;
  if (!Lookup(from_dirfd, from, &source) || source.file == kNobody) return -ENOENT;
  if (!Lookup(dirfd, path, &place) || place.folder == kNobody) return -ENOENT;
  if (place.file != kNobody) return -EEXIST;
  if (IsFolder(source.file)) return -EPERM;
  Set(place.folder, place.name, source.file);
  return 0;
}

long NameMachine::Unlink(long dirfd, long path, bool folder) {
  Place place;
  if (!Lookup(dirfd, path, &place) || place.file == kNobody || place.folder == kNobody) {
    return -ENOENT;
  }
  if (IsFolder(place.file) != folder) return folder ? -ENOTDIR : -EISDIR;
  if (folder && !IsEmpty(place.file)) return -ENOTEMPTY;
  Set(place.folder, place.name, kNobody);
  return 0;
}

long NameMachine::Rename(long from_dirfd, long from, long dirfd, long path, long flags) {
  Place source, place;
  if (!Lookup(from_dirfd, from, &source) || source.file == kNobody) return -ENOENT;
  if (!Lookup(dirfd, path, &place) || place.folder == kNobody) return -ENOENT;
  if (place.file != kNobody && (flags & kNoReplace) != 0) return -EEXIST;
  if (place.file == source.file) return 0;
  Set(place.folder, place.name, source.file, true);
  Set(source.folder, source.name, kNobody);
  return 0;
}

// kNobody: there is none.
uint32_t NameMachine::FileAt(long dirfd, long path) const {
  Place place;
  return Lookup(dirfd, path, &place) ? place.file : kNobody;
}

long NameMachine::SetAttributes(uint32_t file, AttributeChange change) {
  if (file == kNobody) return -ENOENT;
  change.ApplyTo(&files_[file].identity);
  trace_.events.push_back(trace_.AttributesEvent(0, file, change));
  return 0;
}

// As the kernel does it.
long NameMachine::SetOwner(uint32_t file, uint32_t uid, uint32_t gid) {
  if (file == kNobody) return -ENOENT;
  uint32_t mode = files_[file].identity.mode;
  if (!S_ISDIR(mode)) mode &= ~uint32_t{S_ISUID};
  if (!S_ISDIR(mode) && (mode & S_IXGRP) != 0) mode &= ~uint32_t{S_ISGID};
  return SetAttributes(file, {pool::kSetOwner | pool::kSetMode, {mode, uid, gid}});
}

long NameMachine::SetTimes(uint32_t file, const timespec* times) {
  if (file == kNobody) return -ENOENT;
  Attributes now = files_[file].identity;
  now.access = NanosecondsOf(times[0]);
  if (times[1].tv_nsec != UTIME_OMIT) now.change = NanosecondsOf(times[1]);
  return SetAttributes(file, {pool::kSetTimes, now});
}

long NameMachine::Call(long number, long a, long b, long c, long d, long e, long f) {
  Place place;
  switch (number) {
    case SYS_openat:
    case SYS_openat2: {
      const auto* how = At<open_how>(c);
      const long flags = number == SYS_openat ? c : static_cast<long>(how->flags);
      if (Lookup(a, b, &place)) return Open(a, b, flags, number == SYS_openat ? d : 0);
      if (std::strcmp(At<const char>(b), kMounts) == 0) return New({Descriptor::kMounts, 0, ""});
      break;
    }
    case SYS_read:
      if (const auto open = descriptors_.find(static_cast<int>(a));
          open != descriptors_.end() && open->second.kind == Descriptor::kMounts) {
        const std::string text = "1 0 0:1 / " + files_[root_].identity.path + " rw - ext4 - rw\n";
        if (open->second.file++ > 0) return 0;
        std::memcpy(At<void>(b), text.data(), text.size());
        return static_cast<long>(text.size());
      }
      break;
    case SYS_open_by_handle_at:
      return OpenByHandle(At<void>(b));
    case SYS_newfstatat:
      if (FileOf(a) == kNobody && !Lookup(a, b, &place)) break;
      return Stat(a, b, At<void>(c));
    case SYS_fstat:
      if (FileOf(a) != kNobody) return Stat(a, sys::Address(""), At<void>(b));
      break;
    case SYS_statx:
      return Of(a, b, [e](const File& file, uint32_t links) {
        file.StatX(links, At<void>(e));
        return 0;
      });
    case SYS_name_to_handle_at:
      return Of(a, b, [c](const File& file, uint32_t) { return file.Handle(At<void>(c)); });
    case SYS_statfs:
      return FileSystem(a, At<void>(b));
    case SYS_linkat:
      return Link(a, b, c, d);
    case SYS_unlinkat:
      return Unlink(a, b, (c & AT_REMOVEDIR) != 0);
    case SYS_renameat2:
      return Rename(a, b, c, d, e);
    case SYS_mkdirat:
      return MakeAt(a, b, S_IFDIR | static_cast<uint32_t>(c), "");
    case SYS_symlinkat:
      return MakeAt(b, c, S_IFLNK | 0777, At<const char>(a));
    case SYS_fchmod:
      return SetAttributes(FileOf(a), {pool::kSetMode, {static_cast<uint32_t>(b)}});
    case SYS_fchmodat:
      return SetAttributes(FileAt(a, b), {pool::kSetMode, {static_cast<uint32_t>(c)}});
    case SYS_fchown:
      return SetOwner(FileOf(a), static_cast<uint32_t>(b), static_cast<uint32_t>(c));
    case SYS_fchownat:
      return SetOwner(FileAt(a, b), static_cast<uint32_t>(c), static_cast<uint32_t>(d));
    case SYS_utimensat:
      return SetTimes(FileAt(a, b), At<const timespec>(c));
    case SYS_syncfs:
    case SYS_sync:
      return NoteSyncAll();
    default:
      break;
  }
  return Machine::Call(number, a, b, c, d, e, f);
}

}  // namespace nvcache::crash
