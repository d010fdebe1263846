// SPDX-License-Identifier: BSD-3-Clause
//
// The example of docs/pool-format.md: its bytes are what the structures of the format hold, and the
// reader finds in them what the page says.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "src/nvlog/walk.h"
#include "src/sys/crc32c.h"
#include "tests/unit/support.h"

namespace nvcache::nvlog {
namespace {

// What the page says in words.
constexpr uint64_t kSalt = 0x9d3f5a7c21e86b04;
constexpr uint32_t kSegment = 3;
constexpr uint64_t kPoolSize = pool::kMinPoolSize;
constexpr pool::Geometry kGeometry = pool::GeometryOf(kPoolSize);
constexpr uint64_t kSegmentUnits = kGeometry.segment_size / pool::kUnitSize;
constexpr Lsn kGeneration = 1;

struct FileOfExample {
  uint32_t number;
  const char* path;
  uint64_t inode;
};
constexpr FileOfExample kA = {0, "/srv/a", 1201};
constexpr FileOfExample kB = {1, "/srv/b", 1202};

// The segment's units, made from the structures, as docs/pool-format.md has them made.
class Builder {
 public:
  Builder() : bytes_(kGeometry.segment_size, '\0') {
    pool::SegmentHeader header = {};
    header.word = pool::SegmentWord(kGeneration, kSalt);
    header.generation = kGeneration;
    header.checkpoint = 1;
    header.number = kSegment;
    header.kind = pool::SegmentKind::kLog;
    header.crc = pool::SegmentHeaderCrc(header, kSalt);
    std::memcpy(At(0), &header, sizeof(header));
    std::memcpy(At(kSegmentUnits - 1), &header, sizeof(header));
  }

  void AddFile(Lsn lsn, const FileOfExample& file) {
    pool::FileRecord record = {};
    record.device = 0x803;
    record.inode = file.inode;
    record.birth_seconds = 1700000000;
    record.birth_nanoseconds = 500;
    record.mode = 0100644;
    record.uid = 1000;
    record.gid = 1000;
    record.file_system = 0x1122334455667788;
    record.handle_type = 1;
    record.handle_size = 8;
    const uint32_t handle[] = {static_cast<uint32_t>(file.inode), 77};
    std::memcpy(record.handle, handle, sizeof(handle));
    record.path_length = static_cast<uint32_t>(std::strlen(file.path));
    std::memcpy(record.path, file.path, record.path_length);
    const size_t size = pool::FileRecordSize(record.path_length);
    std::memcpy(At(unit_ + 1), &record, size);
    RecordHeader header = Header(lsn, Kind::kFile, file, 0, size);
    header.count = 2;
    header.payload_crc = sys::Crc32c(&record, size, 0);
    Put(header);
  }

  // `index` in a group of `count`.
  void AddData(Lsn lsn, const FileOfExample& file, uint16_t index, uint16_t count, uint64_t offset,
               const std::string& text) {
    RecordHeader header = Header(lsn, Kind::kData, file, offset, text.size());
    header.index = index;
    header.count = count;
    header.payload_crc = sys::Crc32c(text.data(), text.size(), 0);
    const uint64_t first = FirstLength(offset, text.size());
    const uint64_t unit = unit_ + 1 + LinkUnits(PagesOf(offset, text.size()));
    std::memcpy(At(unit), text.data(), first);
    std::memcpy(At(unit + UnitsOf(first)), text.data() + first, text.size() - first);
    Put(header);
  }

  void AddTruncation(Lsn lsn, const FileOfExample& file, uint64_t size) {
    RecordHeader header = Header(lsn, Kind::kTruncate, file, size, 0);
    Put(header);
  }

  uint64_t units() const { return unit_; }
  const std::string& bytes() const { return bytes_; }

