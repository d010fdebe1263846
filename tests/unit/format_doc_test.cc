// SPDX-License-Identifier: BSD-3-Clause
//
// The example of docs/pool-format.md: its bytes are what the structures of the format hold, the
// reader finds in them what the page says, and each kind of record is among them.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <set>
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
constexpr uint32_t kSegment = 3;  // of log 0
constexpr uint64_t kPoolSize = pool::kMinPoolSize;
constexpr pool::Geometry kGeometry = pool::GeometryOf(kPoolSize);
constexpr uint64_t kSegmentUnits = kGeometry.segment_size / pool::kUnitSize;
constexpr uint64_t kBirth = 1700000000;

struct FileOfExample {
  uint32_t number;
  const char* path;
  uint64_t inode;
};
constexpr FileOfExample kA = {0, "/srv/a", 1201};
constexpr FileOfExample kB = {1, "/srv/b", 1202};
constexpr FileOfExample kC = {2, "/srv/c", 1203};

// A segment's units, made from the structures, as docs/pool-format.md has them made.
class Builder {
 public:
  Builder(uint32_t segment, uint32_t log, Lsn generation)
      : segment_(segment), generation_(generation), bytes_(kGeometry.segment_size, '\0') {
    pool::SegmentHeader header = {};
    header.word = pool::SegmentWord(generation, kSalt);
    header.generation = generation;
    header.checkpoint = 1;
    header.number = segment;
    header.log = log;
    header.kind = pool::SegmentKind::kLog;
    header.crc = pool::SegmentHeaderCrc(header, kSalt);
    std::memcpy(At(0), &header, sizeof(header));
    std::memcpy(At(kSegmentUnits - 1), &header, sizeof(header));
  }

  void AddFile(Lsn lsn, const FileOfExample& file) {
    pool::FileRecord record = {};
    record.device = 0x803;
    record.inode = file.inode;
    record.birth_seconds = kBirth;
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

  void AddErasure(Lsn lsn, const FileOfExample& file, uint64_t offset, uint64_t length) {
    RecordHeader header = Header(lsn, Kind::kErase, file, offset, length);
    header.index = 1;
    header.count = 2;
    Put(header);
  }

  // Of a kind that is a header alone.
  void AddMark(Lsn lsn, Kind kind, const FileOfExample& file, uint64_t offset) {
    RecordHeader header = Header(lsn, kind, file, offset, 0);
    Put(header);
  }

  void AddCreation(Lsn lsn, const FileOfExample& file, const char* folder, const char* name) {
    pool::NameRecord record = {};
    record.device = 0x803;
    record.file_system = 0x1122334455667788;
    record.deed = pool::Deed::kCreated;
    record.mode = 0100644;
    record.uid = 1000;
    record.gid = 1000;
    record.access_seconds = record.change_seconds = kBirth;
    record.access_nanoseconds = record.change_nanoseconds = 500;
    record.file = Identity(file.inode, kBirth, 500);
    record.folder = Identity(1200, kBirth - 86400, 0);
    size_t end = 0;
    EXPECT_TRUE(AddText(&record, &pool::NameRecord::name_length, name, &end));
    EXPECT_TRUE(AddText(&record, &pool::NameRecord::from_length, "", &end));
    EXPECT_TRUE(AddText(&record, &pool::NameRecord::target_length, "", &end));
    EXPECT_TRUE(AddText(&record, &pool::NameRecord::folder_path_length, folder, &end));
    EXPECT_TRUE(AddText(&record, &pool::NameRecord::from_folder_path_length, "", &end));
    const size_t size = NameRecordSize(record);
    std::memcpy(At(unit_ + 1), &record, size);
    RecordHeader header = Header(lsn, Kind::kName, {}, 0, size);
    header.payload_crc = sys::Crc32c(&record, size, 0);
    Put(header);
  }

  uint32_t segment() const { return segment_; }
  uint64_t begin() const { return pool::kSegmentsOffset + segment_ * kGeometry.segment_size; }
  uint64_t units() const { return unit_; }
  const std::string& bytes() const { return bytes_; }

 private:
  static pool::Identity Identity(uint64_t inode, uint64_t seconds, uint32_t nanoseconds) {
    pool::Identity identity = {};
    identity.inode = inode;
    identity.birth_seconds = static_cast<int64_t>(seconds);
    identity.birth_nanoseconds = nanoseconds;
    identity.handle_type = 1;
    identity.handle_size = 8;
    const uint32_t handle[] = {static_cast<uint32_t>(inode), 77};
    std::memcpy(identity.handle, handle, sizeof(handle));
    return identity;
  }
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
    Seal(&header, segment_ * kSegmentUnits + unit_, generation_, kSalt);
    std::memcpy(At(unit_), &header, sizeof(header));
    unit_ += RecordUnits(header);
  }

