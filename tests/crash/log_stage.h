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

#include "src/nvlog/kept.h"
#include "src/nvlog/log.h"
#include "src/pool/pool.h"
#include "tests/crash/capture.h"
#include "tests/crash/scenarios.h"

namespace nvcache::crash {

// A new pool of that size whose segments hold arbitrary bytes: aged, without a history.
std::string MakeAgedPool(const Place& place, uint64_t seed, uint64_t size = pool::kMinPoolSize);
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

  // A file; new ones are created empty. It has its own number in the log, or `number`, which has
  // nothing pending.
  uint32_t Open(const std::string& name, bool exists, uint32_t number = ~uint32_t{0});
  void Away(uint32_t file) { capture_.Away(file); }

  void Write(uint32_t file, uint64_t offset, size_t n) {
    Write(file, offset, RandomBytes(&random_, n));
  }
  void Write(uint32_t file, uint64_t offset, const std::string& bytes);
  // Fills the segment that the lane has, but for the last `units`.
  void FillSegment(uint32_t file, uint64_t units);
  void Truncate(uint32_t file, uint64_t size);
  void Erase(uint32_t file, uint64_t offset, uint32_t n);
  // Begins a group, writes a part of it and gives it up.
  void Abandon(uint32_t file, uint64_t offset, size_t n);
  // What the cleanup thread does with the oldest `groups`; all, if there are fewer. What `keep`
  // holds, the disk refuses: it is copied to kept segments. `meanwhile` is called when it has
  // looked where the lanes end.
  void Clean(size_t groups = ~size_t{0}, const std::vector<uint32_t>& keep = {},
             const std::function<void()>& meanwhile = {});
  // The disk takes what was kept of the file.
  void Heal(uint32_t file);
  // What is kept is copied to other segments.
  void CopyKept();
  // The pool is clean and closed; Reopen() takes it again.
  void Close();
  void Reopen();

  uint64_t segment_units() const { return log_->segments().units(); }
  std::mt19937_64& random() { return random_; }
  Trace Finish();

 private:
  struct File {
    int fd = -1;
    uint32_t number = 0;
    bool is_new = false;
    nvlog::FileTag tag;
    nvlog::Lsn kept_declared = 0;
    std::string content;  // the newest
  };
  void TakePool();
  // Calls start(group, record), once more with a record if it needs one, and then rest(group).
  template <typename Start, typename Rest>
  void Append(File& file, Start start, Rest rest);
  void Mark(uint32_t file, nvlog::Kind kind, uint64_t offset, uint64_t length);
  void WriteBack(File& file, uint64_t offset, uint64_t length);
  void Keep(File& file, nvlog::Place place);
  void Sync(File& file);
  nvlog::Place FileRecordBefore(nvlog::Place place) const;
  uint64_t Room() const;

  const Place place_;
  const std::string path_;
  std::mt19937_64 random_;
  Capture capture_;
  std::unique_ptr<pool::Pool> pool_;
  std::unique_ptr<nvlog::Log> log_;
  std::unique_ptr<nvlog::Kept> kept_;
  std::vector<std::unique_ptr<File>> files_;
  std::vector<uint32_t> by_number_;
};

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_LOG_STAGE_H_
