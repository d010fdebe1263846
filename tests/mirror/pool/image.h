// SPDX-License-Identifier: BSD-3-Clause
//
// What a server would have: the batches of a cursor, written in turn over zeros.
#ifndef NVCACHE_TESTS_MIRROR_POOL_IMAGE_H_
#define NVCACHE_TESTS_MIRROR_POOL_IMAGE_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "mirror/core/source.h"
#include "src/nvlog/walk.h"
#include "tests/unit/found.h"

namespace nvcache::mirror {

// A group as a walk meets it.
struct Seen {
  struct Part {
    nvlog::Kind kind;
    uint64_t offset;
    std::string bytes;  // of data
    std::string path;   // of its file
    bool operator==(const Part&) const = default;
  };
  nvlog::Lsn lsn;
  uint32_t log;
  bool kept;
  nvlog::Place place;
  std::vector<Part> parts;  // without file records
  bool operator==(const Seen&) const = default;
};

// All that counts in a pool. `problem`: what is damaged or unfinished, if it is empty.
inline std::vector<Seen> Walk(const pool::View& view, std::string* problem,
                              std::vector<nvlog::Lsn>* checkpoints = nullptr) {
  std::vector<Seen> all;
  nvlog::Reader reader;
  EXPECT_TRUE(reader.Open(view));
  nvlog::GroupWalk walk(reader);
  EXPECT_TRUE(walk.Open());
  for (nvlog::Group group; walk.Next(&group);) {
    if (group.verdict == nvlog::Verdict::kVoid || group.verdict == nvlog::Verdict::kOnDisk)
      continue;
    if (group.verdict != nvlog::Verdict::kCommitted) {
      if (problem->empty()) {
        *problem = "group " + std::to_string(group.lsn) + " of log " + std::to_string(group.log) +
                   " is not whole";
      }
      continue;
    }
    Seen seen = {group.lsn, group.log, group.kept, group.place, {}};
    walk.ForEachRecord(group, [&](const nvlog::RecordHeader& header, nvlog::Place place) {
      if (header.kind == nvlog::Kind::kFile) return;
      pool::FileRecord record = {};
      const uint32_t file = walk.FileOf(header, place);
      const bool known = file != nvlog::kNoFile && walk.CopyRecord(file, &record);
      seen.parts.push_back({header.kind, header.offset, test::PayloadOf(reader, header, place),
                            known ? record.path : ""});
    });
    all.push_back(seen);
  }
  if (checkpoints != nullptr) {
    checkpoints->clear();
    for (uint32_t log = 0; log < view.seat_count() * pool::kLogsOfSeat; ++log) {
      checkpoints->push_back(reader.checkpoint(log));
    }
  }
  return all;
}

class Image {
 public:
  explicit Image(uint64_t size) : bytes_(size / sizeof(uint64_t)) {}

  // What is wrong with the batch.
  std::string Apply(const Batch& batch) {
    if (batch.bytes.size() > kMaxBytes || batch.ranges.size() > kMaxRanges) return "too large";
    if (batch.position < position_) return "the position goes down";
    position_ = batch.position;
    size_t at = 0;
    for (const Range& range : batch.ranges) {
      if (range.offset % kRangeUnit != 0 || range.length % kRangeUnit != 0 || range.length == 0 ||
          range.offset + range.length > size() || at + range.length > batch.bytes.size()) {
        return "a range is wrong";
      }
      std::memcpy(base() + range.offset, &batch.bytes[at], range.length);
      at += range.length;
    }
    return at == batch.bytes.size() ? "" : "bytes are left over";
  }
  pool::View view() { return {base(), reinterpret_cast<const pool::Superblock*>(base())}; }
  uint8_t* base() { return reinterpret_cast<uint8_t*>(bytes_.data()); }
  uint64_t size() const { return bytes_.size() * sizeof(uint64_t); }
  Position position() const { return position_; }

 private:
  std::vector<uint64_t> bytes_;
  Position position_ = 0;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_TESTS_MIRROR_POOL_IMAGE_H_
