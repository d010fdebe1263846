// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_VFS_ATTRIBUTE_CALL_H_
#define NVCACHE_VFS_ATTRIBUTE_CALL_H_

#include <sys/stat.h>
#include <sys/types.h>

#include "src/pool/name_record.h"
#include "src/sys/born_stat.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine/in_flight.h"
#include "src/vfs/unseen.h"

namespace nvcache::vfs {

// Around a call that sets attributes. They are set on what the kernel has, for a later write-back
// would set times anew, and take set-user-ID bits and capabilities away. The log has them as well,
// if it knows all of the file or folder. Those of any other file are in no log: its next fsync is
// real.
class AttributeCall {
 public:
  // It sets them on what is open there, or on what the path leads to. No lock.
  explicit AttributeCall(int fd);
  // `own`: it is a path of ours.
  AttributeCall(int dirfd, const char* path, bool follow, bool own = false);
  ~AttributeCall();
  AttributeCall(const AttributeCall&) = delete;
  AttributeCall& operator=(const AttributeCall&) = delete;

  // Before the call: `set` are those of pool::kSetMode and so on that it sets; 0: others, for which
  // the log has no record. 0; -EIO: it must fail.
  long Begin(uint32_t set);
  // After it. No lock but its own.
  void End(bool done);

 private:
  void LogChange();
  void OweSync() const;
  void Recall(uint64_t bypasses);
  bool RecallNamed(const lease::Coverage& now);
  void Fill(const pool::Identity& file, uint64_t file_system);
  void OpenPath();
  bool AddPath(const char* path);
  bool Look();
  uint64_t Tag() const;
  bool Ask(struct statx* st);
  bool LookAgain(struct statx* st) const;
  bool Identify(uint64_t bypasses, struct statx* st);

  dev_t device_ = 0;
  ino_t inode_ = 0;        // 0: it is none of ours
  uint64_t birth_ = 0;     // sys::BornStat
  sys::BornStat st_ = {};  // before the call; nothing: not looked at yet
  // The record has all but the attributes, as after so many bypasses of the file.
  static constexpr uint64_t kNever = ~uint64_t{0};
  uint64_t recalled_ = kNever;
  const bool by_path_ = false;
  int dirfd_ = -1;
  const char* path_ = nullptr;
  bool follow_ = false;
  int fd_ = -1;  // by a path: only where it is needed
  bool owns_fd_ = false;
  uint32_t set_ = 0;
  lease::FileEntry* entry_ = nullptr;
  InFlight in_flight_;
  UnseenCall unseen_;
  sys::Scratch<pool::NameRecord> record_;
};

// A call has changed nothing of the descriptor's file but the time of its last change: all that is
// known of it stays so. No lock.
void KeepCoverage(int fd, const sys::BornStat& before);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ATTRIBUTE_CALL_H_
