// SPDX-License-Identifier: BSD-3-Clause
//
// What the recorded engine, and the program past it, do to names and attributes.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>

#include "src/pool/name_record.h"
#include "src/sys/kernel.h"
#include "tests/crash/capture.h"
#include "tests/kit/files.h"

namespace nvcache::crash {

namespace {

const char* TextAt(long address) { return reinterpret_cast<const char*>(address); }

// Without being noted.
bool Stat(long dirfd, const std::string& path, struct stat* st) {
  return sys::CallKernel(SYS_newfstatat, dirfd, sys::Address(path.c_str()), sys::Address(st),
                         AT_SYMLINK_NOFOLLOW, 0, 0) == 0;
}

class Opened {
 public:
  Opened(long dirfd, const char* path)
      : fd_(static_cast<int>(sys::CallKernel(SYS_openat, dirfd, sys::Address(path),
                                             O_PATH | O_NOFOLLOW | O_CLOEXEC, 0, 0, 0))) {
    if (fd_ < 0) throw std::runtime_error(std::string(path) + " cannot be opened");
  }
  ~Opened() { ::close(fd_); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

bool SetsAttributes(long number) {
  switch (number) {
    case SYS_fchmod:
    case SYS_fchmodat:
    case SYS_fchown:
    case SYS_fchownat:
    case SYS_utimensat:
      return true;
    default:
      return false;
  }
}

std::string ContentOf(const std::filesystem::path& path) {
  if (std::filesystem::is_symlink(path)) return std::filesystem::read_symlink(path);
  if (std::filesystem::is_directory(path)) return "";
  return kit::Slurp(path);
}

}  // namespace

// Its bytes are those that are durable: of a new file, none.
uint32_t Capture::AddFile(int fd, const std::string& path) {
  const Identity identity = IdentityOf(fd, path);
  trace_.files.push_back({identity, true, "", false});
  const auto number = static_cast<uint32_t>(trace_.files.size() - 1);
  by_inode_[identity.inode] = number;
  return number;
}

void Capture::WatchFolder(const std::string& path) {
  std::lock_guard lock(lock_);
  trace_.root = AddFile(Opened(AT_FDCWD, path.c_str()).get(), path);
  WatchNames(trace_.root, path);
  trace_.names = names_;
}

void Capture::WatchNames(uint32_t folder, const std::string& path) {
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::string name = entry.path().filename();
    const Opened opened(AT_FDCWD, entry.path().c_str());
    int file = FileOf(opened.get());
    const bool is_new = file < 0;
    if (is_new) file = static_cast<int>(AddFile(opened.get(), ""));
    const auto number = static_cast<uint32_t>(file);
    names_[{folder, name}] = number;
    if (is_new) trace_.files[number].content = ContentOf(entry.path());
    const bool is_folder = S_ISDIR(trace_.files[number].identity.mode);
    if (is_folder) WatchNames(number, entry.path());
  }
}

uint32_t Capture::FileAt(int fd) {
  std::lock_guard lock(lock_);
  const int file = FileOf(fd);
  return file < 0 ? kNobody : static_cast<uint32_t>(file);
}

// ------------------------------------------------------------------------------------------- Names

Capture::Place Capture::PlaceOf(long dirfd, long path) const {
  std::string folder = TextAt(path);
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  const size_t slash = folder.rfind('/');
  const std::string name = folder.substr(slash + 1);
  folder = slash == std::string::npos ? "." : folder.substr(0, slash);
  struct stat st = {};
  if (!Stat(dirfd, folder, &st)) return {kNobody, name};
  const auto found = by_inode_.find(st.st_ino);
  const bool known =
      found != by_inode_.end() && trace_.files[found->second].identity.device == st.st_dev;
  return {known ? found->second : kNobody, name};
}

void Capture::NoteName(const Place& place, uint32_t file, bool more) {
  SetName(&names_, place.folder, place.name, file);
  Add(trace_.EntryEvent(Who(), {place.folder, place.name, more}, file));
}

void Capture::AddMade(const Place& place, long dirfd, long path) {
  if (place.folder == kNobody) return;
  const uint32_t file = AddFile(Opened(dirfd, TextAt(path)).get(), "");
  if (S_ISLNK(trace_.files[file].identity.mode)) {
    std::string& target = trace_.files[file].content;
    target.resize(PATH_MAX);
    target.resize(static_cast<size_t>(
        sys::CallKernel(SYS_readlinkat, dirfd, path, sys::Address(target.data()), PATH_MAX, 0, 0)));
  }
  NoteName(place, file);
}

bool Capture::ChangesNames(long number, long c) const {
  if (trace_.root == kNobody) return false;
  switch (number) {
    case SYS_openat:
      return (c & O_CREAT) != 0;
    case SYS_mkdirat:
    case SYS_symlinkat:
    case SYS_linkat:
    case SYS_unlinkat:
    case SYS_renameat2:
      return true;
    default:
      return SetsAttributes(number);
  }
}

// The call and what is noted of it are one.
long Capture::ChangeNames(long number, long a, long b, long c, long d, long e) {
  if (SetsAttributes(number)) return SetAttributes(number, a, b, c, d, e);
  std::lock_guard lock(lock_);
  const bool from_first = number == SYS_linkat || number == SYS_renameat2;
  const bool links = number == SYS_symlinkat;
  const long dirfd = links ? b : from_first ? c : a;
  const long path = links ? c : from_first ? d : b;
  const Place place = PlaceOf(dirfd, path);
  const Place from = from_first ? PlaceOf(a, b) : Place{kNobody, ""};
  if (place.folder != kNobody && name_error_ != 0) return -std::exchange(name_error_, 0);
  const long result = sys::CallKernel(number, a, b, c, d, e, 0);
  if (result < 0 || place.folder == kNobody) return result;
  const uint32_t source = crash::FileOf(names_, from.folder, from.name);
  const uint32_t before = crash::FileOf(names_, place.folder, place.name);
  switch (number) {
    case SYS_linkat:
      NoteName(place, source);
      break;
    case SYS_unlinkat:
      NoteName(place, kNobody);
      break;
    case SYS_renameat2:
      if (source == before) break;
      NoteName(place, source, true);
      NoteName(from, kNobody);
      break;
    default:  // what is there is opened
      if (before == kNobody) AddMade(place, dirfd, path);
  }
  return result;
}

// By a descriptor, or by a path, which is null where times are those of a descriptor.
long Capture::SetAttributes(long number, long a, long b, long c, long d, long e) {
  std::lock_guard lock(lock_);
  const long result = sys::CallKernel(number, a, b, c, d, e, 0);
  if (result < 0) return result;
  const bool by_path = number != SYS_fchmod && number != SYS_fchown && b != 0;
  struct stat st = {};
  const bool found = by_path ? Stat(a, TextAt(b), &st)
                             : sys::CallKernel(SYS_fstat, a, sys::Address(&st), 0, 0, 0, 0) == 0;
  const auto file = by_inode_.find(st.st_ino);
  if (!found || file == by_inode_.end()) return result;
  AttributeChange change = {
      pool::kSetTimes,
      {st.st_mode, st.st_uid, st.st_gid, NanosecondsOf(st.st_atim), NanosecondsOf(st.st_mtim)}};
  if (number != SYS_utimensat) change.set = pool::kSetMode;
  if (number == SYS_fchown || number == SYS_fchownat) change.set |= pool::kSetOwner;
  Add(trace_.AttributesEvent(Who(), file->second, change));
  return result;
}

}  // namespace nvcache::crash
