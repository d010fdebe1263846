// SPDX-License-Identifier: BSD-3-Clause
//
// Files that a walk over the logs meets, numbered from 0 in the order in which they are met. Two
// file records that name the same file (pool::SameFile, and the file system) are one.
#ifndef NVCACHE_NVLOG_MET_FILES_H_
#define NVCACHE_NVLOG_MET_FILES_H_

#include <cstdint>

#include "src/nvlog/reader.h"
#include "src/sys/table.h"

namespace nvcache::nvlog {

// The number of no file.
inline constexpr uint32_t kNoFile = ~uint32_t{0};

class MetFiles {
 public:
  explicit MetFiles(const Reader& reader) : reader_(reader) {}

  // False without memory.
  bool Open();

  // A file record that the walk has come to.
  void Meet(const RecordHeader& header, Place place);
  // No file record of this segment counts any more: one may be lost.
  void Forget(uint32_t segment) { ++epochs_[segment]; }

  // The file of a record of the group that the walk has just found; kNoFile if no whole file record
  // gives it.
  uint32_t FileOf(const RecordHeader& header, Place place) const;
  uint32_t count() const { return files_.count(); }
  // Where the newest file record of file `file` lies: its header.
  Place RecordOf(uint32_t file) const;
  // A copy of its payload; false if that is not whole any more.
  bool CopyRecord(uint32_t file, pool::FileRecord* copy) const;

  // So many bytes there are the payload of a file record.
  bool IsRecord(const uint8_t* bytes, uint64_t length) const;

 private:
  struct File {
    Place record;
    Lsn lsn;  // that record's
    uint64_t hash;
    uint32_t next;  // the next file of the same bucket, plus one
  };
  // The file of a number in a segment.
  struct Name {
    uint64_t key;    // segment number and file number, plus one; 0: none
    uint32_t epoch;  // the segment's when it was met: others are forgotten
    uint32_t file;
  };

  uint32_t SegmentOf(Place place) const {
    return static_cast<uint32_t>(place / reader_.segment_units());
  }
  uint32_t Find(const pool::FileRecord& record, uint64_t hash) const;
  uint32_t Add(uint64_t hash);
  void AddToBucket(uint32_t file);
  bool CopyRecordAt(Place place, pool::FileRecord* copy) const;
  void SetName(uint32_t segment, uint32_t number, uint32_t file);
  bool Grow();
  bool GrowNames();

  const Reader& reader_;
  sys::Table<uint32_t> epochs_;                   // by segment number
  mutable sys::Table<pool::FileRecord> records_;  // two, to compare
  sys::Table<File> files_;
  sys::Table<uint32_t> buckets_;  // one for each file that there is room for: file plus one
  sys::Table<Name> names_;        // hashed
};

}  // namespace nvcache::nvlog

#endif  // NVCACHE_NVLOG_MET_FILES_H_
