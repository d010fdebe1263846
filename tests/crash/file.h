// SPDX-License-Identifier: BSD-3-Clause
//
// A file as the kernel describes it, and the names that lead to files.
#ifndef NVCACHE_TESTS_CRASH_FILE_H_
#define NVCACHE_TESTS_CRASH_FILE_H_

#include <time.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace nvcache::crash {

// No file: a name that is free.
inline constexpr uint32_t kNobody = ~uint32_t{0};

// A time that nobody has set: what happened last to the bytes or, of a folder, the names has.
inline constexpr int64_t kAnyTime = 0;

constexpr int64_t NanosecondsOf(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// What calls set of a file besides its names and bytes. Times are in nanoseconds.
struct Attributes {
  uint32_t mode = 0;  // with the file's type
  uint32_t uid = 0;
  uint32_t gid = 0;
  int64_t access = kAnyTime;
  int64_t change = kAnyTime;  // of its bytes
  bool operator==(const Attributes&) const = default;
};

// Of these, those that `set` says are set: pool::kSetMode and so on.
struct AttributeChange {
  uint32_t set = 0;
  Attributes now = {};
  void ApplyTo(Attributes* attributes) const;
};

// A file as the kernel describes it.
struct Identity : Attributes {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t birth_seconds = 0;
  uint32_t birth_nanoseconds = 0;
  uint64_t file_system = 0;
  int32_t handle_type = 0;
  std::string handle;
  std::string path;  // the one that it has or had
};

struct FileInfo {
  Identity identity;
  bool exists = false;  // from the start, and durably
  std::string content;  // then; of a symbolic link, where it leads to
  // It is not there when recovery runs for the first time, and comes back.
  bool away = false;
};

// The file that each name leads to, by its folder and itself.
using Entries = std::map<std::pair<uint32_t, std::string>, uint32_t>;

// Of the name in the folder; kNobody: it is free.
uint32_t FileOf(const Entries& names, uint32_t folder, const std::string& name);
void SetName(Entries* names, uint32_t folder, const std::string& name, uint32_t file);

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_FILE_H_
