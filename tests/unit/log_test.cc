// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/log.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "src/nvlog/group_writer.h"
#include "src/nvlog/kept.h"
#include "src/nvlog/log_reading.h"
#include "src/nvlog/walk.h"
#include "src/pmem/persist.h"
#include "tests/unit/found.h"
#include "tests/unit/log_user.h"
#include "tests/unit/support.h"
#include "tests/unit/unreadable.h"

namespace nvcache::nvlog {
namespace {

constexpr uint64_t kPage = pool::kPageSize;
// Segments of 64 KiB, and as many lanes as there can be.
constexpr uint64_t kManyLanes = 16u << 20;

// What became of a group.
struct Appended {
  Outcome outcome = Outcome::kDone;
  Lsn lsn = 0;
  uint64_t units = 0;
  std::vector<Place> places;  // of its data records, or of the mark
};

// A record as recovery meets it, but no file record.
struct Found {
  Lsn lsn;
  Kind kind;
  uint64_t offset;
  uint64_t length;
  std::string bytes;
  bool kept;
  std::string path;  // of its file

  bool operator==(const Found&) const = default;
};
void PrintTo(const Found& found, std::ostream* out) {
  *out << "lsn " << found.lsn << " kind " << static_cast<int>(found.kind) << " offset "
       << found.offset << " length " << found.length << (found.kept ? " kept " : " ") << found.path;
}

class LogTest : public testing::Test {
 protected:
  LogTest() {
    pmem::Initialize();
    Make(pool::kMinPoolSize);
  }
  ~LogTest() override {
    log_.Close();
    pool_.Close();
  }

  void Make(uint64_t size) {
    if (pool_.view().base != nullptr) {
      log_.Close();
      pool_.Close();
      std::filesystem::remove(path_);
    }
    test::MakePool(path_, size);
    ASSERT_TRUE(test::OpenPool(pool_, path_));
    ASSERT_TRUE(log_.Open(&pool_));
    kept_.Open();
    a_.number = 1;
    b_.number = 2;
    a_.Undeclare();
    b_.Undeclare();
  }

  static pool::FileRecord RecordOf(const FileTag& file) {
    return test::RecordOfNone("/file" + std::to_string(file.number), file.number);
  }

  // As the page cache does it: without the file's record first.
  Appended Append(FileTag& file, uint64_t offset, const std::string& bytes) {
    Appended done = TryAppend(file, offset, bytes, nullptr);
    if (done.outcome != Outcome::kUndeclared) return done;
    pool::FileRecord record = RecordOf(file);
    return TryAppend(file, offset, bytes, &record);
  }
  Appended TryAppend(FileTag& file, uint64_t offset, const std::string& bytes,
                     pool::FileRecord* record) {
    Appended done;
    GroupWriter group(log_, file);
    done.outcome = group.BeginData(offset, bytes.size(), record);
    if (done.outcome != Outcome::kDone) return done;
    AddPages(group, offset, bytes);
    done.lsn = group.Commit();
    done.units = group.units();
    group.ForEachPart([&](Place place, uint64_t, uint64_t) { done.places.push_back(place); });
    return done;
  }
  static void AddPages(GroupWriter& group, uint64_t offset, const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = std::min(kPage - (offset + at) % kPage, bytes.size() - at);
      EXPECT_TRUE(group.AddPage(reinterpret_cast<const uint8_t*>(bytes.data()) + at,
                                static_cast<uint32_t>(n), nullptr, 1000 + (offset + at) / kPage));
      at += n;
    }
  }
  Appended Mark(FileTag& file, Kind kind, uint64_t offset, uint64_t length) {
    Appended done = TryMark(file, kind, offset, length, nullptr);
    if (done.outcome != Outcome::kUndeclared) return done;
    pool::FileRecord record = RecordOf(file);
    return TryMark(file, kind, offset, length, &record);
  }
  Appended TryMark(FileTag& file, Kind kind, uint64_t offset, uint64_t length,
                   pool::FileRecord* record) {
    Appended done;
    GroupWriter group(log_, file);
    done.outcome = group.BeginMark(kind, offset, length, record);
    if (done.outcome != Outcome::kDone) return done;
    done.lsn = group.Commit();
    done.units = group.units();
    return done;
  }
  // A group of `length` bytes whose page `bad` cannot be read; nothing, if there is no room.
  void Abandon(FileTag& file, uint64_t offset, uint64_t length, uint64_t bad) {
    const test::Unreadable unreadable;
    const std::string page(kPage, '!');
    pool::FileRecord record = RecordOf(file);
    GroupWriter group(log_, file);
    if (group.BeginData(offset, length, &record) == Outcome::kLogFull) return;
    for (uint64_t at = 0, i = 0;; ++i) {
      const auto n = static_cast<uint32_t>(std::min(kPage - (offset + at) % kPage, length - at));
      const auto* bytes =
          i == bad ? unreadable.bytes() : reinterpret_cast<const uint8_t*>(page.data());
      const bool added = group.AddPage(bytes, n, nullptr, kNoPlace);
      ASSERT_EQ(added, i != bad);
      if (!added) return;
      at += n;
    }
  }

  // Reads all that is there, as the cleanup thread does. The LSNs of the records that are no file
  // records, in the order in which they were met.
  std::vector<Lsn> ReadOn() {
    std::vector<Lsn> lsns;
    log_.Look(&ends_);
    for (Place place; (place = log_.NextRecord(ends_)) != kNoPlace; log_.Pass(place)) {
      const RecordHeader& header = log_.At(place);
      if (header.lsn >= ends_.bound) break;
      if (header.kind != Kind::kFile) lsns.push_back(header.lsn);
    }
    return lsns;
  }
  // Frees what was read, up to `checkpoint`.
  std::vector<Lsn> Forget(Lsn checkpoint) {
    std::vector<Lsn> lsns;
    pool_.StoreCheckpoint(checkpoint);
    log_.Forget(checkpoint, ends_, [&](Place place) {
      if (log_.At(place).kind != Kind::kFile) lsns.push_back(log_.At(place).lsn);
    });
    return lsns;
  }
  void Clean() {
    ReadOn();
    Forget(ends_.bound);
  }

  // What recovery would find now. Nothing may look damaged.
  std::vector<Found> Recovered() {
    std::vector<Found> found;
    test::ForEachCommitted(pool_.view(), [&](const test::FoundRecord& one) {
      const RecordHeader& header = one.header;
      if (header.kind == Kind::kFile) return;
      EXPECT_NE(one.file(), kNoFile) << "a segment explains itself";
      found.push_back({one.group.lsn, header.kind, header.offset, header.length, one.payload(),
                       one.group.kept, one.file_record().path});
    });
    return found;
  }
  static Found AsFound(const Appended& done, uint64_t offset, const std::string& bytes,
                       const FileTag& file) {
    return {done.lsn,
            Kind::kData,
            offset,
            bytes.size(),
            bytes,
            false,
            std::string("/file") + std::to_string(file.number)};
  }
  // The records of one group, put together.
  static std::string Joined(const std::vector<Found>& found, Lsn lsn) {
    std::string bytes;
    for (const Found& one : found) {
      if (one.lsn == lsn) bytes += one.bytes;
    }
    return bytes;
  }

  uint32_t SegmentOf(Place place) const {
    return static_cast<uint32_t>(place / pool_.view().segment_units());
  }

  test::Folder folder_{test::Folder::kMemory};
  std::string path_ = folder_ / "pool";
  pool::Pool pool_;
  Log log_;
  Kept kept_{log_};
  Log::Ends ends_ = {};
  FileTag a_;
  FileTag b_;
};

// ---------------------------------------------------------------------------------------------
// Groups

TEST_F(LogTest, NothingCountsBeforeTheCommit) {
  {
    pool::FileRecord record = RecordOf(a_);
    GroupWriter group(log_, a_);
    ASSERT_EQ(group.BeginData(0, 7, &record), Outcome::kDone);
    AddPages(group, 0, "not yet");
    EXPECT_EQ(Recovered(), std::vector<Found>{});
  }
  EXPECT_EQ(Recovered(), std::vector<Found>{});
  EXPECT_EQ(ReadOn(), std::vector<Lsn>{});
  const Appended done = Append(a_, kPage, "done");
  EXPECT_EQ(Recovered(), std::vector{AsFound(done, kPage, "done", a_)});
  EXPECT_EQ(ReadOn(), std::vector{done.lsn});
}

TEST_F(LogTest, TheMediumHoldsWhatWasCommitted) {
  const std::string bytes(10000, 'e');
  const Appended first = Append(a_, 8000, bytes);
  const Appended second = Append(b_, 5, "b");
  const Appended third = Append(a_, 0, "again");
  EXPECT_EQ(Recovered(), (std::vector{AsFound(first, 8000, bytes, a_), AsFound(second, 5, "b", b_),
                                      AsFound(third, 0, "again", a_)}));
  ASSERT_EQ(third.places.size(), 1u);
  EXPECT_EQ(log_.At(third.places[0]).count, 1) << "the file was declared in the segment";
  const Log::Piece piece = log_.PieceAt(third.places[0], 0);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(piece.bytes), piece.length), "again");
  EXPECT_EQ(*piece.link, 1000u);
  EXPECT_EQ(third.units, 2u);
}