 private:
  char* At(uint64_t unit) { return bytes_.data() + unit * pool::kUnitSize; }
  static RecordHeader Header(Lsn lsn, Kind kind, const FileOfExample& file, uint64_t offset,
                             uint64_t length) {
    RecordHeader header = {};
    header.lsn = lsn;
    header.offset = offset;
    header.length = length;
    header.file = file.number;
    header.kind = kind;
    header.count = 1;
    return header;
  }
  void Put(RecordHeader& header) {
    header.header_crc = HeaderCrc(header, kSegment * kSegmentUnits + unit_, kGeneration, kSalt);
    header.commit = CommitWord(header.lsn, kSalt);
    std::memcpy(At(unit_), &header, sizeof(header));
    unit_ += RecordUnits(header);
  }

  std::string bytes_;
  uint64_t unit_ = kFirstUnit;
};

Builder Example() {
  Builder example;
  example.AddFile(2, kA);
  example.AddData(2, kA, 1, 2, 0, "hello");
  example.AddFile(3, kB);
  example.AddData(3, kB, 1, 2, 4094, "xyz");
  example.AddTruncation(4, kA, 2);
  example.AddData(5, kA, 0, 1, 2, "y!");
  return example;
}

// The bytes of the page's dumps: lines of four blanks, an offset in the pool, and 16 bytes; "*"
// says that lines like the last one follow. They cover one range without a gap. `begin` is its
// offset.
std::string BytesOfPage(const std::string& page, uint64_t* begin) {
  std::string bytes, last;
  std::istringstream lines(page);
  bool repeats = false, first = true;
  for (std::string line; std::getline(lines, line);) {
    if (line == "    *") repeats = true;
    if (line.size() < 12 || line.substr(0, 5) != "    0" || line.substr(10, 2) != "  ") continue;
    const uint64_t offset = std::stoull(line.substr(4, 6), nullptr, 16);
    if (first) *begin = offset;
    first = false;
    while (repeats && *begin + bytes.size() < offset) bytes += last;
    repeats = false;
    EXPECT_EQ(offset, *begin + bytes.size()) << line;
    std::istringstream words(line.substr(12, 3 * 16));
    last.clear();
    for (std::string word; words >> word;) {
      last += static_cast<char>(std::stoul(word, nullptr, 16));
    }
    EXPECT_EQ(last.size(), 16u) << line;
    bytes += last;
  }
  return bytes;
}

std::string Page() { return test::ReadFile(NVCACHE_FORMAT_PAGE); }

TEST(FormatDoc, BytesAreThoseOfTheStructures) {
  uint64_t begin = 0;
  const std::string page = BytesOfPage(Page(), &begin);
  EXPECT_EQ(begin, pool::kSegmentsOffset + kSegment * kGeometry.segment_size);
  const Builder example = Example();
  ASSERT_EQ(page.size(), example.units() * pool::kUnitSize);
  for (uint64_t at = 0; at < page.size(); at += 16) {
    EXPECT_EQ(page.substr(at, 16), example.bytes().substr(at, 16)) << std::hex << begin + at;
  }
}

// A pool around these bytes.
class PoolOfPage {
 public:
  PoolOfPage() : bytes_(kPoolSize, '\0') {
    superblock_ = {};
    std::memcpy(superblock_.magic, pool::kMagic, sizeof(superblock_.magic));
    superblock_.version = pool::kVersion;
    superblock_.pool_size = kPoolSize;
    superblock_.salt = kSalt;
    superblock_.segment_size = kGeometry.segment_size;
    superblock_.segment_count = kGeometry.segment_count;
    superblock_.page_size = pool::kPageSize;
    superblock_.unit_size = pool::kUnitSize;
    uint64_t begin = 0;
    const std::string page = BytesOfPage(Page(), &begin);
    if (begin + page.size() <= bytes_.size()) bytes_.replace(begin, page.size(), page);
    // The copy of the segment's header.
    const uint64_t segment = begin + kGeometry.segment_size;
    if (segment <= bytes_.size()) {
      bytes_.replace(segment - pool::kUnitSize, pool::kUnitSize, page.substr(0, pool::kUnitSize));
    }
    for (uint64_t i = 0; i < 2; ++i) {
      pool::CheckpointRecord record = {1, 0, 0};
      record.crc =
          sys::Crc32c(&record, offsetof(pool::CheckpointRecord, crc), static_cast<uint32_t>(kSalt));
      std::memcpy(view().checkpoint_record(i), &record, sizeof(record));
    }
  }
  pool::View view() { return {reinterpret_cast<uint8_t*>(bytes_.data()), &superblock_}; }

