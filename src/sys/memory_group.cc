// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/memory_group.h"

#include <algorithm>

#include "src/sys/lines.h"
#include "src/sys/scratch.h"

namespace nvcache::sys {

namespace {

uint64_t NumberOf(const char* text) {
  if (*text < '0' || *text > '9') return kNoLimit;  // "max"
  uint64_t number = 0;
  for (; *text >= '0' && *text <= '9'; ++text) {
    number = number * 10 + static_cast<uint64_t>(*text - '0');
  }
  return number;
}

// A group of this version, in its file system.
struct Group {
  bool second;
  char path[kLongestLine];
  size_t mount;   // the length of the mount point in it
  size_t length;  // of the path
};

class Groups {
 public:
  explicit Groups(const char* proc) : proc_(proc) {}

  uint64_t Free() {
    uint64_t free = kNoLimit;
    mounts_->Open(proc_, "mountinfo");
    while (mounts_->Next()) {
      if (FindIn(mounts_->text())) free = std::min(free, FreeFromHereUp());
    }
    return free;
  }

 private:
  // The process's group on the mount of this line, if that is of groups that bound memory;
  // proc(5).
  bool FindIn(const char* line) {
    const char* rest = line;
    while (*rest != '\0' && Behind(rest, " - ") == nullptr) ++rest;
    if (*rest == '\0') return false;
    rest += 3;
    group_->second = Behind(rest, "cgroup2 ") != nullptr;
    if (!group_->second && !(Behind(rest, "cgroup ") && HasWord(WordAt(rest, 2), "memory"))) {
      return false;
    }
    const char *const root = WordAt(line, 3), *const point = WordAt(line, 4);
    group_->length = 0;
    Append(point, WordLength(point));
    group_->mount = group_->length;
    return AppendPath(root, WordLength(root));
  }

  // The group's path, of which the mount shows what is below `root`.
  bool AppendPath(const char* root, size_t length) {
    lines_->Open(proc_, "cgroup");
    while (lines_->Next()) {
      const char* path = lines_->text();
      while (*path != '\0' && *path != ':') ++path;
      if (*path++ == '\0') continue;
      const char* const controllers = path;
      while (*path != '\0' && *path != ':') ++path;
      if (*path == '\0') continue;
      const bool is_second = controllers == path;
      if (is_second != group_->second || (!is_second && !HasWord(controllers, "memory"))) continue;
      ++path;
      if (length == 1) length = 0;  // "/"
      for (size_t i = 0; i < length; ++i) {
        if (path[i] != root[i]) return true;  // it is outside: the mount's own has to do
      }
      path += length;
      if (*path == '/' && path[1] != '\0' && Behind(path, "/..") == nullptr) {
        Append(path, Length(path));
      }
      return true;
    }
    return false;
  }

  void Append(const char* text, size_t n) {
    for (size_t i = 0; i < n && group_->length + 1 < kLongestLine; ++i) {
      group_->path[group_->length++] = text[i];
    }
    group_->path[group_->length] = '\0';
  }

  uint64_t FreeFromHereUp() {
    uint64_t free = FreeHere();
    while (group_->length > group_->mount) {
      while (group_->path[--group_->length] != '/') continue;
      group_->path[group_->length] = '\0';
      free = std::min(free, FreeHere());
    }
    return free;
  }

  uint64_t FreeHere() {
    constexpr uint64_t kUnlimited = uint64_t{1} << 60;  // what version 1 says is less than 2^63
    const bool second = group_->second;
    uint64_t limit = Number(second ? "memory.max" : "memory.limit_in_bytes");
    if (second) limit = std::min(limit, Number("memory.high"));
    if (limit >= kUnlimited) return kNoLimit;
    const uint64_t used = Number(second ? "memory.current" : "memory.usage_in_bytes");
    if (used == kNoLimit) return kNoLimit;
    const uint64_t left = limit - std::min(limit, used);
    return std::min(limit, left + FilePages());
  }

  uint64_t Number(const char* name) {
    lines_->Open(group_->path, name);
    return lines_->Next() ? NumberOf(lines_->text()) : kNoLimit;
  }

  uint64_t FilePages() {
    const char* const kOf[2][2] = {{"total_inactive_file ", "total_active_file "},
                                   {"inactive_file ", "active_file "}};
    uint64_t bytes = 0;
    lines_->Open(group_->path, "memory.stat");
    while (lines_->Next()) {
      for (const char* name : kOf[group_->second ? 1 : 0]) {
        if (const char* n = Behind(lines_->text(), name); n != nullptr) bytes += NumberOf(n);
      }
    }
    return bytes;
  }

  const char* const proc_;
  Scratch<Lines> mounts_, lines_;
  Scratch<Group> group_;
};

}  // namespace

uint64_t FreeInGroups(const char* proc) { return Groups(proc).Free(); }

}  // namespace nvcache::sys