// Each page of a record has a link of its own, which the page cache may change.
TEST_F(LogTest, EachPageHasItsPieceAndItsLink) {
  const std::string bytes = std::string(100, 'a') + std::string(kPage, 'b') + "c";
  const Appended done = Append(a_, 3 * kPage - 100, bytes);
  ASSERT_EQ(done.places.size(), 1u);
  const auto piece = [&](uint64_t page) { return log_.PieceAt(done.places[0], page); };
  const auto text = [&](uint64_t page) {
    return std::string(reinterpret_cast<const char*>(piece(page).bytes), piece(page).length);
  };
  EXPECT_EQ(piece(2).begin, kPage - 100);
  EXPECT_EQ(text(2), std::string(100, 'a'));
  EXPECT_EQ(piece(3).begin, 0u);
  EXPECT_EQ(text(3), std::string(kPage, 'b'));
  EXPECT_EQ(text(4), "c");
  for (uint64_t page = 2; page < 5; ++page) {
    EXPECT_EQ(*piece(page).link, 1000 + page);
    *piece(page).link = 7;
  }
  EXPECT_EQ(Recovered(), std::vector{AsFound(done, 3 * kPage - 100, bytes, a_)})
      << "no checksum has a link in it";
}

TEST_F(LogTest, MarksComeInOrderWithData) {
  const Appended data = Append(a_, 0, "data");
  const Appended cut = Mark(a_, Kind::kTruncate, 2, 0);
  const Appended other = Mark(b_, Kind::kErase, 4096, 100);
  const Appended more = Append(a_, 2, "more");
  EXPECT_EQ(cut.units, 1u);
  EXPECT_EQ(Recovered(),
            (std::vector{AsFound(data, 0, "data", a_),
                         Found{cut.lsn, Kind::kTruncate, 2, 0, "", false, "/file1"},
                         Found{other.lsn, Kind::kErase, 4096, 100, "", false, "/file2"},
                         AsFound(more, 2, "more", a_)}));
  EXPECT_EQ(ReadOn(), (std::vector{data.lsn, cut.lsn, other.lsn, more.lsn}));
}

// Data and marks up to the last unit of a segment and beyond: without the file's record a group
// goes nowhere else, and takes nothing.
TEST_F(LogTest, ASegmentExplainsItself) {
  for (uint64_t left = 0; left < 6; ++left) {
    Make(pool::kMinPoolSize);
    Append(a_, 0, "a");
    log_.Look(&ends_);
    const uint64_t units = pool_.view().segment_units() - kLastUnits;
    while (units - ends_.lane[0].unit > 70) {
      Append(a_, 0, std::string(kPage, 'a'));
      log_.Look(&ends_);
    }
    while (units - ends_.lane[0].unit > left) {
      ASSERT_EQ(Mark(a_, Kind::kTruncate, 7, 0).units, 1u);
      log_.Look(&ends_);
    }
    const uint32_t free = log_.segments().free();
    const std::string bytes(100, 'x');  // three units
    Appended done = TryAppend(a_, 0, bytes, nullptr);
    if (left >= 3) {
      EXPECT_EQ(done.outcome, Outcome::kDone);
      EXPECT_EQ(log_.segments().free(), free);
    } else {
      EXPECT_EQ(done.outcome, Outcome::kUndeclared);
      EXPECT_EQ(TryMark(a_, Kind::kErase, 0, 1, nullptr).outcome,
                left == 0 ? Outcome::kUndeclared : Outcome::kDone);
      EXPECT_EQ(log_.segments().free(), free);
      done = Append(a_, 0, bytes);
      EXPECT_EQ(log_.segments().free(), free - 1);
    }
    const std::vector<Found> found = Recovered();
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found.back(), AsFound(done, 0, bytes, a_)) << left;
    const size_t records = found.size();
    EXPECT_EQ(ReadOn().size(), records);
    Forget(ends_.bound);
    EXPECT_TRUE(log_.Empty(ends_));
    EXPECT_EQ(log_.segments().free(), log_.segments().count() - 1);
  }
}

// A group of 2 MiB, which begins in the middle of a page and of a segment.
TEST_F(LogTest, AGroupGoesOnInTheNextSegments) {
  Make(kManyLanes);
  EXPECT_EQ(log_.max_group_pages(), kMaxGroupPages);
  std::mt19937_64 random(test::Seed());
  const Appended before = Append(a_, 0, "before");
  const std::string bytes = test::Bytes(random, kMaxGroupBytes);
  const Appended large = Append(a_, 100, bytes);
  const Appended after = Append(a_, 0, "after");
  EXPECT_GT(large.places.size(), 30u);
  std::set<uint32_t> segments;
  uint64_t offset = 100, units = 0;
  for (const Place place : large.places) {
    const RecordHeader& header = log_.At(place);
    EXPECT_TRUE(segments.insert(SegmentOf(place)).second);
    EXPECT_EQ(header.offset, offset);
    EXPECT_EQ(header.lsn, large.lsn);
    offset += header.length;
    EXPECT_TRUE(offset % kPage == 0 || place == large.places.back());
    units += RecordUnits(header);
    if (place == large.places.front()) continue;
    const pool::SegmentHeader& own = *pool_.view().segment(SegmentOf(place));
    EXPECT_EQ(own.previous_last, before.lsn);
    EXPECT_LT(own.previous_generation, own.generation);
    EXPECT_LT(own.generation, large.lsn);
    EXPECT_EQ(log_.At(SegmentOf(place) * pool_.view().segment_units() + kFirstUnit).kind,
              Kind::kFile);
  }
  EXPECT_EQ(offset, 100 + bytes.size());
  EXPECT_GT(large.units, units) << "with its file records";
  const std::vector<Found> found = Recovered();
  EXPECT_EQ(found.size(), large.places.size() + 2);
  EXPECT_EQ(Joined(found, before.lsn), "before");
  EXPECT_TRUE(Joined(found, large.lsn) == bytes);
  EXPECT_EQ(Joined(found, after.lsn), "after");
  const std::vector<Lsn> read = ReadOn();
  EXPECT_EQ(read.size(), large.places.size() + 2);
  EXPECT_TRUE(std::is_sorted(read.begin(), read.end()));
  Forget(large.lsn);
  EXPECT_EQ(log_.segments().free(), log_.segments().count() - large.places.size())
      << "the first segment has a part of it";
  Forget(after.lsn);
  EXPECT_EQ(log_.segments().free(), log_.segments().count() - 1);
}

// Groups of all lengths, over all ends of segments.
TEST_F(LogTest, GroupsOfAllLengthsAreFoundAsTheyWere) {
  std::mt19937_64 random(test::Seed());
  for (int round = 0; round < 100; ++round) {
    std::vector<std::pair<Lsn, std::string>> groups;
    for (;;) {
      FileTag& file = random() % 2 == 0 ? a_ : b_;
      const uint64_t offset = random() % 100000;
      const uint64_t most = (log_.max_group_pages() - 1) * kPage;
      const std::string bytes =
          test::Bytes(random, 1 + random() % (random() % 4 == 0 ? most : 9000));
      const Appended done = Append(file, offset, bytes);
      if (done.outcome == Outcome::kLogFull) break;
      ASSERT_EQ(done.outcome, Outcome::kDone);
      groups.emplace_back(done.lsn, bytes);
      if (random() % 5 == 0) Abandon(file, offset, 20000, random() % 5);
    }
    const std::vector<Found> found = Recovered();
    std::set<Lsn> lsns;
    for (const Found& one : found) lsns.insert(one.lsn);
    ASSERT_EQ(lsns.size(), groups.size());
    for (const auto& [lsn, bytes] : groups) ASSERT_TRUE(Joined(found, lsn) == bytes) << lsn;
    Clean();
    ASSERT_EQ(log_.segments().free(), log_.segments().count() - 1);
    ASSERT_EQ(Recovered(), std::vector<Found>{});
  }
}

