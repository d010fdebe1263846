// SPDX-License-Identifier: BSD-3-Clause
//
// The machine where files are in folders, and have names and attributes that recovery changes.
#ifndef NVCACHE_TESTS_CRASH_NAME_MACHINE_H_
#define NVCACHE_TESTS_CRASH_NAME_MACHINE_H_

#include <time.h>

#include <string>
#include <vector>

#include "tests/crash/machine.h"

namespace nvcache::crash {

class NameMachine : public Machine {
 public:
  // `root`: the folder whose path is its identity's. All others are in it.
  NameMachine(size_t pool_size, uint32_t root) : Machine(pool_size), root_(root) {}

  Entries& names() { return names_; }
  const Entries& names() const { return names_; }
  // Whether recovery may open files by handles.
  void set_privileged(bool privileged) { privileged_ = privileged; }

  void Begin() override;
  long Call(long number, long a, long b, long c, long d, long e, long f) override;

 private:
  // Where a path leads. `file`: kNobody if there is nothing, or no folder to look into.
  struct Place {
    uint32_t folder;  // kNobody: of the root, or of what is open
    std::string name;
    uint32_t file;
  };
  bool Lookup(long dirfd, long path, Place* place) const;
  uint32_t FileOf(long fd) const;
  uint32_t LinksOf(uint32_t file) const;
  bool IsThere(uint32_t file) const;
  bool IsFolder(uint32_t file) const;
  bool IsEmpty(uint32_t folder) const;
  void Set(uint32_t folder, const std::string& name, uint32_t file, bool more = false);
  uint32_t Make(uint32_t folder, uint32_t mode, const std::string& content);

  long Open(long dirfd, long path, long flags, long mode);
  long OpenByHandle(const void* handle);
  long MakeAt(long dirfd, long path, uint32_t mode, const std::string& content);
  template <typename Function>
  long Of(long dirfd, long path, Function function) const;
  long Stat(long dirfd, long path, void* out) const;
  long FileSystem(long path, void* out) const;
  long Link(long from_dirfd, long from, long dirfd, long path);
  long Unlink(long dirfd, long path, bool folder);
  long Rename(long from_dirfd, long from, long dirfd, long path, long flags);
  long SetAttributes(uint32_t file, AttributeChange change);
  long SetOwner(uint32_t file, uint32_t uid, uint32_t gid);
  long SetTimes(uint32_t file, const timespec* times);
  uint32_t FileAt(long dirfd, long path) const;

  const uint32_t root_;
  Entries names_;
  bool privileged_ = true;
};

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_NAME_MACHINE_H_