  uint32_t segment_;
  Lsn generation_;
  std::string bytes_;
  uint64_t unit_ = kFirstUnit;
};

// The segments of two logs of write-back, and of one of write-through.
std::vector<Builder> Example() {
  Builder first(kSegment, 0, 1);
  first.AddFile(2, kA);
  first.AddData(2, kA, 1, 2, 0, "hello");
  first.AddFile(3, kB);
  first.AddData(3, kB, 1, 2, 4094, "xyz");
  first.AddMark(4, Kind::kTruncate, kA, 2);
  first.AddData(5, kA, 0, 1, 2, "y!");
  Builder second(kSegment + 1, 1, 6);
  second.AddFile(7, kB);
  second.AddErasure(7, kB, 4095, 2);
  second.AddMark(8, Kind::kHandedOver, kB, 0);
  Builder through(kSegment + 2, pool::kThroughLog, 9);
  through.AddCreation(10, kC, "/srv", "c");
  through.AddFile(11, kC);
  through.AddData(11, kC, 1, 2, 0, "hi");
  through.AddMark(12, Kind::kSettled, kC, 12);
  return {first, second, through};
}

// The bytes of the page's dumps: lines of four blanks, an offset in the pool, and 16 bytes; "*"
// says that lines like the last one follow. They cover ranges without a gap, each of which begins a
// segment. The keys are their offsets.
std::map<uint64_t, std::string> BytesOfPage(const std::string& page) {
  std::map<uint64_t, std::string> ranges;
  uint64_t begin = 0;
  std::string last;
  std::istringstream lines(page);
  bool repeats = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "    *") repeats = true;
    if (line.size() < 12 || line.substr(0, 5) != "    0" || line.substr(10, 2) != "  ") continue;
    const uint64_t offset = std::stoull(line.substr(4, 6), nullptr, 16);
    if ((offset - pool::kSegmentsOffset) % kGeometry.segment_size == 0) begin = offset;
    std::string& bytes = ranges[begin];
    while (repeats && begin + bytes.size() < offset) bytes += last;
    repeats = false;
    EXPECT_EQ(offset, begin + bytes.size()) << line;
    std::istringstream words(line.substr(12, 3 * 16));
    last.clear();
    for (std::string word; words >> word;) {
      last += static_cast<char>(std::stoul(word, nullptr, 16));
    }
    EXPECT_EQ(last.size(), 16u) << line;
    bytes += last;
  }
  return ranges;
}

std::string Page() { return test::ReadFile(NVCACHE_FORMAT_PAGE); }

TEST(FormatDoc, BytesAreThoseOfTheStructures) {
  auto page = BytesOfPage(Page());
  const std::vector<Builder> example = Example();
  EXPECT_EQ(page.size(), example.size());
  for (const Builder& segment : example) {
    const std::string& bytes = page[segment.begin()];
    ASSERT_EQ(bytes.size(), segment.units() * pool::kUnitSize) << segment.segment();
    for (uint64_t at = 0; at < bytes.size(); at += 16) {
      EXPECT_EQ(bytes.substr(at, 16), segment.bytes().substr(at, 16))
          << std::hex << segment.begin() + at;
    }
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
    for (const auto& [begin, page] : BytesOfPage(Page())) {
      const uint64_t end = begin + kGeometry.segment_size;
      if (end > bytes_.size() || page.size() >= kGeometry.segment_size) continue;
      bytes_.replace(begin, page.size(), page);
      // The copy of the segment's header.
      bytes_.replace(end - pool::kUnitSize, pool::kUnitSize, page.substr(0, pool::kUnitSize));
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

// What a record says, beside its file.
std::string What(const Reader& reader, const RecordHeader& header, Place place) {
  std::ostringstream what;
  switch (header.kind) {
    case Kind::kFile:
      break;
    case Kind::kData:
      ForEachPage(header, [&](uint64_t page) {
        const Reader::Piece piece = reader.PieceAt(header, place, page);
        what << ' ' << piece.offset << ':'
             << std::string(reinterpret_cast<const char*>(piece.bytes), piece.length);
      });
      break;
    case Kind::kTruncate:
      what << " to " << header.offset;
      break;
    case Kind::kErase:
      what << " without " << header.length << " from " << header.offset;
      break;
    case Kind::kSettled:
      what << " settled below " << header.offset;
      break;
    case Kind::kHandedOver:
      what << " handed over";
      break;
    case Kind::kName: {
      pool::NameRecord record;
      EXPECT_TRUE(reader.CopyName(header, place, &record));
      const pool::NameTexts texts = TextsOf(record);
      what << "deed " << static_cast<uint32_t>(record.deed) << ' ' << texts.folder_path << ' '
           << texts.name << " inode " << record.file.inode << " in " << record.folder.inode;
    }
  }
  return what.str();
}

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
      line << header.lsn << (pool::IsThroughLog(group.log) ? " done" : "") << " at "
           << place % kSegmentUnits << ' ';
      const uint32_t file = walk.FileOf(header, place);
      pool::FileRecord record = {};
      if (file == kNoFile || !walk.CopyRecord(file, &record)) record.path[0] = '?';
      if (header.kind != Kind::kName) line << record.path;
      found.push_back(line.str() + What(reader, header, place));
    });
  }
  EXPECT_EQ(reader.newest(), 12u);
  return found;
}

