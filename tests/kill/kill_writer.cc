// SPDX-License-Identifier: BSD-3-Clause
//
// Writes until it is killed, and says so on a pipe. An ordinary POSIX program: it knows nothing of
// NVCache.
//
//   kill_writer FOLDER PIPE_FD SEED ROUND THREADS SYNCS [WRITES]
//
// Each file is synced SYNCS times before it is written. Ends by itself after WRITES writes per
// thread. Exit code 3: it read something that it did not write.
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/kill/protocol.h"

namespace nvcache::kill_test {
namespace {

struct Options {
  std::string folder;
  int pipe = -1;
  uint64_t seed = 0;
  uint64_t round = 0;
  unsigned threads = 0;
  int syncs = 0;
  uint64_t writes = std::numeric_limits<uint64_t>::max();
};

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "kill_writer: %s: %s\n", what, std::strerror(errno));
  std::_Exit(2);
}

class Writer {
 public:
  explicit Writer(const Options& options) : options_(options) {
    for (unsigned file = 0; file < kFirstStreamFile + options.threads; ++file) {
      const std::string path = options.folder + "/" + FileName(file);
      const int flags = O_RDWR | O_CREAT | O_CLOEXEC | (IsAppend(file) ? O_APPEND : 0);
      fds_.push_back(::open(path.c_str(), flags, 0644));
      if (fds_.back() < 0) Die(path.c_str());
      for (int i = 0; i < options.syncs; ++i) {
        if (::fsync(fds_.back()) != 0) Die("fsync");
      }
    }
  }

