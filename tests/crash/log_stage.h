// SPDX-License-Identifier: BSD-3-Clause
//
// The log alone: what src/vfs and the cleanup thread do with it, one call at a time and in the
// order that a scenario wants.
#ifndef NVCACHE_TESTS_CRASH_LOG_STAGE_H_
#define NVCACHE_TESTS_CRASH_LOG_STAGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "src/nvlog/log.h"
#include "src/pool/file_table.h"
#include "src/pool/pool.h"
#include "tests/crash/capture.h"
#include "tests/crash/scenarios.h"

namespace nvcache::crash {

// A new pool of the smallest size whose log holds arbitrary bytes: aged, without a history.
std::string MakeAgedPool(const Place& place, uint64_t seed);
// An existing file with `n` bytes.
std::string MakeFile(const Place& place, const std::string& name, size_t n);
std::string RandomBytes(std::mt19937_64* random, size_t n);

class LogStage {
 public:
  // Begins to record, and opens the pool for use.
  LogStage(const std::string& name, const Place& place, uint64_t seed, const std::string& pool);
  ~LogStage();
  LogStage(const LogStage&) = delete;
  LogStage& operator=(const LogStage&) = delete;

  // The number of a file; new ones are created empty.
  uint32_t Open(const std::string& name, bool exists);
  void Away(uint32_t file) { capture_.Away(file); }
  // Gives the file its slot.
  void Allocate(uint32_t file);
  void DropSlot(uint32_t file) { table_.Free(files_[file].slot); }

  void Write(uint32_t file, uint64_t offset, size_t n) {
    Write(file, offset, RandomBytes(&random_, n));
  }
  void Write(uint32_t file, uint64_t offset, const std::string& bytes);
  // All bytes of the file go, at once and for good.
  void Empty(uint32_t file);
  // Takes a place, writes a part of a group there and gives it up.
  void Abandon(uint32_t file, uint64_t offset, size_t n);
  // What the cleanup thread does with the oldest `groups`; all, if there are fewer.
  void Clean(size_t groups = ~size_t{0});
  // The pool is clean and closed; Reopen() takes it again.
  void Close();
  void Reopen();

  uint64_t log_units() const { return log_->log_units(); }
  std::mt19937_64& random() { return random_; }
  Trace Finish();

 private:
  struct File {
    int fd;
    uint32_t slot;
    uint32_t incarnation;
    bool is_new;
  };
  struct Group {
    nvlog::Position end;
    uint32_t file;
    uint64_t offset;
    std::string bytes;
  };
  void TakePool();
  std::vector<nvlog::Piece> Pieces(uint32_t file, uint64_t offset, const std::string& bytes) const;

  const Place place_;
  const std::string path_;
  std::mt19937_64 random_;
  Capture capture_;
  std::unique_ptr<pool::Pool> pool_;
  pool::FileTable table_;
  std::unique_ptr<nvlog::Log> log_;
  std::vector<File> files_;
  std::vector<Group> groups_;
};

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_LOG_STAGE_H_
