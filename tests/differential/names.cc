// SPDX-License-Identifier: BSD-3-Clause
//
// Names and attributes.
#include <dirent.h>
#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <map>
#include <vector>

#include "tests/differential/calls.h"
#include "tests/differential/libc.h"

namespace nvcache::differential {
namespace {

// Times that an operation has set are smaller than those of today.
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kToday = kSecond * kSecond;

int64_t Nanoseconds(const timespec& t) { return t.tv_sec * kSecond + t.tv_nsec; }

char Relation(int64_t before, int64_t now) {
  if (before == 0) return '?';
  return now == before ? '=' : now > before ? '+' : '-';
}

// Numbers of inodes come back; a handle has a generation, too.
uint64_t Identity(int dirfd, const char* path, int flags) {
  alignas(file_handle) unsigned char room[sizeof(file_handle) + MAX_HANDLE_SZ] = {};
  auto* handle = reinterpret_cast<file_handle*>(room);
  handle->handle_bytes = MAX_HANDLE_SZ;
  int mount = 0;
  const int how = (flags & AT_SYMLINK_NOFOLLOW) != 0 ? 0 : AT_SYMLINK_FOLLOW;
  const int empty = flags & AT_EMPTY_PATH;
  if (name_to_handle_at(dirfd, path, handle, &mount, how | empty) != 0) return 0;
  return Hash(handle->f_handle, handle->handle_bytes);
}

// The place where the times of this file were kept when it was last looked at.
SeenTimes& Remembered(uint64_t identity) {
  for (uint32_t i = 0; i < g_shared->times_used; ++i) {
    if (g_shared->times[i].identity == identity) return g_shared->times[i];
  }
  SeenTimes& seen = g_shared->times[g_shared->times_used % kTimes];
  if (g_shared->times_used < kTimes) ++g_shared->times_used;
  seen = {identity, 0, 0};
  return seen;
}

void AddTimes(const Call& call, const struct stat& st, uint64_t identity) {
  SeenTimes& seen = Remembered(identity);
  const int64_t modified = Nanoseconds(st.st_mtim);
  const int64_t changed = Nanoseconds(st.st_ctim);
  if (modified < kToday && g_shared->killed == 0) {
    call.line.Add("mtime:@%ld", static_cast<long>(modified));
  } else {
    call.line.Add("mtime:%c", Relation(seen.modified, modified));
  }
  call.line.Add("ctime:%c", Relation(seen.changed, changed));
  seen.modified = modified;
  seen.changed = changed;
}

}  // namespace

std::string Path(const Operation& op, const char* key) {
  const std::string text = op.Text(key);
  return !text.empty() && text[0] == '/' ? g_root + text : text;
}

// While ext4 writes a file back, there is a moment in which new blocks are counted neither as
// promised nor as given. A file that seems to have holes is looked at once more; an empty count,
// again.
long Blocks(const struct stat& st, int dirfd, const char* path, int flags) {
  constexpr blkcnt_t kBlock = 512;
  struct stat again = st;
  blkcnt_t most = st.st_blocks;
  for (int i = 0; i < 3 && most * kBlock < st.st_size && (i == 0 || most == 0); ++i) {
    usleep(1000);
    if (fstatat(dirfd, path, &again, flags) != 0) break;
    most = std::max(most, again.st_blocks);
  }
  return static_cast<long>(most);
}

void AddStat(const Call& call, const struct stat& st, int dirfd, const char* path, int flags) {
  const bool directory = S_ISDIR(st.st_mode);
  call.line.Add("mode=%o nlink=%lu uid=%u gid=%u", st.st_mode,
                static_cast<unsigned long>(st.st_nlink), st.st_uid, st.st_gid);
  // A directory's size is the file system's business.
  if (!directory) call.line.Add("size=%ld", static_cast<long>(st.st_size));
  if (S_ISREG(st.st_mode)) call.line.Add("blocks:%ld", Blocks(st, dirfd, path, flags));
  AddTimes(call, st, Identity(dirfd, path, flags));
}

namespace {

void Stat(const Call& call) {
  const std::string path = Path(call.op);
  struct stat st;
  const int result = stat(path.c_str(), &st);
  call.line.Result(result);
  if (result == 0) AddStat(call, st, AT_FDCWD, path.c_str(), 0);
}

void Lstat(const Call& call) {
  const std::string path = Path(call.op);
  struct stat st;
  const int result = lstat(path.c_str(), &st);
  call.line.Result(result);
  if (result == 0) AddStat(call, st, AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW);
}

void Fstat(const Call& call) {
  struct stat st;
  const int result = fstat(Descriptor(call.op), &st);
  call.line.Result(result);
  if (result == 0) AddStat(call, st, Descriptor(call.op), "", AT_EMPTY_PATH);
}

void Fstatat(const Call& call) {
  const std::string path = Path(call.op);
  const int flags = static_cast<int>(call.op.Number("flags"));
  struct stat st;
  const int result = fstatat(DirectoryOf(call.op), path.c_str(), &st, flags);
  call.line.Result(result);
  if (result == 0) AddStat(call, st, DirectoryOf(call.op), path.c_str(), flags);
}

void Statx(const Call& call) {
  const std::string path = Path(call.op);
  const int flags = static_cast<int>(call.op.Number("flags"));
  struct statx st;
  const int result = statx(DirectoryOf(call.op), path.c_str(), flags, STATX_BASIC_STATS, &st);
  call.line.Result(result);
  if (result != 0) return;
  struct stat plain = {};
  plain.st_mode = st.stx_mode;
  plain.st_nlink = st.stx_nlink;
  plain.st_size = static_cast<off_t>(st.stx_size);
  plain.st_blocks = static_cast<blkcnt_t>(st.stx_blocks);
  plain.st_mtim = {st.stx_mtime.tv_sec, st.stx_mtime.tv_nsec};
  plain.st_ctim = {st.stx_ctime.tv_sec, st.stx_ctime.tv_nsec};
  AddStat(call, plain, DirectoryOf(call.op), path.c_str(), flags);
}

void Access(const Call& call) {
  call.line.Result(access(Path(call.op).c_str(), static_cast<int>(call.op.Number("mode"))));
}
void Chmod(const Call& call) {
  call.line.Result(chmod(Path(call.op).c_str(), static_cast<mode_t>(call.op.Number("mode"))));
}
void Fchmod(const Call& call) {
  call.line.Result(fchmod(Descriptor(call.op), static_cast<mode_t>(call.op.Number("mode"))));
}

// Access and modification; what cannot be set to `time=` is left as it is.
struct Times {
  timespec pair[2];
};
Times TimesOf(const Operation& op) {
  const long time = op.Number("time");
  if (time == 0) return {{{0, UTIME_OMIT}, {0, UTIME_NOW}}};
  return {{{time, time % 1000 * 1000}, {time + 1, time % 777 * 1000}}};
}
void Utimensat(const Call& call) {
  const Times times = TimesOf(call.op);
  call.line.Result(utimensat(DirectoryOf(call.op), Path(call.op).c_str(), times.pair,
                             static_cast<int>(call.op.Number("flags"))));
}
void Futimens(const Call& call) {
  const Times times = TimesOf(call.op);
  const int result = futimens(Descriptor(call.op), times.pair);
  call.line.Result(result);
  struct stat st;
  if (result == 0 && call.op.Number("time") != 0 && fstat(Descriptor(call.op), &st) == 0) {
    call.line.Add("atime=%ld mtime=%ld", static_cast<long>(Nanoseconds(st.st_atim)),
                  static_cast<long>(Nanoseconds(st.st_mtim)));
  }
}

void Rename(const Call& call) {
  call.line.Result(rename(Path(call.op, "from").c_str(), Path(call.op, "to").c_str()));
}
void Renameat2(const Call& call) {
  call.line.Result(renameat2(DirectoryOf(call.op), Path(call.op, "from").c_str(), AT_FDCWD,
                             Path(call.op, "to").c_str(),
                             static_cast<unsigned>(call.op.Number("flags"))));
}
void Link(const Call& call) {
  call.line.Result(link(Path(call.op, "from").c_str(), Path(call.op, "to").c_str()));
}
void LinkDescriptor(const Call& call) {
  const int fd = Descriptor(call.op);
  const std::string to = Path(call.op, "to");
  if (call.op.Number("empty") != 0) {
    call.line.Result(linkat(fd, "", AT_FDCWD, to.c_str(), AT_EMPTY_PATH));
  } else {
    const std::string from = "/proc/self/fd/" + std::to_string(fd);
    call.line.Result(linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW));
  }
}
void Symlink(const Call& call) {
  call.line.Result(symlink(call.op.Text("target").c_str(), Path(call.op).c_str()));
}
void Readlink(const Call& call) {
  char target[PATH_MAX];
  const ssize_t n = readlink(Path(call.op).c_str(), target, sizeof(target) - 1);
  call.line.Result(n);
  if (n > 0) call.line.Add("%.*s", static_cast<int>(n), target);
}
void Unlink(const Call& call) { call.line.Result(unlink(Path(call.op).c_str())); }
void Unlinkat(const Call& call) {
  call.line.Result(unlinkat(DirectoryOf(call.op), Path(call.op).c_str(),
                            static_cast<int>(call.op.Number("flags"))));
}
void Remove(const Call& call) { call.line.Result(remove(Path(call.op).c_str())); }
void Mkdir(const Call& call) { call.line.Result(mkdir(Path(call.op).c_str(), 0755)); }
void Rmdir(const Call& call) { call.line.Result(rmdir(Path(call.op).c_str())); }
void Chdir(const Call& call) { call.line.Result(chdir(Path(call.op).c_str())); }
void Fchdir(const Call& call) { call.line.Result(fchdir(Descriptor(call.op))); }

void AddNames(const Call& call, std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  std::string all;
  for (const std::string& name : names) all += name + " ";
  call.line.Add("%zu: %.150s", names.size(), all.c_str());
}

void List(const Call& call) {
  DIR* directory = opendir(Path(call.op).c_str());
  if (directory == nullptr) return call.line.Result(-1);
  std::vector<std::string> names;
  while (const dirent* entry = readdir(directory)) {
    names.push_back(std::string(entry->d_name) + ":" + std::to_string(entry->d_type));
  }
  call.line.Add("r=%d", closedir(directory));
  AddNames(call, names);
}

void Scan(const Call& call) {
  dirent** entries = nullptr;
  const int n = scandir(Path(call.op).c_str(), &entries, nullptr, nullptr);
  call.line.Result(n);
  if (n < 0) return;
  std::vector<std::string> names;
  for (int i = 0; i < n; ++i) {
    names.emplace_back(entries[i]->d_name);
    free(entries[i]);
  }
  free(entries);
  AddNames(call, names);
}

}  // namespace

bool DoNameCall(const Call& call) {
  static const std::map<std::string, void (*)(const Call&)> kCalls = {
      {"stat", Stat},           {"lstat", Lstat},
      {"fstat", Fstat},         {"fstatat", Fstatat},
      {"statx", Statx},         {"access", Access},
      {"chmod", Chmod},         {"fchmod", Fchmod},
      {"utimensat", Utimensat}, {"futimens", Futimens},
      {"rename", Rename},       {"renameat2", Renameat2},
      {"link", Link},           {"link_descriptor", LinkDescriptor},
      {"symlink", Symlink},     {"readlink", Readlink},
      {"unlink", Unlink},       {"unlinkat", Unlinkat},
      {"remove", Remove},       {"mkdir", Mkdir},
      {"rmdir", Rmdir},         {"chdir", Chdir},
      {"fchdir", Fchdir},       {"list", List},
      {"scandir", Scan},
  };
  const auto found = kCalls.find(call.op.name());
  if (found != kCalls.end()) found->second(call);
  return found != kCalls.end();
}

}  // namespace nvcache::differential
