// SPDX-License-Identifier: BSD-3-Clause
//
// What the unit tests share: files that go away by themselves, children, and a log that is built
// by hand from the format alone, without the engine's own writer, as one thread would write it.
#ifndef NVCACHE_TESTS_UNIT_SUPPORT_H_
#define NVCACHE_TESTS_UNIT_SUPPORT_H_

#include <fcntl.h>
#include <gtest/gtest.h>
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
#include <random>
#include <string>
#include <vector>

#include "src/nvlog/entry.h"
#include "src/nvlog/entry_crc.h"
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

// A folder that is removed with all that is in it.
class Folder {
 public:
  // Of the disk: below the working directory. Of memory: below /dev/shm.
  enum Where { kDisk, kMemory };
  explicit Folder(Where where = kDisk) {
    std::string name = where == kDisk ? std::filesystem::current_path().string() : "/dev/shm";
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

// The seed of this run: NVCACHE_TEST_SEED, or always the same.
inline uint64_t Seed() {
  const char* seed = std::getenv("NVCACHE_TEST_SEED");
  return seed != nullptr ? std::strtoull(seed, nullptr, 0) : 1;
}

inline constexpr int kSkip = 77;  // exit code of a child that cannot do what it should

// Runs `body` in a child, whose exit code it returns; -signal if the child was killed by one.
inline int InChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

inline std::string Bytes(std::mt19937_64& random, size_t n) {
  std::string bytes(n, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

// ---------------------------------------------------------------------------------------------

inline void MakePool(const std::string& path, uint64_t size = pool::kMinPoolSize) {
  pool::Problem problem;
  ASSERT_TRUE(pool::Pool::Create(path.c_str(), {.size = size, .emulate = true}, nullptr, &problem))
      << problem.text.c_str();
}

// Closes itself; the engine's pool lives as long as the process and has no destructor.
class ScopedPool : public pool::Pool {
 public:
  ~ScopedPool() { Close(); }
};

inline bool OpenPool(pool::Pool& pool, const std::string& path,
                     pool::Access access = pool::Access::kExclusive) {
  pool::Problem problem;
  const bool ok = pool.Open(path.c_str(), access, true, nullptr, &problem);
  EXPECT_TRUE(ok) << problem.text.c_str();
  return ok;
}

struct Piece {
  uint32_t file = 0;
  uint32_t incarnation = 1;
  uint64_t offset = 0;
  std::string bytes;
};

// A piece for each page that [offset, offset + bytes) touches.
inline std::vector<Piece> Pieces(uint32_t file, uint64_t offset, const std::string& bytes) {
  std::vector<Piece> pieces;
  for (size_t done = 0; done < bytes.size();) {
    const uint64_t at = offset + done;
    const size_t n = std::min<size_t>(pool::kPageSize - at % pool::kPageSize, bytes.size() - done);
    pieces.push_back({file, 1, at, bytes.substr(done, n)});
    done += n;
  }
  return pieces;
}

class LogBuilder {
 public:
  enum How { kCommit, kCommitNot, kFirstHeaderNot };

  LogBuilder(const pool::View& view, nvlog::Position head) : view_(view), head_(head) {}
  // At the tail.
  explicit LogBuilder(const pool::View& view) : view_(view) {
    int valid = 0;
    EXPECT_TRUE(pool::ReadTail(view, &head_, &valid));
  }

  nvlog::Position head() const { return head_; }
  uint8_t* Unit(nvlog::Position position) const {
    return view_.log() + position % view_.log_units() * pool::kUnitSize;
  }
  nvlog::EntryHeader* Header(nvlog::Position position) const {
    return reinterpret_cast<nvlog::EntryHeader*>(Unit(position));
  }
  // A place that was taken and never filled.
  void Hole(uint64_t units) { head_ += units; }

  // The entries of one write call. Returns their positions.
  std::vector<nvlog::Position> Add(const std::vector<Piece>& pieces, How how = kCommit) {
    std::vector<nvlog::Position> positions;
    for (const Piece& piece : pieces) {
      nvlog::EntryHeader header = {};
      header.position = head_;
      header.offset = piece.offset;
      header.previous = nvlog::kNoPosition;
      header.file = piece.file;
      header.incarnation = piece.incarnation;
      header.length = static_cast<uint32_t>(piece.bytes.size());
      header.group_index = static_cast<uint32_t>(positions.size());
      header.group_count = static_cast<uint32_t>(pieces.size());
      header.payload_crc = sys::Crc32c(piece.bytes.data(), piece.bytes.size());
      if (positions.empty() && durable_ != nvlog::kNoPosition) {
        header.thread_back = static_cast<uint32_t>(head_ - durable_);
      }
      Finish(&header, positions.empty() ? how : kCommit);
      positions.push_back(head_);
      Fill(piece.bytes);
      if (positions.size() > 1 || how != kFirstHeaderNot) {
        std::memcpy(static_cast<void*>(Header(head_)), &header, sizeof(header));
      }
      head_ += nvlog::EntryUnits(piece.bytes.size());
    }
    if (how == kCommit) durable_ = positions[0];
    return positions;
  }
  // What comes next was written by another thread, which has committed nothing yet.
  void AnotherThread() { durable_ = nvlog::kNoPosition; }
  nvlog::Position Add(const Piece& piece, How how = kCommit) {
    return Add(std::vector<Piece>{piece}, how)[0];
  }
  // Header's checksum and word, anew.
  void Finish(nvlog::EntryHeader* header, How how = kCommit) const {
    header->header_crc = nvlog::HeaderCrc(*header, view_.salt());
    header->commit =
        how == kCommit ? nvlog::CommitWord(header->position, view_.salt()) : nvlog::kNotCommitted;
  }

 private:
  void Fill(const std::string& bytes) const {
    for (size_t at = 0; at < bytes.size(); at += pool::kUnitSize) {
      std::memcpy(Unit(head_ + 1 + at / pool::kUnitSize), bytes.data() + at,
                  std::min<size_t>(pool::kUnitSize, bytes.size() - at));
    }
  }

  pool::View view_;
  nvlog::Position head_ = 0;
  nvlog::Position durable_ = nvlog::kNoPosition;  // the newest committed group of the thread
};

}  // namespace nvcache::test

#endif  // NVCACHE_TESTS_UNIT_SUPPORT_H_
