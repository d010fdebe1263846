// SPDX-License-Identifier: BSD-3-Clause
//
// What the unit tests share: files that go away by themselves, children, and logs that are built by
// hand from the format alone, without the engine's own writer.
#ifndef NVCACHE_TESTS_UNIT_SUPPORT_H_
#define NVCACHE_TESTS_UNIT_SUPPORT_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "src/nvlog/record.h"
#include "src/pool/identify.h"
#include "src/pool/name_record.h"
#include "src/pool/pool.h"
#include "src/sys/crc32c.h"

namespace nvcache::test {

// Of which some things cannot be asked.
#ifdef __has_feature  // clang's way to say it
inline constexpr bool kThreadSanitizer = __has_feature(thread_sanitizer);
inline constexpr bool kAddressSanitizer = __has_feature(address_sanitizer);
#else
#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#endif

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  std::string content(in ? static_cast<size_t>(in.tellg()) : 0, '\0');
  in.seekg(0).read(content.data(), static_cast<std::streamsize>(content.size()));
  return content;
}

inline void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

inline bool Exists(const std::string& path) {
  struct stat st;
  return lstat(path.c_str(), &st) == 0;
}

// Whether any user can get there.
inline bool IsOpenToAll(std::filesystem::path path) {
  for (;; path = path.parent_path()) {
    const auto rights = std::filesystem::status(path).permissions();
    if ((rights & std::filesystem::perms::others_exec) == std::filesystem::perms::none)
      return false;
    if (path == path.root_path()) return true;
  }
}

// Some tests become another user, who gets nowhere below root's home.
inline std::string PlaceOnDisk() {
  const std::filesystem::path here = std::filesystem::current_path();
  return IsOpenToAll(here) ? here.string() : "/var/tmp";
}

