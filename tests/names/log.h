// SPDX-License-Identifier: BSD-3-Clause
//
// The model's pool: records that are durable as they are committed, and the checkpoint.
#ifndef NVCACHE_TESTS_NAMES_LOG_H_
#define NVCACHE_TESTS_NAMES_LOG_H_

#include <algorithm>
#include <vector>

#include "tests/names/file_system.h"

namespace nvcache::names {

using Lsn = int;

// Those of names first.
enum class Kind {
  kCreated,    // file, as name
  kLinks,      // an intent: file gets the name, by way of `from`
  kLinked,     // the same, done
  kRemoves,    // an intent: file loses name
  kRemoved,    // the same, done
  kRenames,    // an intent: file, from `from` to name, which `other` loses, if it is not free
  kRenamed,    // the same, done
  kData,       // file has `version`
  kSettled,    // what the log had of file's bytes below `bound` is void
  kContinues,  // recovery has made `other` in place of file
};

struct Record {
  Kind kind;
  File file = kNoFile;
  Name name = -1;
  Name from = -1;
  File other = kNoFile;
  int version = 0;
  bool gone = false;    // the file that has lost its name has no other one
  bool others = false;  // file has more names than the record says
  Lsn bound = 0;
  Lsn lsn = 0;
};

inline bool IsOfNames(const Record& record) { return record.kind < Kind::kData; }
inline bool IsIntent(const Record& record) {
  return record.kind == Kind::kLinks || record.kind == Kind::kRemoves ||
         record.kind == Kind::kRenames;
}

struct Pool {
  std::vector<Record> records;
  Lsn newest = 0;
  Lsn checkpoint = 1;  // groups below it count no more

  Lsn Draw() { return ++newest; }
  void Commit(Record record) {
    record.lsn = Draw();
    records.push_back(record);
  }
  // Whether recovery would apply bytes of the file.
  bool IsPending(File file) const {
    Lsn from = checkpoint, last = 0;
    for (const Record& record : records) {
      if (record.file != file) continue;
      if (record.kind == Kind::kData) last = record.lsn;
      if (record.kind == Kind::kSettled) from = std::max(from, record.bound);
    }
    return last >= from;
  }
  void MoveCheckpoint(Lsn lsn) { checkpoint = std::max(checkpoint, lsn); }
};

}  // namespace nvcache::names

#endif  // NVCACHE_TESTS_NAMES_LOG_H_
