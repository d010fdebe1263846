// SPDX-License-Identifier: BSD-3-Clause
//
// A program that writes to a mirrored pool without an engine: what it has in the log alone is what
// its machine loses.
//
//   mirror_driver create POOL BYTES
//   mirror_driver write POOL FILE FIRST     record after record of 64 bytes, each said when its
//   sync
//                                           has returned, until it is killed
//   mirror_driver wait POOL COUNT           syncs of nothing: ns of each
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "src/nvlog/group_writer.h"
#include "src/pool/file_record.h"
#include "src/pool/mirror_words.h"
#include "src/pool/pool.h"
#include "src/vfs/engine/mirror_wait.h"

namespace {

using namespace nvcache;

constexpr size_t kRecord = 64;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "mirror_driver: %s\n", what);
  std::exit(1);
}

class Writer {
 public:
  explicit Writer(const char* path) {
    pool::Problem problem;
    // The mirror has the pool by then, but may look at it for a moment.
    for (int tries = 0; !pool_.Open(path, pool::Mode::kShared, true, nullptr, &problem); ++tries) {
      if (tries == 200) Fail(problem.text.c_str());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    if (!pool_.Join(&problem)) Fail(problem.text.c_str());
    if (!log_.Open(&pool_)) Fail("no memory");
    tag_.number = 1;
  }

  void Write(const char* path, uint64_t number) {
    file_ = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file_ < 0 || fsync(file_) != 0) Fail(path);
    for (;; ++number) {
      Append(number);
      Sync();
      std::printf("%llu\n", static_cast<unsigned long long>(number));
      std::fflush(stdout);
    }
  }

  void Sync() {
    const pool::MirrorWords words(pool_.view());
    const auto settle = [this, &words] {
      if (words.state() == pool::kMirrorLeaving) ToDisk();
      return true;
    };
    const auto sync = [this] {
      ToDisk();
      return 0L;
    };
    if (vfs::AwaitMirror(words, sync, settle) != 0) Fail("a sync has failed");
  }

  void Wait(int count) {
    for (int i = 0; i < count; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      Sync();
      const auto time = std::chrono::steady_clock::now() - begin;
      std::printf("%lld\n", static_cast<long long>(std::chrono::nanoseconds(time).count()));
    }
    log_.FreeAll();
    pool_.Leave();
  }

 private:
  void Append(uint64_t number) {
    std::array<char, kRecord> bytes = {};
    std::snprintf(bytes.data(), bytes.size(), "%llu", static_cast<unsigned long long>(number));
    const uint64_t offset = number * kRecord;
    pool::FileRecord record;
    if (pool::Describe(file_, &record) != 0) Fail("the file cannot be described");
    nvlog::GroupWriter group(log_, tag_);
    if (group.BeginData(offset, kRecord, &record) != nvlog::Outcome::kDone) Fail("the log is full");
    if (!group.AddPage(reinterpret_cast<const uint8_t*>(bytes.data()), kRecord, nullptr, 0)) {
      Fail("the record cannot be read");
    }
    group.Commit();
    pending_ += std::string(bytes.data(), bytes.size());
    pending_end_ = offset + kRecord;
  }

  // All that is in the log, and then the checkpoint.
  void ToDisk() {
    const auto begin = static_cast<off_t>(pending_end_ - pending_.size());
    const auto size = static_cast<ssize_t>(pending_.size());
    if (size > 0 && pwrite(file_, pending_.data(), pending_.size(), begin) != size) Fail("pwrite");
    if (size > 0 && fdatasync(file_) != 0) Fail("fdatasync");
    pending_.clear();
    pool_.StoreSeatCheckpoint(log_.Draw());
  }

  pool::Pool pool_;
  nvlog::Log log_;
  nvlog::FileTag tag_;
  int file_ = -1;
  std::string pending_;
  uint64_t pending_end_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "create" && argc == 4) {
    pool::Problem problem;
    const pool::CreateOptions options = {
        .size = std::strtoull(argv[3], nullptr, 10), .emulate = true, .commit = pool::kCommitFsync};
    if (!pool::Pool::Create(argv[2], options, nullptr, &problem)) Fail(problem.text.c_str());
    return 0;
  }
  if (argc < 4) Fail("see the beginning of its source");
  static Writer writer(argv[2]);
  if (command == "write" && argc == 5) writer.Write(argv[3], std::strtoull(argv[4], nullptr, 10));
  if (command == "wait") writer.Wait(std::atoi(argv[3]));
  return 0;
}