// A folder that is removed with all that is in it.
class Folder {
 public:
  // Of the disk: below the working directory, if all get there. Of memory: below /dev/shm.
  enum Where { kDisk, kMemory };
  explicit Folder(Where where = kDisk) {
    std::string name = where == kDisk ? PlaceOnDisk() : "/dev/shm";
    name += "/nvcache-test-unit-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr) << name;
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// As a write does it.
inline void Overwrite(std::string* content, uint64_t offset, const std::string& bytes) {
  content->resize(std::max(content->size(), offset + bytes.size()));
  content->replace(offset, bytes.size(), bytes);
}

// The seed of this run: NVCACHE_TEST_SEED, or always the same.
inline uint64_t Seed() {
  const char* seed = std::getenv("NVCACHE_TEST_SEED");
  return seed != nullptr ? std::strtoull(seed, nullptr, 0) : 1;
}

inline constexpr int kSkip = 77;  // exit code of a child that cannot do what it should

// The call answers with that errno, for the rest of the process's life.
inline int Forbid(uint32_t call, uint32_t error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

// The failures of a helper say which line has called it: `const Caller& caller = Caller()`.
struct Caller {
  explicit Caller(const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : trace(file, line, "called from here") {}
  testing::ScopedTrace trace;
};

// Runs `body` in a child, whose exit code it returns; -signal if the child was killed by one.
inline int InChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// Runs the body of a test in a child, which tells of its failures itself.
inline void TestInChild(const std::function<void()>& body) {
  EXPECT_EQ(InChild([&] {
              body();
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
}

// The same with mounts of its own, and a tmpfs with these options at `folder`, if one is named.
inline void TestInOwnMounts(const std::string& folder, const std::string& options,
                            const std::function<void()>& body) {
  const int result = InChild([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        (!folder.empty() && mount("tmpfs", folder.c_str(), "tmpfs", 0, options.c_str()) != 0)) {
      return kSkip;
    }
    body();
    return testing::Test::HasFailure() ? 1 : 0;
  });
  if (result == kSkip) GTEST_SKIP() << "may not mount";
  EXPECT_EQ(result, 0);
}

inline std::string Bytes(std::mt19937_64& random, size_t n) {
  std::string bytes(n, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

// ---------------------------------------------------------------------------------------------

inline void MakePool(const std::string& path, uint64_t size = pool::kMinPoolSize,
                     uint32_t commit = pool::kCommitOwn) {
  pool::Problem problem;
  ASSERT_TRUE(pool::Pool::Create(path.c_str(), {.size = size, .emulate = true, .commit = commit},
                                 nullptr, &problem))
      << problem.text.c_str();
}

// Closes itself; the engine's pool lives as long as the process and has no destructor.
class ScopedPool : public pool::Pool {
 public:
  ~ScopedPool() { Close(); }
};

inline bool OpenPool(pool::Pool& pool, const std::string& path,
                     pool::Mode mode = pool::Mode::kExclusive) {
  pool::Problem problem;
  const bool ok = pool.Open(path.c_str(), mode, true, nullptr, &problem);
  EXPECT_TRUE(ok) << problem.text.c_str();
  return ok;
}

// A seat in a pool that was opened.
inline void Join(pool::Pool& pool) {
  pool::Problem problem;
  ASSERT_TRUE(pool.Join(&problem)) << problem.text.c_str();
}
// One more user of the pool, with a seat.
inline void Use(pool::Pool& pool, const std::string& path) {
  ASSERT_TRUE(OpenPool(pool, path, pool::Mode::kShared));
  Join(pool);
}
inline pool::Lsn CheckpointOf(const pool::Pool& pool) {
  pool::Lsn checkpoint = 0;
  EXPECT_EQ(pool::LoadCheckpoint(pool.view(), pool::kOfPool, &checkpoint), 2);
  return checkpoint;
}

inline pool::Problem FailToOpen(const std::string& path, pool::Mode mode = pool::Mode::kExclusive,
                                bool emulate = true) {
  ScopedPool pool;
  pool::Problem problem;
  EXPECT_FALSE(pool.Open(path.c_str(), mode, emulate, nullptr, &problem));
  EXPECT_FALSE(pool.is_open());
  return problem;
}

// The test cannot go on without it.
class OpenedPool : public ScopedPool {
 public:
  explicit OpenedPool(const std::string& path, pool::Mode mode = pool::Mode::kExclusive) {
    if (!OpenPool(*this, path, mode)) std::abort();
  }
};

// ---------------------------------------------------------------------------------------------
// Pools and logs by hand.

// Both records of the checkpoint.
inline void SetCheckpoint(const pool::View& view, pool::Lsn checkpoint) {
  for (uint64_t i = 0; i < 2; ++i) {
    pool::CheckpointRecord record = {};
    record.checkpoint = checkpoint;
    record.crc = sys::Crc32c(&record, offsetof(pool::CheckpointRecord, crc),
                             static_cast<uint32_t>(view.salt()));
    std::memcpy(static_cast<void*>(view.checkpoint_record(i)), &record, sizeof(record));
  }
}

// A pool that is nowhere but in memory. Its checkpoint is 1, its segments are zero.
class MemoryPool {
 public:
  explicit MemoryPool(uint64_t size = pool::kMinPoolSize) : size_(size) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    const pool::Geometry geometry = pool::GeometryOf(size);
    std::memcpy(superblock_.magic, pool::kMagic, sizeof(pool::kMagic));
    superblock_.version = pool::kVersion;
    superblock_.superblock_size = sizeof(superblock_);
    superblock_.pool_size = size;
    superblock_.salt = 0x9e3779b97f4a7c15;
    superblock_.segment_size = geometry.segment_size;
    superblock_.segment_count = geometry.segment_count;
    superblock_.page_size = pool::kPageSize;
    superblock_.unit_size = pool::kUnitSize;
    superblock_.crc = sys::Crc32c(&superblock_, offsetof(pool::Superblock, crc));
    view_ = {static_cast<uint8_t*>(memory), &superblock_};
    std::memcpy(view_.base, &superblock_, sizeof(superblock_));
    std::memcpy(view_.base + pool::kSuperblockCopyOffset, &superblock_, sizeof(superblock_));
    view_.state()->state = pool::kStateClean;
    SetCheckpoint(view_, 1);
  }
  ~MemoryPool() { munmap(view_.base, size_); }
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  const pool::View& view() const { return view_; }

 private:
  uint64_t size_;
  pool::Superblock superblock_ = {};
  pool::View view_;
};

// The file record of the file at `path`.
inline pool::FileRecord RecordOf(const std::string& path, uint32_t flags = 0) {
  pool::FileRecord record = {};
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_GE(fd, 0) << path;
  EXPECT_EQ(pool::Identify(fd, &record), 0) << path;
  close(fd);
  record.flags = flags;
  record.path_length = static_cast<uint32_t>(path.size());
  std::memcpy(record.path, path.c_str(), path.size() + 1);
  return record;
}

// The file record of a file that need not exist.
inline pool::FileRecord RecordOfNone(const std::string& path, uint64_t inode, uint32_t flags = 0) {
  pool::FileRecord record = {};
  record.inode = inode;
  record.mode = S_IFREG | 0600;
  record.uid = getuid();
  record.gid = getgid();
  record.flags = flags;
  record.path_length = static_cast<uint32_t>(path.size());
  std::memcpy(record.path, path.c_str(), path.size() + 1);
  return record;
}

// What one record says.
struct Record {
  nvlog::Kind kind = nvlog::Kind::kData;
  uint32_t file = 0;  // number
  uint64_t offset = 0;
  uint64_t length = 0;
  std::string bytes;  // the payload
  uint32_t log = 0;   // where AddEach puts it
};
inline Record On(uint32_t log, Record record) {
  record.log = log;
  return record;
}
inline Record Data(uint32_t file, uint64_t offset, const std::string& bytes) {
  return {nvlog::Kind::kData, file, offset, bytes.size(), bytes};
}
inline Record Truncate(uint32_t file, uint64_t size) {
  return {nvlog::Kind::kTruncate, file, size, 0, {}};
}
inline Record Erase(uint32_t file, uint64_t offset, uint64_t length) {
  return {nvlog::Kind::kErase, file, offset, length, {}};
}
inline Record Settled(uint32_t file, pool::Lsn bound) {
  return {nvlog::Kind::kSettled, file, bound, 0, {}};
}
inline Record HandedOver(uint32_t file) { return {nvlog::Kind::kHandedOver, file, 0, 0, {}}; }
inline Record File(uint32_t file, const pool::FileRecord& record) {
  const size_t size = pool::FileRecordSize(record.path_length);
  return {nvlog::Kind::kFile,
          file,
          0,
          size,
          std::string(reinterpret_cast<const char*>(&record), size),
          0};
}

inline Record Names(const pool::NameRecord& record) {
  const size_t size = pool::NameRecordSize(record);
  return {nvlog::Kind::kName, 0, 0, size,
          std::string(reinterpret_cast<const char*>(&record), size)};
}

// A group as it was added.
struct Added {
  pool::Lsn lsn = 0;
  std::vector<nvlog::Place> places;  // of all its records
  std::vector<Record> records;       // what they say, file records included

  nvlog::Place first() const { return places.at(0); }
  // Of the record `index` that is no file record.
  nvlog::Place place(size_t index = 0) const {
    for (size_t i = 0; i < places.size(); ++i) {
      if (records[i].kind != nvlog::Kind::kFile && index-- == 0) return places[i];
    }
    ADD_FAILURE() << "the group has no such record";
    return nvlog::kNoPlace;
  }
};

// Writes groups into several logs of a pool, and kept ones.
class LogBuilder {
 public:
  // kCommitNot: the word of the first header is kNotCommitted. kFirstHeaderNot: there is none. The
  // log's next group begins where such a group began.
  enum How { kCommit, kCommitNot, kFirstHeaderNot };

  // Takes segments from 0 on; draws LSNs from the checkpoint on.
  explicit LogBuilder(const pool::View& view) : view_(view), taken_(view.segment_count()) {
    EXPECT_GT(pool::LoadCheckpoint(view, pool::kOfPool, &lsn_), 0);
  }

  // From now on this is what `number` names, in all logs: Add() puts the file record in front of
  // the next record of this number in each segment.
  void Name(uint32_t number, const pool::FileRecord& record) {
    names_[number] = record;
    for (auto& [id, log] : logs_) log.named.erase(number);
    kept_.named.erase(number);
  }
  void Name(uint32_t number, const std::string& path) { Name(number, RecordOf(path)); }

  // The records of one call.
  Added Add(const std::vector<Record>& records, How how = kCommit, uint32_t log = 0) {
    Log& state = logs_[log];
    if (!state.open) Take(log);
    const Log before = state;
    Added added = Lay(&state, records, log);
    added.lsn = lsn_++;
    Write(added, how);
    if (how != kCommit) {
      // A segment that was taken stays so, and the next group begins it.
      if (state.segment == before.segment) {
        state = before;
      } else {
        state.unit = nvlog::kFirstUnit;
        state.named.clear();
      }
    } else {
      state.last = added.lsn;
    }
    return added;
  }
  Added Add(const Record& record, How how = kCommit, uint32_t log = 0) {
    return Add(std::vector<Record>{record}, how, log);
  }
  // A group of each of them, committed.
  std::vector<Added> AddEach(const std::vector<Record>& records) {
    std::vector<Added> added;
    for (const Record& record : records) added.push_back(Add(record, kCommit, record.log));
    return added;
  }

  // A kept copy of a group with this LSN: not below those that were kept before.
  Added Keep(const std::vector<Record>& records, pool::Lsn lsn) {
    uint64_t needed = 0;
    for (const Record& record : records) needed += UnitsOf(record) + nvlog::kMaxFileUnits;
    if (!kept_.open || kept_.unit + needed > End()) TakeKept();
    Added added = Lay(&kept_, records, 0);
    added.lsn = lsn;
    Write(added, kCommit);
    kept_.last = lsn;
    return added;
  }

  // The log goes on in this segment, or in the first one that nobody has taken.
  uint32_t Take(uint32_t log, uint32_t number = ~0u) {
    Log& state = logs_[log];
    TakeSegment(&state, log, pool::SegmentKind::kLog, number);
    return state.segment;
  }
  uint32_t TakeKept(uint32_t number = ~0u) {
    kept_.open = false;  // it names no other
    TakeSegment(&kept_, 0, pool::SegmentKind::kKept, number);
    return kept_.segment;
  }
  // The segment may be taken again. What is in it stays.
  void Free(uint32_t number) { taken_[number] = false; }

  pool::Lsn next_lsn() const { return lsn_; }
  void SkipLsns(pool::Lsn n) { lsn_ += n; }
  uint32_t segment(uint32_t log = 0) const { return logs_.at(log).segment; }
  // Where the next record of the log will lie, if it fits.
  nvlog::Place next_place(uint32_t log = 0) const {
    const Log& state = logs_.at(log);
    return state.segment * view_.segment_units() + state.unit;
  }
  // Units that are left in the log's segment.
  uint64_t units_left(uint32_t log = 0) const { return End() - logs_.at(log).unit; }

  uint8_t* Unit(nvlog::Place place) const { return view_.unit(place); }
  nvlog::RecordHeader* Header(nvlog::Place place) const {
    return reinterpret_cast<nvlog::RecordHeader*>(view_.unit(place));
  }
  // The checksum of a header anew, and its word.
  void Seal(nvlog::Place place, How how = kCommit) const {
    nvlog::RecordHeader* header = Header(place);
    nvlog::Seal(header, place, GenerationAt(place), view_.salt());
    if (how != kCommit) header->commit = nvlog::kNotCommitted;
  }
  pool::Lsn GenerationAt(nvlog::Place place) const {
    return view_.segment(static_cast<uint32_t>(place / view_.segment_units()))->generation;
  }
  void Void(const Added& added) const {
    Header(added.first())->commit = nvlog::VoidWord(added.lsn, view_.salt());
  }
  // The checksum of a segment's header anew, and its word; then the copy.
  void SealSegment(uint32_t number) const {
    pool::SegmentHeader* header = view_.segment(number);
    header->crc = pool::SegmentHeaderCrc(*header, view_.salt());
    header->word = pool::SegmentWord(header->generation, view_.salt());
    std::memcpy(static_cast<void*>(view_.segment_copy(number)), header, sizeof(*header));
  }

 private:
  struct Log {
    bool open = false;
    uint32_t segment = 0;
    uint64_t unit = 0;  // the next record's, in the segment
    pool::Lsn generation = 0;
    pool::Lsn last = 0;  // of the newest committed group
    std::map<uint32_t, bool> named;
  };

  uint64_t End() const { return view_.segment_units() - nvlog::kLastUnits; }

  static uint64_t UnitsOf(const Record& record) {
    nvlog::RecordHeader header = {};
    header.kind = record.kind;
    header.offset = record.offset;
    header.length = record.length;
    return nvlog::RecordUnits(header);
  }

  void TakeSegment(Log* log, uint32_t id, pool::SegmentKind kind, uint32_t number) {
    if (number == ~0u) {
      number =
          static_cast<uint32_t>(std::find(taken_.begin(), taken_.end(), false) - taken_.begin());
    }
    if (number >= view_.segment_count()) {
      ADD_FAILURE() << "the pool is full";
      std::abort();
    }
    taken_[number] = true;
    pool::SegmentHeader header = {};
    pool::LoadCheckpoint(view_, pool::kOfPool, &header.checkpoint);
    lsn_ = std::max(lsn_, header.checkpoint);
    header.generation = lsn_++;
    if (log->open) {
      header.previous_generation = log->generation;
      header.previous_last = log->last;
      header.previous_number = log->segment;
    }
    header.number = number;
    header.log = id;
    header.kind = kind;
    std::memcpy(static_cast<void*>(view_.segment(number)), &header, sizeof(header));
    SealSegment(number);
    log->open = true;
    log->segment = number;
    log->unit = nvlog::kFirstUnit;
    log->generation = header.generation;
    log->named.clear();
  }

  void LayOne(Log* log, Added* added, const Record& record) const {
    added->places.push_back(log->segment * view_.segment_units() + log->unit);
    added->records.push_back(record);
    log->unit += UnitsOf(record);
    if (record.kind == nvlog::Kind::kFile) log->named[record.file] = true;
  }
  // Bytes of a data record that fit into `units`: all, or up to a page of the file; or none.
  static uint64_t Fitting(const Record& record, uint64_t units) {
    if (UnitsOf(record) <= units) return record.length;
    if (record.kind != nvlog::Kind::kData) return 0;
    uint64_t fits = 0;
    for (uint64_t end = (record.offset / pool::kPageSize + 1) * pool::kPageSize;
         end < record.offset + record.length; end += pool::kPageSize) {
      if (nvlog::DataUnits(record.offset, end - record.offset) <= units) {
        fits = end - record.offset;
      }
    }
    return fits;
  }
  // Gives each record its place, and takes segments for what does not fit.
  Added Lay(Log* log, const std::vector<Record>& records, uint32_t id) {
    Added added;
    for (Record record : records) {
      for (bool whole = false; !whole;) {
        const auto name = names_.find(record.file);
        const bool of_file = record.kind != nvlog::Kind::kFile && record.kind != nvlog::Kind::kName;
        const bool naming = of_file && name != names_.end() && !log->named.contains(record.file);
        const Record file = naming ? File(record.file, name->second) : Record{};
        const uint64_t left = End() - log->unit;
        const uint64_t before = naming ? UnitsOf(file) : 0;
        const uint64_t fits = left > before ? Fitting(record, left - before) : 0;
        // Its length says nothing.
        const bool empty = record.kind == nvlog::Kind::kTruncate ||
                           record.kind == nvlog::Kind::kSettled ||
                           record.kind == nvlog::Kind::kHandedOver;
        if (fits == 0 && !(empty && left > before)) {
          TakeSegment(log, id, pool::SegmentKind::kLog, ~0u);
          continue;
        }
        if (naming) LayOne(log, &added, file);
        whole = fits == record.length;
        Record part = record;
        if (!whole) {
          part.length = fits;
          part.bytes.resize(fits);
          record.offset += fits;
          record.length -= fits;
          record.bytes.erase(0, fits);
        }
        LayOne(log, &added, part);
      }
    }
    return added;
  }

  void Write(const Added& added, How how) const {
    for (size_t i = added.places.size(); i-- > 0;) {
      const Record& record = added.records[i];
      const nvlog::Place place = added.places[i];
      nvlog::RecordHeader header = {};
      header.lsn = added.lsn;
      header.offset = record.offset;
      header.length = record.length;
      header.file = record.file;
      header.payload_crc =
          record.bytes.empty() ? 0 : sys::Crc32c(record.bytes.data(), record.bytes.size());
      header.kind = record.kind;
      header.index = static_cast<uint16_t>(i);
      header.count = static_cast<uint16_t>(added.places.size());
      WritePayload(place, record);
      if (i == 0 && how == kFirstHeaderNot) continue;
      std::memcpy(static_cast<void*>(Header(place)), &header, sizeof(header));
      Seal(place, i == 0 ? how : kCommitNot);
    }
  }
  void WritePayload(nvlog::Place place, const Record& record) const {
    if (record.bytes.empty()) return;
    const bool data = record.kind == nvlog::Kind::kData;
    const uint64_t links =
        data ? nvlog::LinkUnits(nvlog::PagesOf(record.offset, record.length)) : 0;
    std::memset(Unit(place + 1), 0, links * pool::kUnitSize);
    const uint64_t first = data ? nvlog::FirstLength(record.offset, record.length) : record.length;
    std::memcpy(Unit(place + 1 + links), record.bytes.data(), first);
    std::memcpy(Unit(place + 1 + links + nvlog::UnitsOf(first)), record.bytes.data() + first,
                record.length - first);
  }

  pool::View view_;
  pool::Lsn lsn_ = 0;
  std::vector<bool> taken_;
  std::map<uint32_t, Log> logs_;
  Log kept_;
  std::map<uint32_t, pool::FileRecord> names_;
};

}  // namespace nvcache::test

#endif  // NVCACHE_TESTS_UNIT_SUPPORT_H_