using Lines = std::vector<std::string>;

// These lines, and what is found in the other two segments in each case.
Lines AndTheOthers(Lines lines) {
  for (const char* line :
       {"7 at 1 /srv/b", "7 at 6 /srv/b without 2 from 4095", "8 at 7 /srv/b handed over",
        "10 done at 1 deed 1 /srv c inode 1203 in 1200", "11 done at 8 /srv/c",
        "11 done at 13 /srv/c 0:hi", "12 done at 15 /srv/c settled below 12"}) {
    lines.emplace_back(line);
  }
  return lines;
}

TEST(FormatDoc, ReaderFindsWhatThePageSays) {
  PoolOfPage pool;
  EXPECT_EQ(Found(pool.view()), AndTheOthers({
                                    "2 at 1 /srv/a",
                                    "2 at 6 /srv/a 0:hello",
                                    "3 at 8 /srv/b",
                                    "3 at 13 /srv/b 4094:xy 4096:z",
                                    "4 at 17 /srv/a to 2",
                                    "5 at 18 /srv/a 2:y!",
                                }));
}

// A kind is what a reader takes for one.
TEST(FormatDoc, EachKindOfRecordHasAnExample) {
  std::set<uint16_t> kinds, known;
  for (uint32_t kind = 0; kind <= UINT16_MAX; ++kind) {
    RecordHeader header = {};
    header.lsn = header.count = 1;
    header.kind = static_cast<Kind>(kind);
    for (header.length = 0; header.length < 2; ++header.length) {
      if (IsSane(header, kSegmentUnits)) known.insert(static_cast<uint16_t>(kind));
    }
  }
  PoolOfPage pool;
  Reader reader;
  GroupWalk walk(reader);
  ASSERT_TRUE(reader.Open(pool.view()) && walk.Open());
  for (Group group; walk.Next(&group);) {
    walk.ForEachRecord(group, [&](const RecordHeader& header, Place) {
      kinds.insert(static_cast<uint16_t>(header.kind));
    });
  }
  EXPECT_EQ(kinds, known);
}

// What the page says of a unit that is lost.
TEST(FormatDoc, LostUnits) {
  const auto without = [](uint64_t unit) {
    PoolOfPage pool;
    std::memset(pool.view().unit(kSegment * kSegmentUnits + unit), 0, pool::kUnitSize);
    return Found(pool.view());
  };
  EXPECT_EQ(without(7), AndTheOthers({"2 damaged", "3 at 8 /srv/b", "3 at 13 /srv/b 4094:xy 4096:z",
                                      "4 at 17 /srv/a to 2", "5 at 18 /srv/a 2:y!"}));
  EXPECT_EQ(without(2), AndTheOthers({"2 damaged", "3 at 8 /srv/b", "3 at 13 /srv/b 4094:xy 4096:z",
                                      "4 at 17 ? to 2", "5 at 18 ? 2:y!"}));
  EXPECT_EQ(without(19),
            AndTheOthers({"2 at 1 /srv/a", "2 at 6 /srv/a 0:hello", "3 at 8 /srv/b",
                          "3 at 13 /srv/b 4094:xy 4096:z", "4 at 17 /srv/a to 2", "5 unfinished"}));
}

}  // namespace
}  // namespace nvcache::nvlog