  void Run() {
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < options_.threads; ++t) threads.emplace_back([this, t] { Thread(t); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  struct State {
    State(const Options& options, unsigned number)
        : thread(number),
          random(options.seed ^ Mix(options.round << 8 | number)),
          buffer(kMaxLength),
          check(kMaxLength) {}
    unsigned thread;
    Random random;
    uint64_t count = 0;
    uint64_t appended[kAppendFiles] = {};
    std::vector<uint8_t> buffer;
    std::vector<uint8_t> check;
  };

  void Tell(Record::Kind kind, unsigned file, uint64_t id, uint64_t offset, uint64_t length) {
    const Record record = {kind, file, id, offset, length};
    if (::write(options_.pipe, &record, sizeof record) != sizeof record) Die("the pipe");
  }

  void Thread(unsigned number) {
    auto state = std::make_unique<State>(options_, number);
    while (state->count < options_.writes) {
      const uint64_t choice = state->random.Below(100);
      if (choice < 45) {
        OwnRegion(*state, choice < 10);
      } else if (choice < 60) {
        SharedRegion(*state);
      } else if (choice < 75) {
        Race(*state);
      } else if (choice < 90) {
        Append(*state, choice < 80);
      } else if (choice < 97) {
        Stream(*state);
      } else {
        const int fd = fds_[state->random.Below(fds_.size())];
        if ((choice == 97 ? ::fsync(fd) : ::fdatasync(fd)) != 0) Die("fsync");
      }
    }
  }

  uint64_t NextId(State& state) { return MakeId(options_.round, state.thread, ++state.count); }

  // One pwrite or pwritev, and its two records.
  void WriteAt(State& state, unsigned file, uint64_t offset, uint64_t length, bool vector) {
    const uint64_t id = NextId(state);
    Fill(id, 0, state.buffer.data(), length);
    Tell(Record::kBegin, file, id, offset, length);
    ssize_t n;
    if (vector) {
      iovec iov[4];
      const int parts = Split(state, length, iov);
      n = ::pwritev(fds_[file], iov, parts, static_cast<off_t>(offset));
    } else {
      n = ::pwrite(fds_[file], state.buffer.data(), length, static_cast<off_t>(offset));
    }
    if (n <= 0) Die("pwrite");
    Tell(Record::kEnd, file, id, offset, static_cast<uint64_t>(n));
    // Nobody else writes here meanwhile.
    if (state.random.Below(4) == 0) {
      if (::pread(fds_[file], state.check.data(), static_cast<size_t>(n),
                  static_cast<off_t>(offset)) != n ||
          std::memcmp(state.check.data(), state.buffer.data(), static_cast<size_t>(n)) != 0) {
        std::fprintf(stderr, "kill_writer: %s: read at %llu, %zd bytes: not what was written\n",
                     FileName(file).c_str(), static_cast<unsigned long long>(offset), n);
        std::_Exit(3);
      }
    }
  }

  // Cuts the buffer's first `length` bytes into up to four pieces, some of them empty.
  static int Split(State& state, uint64_t length, iovec* iov) {
    const int parts = 1 + static_cast<int>(state.random.Below(4));
    uint64_t done = 0;
    for (int i = 0; i < parts; ++i) {
      const uint64_t left = length - done;
      const uint64_t n = i + 1 == parts ? left : state.random.Below(left + 1);
      iov[i] = {state.buffer.data() + done, n};
      done += n;
    }
    return parts;
  }

  void OwnRegion(State& state, bool vector) {
    const auto file = static_cast<unsigned>(state.random.Below(kRegionFiles));
    const uint64_t length = state.random.Length(kMaxLength);
    const uint64_t offset = state.random.Below(kRegionSize - length + 1);
    WriteAt(state, file, state.thread * kRegionSize + offset, length, vector);
  }

  void SharedRegion(State& state) {
    const auto file = static_cast<unsigned>(state.random.Below(kRegionFiles));
    const uint64_t length = state.random.Length(kMaxLength);
    const uint64_t offset = state.random.Below(kRegionSize - length + 1);
    const std::lock_guard lock(shared_[file]);
    WriteAt(state, file, options_.threads * kRegionSize + offset, length, false);
  }

  void Race(State& state) {
    const uint64_t words = state.random.Length(kRaceSize / 8);
    const uint64_t first = state.random.Below(kRaceSize / 8 - words + 1);
    const uint64_t id = NextId(state);
    for (uint64_t i = 0; i < words; ++i) {
      const uint64_t word = RaceWord(id, first + i);
      std::memcpy(state.buffer.data() + 8 * i, &word, 8);
    }
    Tell(Record::kBegin, kRaceFile, id, first * 8, words * 8);
    const ssize_t n =
        ::pwrite(fds_[kRaceFile], state.buffer.data(), words * 8, static_cast<off_t>(first * 8));
    if (n <= 0) Die("pwrite race");
    Tell(Record::kEnd, kRaceFile, id, first * 8, static_cast<uint64_t>(n));
  }

  void Append(State& state, bool vector) {
    const uint64_t which = state.random.Below(kAppendFiles);
    if (state.appended[which] >= kMaxAppendedPerRun) return OwnRegion(state, false);
    const unsigned file = kFirstAppendFile + static_cast<unsigned>(which);
    const uint64_t payload = state.random.Length(kMaxAppendPayload);
    const uint64_t id = NextId(state);
    const AppendHeader header = {kAppendMagic, id, payload, Mix(id ^ payload << 40)};
    const uint64_t length = sizeof header + payload;
    std::memcpy(state.buffer.data(), &header, sizeof header);
    Fill(id, 0, state.buffer.data() + sizeof header, payload);
    Tell(Record::kBegin, file, id, 0, length);
    ssize_t n;
    if (vector) {
      iovec iov[4];
      const int parts = Split(state, length, iov);
      n = ::writev(fds_[file], iov, parts);
    } else {
      n = ::write(fds_[file], state.buffer.data(), length);
    }
    if (n != static_cast<ssize_t>(length)) Die("append");
    Tell(Record::kEnd, file, id, 0, length);
    state.appended[which] += length;
  }

  void Stream(State& state) {
    const unsigned file = kFirstStreamFile + state.thread;
    const uint64_t length = state.random.Length(kMaxLength);
    off_t offset = ::lseek(fds_[file], 0, SEEK_CUR);
    if (static_cast<uint64_t>(offset) + length > kStreamSize || state.random.Below(8) == 0) {
      offset = ::lseek(fds_[file], static_cast<off_t>(state.random.Below(kStreamSize - length)),
                       SEEK_SET);
    }
    if (offset < 0) Die("lseek");
    const uint64_t id = NextId(state);
    Fill(id, 0, state.buffer.data(), length);
    Tell(Record::kBegin, file, id, static_cast<uint64_t>(offset), length);
    const ssize_t n = ::write(fds_[file], state.buffer.data(), length);
    if (n <= 0) Die("write stream");
    Tell(Record::kEnd, file, id, static_cast<uint64_t>(offset), static_cast<uint64_t>(n));
  }

  const Options options_;
  std::vector<int> fds_;
  std::mutex shared_[kRegionFiles];
};

int Main(int argc, char** argv) {
  Options options;
  if (argc != 7 && argc != 8) {
    std::fprintf(stderr, "usage: kill_writer FOLDER PIPE_FD SEED ROUND THREADS SYNCS [WRITES]\n");
    return 2;
  }
  options.folder = argv[1];
  options.pipe = std::atoi(argv[2]);
  options.seed = std::strtoull(argv[3], nullptr, 0);
  options.round = std::strtoull(argv[4], nullptr, 0);
  options.threads = static_cast<unsigned>(std::atoi(argv[5]));
  options.syncs = std::atoi(argv[6]);
  if (argc == 8) options.writes = std::strtoull(argv[7], nullptr, 0);
  if (options.threads < 1 || options.threads > kMaxThreads) return 2;
  Writer(options).Run();
  return 0;
}

}  // namespace
}  // namespace nvcache::kill_test

int main(int argc, char** argv) { return nvcache::kill_test::Main(argc, argv); }