TEST_F(LogTest, AnAbandonedGroupLeavesNothing) {
  const Appended before = Append(a_, 0, "before");
  const uint32_t free = log_.segments().free();
  std::vector<Found> expected = {AsFound(before, 0, "before", a_)};
  const auto append = [&](FileTag& file, uint64_t offset, const std::string& bytes) {
    const Appended done = Append(file, offset, bytes);
    uint64_t at = offset;
    for (const Place place : done.places) {
      const uint64_t length = log_.At(place).length;
      Found one = AsFound(done, at, bytes.substr(at - offset, length), file);
      expected.push_back(one);
      at += length;
    }
  };
  // Then a shorter one, a longer one, one of another file; and such as take segments.
  Abandon(a_, 0, 3 * kPage, 2);
  EXPECT_EQ(Recovered(), expected);
  append(a_, 9, "short");
  Abandon(a_, 100, 2 * kPage, 1);
  append(a_, 0, std::string(5 * kPage, 'l'));
  Abandon(b_, 0, 2 * kPage, 1);
  append(b_, 7, "other");
  Abandon(b_, 0, 8 * kPage, 0);
  EXPECT_EQ(log_.segments().free(), free);
  Abandon(b_, 0, log_.max_group_pages() * kPage, log_.max_group_pages() - 1);
  EXPECT_EQ(log_.segments().free(), free) << "what was taken is given back";
  EXPECT_EQ(Recovered(), expected);
  const uint64_t pages = log_.max_group_pages();
  Abandon(a_, 0, pages * kPage, pages - 1);
  append(a_, 0, "a");
  Abandon(a_, 0, pages * kPage, pages - 10);
  append(a_, 0, std::string(pages * kPage, 'x'));
  EXPECT_EQ(Recovered(), expected);
  std::vector<Lsn> lsns;
  for (const Found& one : expected) lsns.push_back(one.lsn);
  EXPECT_EQ(ReadOn(), lsns);
  Forget(ends_.bound);
  EXPECT_EQ(log_.segments().free(), log_.segments().count() - 1);
}

// As the last group before a crash, where a segment's former life shows through.
TEST_F(LogTest, AnAbandonedGroupAtTheEndIsNoDamage) {
  for (int i = 0; i < 3; ++i) {
    while (Append(a_, 0, std::string(kPage, 'o')).outcome == Outcome::kDone) {
    }
    Clean();
  }
  const Appended last = Append(a_, 0, "last");
  for (const uint64_t bad : {0u, 1u, 20u, 27u}) {
    Abandon(a_, 0, 28 * kPage, bad);
    EXPECT_EQ(Recovered(), std::vector{AsFound(last, 0, "last", a_)}) << bad;
  }
}

// The newest one, until the file is undeclared.
TEST_F(LogTest, AFilesRecordIsCopied) {
  pool::FileRecord record = RecordOf(a_);
  Abandon(a_, 0, 2 * kPage, 1);
  TryAppend(a_, 0, "one", &record);
  pool::FileRecord copy;
  ASSERT_TRUE(log_.CopyFileRecord(a_, &copy));
  EXPECT_STREQ(copy.path, "/file1");
  const Place before = a_.record.load();
  while (a_.record.load() == before) {
    pool::FileRecord again = RecordOf(a_);
    again.flags = pool::kFileRemoved;
    ASSERT_EQ(TryAppend(a_, 0, std::string(kPage, 'x'), &again).outcome, Outcome::kDone);
  }
  ASSERT_TRUE(log_.CopyFileRecord(a_, &copy));
  EXPECT_EQ(copy.flags, pool::kFileRemoved);
  a_.Undeclare();
  EXPECT_FALSE(log_.CopyFileRecord(a_, &copy));
}

// What lies where a file's record lay is something else, or of another file.
TEST_F(LogTest, AFileRecordThatIsGoneIsNotCopied) {
  Append(a_, 0, "a");
  const Place place = a_.record.load();
  while (Append(b_, 0, std::string(kPage, 'b')).outcome == Outcome::kDone) {
  }
  Clean();
  while (Append(b_, 0, std::string(kPage, 'b')).outcome == Outcome::kDone) {
  }
  ASSERT_EQ(a_.record.load(), place);
  pool::FileRecord copy;
  EXPECT_FALSE(log_.CopyFileRecord(a_, &copy));
  EXPECT_TRUE(log_.CopyFileRecord(b_, &copy));
}

// ---------------------------------------------------------------------------------------------
// Lanes

// Threads append at once; the cleanup thread's view is one order, in which no LSN is missing that
// lies below its bound, and each thread's groups are in theirs.
TEST_F(LogTest, TheCleanupThreadReadsAllLanesInOneOrder) {
  Make(kManyLanes);
  constexpr uint32_t kThreads = 6, kGroups = 3000;
  std::vector<std::unique_ptr<FileTag>> files;
  std::vector<std::vector<Lsn>> drawn(kThreads);
  std::atomic<uint32_t> writing{kThreads};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    files.push_back(std::make_unique<FileTag>());
    files.back()->number = t;
  }
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(test::Seed() + t);
      for (uint32_t i = 0; i < kGroups; ++i) {
        const size_t most = random() % 50 == 0 ? 100000 : 3000;
        const std::string bytes(1 + random() % most, static_cast<char>('a' + t));
        for (;;) {
          const uint32_t room = log_.RoomSeen();
          const Appended done = Append(*files[t], i, bytes);
          if (done.outcome == Outcome::kDone) {
            drawn[t].push_back(done.lsn);
            break;
          }
          ASSERT_EQ(done.outcome, Outcome::kLogFull);
          log_.WaitForRoom(room);
        }
        if (random() % 100 == 0) Abandon(*files[t], 0, 50000, random() % 12);
      }
      --writing;
    });
  }
  std::vector<std::vector<Lsn>> read(kThreads);
  std::set<uint32_t> lanes;
  Lsn last = 0, forgotten = 0;
  for (bool end = false; !end;) {
    end = writing.load() == 0;
    log_.Look(&ends_);
    for (Place place; (place = log_.NextRecord(ends_)) != kNoPlace; log_.Pass(place)) {
      const RecordHeader& header = log_.At(place);
      if (header.lsn >= ends_.bound) break;
      ASSERT_GE(header.lsn, last);
      ASSERT_GE(header.lsn, forgotten);
      last = header.lsn;
      lanes.insert(pool_.view().segment(SegmentOf(place))->log);
      if (header.kind == Kind::kFile) continue;
      ASSERT_EQ(header.commit, CommitWord(header.lsn, pool_.view().salt()));
      std::vector<Lsn>& own = read[header.file];
      if (own.empty() || own.back() != header.lsn) own.push_back(header.lsn);
      const Log::Piece piece = log_.PieceAt(place, header.offset / kPage);
      ASSERT_EQ(piece.bytes[0], 'a' + header.file);
    }
    forgotten = ends_.bound;
    Forget(forgotten);
    log_.GiveBack();
    log_.AnnounceRoom();
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t t = 0; t < kThreads; ++t) EXPECT_EQ(read[t], drawn[t]) << t;
  EXPECT_GT(lanes.size(), 1u) << "threads shared one lane";
  log_.Look(&ends_);
  EXPECT_TRUE(log_.Empty(ends_));
  EXPECT_EQ(log_.segments().free(), log_.segments().count()) << "a segment leaks, or is free twice";
}