 private:
  std::string bytes_;
  pool::Superblock superblock_;
};

// A line for each record that counts, and for each group that does not.
std::vector<std::string> Found(const pool::View& view) {
  std::vector<std::string> found;
  Reader reader;
  GroupWalk walk(reader);
  EXPECT_TRUE(reader.Open(view) && walk.Open());
  EXPECT_EQ(reader.checkpoint(0), 1u);
  Group group;
  while (walk.Next(&group)) {
    if (group.verdict != Verdict::kCommitted) {
      found.push_back(std::to_string(group.lsn) +
                      (group.verdict == Verdict::kDamaged ? " damaged" : " unfinished"));
      continue;
    }
    walk.ForEachRecord(group, [&](const RecordHeader& header, Place place) {
      std::ostringstream line;
      line << header.lsn << " at " << place % kSegmentUnits << ' ';
      const uint32_t file = walk.FileOf(header, place);
      pool::FileRecord record = {};
      if (file == kNoFile || !walk.CopyRecord(file, &record)) record.path[0] = '?';
      line << record.path;
      if (header.kind == Kind::kTruncate) line << " to " << header.offset;
      if (header.kind == Kind::kData) {
        const uint64_t end = header.offset + header.length;
        for (uint64_t page = header.offset / pool::kPageSize; page * pool::kPageSize < end;
             ++page) {
          const Reader::Piece piece = reader.PieceAt(header, place, page);
          line << ' ' << piece.offset << ':'
               << std::string(reinterpret_cast<const char*>(piece.bytes), piece.length);
        }
      }
      found.push_back(line.str());
    });
  }
  EXPECT_EQ(reader.newest(), 5u);
  return found;
}

using Lines = std::vector<std::string>;

TEST(FormatDoc, ReaderFindsWhatThePageSays) {
  PoolOfPage pool;
  EXPECT_EQ(Found(pool.view()), (Lines{
                                    "2 at 1 /srv/a",
                                    "2 at 6 /srv/a 0:hello",
                                    "3 at 8 /srv/b",
                                    "3 at 13 /srv/b 4094:xy 4096:z",
                                    "4 at 17 /srv/a to 2",
                                    "5 at 18 /srv/a 2:y!",
                                }));
}

// What the page says of a unit that is lost.
TEST(FormatDoc, LostUnits) {
  const auto without = [](uint64_t unit) {
    PoolOfPage pool;
    std::memset(pool.view().unit(kSegment * kSegmentUnits + unit), 0, pool::kUnitSize);
    return Found(pool.view());
  };
  EXPECT_EQ(without(7), (Lines{"2 damaged", "3 at 8 /srv/b", "3 at 13 /srv/b 4094:xy 4096:z",
                               "4 at 17 /srv/a to 2", "5 at 18 /srv/a 2:y!"}));
  EXPECT_EQ(without(2), (Lines{"2 damaged", "3 at 8 /srv/b", "3 at 13 /srv/b 4094:xy 4096:z",
                               "4 at 17 ? to 2", "5 at 18 ? 2:y!"}));
  EXPECT_EQ(without(19),
            (Lines{"2 at 1 /srv/a", "2 at 6 /srv/a 0:hello", "3 at 8 /srv/b",
                   "3 at 13 /srv/b 4094:xy 4096:z", "4 at 17 /srv/a to 2", "5 unfinished"}));
}

}  // namespace
}  // namespace nvcache::nvlog
