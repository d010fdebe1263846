// SPDX-License-Identifier: BSD-3-Clause
//
// What recovery would find in a pool.
#ifndef NVCACHE_TESTS_UNIT_FOUND_H_
#define NVCACHE_TESTS_UNIT_FOUND_H_

#include <gtest/gtest.h>

#include <string>

#include "src/nvlog/reader.h"
#include "src/nvlog/walk.h"
#include "tests/unit/support.h"

namespace nvcache::test {

// The bytes of a data record; of others none.
inline std::string PayloadOf(const nvlog::Reader& reader, const nvlog::RecordHeader& header,
                             nvlog::Place place) {
  std::string bytes;
  if (header.kind != nvlog::Kind::kData) return bytes;
  const uint64_t first = header.offset / pool::kPageSize;
  for (uint64_t i = 0; i < nvlog::PagesOf(header.offset, header.length); ++i) {
    const nvlog::Reader::Piece piece = reader.PieceAt(header, place, first + i);
    EXPECT_EQ(piece.offset, header.offset + bytes.size());
    bytes.append(reinterpret_cast<const char*>(piece.bytes), piece.length);
  }
  return bytes;
}

// A record of a committed group.
struct FoundRecord {
  const nvlog::Reader& reader;
  const nvlog::GroupWalk& walk;
  const nvlog::Group& group;
  const nvlog::RecordHeader& header;
  nvlog::Place place;

  std::string payload() const { return PayloadOf(reader, header, place); }
  // The number of the file, and the newest record that describes it.
  uint32_t file() const { return walk.FileOf(header, place); }
  pool::FileRecord file_record() const {
    pool::FileRecord record = {};
    EXPECT_TRUE(walk.CopyRecord(file(), &record));
    return record;
  }
};

// Calls function(FoundRecord) for each, and other(Group) for groups that are not committed. Nothing
// may look damaged.
inline void IsIgnored(const nvlog::Group&) {}
inline void IsAFailure(const nvlog::Group& group) {
  ADD_FAILURE() << "lsn " << group.lsn << " is not committed";
}
template <typename Function>
void ForEachCommitted(const pool::View& view, Function function,
                      void (*other)(const nvlog::Group&) = IsIgnored) {
  nvlog::Reader reader;
  EXPECT_TRUE(reader.Open(view));
  nvlog::GroupWalk walk(reader);
  EXPECT_TRUE(walk.Open());
  for (nvlog::Group group; walk.Next(&group);) {
    EXPECT_NE(group.verdict, nvlog::Verdict::kDamaged) << "lsn " << group.lsn;
    if (group.verdict != nvlog::Verdict::kCommitted) {
      other(group);
      continue;
    }
    walk.ForEachRecord(group, [&](const nvlog::RecordHeader& header, nvlog::Place place) {
      function(FoundRecord{reader, walk, group, header, place});
    });
  }
}
// Of a pool that may be in use.
template <typename Function>
void ForEachCommitted(const std::string& path, Function function) {
  const OpenedPool pool(path, pool::Mode::kInspect);
  ForEachCommitted(pool.view(), function);
}

}  // namespace nvcache::test

#endif  // NVCACHE_TESTS_UNIT_FOUND_H_