// What recovery finds, if the process dies while threads append, has one order, too.
TEST_F(LogTest, RecoveryMergesTheLanes) {
  Make(kManyLanes);
  constexpr uint32_t kThreads = 4;
  std::vector<std::unique_ptr<FileTag>> files;
  for (uint32_t t = 0; t < kThreads; ++t) {
    files.push_back(std::make_unique<FileTag>());
    files.back()->number = t;
  }
  std::vector<std::vector<Found>> expected(kThreads);
  std::vector<std::thread> threads;
  std::atomic<uint32_t> ready{0};
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(test::Seed() + t);
      ++ready;
      while (ready.load() < kThreads) std::this_thread::yield();
      for (uint32_t i = 0; i < 500; ++i) {
        const std::string bytes = test::Bytes(random, 1 + random() % 200);
        expected[t].push_back(AsFound(Append(*files[t], i, bytes), i, bytes, *files[t]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::vector<Found>> found(kThreads);
  Lsn last = 0;
  for (const Found& one : Recovered()) {
    EXPECT_GT(one.lsn, last);
    last = one.lsn;
    found[static_cast<size_t>(one.path.back() - '0')].push_back(one);
  }
  EXPECT_EQ(found, expected);
}

// ---------------------------------------------------------------------------------------------
// Room

TEST_F(LogTest, AFullLogGivesNoRoomUntilSomethingIsForgotten) {
  const std::string page(kPage, 'x');
  std::vector<Lsn> lsns;
  for (Appended done; (done = Append(a_, 0, page)).outcome != Outcome::kLogFull;) {
    lsns.push_back(done.lsn);
  }
  EXPECT_EQ(log_.segments().free(), log_.segments().reserve());
  EXPECT_EQ(lsns.size(),
            (log_.segments().count() - log_.segments().reserve()) *
                ((log_.segments().record_units() - 1 - UnitsOf(pool::FileRecordSize(6))) /
                 DataUnits(0, kPage)));
  EXPECT_EQ(ReadOn(), lsns);
  EXPECT_EQ(Append(a_, 0, page).outcome, Outcome::kLogFull) << "reading frees nothing";
  EXPECT_EQ(Forget(lsns[5]), std::vector(lsns.begin(), lsns.begin() + 5));
  EXPECT_EQ(Append(a_, 0, page).outcome, Outcome::kLogFull) << "part of a segment is no room";
  EXPECT_EQ(Forget(lsns[40]), std::vector(lsns.begin() + 5, lsns.begin() + 40));
  EXPECT_EQ(log_.segments().free(), log_.segments().reserve() + 2);
  EXPECT_EQ(Append(a_, 0, page).outcome, Outcome::kDone);
  Lsn checkpoint = 0;
  ASSERT_GT(pool::LoadCheckpoint(pool_.view(), pool::kOfPool, &checkpoint), 0);
  EXPECT_EQ(checkpoint, lsns[40]) << "I5: it is durable before a segment is used again";
}

// Reads end where the cleanup thread's batch ended; so does what is forgotten.
TEST_F(LogTest, WhatWasReadAndNotForgottenIsMetAgain) {
  Make(kManyLanes);
  std::vector<Lsn> lsns;
  for (int i = 0; i < 40; ++i) {
    std::thread([&] { lsns.push_back(Append(i % 2 == 0 ? a_ : b_, 0, "x").lsn); }).join();
  }
  log_.Look(&ends_);
  for (int i = 0; i < 40; ++i) {
    Place place = log_.NextRecord(ends_);
    while (log_.At(place).kind == Kind::kFile) {
      log_.Pass(place);
      place = log_.NextRecord(ends_);
    }
    ASSERT_EQ(log_.At(place).lsn, lsns[static_cast<size_t>(i)]);
    log_.Pass(place);
    if (i == 30) break;
  }
  const auto read = [&](size_t most) {
    std::vector<Lsn> found;
    log_.ForEachRead([&](Place place) {
      if (log_.At(place).kind != Kind::kFile) found.push_back(log_.At(place).lsn);
      return found.size() < most;
    });
    return found;
  };
  EXPECT_EQ(read(100), std::vector(lsns.begin(), lsns.begin() + 31));
  EXPECT_EQ(read(3), std::vector(lsns.begin(), lsns.begin() + 3));
  std::vector<Lsn> forgotten = Forget(lsns[10]);
  std::sort(forgotten.begin(), forgotten.end());
  EXPECT_EQ(forgotten, std::vector(lsns.begin(), lsns.begin() + 10));
  EXPECT_EQ(read(100), std::vector(lsns.begin() + 10, lsns.begin() + 31));
  EXPECT_EQ(Forget(ends_.bound).size(), 21u) << "and not what was not read";
  EXPECT_FALSE(log_.Empty(ends_));
  EXPECT_EQ(ReadOn(), std::vector(lsns.begin() + 31, lsns.end()));
}

TEST_F(LogTest, SegmentsAreUsedAgain) {
  std::mt19937_64 random(test::Seed());
  const uint64_t rounds = 20 * log_.segments().count();
  uint64_t appended = 0;
  for (Lsn last = 0; pool::Peek(log_.statistics()->segments_taken) < rounds;) {
    const std::string bytes = test::Bytes(random, 1 + random() % kPage);
    const Appended done = Append(a_, random() % 10000, bytes);
    if (done.outcome == Outcome::kLogFull) {
      Clean();
      ASSERT_EQ(log_.segments().free(), log_.segments().count() - 1);
      continue;
    }
    ASSERT_EQ(done.outcome, Outcome::kDone);
    ASSERT_GT(done.lsn, last);
    last = done.lsn;
    if (++appended % 100 != 0) continue;
    const std::vector<Found> found = Recovered();
    ASSERT_EQ(Joined(found, done.lsn), bytes);
  }
}

// What lanes hold without need is room, when there is no other.
TEST_F(LogTest, PartFilledSegmentsAreGivenBack) {
  const Appended first = Append(a_, 0, "one");
  const uint32_t count = log_.segments().count();
  log_.GiveBack();
  EXPECT_EQ(log_.segments().free(), count - 1) << "something is pending in it";
  ReadOn();
  log_.GiveBack();
  EXPECT_EQ(log_.segments().free(), count - 1) << "read is not forgotten";
  Forget(ends_.bound);
  {
    pool::FileRecord record = RecordOf(a_);
    GroupWriter group(log_, a_);
    ASSERT_EQ(group.BeginData(0, 3, &record), Outcome::kDone);
    log_.GiveBack();
    EXPECT_EQ(log_.segments().free(), count - 1) << "a group is being written to it";
  }
  log_.GiveBack();
  EXPECT_EQ(log_.segments().free(), count);
  log_.GiveBack();
  EXPECT_EQ(log_.segments().free(), count);
  EXPECT_EQ(TryAppend(a_, 0, "two", nullptr).outcome, Outcome::kUndeclared);
  EXPECT_EQ(TryMark(a_, Kind::kErase, 0, 2, nullptr).outcome, Outcome::kUndeclared);
  const Appended second = Append(a_, 0, "two");
  EXPECT_GT(second.lsn, first.lsn);
  EXPECT_EQ(Recovered(), std::vector{AsFound(second, 0, "two", a_)});
  EXPECT_EQ(ReadOn(), std::vector{second.lsn});
  EXPECT_EQ(Forget(ends_.bound), std::vector{second.lsn});
}

// Writers leave one free segment for each lane that has any, and one more.
TEST_F(LogTest, TheReserveGrowsWithTheLanes) {
  Make(kManyLanes);
  const nvlog::Segments& segments = log_.segments();
  EXPECT_EQ(segments.reserve(), 1u);
  {
    pool::FileRecord record = RecordOf(a_);
    GroupWriter group(log_, a_);
    ASSERT_EQ(group.BeginData(0, 3, &record), Outcome::kDone);
    EXPECT_EQ(segments.reserve(), 2u);
  }
  EXPECT_EQ(segments.reserve(), 1u) << "nothing was committed";
  constexpr uint32_t kThreads = 3;
  for (uint32_t i = 0; i < kThreads; ++i) {
    std::thread([&] { Append(a_, 0, "x"); }).join();
    EXPECT_EQ(segments.reserve(), i + 2);
  }
  const std::string page(kPage, 'x');
  while (Append(a_, 0, page).outcome == Outcome::kDone) continue;
  EXPECT_EQ(segments.free(), kThreads + 2) << "with the lane of this thread";
  std::thread([&] {
    EXPECT_EQ(Append(a_, 0, "x").outcome, Outcome::kLogFull) << "there is no room for a lane";
  }).join();
  EXPECT_EQ(segments.free(), segments.reserve());
  ReadOn();
  Forget(ends_.bound);
  log_.GiveBack();
  EXPECT_EQ(segments.reserve(), 1u);
  EXPECT_EQ(segments.free(), segments.count());
}

// A group that a disk refuses is copied as a whole before its first segment is free.
TEST_F(LogTest, TheReserveHasRoomForALongGroup) {
  const std::string bytes(log_.max_group_pages() * kPage, 'x');
  const uint64_t pages =
      (log_.segments().record_units() - 1 - UnitsOf(pool::FileRecordSize(6))) / DataUnits(0, kPage);
  ASSERT_GT(log_.max_group_pages(), pages);
  Append(a_, 0, "before");
  while (Append(a_, 0, bytes).outcome == Outcome::kDone) continue;
  EXPECT_GE(log_.segments().free() * pages, pages + log_.max_group_pages());
  ReadOn();
  Forget(ends_.bound);
  log_.GiveBack();
  EXPECT_EQ(log_.segments().reserve(), 1u);
}

// Or writers would take page faults while the cleanup thread sleeps.
TEST_F(LogTest, WhoeverMapsAheadIsCalledInTime) {
  Make(4 * pool::kMinPoolSize);
  nvlog::Segments& segments = log_.segments();
  const std::string page(kPage, 'x');
  const auto take_one = [&] {
    const uint32_t free = segments.free(), bell = log_.BellSeen();
    while (segments.free() == free) Append(a_, 0, page);
    return log_.BellSeen() != bell;
  };
  const auto map_ahead = [&] {
    int segments_mapped = 0;
    for (; segments.Prefault(); ++segments_mapped) {
    }
    return segments_mapped;
  };
  EXPECT_FALSE(take_one()) << "one segment may be all that there is to write";
  EXPECT_EQ(map_ahead(), 0);
  EXPECT_TRUE(take_one()) << "nothing is mapped";
  EXPECT_EQ(map_ahead(), 16);
  EXPECT_FALSE(take_one()) << "all is mapped that should be";
  EXPECT_EQ(map_ahead(), 9) << "one more, and eight times what was taken";
  EXPECT_EQ(map_ahead(), 0);
  int taken = 3;
  while (!take_one()) ++taken;
  EXPECT_EQ(taken, 5) << "after the sixth, 21 are mapped, of 48 that should be";
}

// A pool that was used and left clean: nothing of it counts in its next use.
TEST_F(LogTest, NothingOfAnotherUseCounts) {
  for (int i = 0; i < 100; ++i) Append(a_, 0, "of the first use");
  const Lsn newest = log_.newest();
  pool_.StoreCheckpoint(newest + 1);
  log_.Close();
  ASSERT_TRUE(log_.Open(&pool_));
  a_.Undeclare();
  EXPECT_EQ(Recovered(), std::vector<Found>{});
  const Appended done = Append(a_, 0, "of the second");
  EXPECT_GT(done.lsn, newest);
  EXPECT_EQ(Recovered(), std::vector{AsFound(done, 0, "of the second", a_)});
  EXPECT_EQ(ReadOn(), std::vector{done.lsn});
}

TEST_F(LogTest, AWriterSleepsUntilThereIsRoom) {
  const std::string page(kPage, 'x');
  while (Append(a_, 0, page).outcome != Outcome::kLogFull) {
  }
  std::atomic<bool> placed{false};
  std::thread writer([&] {
    for (;;) {
      const uint32_t room = log_.RoomSeen();
      if (Append(a_, 0, page).outcome == Outcome::kDone) break;
      log_.WaitForRoom(room);
    }
    placed = true;
  });
  while (!log_.Hurried()) std::this_thread::yield();
  EXPECT_FALSE(placed);
  Clean();
  log_.AnnounceRoom();
  writer.join();
  EXPECT_TRUE(placed);
  EXPECT_FALSE(log_.Hurried());
}

TEST_F(LogTest, TheAlarmEndsASleep) {
  const Lsn alarm = log_.newest() + 4;
  const uint32_t seen = log_.BellSeen();
  std::atomic<bool> woken{false};
  std::thread sleeper([&] {
    log_.Sleep(seen, alarm, sys::kForever);
    woken = true;
  });
  Append(a_, 0, "draws two");
  if (log_.newest() + 1 < alarm) {
    EXPECT_FALSE(woken);
  }
  while (log_.newest() < alarm) Append(a_, 0, "wake up");
  sleeper.join();
}

// ---------------------------------------------------------------------------------------------
// Kept records

class KeptTest : public LogTest {
 protected:
  // A record of the log, and its kept copy as a group of its own. kNoPlace: no segment was free.
  Place Keep(const Appended& original, FileTag& file, Lsn* declared, uint32_t flags = 0) {
    const RecordHeader& header = log_.At(original.places.at(0));
    const Log::Piece piece = log_.PieceAt(original.places[0], header.offset / kPage);
    const Kept::Copy copy = {Kind::kData,   header.lsn,  file.number, header.offset,
                             header.length, piece.bytes, kNoPlace};
    return kept_.Append(copy, declared, file.record.load(), flags);
  }
  Found AsKept(const Appended& done, uint64_t offset, const std::string& bytes,
               const FileTag& file) {
    Found found = AsFound(done, offset, bytes, file);
    found.kept = true;
    return found;
  }
  uint64_t Live() {
    uint64_t live = 0;
    for (const FileTag* file : {&a_, &b_}) kept_.ForEachOf(file->number, [&](Place) { ++live; });
    return live;
  }

  Lsn declared_a_ = 0;
  Lsn declared_b_ = 0;
};

TEST_F(KeptTest, ACopyCountsWhateverTheCheckpointSays) {
  const Appended one = Append(a_, 5, "kept"), other = Append(b_, 0, "not kept");
  const Kept::Copy cut = {Kind::kTruncate, other.lsn, b_.number, 77, 0, nullptr, 0};
  const Place kept = Keep(one, a_, &declared_a_);
  const Place mark = kept_.Append(cut, &declared_b_, b_.record.load(), 0);
  ASSERT_NE(kept, kNoPlace);
  ASSERT_NE(mark, kNoPlace);
  EXPECT_TRUE(kept_.Holds(kept));
  EXPECT_FALSE(kept_.Holds(one.places[0]));
  Clean();
  EXPECT_EQ(Recovered(),
            (std::vector{AsKept(one, 5, "kept", a_),
                         Found{other.lsn, Kind::kTruncate, 77, 0, "", true, "/file2"}}));
  EXPECT_EQ(log_.PieceAt(kept, 0).length, 4u);
  kept_.Void(kept);
  EXPECT_EQ(Recovered(),
            (std::vector{Found{other.lsn, Kind::kTruncate, 77, 0, "", true, "/file2"}}));
  kept_.Void(mark);
  EXPECT_EQ(Recovered(), std::vector<Found>{});
  EXPECT_EQ(kept_.units(), 0u);
  const uint32_t free = log_.segments().free();
  kept_.Settle();
  EXPECT_EQ(log_.segments().free(), free + 1);
  kept_.Settle();
  EXPECT_EQ(log_.segments().free(), free + 1);
}

// The log's record and its copy, both there: the same content, of one LSN.
TEST_F(KeptTest, ARecordAndItsCopyAreOne) {
  const Appended one = Append(a_, 0, "same"), two = Append(a_, 2, "newer");
  Keep(one, a_, &declared_a_);
  std::string content(7, '\0');
  for (const Found& found : Recovered()) {
    EXPECT_TRUE(found.lsn == one.lsn || found.lsn == two.lsn);
    content.replace(found.offset, found.length, found.bytes);
  }
  EXPECT_EQ(content, "sanewer");
}

// A group is copied page by page: several kept groups have one LSN.
TEST_F(KeptTest, PagesOfOneGroupAreAllFound) {
  const std::string bytes(3 * kPage, 'g');
  const Appended group = Append(a_, 0, bytes);
  for (uint64_t page = 0; page < 3; ++page) {
    const Log::Piece piece = log_.PieceAt(group.places[0], page);
    const Kept::Copy copy = {Kind::kData,  group.lsn,   a_.number, page * kPage,
                             piece.length, piece.bytes, kNoPlace};
    ASSERT_NE(kept_.Append(copy, &declared_a_, a_.record.load(), 0), kNoPlace);
  }
  Clean();
  const std::vector<Found> found = Recovered();
  EXPECT_EQ(found.size(), 3u);
  EXPECT_TRUE(Joined(found, group.lsn) == bytes);
}

// Each kept segment says which file its records are of, with the flags that it was given; but once.
TEST_F(KeptTest, EachSegmentExplainsItself) {
  const std::string page(kPage, 'k');
  std::vector<Found> expected;
  std::set<uint32_t> segments;
  std::vector<Place> places;
  for (uint64_t i = 0; i < 40; ++i) {
    FileTag& file = i % 2 == 0 ? a_ : b_;
    const Appended done = Append(file, i * kPage, page);
    places.push_back(
        Keep(done, file, i % 2 == 0 ? &declared_a_ : &declared_b_, pool::kFileRemoved));
    ASSERT_NE(places.back(), kNoPlace);
    const bool first = segments.insert(SegmentOf(places.back())).second;
    EXPECT_EQ(log_.At(places.back()).count,
              first ||
                      (i > 0 && SegmentOf(places[i - 1]) != SegmentOf(places[i > 1 ? i - 2 : 0])) ||
                      i < 2
                  ? 2
                  : 1)
        << i;
    expected.push_back(AsKept(done, i * kPage, page, file));
    Clean();
  }
  EXPECT_EQ(segments.size(), 3u);
  EXPECT_EQ(Recovered(), expected);
  Reader reader;
  ASSERT_TRUE(reader.Open(pool_.view()));
  GroupWalk walk(reader);
  ASSERT_TRUE(walk.Open());
  for (Group group; walk.Next(&group);) {
  }
  ASSERT_EQ(walk.files(), 2u);
  for (uint32_t file = 0; file < 2; ++file) {
    pool::FileRecord record;
    ASSERT_TRUE(walk.CopyRecord(file, &record));
    EXPECT_EQ(record.flags, pool::kFileRemoved);
  }
  // A void group's file record goes on to name those behind it.
  kept_.Void(places[0]);
  kept_.Void(places[1]);
  kept_.Settle();
  expected.erase(expected.begin(), expected.begin() + 2);
  EXPECT_EQ(Recovered(), expected);
  for (size_t i = 2; i < places.size(); ++i) kept_.Void(places[i]);
  kept_.Settle();
  EXPECT_EQ(kept_.units(), 0u);
  EXPECT_EQ(log_.segments().free(), log_.segments().count() - 1);
  EXPECT_EQ(Recovered(), std::vector<Found>{});
}

// In a kept segment LSNs only go up, too: an older record takes another one.
TEST_F(KeptTest, AnOlderRecordTakesAnotherSegment) {
  const Appended older = Append(a_, 0, "older"), newer = Append(a_, 0, "newer");
  Append(b_, 0, "other");
  const Place second = Keep(newer, a_, &declared_a_), first = Keep(older, a_, &declared_a_);
  EXPECT_NE(SegmentOf(first), SegmentOf(second));
  ASSERT_NE(Keep(newer, b_, &declared_b_), kNoPlace) << "of a file that nobody asks for";
  std::vector<Place> places;
  kept_.ForEachOf(a_.number, [&](Place place) { places.push_back(place); });
  EXPECT_EQ(places, (std::vector{first, second})) << "in the order of LSNs, wherever they are";
  kept_.ForEachOf(b_.number, [&](Place place) { kept_.Void(place); });
  Clean();
  EXPECT_EQ(Recovered(),
            (std::vector{AsKept(older, 0, "older", a_), AsKept(newer, 0, "newer", a_)}));
}

// What is freed in the middle, first and last; and what comes after that.
TEST_F(KeptTest, EmptySegmentsAreFreedWhereverTheyAre) {
  const std::string page(kPage, 'k');
  for (size_t gone = 0; gone < 3; ++gone) {
    Make(pool::kMinPoolSize);
    declared_a_ = 0;
    std::map<uint32_t, std::vector<Place>> places;
    std::vector<uint32_t> order;
    while (order.size() < 3) {
      const Place place = Keep(Append(a_, 0, page), a_, &declared_a_);
      if (places[SegmentOf(place)].empty()) order.push_back(SegmentOf(place));
      places[SegmentOf(place)].push_back(place);
      Clean();
    }
    const uint64_t live = Live();
    for (const Place place : places[order[gone]]) kept_.Void(place);
    const uint32_t free = log_.segments().free();
    kept_.Settle();
    EXPECT_EQ(log_.segments().free(), free + 1);
    EXPECT_EQ(Live(), live - places[order[gone]].size());
    const Appended more = Append(a_, 0, "more");
    ASSERT_NE(Keep(more, a_, &declared_a_), kNoPlace);
    Clean();
    EXPECT_EQ(Live(), live - places[order[gone]].size() + 1);
    EXPECT_EQ(Recovered().size(), Live());
    EXPECT_EQ(Recovered().back(), AsKept(more, 0, "more", a_));
    kept_.ForEachOf(a_.number, [&](Place place) { kept_.Void(place); });
    kept_.Settle();
    EXPECT_EQ(log_.segments().free(), log_.segments().count() - 1);
    declared_a_ = 0;
    ASSERT_NE(Keep(Append(a_, 0, "anew"), a_, &declared_a_), kNoPlace);
    EXPECT_EQ(Live(), 1u);
  }
}

TEST_F(KeptTest, SparseSegmentsAreCopiedTogether) {
  const std::string page(kPage, 'k');
  std::vector<Place> places;
  for (int i = 0; i < 7 * 15; ++i) {
    const Appended done = Append(a_, 0, page);
    places.push_back(Keep(done, a_, &declared_a_));
    ASSERT_NE(places.back(), kNoPlace);
    Clean();
  }
  int called = 0;
  kept_.Compact([&](Place) { ++called; });
  EXPECT_EQ(called, 0) << "they are full";
  std::set<Lsn> expected;
  for (size_t i = 0; i < places.size(); ++i) {
    if (i % 15 == 7) {
      expected.insert(log_.At(places[i]).lsn);
    } else {
      kept_.Void(places[i]);
    }
  }
  kept_.Settle();
  const uint32_t before = log_.segments().free();
  for (int round = 0; round < 20; ++round) {
    kept_.Compact([&](Place place) {
      const RecordHeader& header = log_.At(place);
      const Log::Piece piece = log_.PieceAt(place, 0);
      const Kept::Copy copy = {header.kind,   header.lsn,  a_.number, 0,
                               header.length, piece.bytes, kNoPlace};
      const uint64_t units = pool_.view().segment_units();
      if (kept_.Append(copy, &declared_a_, place / units * units + kFirstUnit, 0) != kNoPlace) {
        kept_.Void(place);
      }
      ++called;
    });
    std::set<Lsn> found;
    for (const Found& one : Recovered()) found.insert(one.lsn);
    ASSERT_EQ(found, expected) << "at any time, each is there";
    kept_.Settle();
  }
  EXPECT_GT(called, 0);
  EXPECT_GT(log_.segments().free(), before);
  EXPECT_EQ(Live(), expected.size());
  EXPECT_EQ(Recovered().size(), expected.size());
}

// Where a kept segment is now lay records of a log, whole, committed, and newer than what is kept;
// and one begins just where that ends.
TEST_F(KeptTest, ASegmentsFormerLifeIsNotKept) {
  const std::string page(kPage, 'k');
  const Appended kept = Append(a_, 0, page);
  while (Append(b_, 0, std::string(kPage, 'o')).outcome == Outcome::kDone) {
  }
  Clean();
  const Appended last = Append(a_, 0, "last");
  const Kept::Copy copy = {Kind::kData, kept.lsn, a_.number,
                           0,           kPage,    reinterpret_cast<const uint8_t*>(page.data()),
                           kNoPlace};
  const Place place = kept_.Append(copy, &declared_a_, a_.record.load(), 0);
  ASSERT_NE(place, kNoPlace);
  const RecordHeader& stale = log_.At(place + DataUnits(0, kPage));
  ASSERT_EQ(stale.commit, CommitWord(stale.lsn, pool_.view().salt())) << "the case is not met";
  ASSERT_GT(stale.lsn, kept.lsn);
  EXPECT_EQ(Recovered(), (std::vector{AsKept(kept, 0, page, a_), AsFound(last, 0, "last", a_)}));
  kept_.Void(place);
  EXPECT_EQ(Recovered(), std::vector{AsFound(last, 0, "last", a_)});
}

TEST_F(KeptTest, WithoutASegmentNothingIsKept) {
  const Appended one = Append(a_, 0, std::string(kPage, 'k'));
  uint32_t kept = 0;
  while (Keep(one, a_, &declared_a_) != kNoPlace) ++kept;
  EXPECT_EQ(log_.segments().free(), 0u) << "from the reserve, too";
  EXPECT_EQ(Live(), kept);
  EXPECT_EQ(pool::Peek(log_.statistics()->records_kept), kept);
  EXPECT_EQ(pool::Peek(pool_.seats().At(0).kept_units), kept_.units());
  EXPECT_EQ(Keep(one, a_, &declared_a_), kNoPlace);
  EXPECT_EQ(Recovered().size(), kept + 1u);
  kept_.ForEachOf(a_.number, [&](Place place) { kept_.Void(place); });
  kept_.Settle();
  EXPECT_NE(Keep(one, a_, &declared_a_), kNoPlace);
}

// ---------------------------------------------------------------------------------------------
// Two processes with logs in one pool.

// One of them, which writes to a file of its own.
struct User : test::LogUser {
  User(const std::string& path, uint32_t n) : number(n) {
    test::Use(pool, path);
    file.number = number;
  }
  ~User() { log.Close(); }

  // Of `length` bytes, all in one page. 0: there is no room.
  Lsn Append(uint64_t length) {
    return LogUser::Append(file, test::RecordOfNone("/file" + std::to_string(number), number), 0,
                           std::string(length, static_cast<char>('a' + number)));
  }
  void Fill() {
    while (Append(kPage) != 0) continue;
  }
  std::set<uint32_t> Owned() const { return OwnedBy(pool.seat()); }

  const uint32_t number;
  FileTag file;
};

class TwoUsersTest : public testing::Test {
 protected:
  TwoUsersTest() {
    pmem::Initialize();
    Make(pool::kMinPoolSize);
  }
  void Make(uint64_t size) {
    a_.reset();
    b_.reset();
    unlink(path_.c_str());
    test::MakePool(path_, size);
    a_.emplace(path_, 0);
    b_.emplace(path_, 1);
    ASSERT_TRUE(a_->log.Open(&a_->pool) && b_->log.Open(&b_->pool));
  }
  // What recovery of all would find now: LSNs and the numbers of files.
  std::map<Lsn, std::string> Recovered() {
    std::map<Lsn, std::string> found;
    Lsn last = 0;
    const auto record = [&](const test::FoundRecord& one) {
      if (one.header.kind == Kind::kFile) return;
      EXPECT_GT(one.group.lsn, last);
      last = one.group.lsn;
      const pool::FileRecord file = one.file_record();
      EXPECT_EQ(one.group.log / pool::kLogsOfSeat, file.inode) << "in a log of its own seat";
      found[one.group.lsn] = file.path;
    };
    test::ForEachCommitted(a_->pool.view(), record, test::IsAFailure);
    return found;
  }
  static std::vector<uint32_t> Both(const std::set<uint32_t>& a, const std::set<uint32_t>& b) {
    std::vector<uint32_t> both;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
    return both;
  }

  std::mt19937_64 random_{test::Seed()};
  test::Folder folder_{test::Folder::kMemory};
  const std::string path_ = folder_ / "pool";
  std::optional<User> a_, b_;
};

TEST_F(TwoUsersTest, SegmentsOfTheirOwnAndOneOrderOfLsns) {
  std::map<Lsn, std::string> expected;
  Lsn last = 0;
  for (int i = 0; i < 150; ++i) {
    User& user = random_() % 2 == 0 ? *a_ : *b_;
    const Lsn lsn = user.Append(1 + random_() % kPage);
    ASSERT_GT(lsn, last);
    last = lsn;
    expected[lsn] = "/file" + std::to_string(user.number);
    EXPECT_EQ(a_->log.newest(), lsn) << "by any process";
    EXPECT_EQ(b_->log.newest(), lsn);
    EXPECT_EQ(user.log.newest_own(), lsn);
  }
  EXPECT_EQ(Recovered(), expected);
  const std::set<uint32_t> of_a = a_->Owned(), of_b = b_->Owned();
  EXPECT_GT(of_a.size(), 1u);
  EXPECT_GT(of_b.size(), 1u);
  EXPECT_EQ(Both(of_a, of_b), std::vector<uint32_t>{});
  EXPECT_EQ(a_->log.segments().free(), b_->log.segments().free());
  EXPECT_EQ(a_->log.segments().free(), a_->pool.view().segment_count() - of_a.size() - of_b.size());
  for (const uint32_t number : of_b) {
    EXPECT_EQ(b_->pool.view().segment(number)->log, pool::kLogsOfSeat);
  }
}

TEST_F(TwoUsersTest, WhenOneHasAllTheOtherFindsNoRoom) {
  a_->Fill();
  const nvlog::Segments& segments = b_->log.segments();
  EXPECT_EQ(segments.free(), a_->log.segments().reserve());
  EXPECT_EQ(a_->log.segments().reserve(), 2u);
  EXPECT_EQ(segments.reserve(), 3u) << "b keeps one for a's lane and for a, besides its own";
  EXPECT_EQ(b_->Append(1), 0u);
  EXPECT_EQ(segments.reserve(), 3u) << "b has no lane, after all";
  EXPECT_EQ(a_->log.segments().reserve(), 2u);
  EXPECT_EQ(b_->Owned(), std::set<uint32_t>{});
  a_->Clean();
  const Lsn lsn = b_->Append(1);
  EXPECT_NE(lsn, 0u);
  EXPECT_EQ(Recovered(), (std::map<Lsn, std::string>{{lsn, "/file1"}}));
  EXPECT_EQ(b_->pool.view().segment(*b_->Owned().begin())->checkpoint, 1u) << "and not a's";
  b_->Fill();
  EXPECT_EQ(segments.free(), segments.reserve());
  EXPECT_EQ(segments.reserve(), 4u) << "of two lanes, the other process, and one";
  EXPECT_EQ(a_->log.segments().reserve(), 4u);
  // What a has left in its segment is its own.
  EXPECT_NE(a_->Append(1), 0u);
}

// A segment of the reserve is there for either of them, to copy from each of its lanes.
TEST_F(TwoUsersTest, TheReserveIsEnoughForBoth) {
  for (int i = 0; i < 30; ++i) {
    a_->Append(kPage);
    b_->Append(kPage);
  }
  a_->Fill();
  b_->Fill();
  for (User* user : {&*a_, &*b_}) {
    Segments& segments = user->log.segments();
    Lsn generation = 0;
    const Segments::Claim claim = {kKeptLog, pool::SegmentKind::kKept, kNoSegment, 0, 0};
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(segments.Take(claim, &generation), kNoSegment) << "not for writers";
      EXPECT_NE(segments.Take(claim, &generation, true), kNoSegment) << user->number;
    }
  }
  EXPECT_EQ(a_->log.segments().free(), 0u);
}

TEST_F(TwoUsersTest, WhatOneGivesBackTheOtherHas) {
  a_->Append(1);
  const uint32_t segment = *a_->Owned().begin();
  b_->Append(1);
  a_->Clean();
  EXPECT_EQ(a_->Owned(), std::set<uint32_t>{segment});
  a_->log.GiveBack();
  EXPECT_EQ(a_->Owned(), std::set<uint32_t>{});
  EXPECT_EQ(b_->log.segments().reserve(), 2u) << "a has no lane any more";
  b_->Fill();
  EXPECT_TRUE(b_->Owned().contains(segment));
  EXPECT_EQ(b_->log.segments().free(), 2u);
  EXPECT_EQ(a_->Append(1), 0u) << "and a hint of its own is none any more";
  EXPECT_EQ(a_->Owned(), std::set<uint32_t>{});
  b_->Clean();
  EXPECT_NE(a_->Append(1), 0u);
}

TEST_F(TwoUsersTest, FreeAllFreesWhatIsItsOwn) {
  for (int i = 0; i < 40; ++i) {
    a_->Append(kPage);
    b_->Append(kPage);
  }
  const std::set<uint32_t> of_a = a_->Owned();
  const std::map<Lsn, std::string> all = Recovered();
  const Lsn newest = b_->log.newest();
  b_->pool.StoreSeatCheckpoint(newest + 1);
  b_->log.FreeAll();
  EXPECT_EQ(b_->Owned(), std::set<uint32_t>{});
  EXPECT_EQ(a_->Owned(), of_a);
  EXPECT_EQ(a_->log.segments().free(), a_->pool.view().segment_count() - of_a.size());
  EXPECT_EQ(a_->log.segments().reserve(), 2u) << "b has no lanes";
  EXPECT_EQ(Recovered().size(), all.size() / 2) << "those of a, as they were";
  b_->log.Close();
  b_->pool.Leave();
  EXPECT_TRUE(a_->pool.dirty());
  // What comes next to the seat goes on above what was there.
  b_.reset();
  b_.emplace(path_, 1);
  ASSERT_EQ(b_->pool.seat(), 1u);
  EXPECT_EQ(b_->pool.checkpoint(), newest + 1);
  ASSERT_TRUE(b_->log.Open(&b_->pool));
  EXPECT_GT(b_->Append(1), newest);
  EXPECT_EQ(Recovered().size(), all.size() / 2 + 1);
}

// The pool's last segments are for the frames of one process.
TEST_F(TwoUsersTest, FramesOfTwoProcesses) {
  Make(4 * pool::kMinPoolSize);
  const uint32_t count = a_->pool.view().segment_count();
  b_->log.FreeAll();
  b_->log.Close();
  ASSERT_TRUE(b_->log.Open(&b_->pool, 3));
  EXPECT_EQ(b_->Owned(), (std::set<uint32_t>{count - 3, count - 2, count - 1}));
  a_->log.Close();
  EXPECT_FALSE(a_->log.Open(&a_->pool, 4)) << "one is free, three are not";
  EXPECT_EQ(a_->Owned(), std::set<uint32_t>{}) << "all or none";
  ASSERT_TRUE(a_->log.Open(&a_->pool));
  a_->Fill();
  EXPECT_EQ(b_->Owned().size(), 3u);
  EXPECT_EQ(a_->log.segments().free(), a_->log.segments().reserve());
  b_->log.FreeAll();
  EXPECT_EQ(b_->Owned(), std::set<uint32_t>{});
}

// Each takes what the other has freed, again and again, and nothing is lost or comes back.
TEST_F(TwoUsersTest, TurnsInAnyOrder) {
  SCOPED_TRACE("NVCACHE_TEST_SEED=" + std::to_string(test::Seed()));
  std::map<Lsn, std::string> pending;
  uint64_t full = 0;
  for (int i = 0; i < 6000; ++i) {
    User& user = random_() % 3 == 0 ? *a_ : *b_;
    const std::string name = "/file" + std::to_string(user.number);
    const Lsn lsn = user.Append(1 + random_() % kPage);
    if (lsn != 0) pending[lsn] = name;
    if (lsn == 0) ++full;
    if (random_() % (lsn == 0 ? 3 : 100) != 0) continue;
    user.Clean();
    std::erase_if(pending, [&](const auto& one) { return one.second == name; });
    if (random_() % 2 == 0) user.log.GiveBack();
    ASSERT_EQ(Recovered(), pending) << i;
    ASSERT_EQ(Both(a_->Owned(), b_->Owned()), std::vector<uint32_t>{});
    const Segments& segments = user.log.segments();
    ASSERT_EQ(segments.free(), segments.count() - a_->Owned().size() - b_->Owned().size());
  }
  EXPECT_GT(full, 10u);
}

// Where the pool says who has which segment, as one of them has it mapped: the first store there
// waits until the other one has done something.
struct Barred {
  void* page = nullptr;
  std::atomic<bool> stored{false}, go_on{false};
} g_barred;

void LetTheOtherFirst(int, siginfo_t* info, void*) {
  const auto* at = static_cast<const uint8_t*>(info->si_addr);
  const auto* page = static_cast<const uint8_t*>(g_barred.page);
  if (at < page || at >= page + kPage || g_barred.stored.load()) {
    signal(SIGSEGV, SIG_DFL);
    return;
  }
  g_barred.stored.store(true);
  while (!g_barred.go_on.load()) continue;
  mprotect(g_barred.page, kPage, PROT_READ | PROT_WRITE);
}

// One has found that there is room, and another one takes it before the first one does.
TEST_F(TwoUsersTest, WhoeverFindsTooFewLeftGivesItBack) {
  if (test::kThreadSanitizer) GTEST_SKIP() << "its atomics allow no others in a signal handler";
  a_->Append(1);
  b_->Append(1);
  Segments& segments = a_->log.segments();
  const uint32_t reserve = segments.reserve();
  const auto take = [](User& user, bool reserved = false) {
    Lsn generation = 0;
    const Segments::Claim claim = {0, pool::SegmentKind::kLog, kNoSegment, 0, 0};
    return user.log.segments().Take(claim, &generation, reserved);
  };
  struct sigaction action = {}, before = {};
  action.sa_sigaction = LetTheOtherFirst;
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(sigaction(SIGSEGV, &action, &before), 0);
  for (const uint32_t more : {1u, 2u}) {
    // One takes what it has freed last, the other one the first that is free.
    std::vector<uint32_t> taken;
    for (uint32_t number; (number = take(*a_, true)) != kNoSegment;) taken.push_back(number);
    std::sort(taken.begin(), taken.end());
    for (uint32_t i = 0; i < reserve + more; ++i) segments.Free(taken[i]);
    taken.erase(taken.begin(), taken.begin() + reserve + more);
    g_barred.page = a_->pool.view().base + pool::kOwnersOffset;
    g_barred.stored.store(false);
    g_barred.go_on.store(false);
    uint32_t of_b = kNoSegment;
    std::thread other([&] {
      while (!g_barred.stored.load()) continue;
      of_b = take(*b_);
      g_barred.go_on.store(true);
    });
    ASSERT_EQ(mprotect(g_barred.page, kPage, PROT_READ), 0);
    const uint32_t of_a = take(*a_);
    other.join();
    EXPECT_NE(of_b, kNoSegment) << "it came first";
    EXPECT_EQ(of_a == kNoSegment, more == 1);
    EXPECT_NE(of_a, of_b);
    EXPECT_EQ(segments.free(), reserve);
    EXPECT_EQ(a_->Owned().size(), taken.size() + (more == 1 ? 1u : 2u)) << "with that of its lane";
    if (of_a != kNoSegment) taken.push_back(of_a);
    for (const uint32_t number : taken) segments.Free(number);
    b_->log.segments().Free(of_b);
  }
  ASSERT_EQ(sigaction(SIGSEGV, &before, nullptr), 0);
}

// Both at once, each the one that it has freed last, and there is one more than the reserve.
TEST_F(TwoUsersTest, TakersAtOnceLeaveTheReserve) {
  constexpr uint32_t kRounds = 2000;
  // The more there are, the longer a look at all of them takes, in which the other one may act.
  Make(kManyLanes);
  a_->Append(1);
  b_->Append(1);
  const Segments& segments = a_->log.segments();
  const uint32_t reserve = segments.reserve();
  ASSERT_EQ(reserve, 4u);
  const auto take = [](User& user, bool reserved) {
    Lsn generation = 0;
    const Segments::Claim claim = {0, pool::SegmentKind::kLog, kNoSegment, 0, 0};
    return user.log.segments().Take(claim, &generation, reserved);
  };
  while (segments.free() > reserve + 1) ASSERT_NE(take(*a_, false), kNoSegment);

  std::atomic<uint32_t> come{0};
  // Goes on when both have come: at the same moment, if there are processors for both.
  const auto meet = [&](uint32_t times) {
    come.fetch_add(1);
    for (uint32_t i = 0; come.load() < 2 * times; ++i) {
      if (i > 10000) std::this_thread::yield();
    }
  };
  std::atomic<uint32_t> too_few{0}, done{0};
  const auto turn = [&](User& user) {
    std::mt19937_64 random(test::Seed() + user.number);
    for (uint32_t round = 0; round < kRounds; ++round) {
      const uint32_t own = take(user, true);
      EXPECT_NE(own, kNoSegment);
      meet(4 * round + 1);
      if (own != kNoSegment) user.log.segments().Free(own);
      meet(4 * round + 2);
      for (uint64_t i = random() % 300; i > 0; --i) come.load();
      const uint32_t taken = take(user, false);
      meet(4 * round + 3);
      if (user.log.segments().free() < reserve) too_few.fetch_add(1);
      if (taken != kNoSegment) done.fetch_add(1);
      meet(4 * round + 4);
      if (taken != kNoSegment) user.log.segments().Free(taken);
    }
  };
  std::thread other([&] { turn(*b_); });
  turn(*a_);
  other.join();
  EXPECT_EQ(too_few, 0u);
  EXPECT_GT(done, 0u);
  EXPECT_EQ(segments.free(), reserve + 1);
}

TEST_F(TwoUsersTest, BothAppendAtOnce) {
  Make(4 * pool::kMinPoolSize);
  constexpr int kGroups = 300;
  std::vector<Lsn> lsns[2];
  const auto append = [](User& user, std::vector<Lsn>* drawn) {
    for (int i = 0; i < kGroups; ++i) {
      drawn->push_back(user.Append(1 + static_cast<uint64_t>(i) * 7 % 1000));
    }
  };
  std::thread first([&] { append(*a_, &lsns[0]); });
  std::thread second([&] { append(*b_, &lsns[1]); });
  first.join();
  second.join();
  std::map<Lsn, std::string> expected;
  for (const int user : {0, 1}) {
    EXPECT_TRUE(std::is_sorted(lsns[user].begin(), lsns[user].end()));
    for (const Lsn lsn : lsns[user]) {
      EXPECT_NE(lsn, 0u);
      EXPECT_TRUE(expected.emplace(lsn, "/file" + std::to_string(user)).second) << "drawn twice";
    }
  }
  EXPECT_EQ(Recovered(), expected);
  EXPECT_TRUE(a_->log.IsShared());
}

}  // namespace
}  // namespace nvcache::nvlog
