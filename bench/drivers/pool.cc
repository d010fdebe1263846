// SPDX-License-Identifier: BSD-3-Clause
//
// bench/suites/pool.py measures a pool by this program.
//
//   nvcache_pool open LIBRARY FILE          how long nvcache_open() of LIBRARY, the C API, takes to
//                                           open FILE for writing, pool and all; and a 4 KiB write
//                                           after it
//   nvcache_pool fill FILE BYTES            writes 64 KiB blocks to FILE's first MiB, BYTES in all
//   nvcache_pool absorb FILE BYTES MOST     writes records of 100 bytes to random places of FILE's
//                                           BYTES until one has to wait for room in the log, and at
//                                           most MOST: how many were in the log at one time
//   nvcache_pool pending FILE BYTES PAGES   writes PAGES different pages of 4 KiB at random places
//                                           of FILE's BYTES; then says what memory is the process's
//                                           own
//
// `fill`, `absorb` and `pending` are ordinary programs for the preload library. What is in the log
// is known from the counters of the pool, NVCACHE_POOL. Prints one line of JSON.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "src/pool/format.h"

namespace nvcache::bench {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kRecord = 100;
constexpr uint64_t kFilled = 1u << 20;
constexpr uint64_t kBlock = 64u << 10;
constexpr uint64_t kBetweenLooks = 64;  // records

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "nvcache_pool: %s: %s\n", what.c_str(), std::strerror(errno));
  std::_Exit(1);
}

class Random {
 public:
  uint64_t Next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

 private:
  uint64_t state_ = 88172645463325252u;
};

// The counters of the pool in use. Without a pool: zeros.
class Counters {
 public:
  Counters() {
    const char* path = std::getenv("NVCACHE_POOL");
    if (path == nullptr) return;
    fd_ = ::open(path, O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) Die(path);
  }
  pool::Statistics Get() const {
    pool::Statistics now = {};
    if (fd_ >= 0 && ::pread(fd_, &now, sizeof now, pool::kStatisticsOffset) != sizeof now) {
      Die("the pool");
    }
    return now;
  }

 private:
  int fd_ = -1;
};

// With so many bytes; what was not there is a hole.
int OpenFile(const char* path, uint64_t size) {
  const int fd = ::open(path, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(size)) != 0) Die(path);
  return fd;
}

void Write(int fd, const std::vector<char>& bytes, uint64_t offset) {
  if (::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)) !=
      static_cast<ssize_t>(bytes.size())) {
    Die("pwrite");
  }
}

uint64_t Now() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

void Open(const char* library, const char* path) {
  void* api = ::dlopen(library, RTLD_NOW);
  const auto open = reinterpret_cast<int (*)(const char*, int, ...)>(
      api == nullptr ? nullptr : ::dlsym(api, "nvcache_open"));
  const auto pwrite = reinterpret_cast<ssize_t (*)(int, const void*, size_t, off_t)>(
      api == nullptr ? nullptr : ::dlsym(api, "nvcache_pwrite"));
  if (open == nullptr || pwrite == nullptr) Die(library);
  const std::vector<char> page(kPage, 'p');
  const uint64_t begin = Now();
  const int fd = open(path, O_RDWR | O_CREAT, 0600);
  const uint64_t opened = Now();
  if (fd < 0 || pwrite(fd, page.data(), kPage, 0) != static_cast<ssize_t>(kPage)) Die(path);
  const uint64_t written = Now();
  std::printf("{\"open\": %.9f, \"write\": %.9f}\n", static_cast<double>(opened - begin) * 1e-9,
              static_cast<double>(written - opened) * 1e-9);
}

void Fill(const char* path, uint64_t bytes) {
  const int fd = OpenFile(path, kFilled);
  const std::vector<char> block(kBlock, 'f');
  for (uint64_t done = 0; done < bytes; done += kBlock) Write(fd, block, done % kFilled);
  std::printf("{}\n");
}

void Absorb(const char* path, uint64_t bytes, uint64_t most) {
  const int fd = OpenFile(path, bytes);
  const Counters counters;
  const std::vector<char> record(kRecord, 'r');
  Random random;
  uint64_t written = 0, absorbed = 0, waits = 0;
  while (waits == 0 && written < most) {
    for (uint64_t i = 0; i < kBetweenLooks; ++i) {
      Write(fd, record, random.Next() % (bytes / kPage) * kPage + random.Next() % 61 * 64);
    }
    written += kBetweenLooks;
    const pool::Statistics now = counters.Get();
    absorbed = std::max(absorbed, written - std::min(written, now.entries_cleaned));
    waits = now.full_waits;
  }
  std::printf("{\"written\": %" PRIu64 ", \"absorbed\": %" PRIu64 ", \"full_waits\": %" PRIu64
              "}\n",
              written, absorbed, waits);
}

// The bytes of `field` of each mapping in /proc/self/smaps that only this process has.
uint64_t PrivateBytes(const std::string& field) {
  std::ifstream smaps("/proc/self/smaps");
  uint64_t sum = 0;
  bool own = false;
  for (std::string line; std::getline(smaps, line);) {
    const size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    if (line[space - 1] != ':') {  // begin-end rwxp ...
      own = line.size() > space + 4 && line[space + 4] == 'p';
    } else if (own && line.compare(0, field.size() + 1, field + ":") == 0) {
      sum += std::strtoull(line.c_str() + space, nullptr, 10) << 10;
    }
  }
  return sum;
}

uint64_t PageTables() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.compare(0, 6, "VmPTE:") == 0) return std::strtoull(&line[6], nullptr, 10) << 10;
  }
  Die("/proc/self/status");
}

void Pending(const char* path, uint64_t bytes, uint64_t pages) {
  const int fd = OpenFile(path, bytes);
  const Counters counters;
  const std::vector<char> page(kPage, 'p');
  Random random;
  // One page out of each stretch of the file: no page twice. A prime number of strides on, so that
  // neighbours do not follow each other.
  const uint64_t stretch = bytes / kPage / pages, stride = 7919;
  for (uint64_t i = 0; i < pages; ++i) {
    Write(fd, page, (i * stride % pages * stretch + random.Next() % stretch) * kPage);
  }
  const uint64_t own = PrivateBytes("Private_Dirty"), tables = PageTables();
  const pool::Statistics now = counters.Get();
  std::printf("{\"own\": %" PRIu64 ", \"page_tables\": %" PRIu64 ", \"written\": %" PRIu64
              ", \"cleaned\": %" PRIu64 ", \"frames\": %" PRIu64 "}\n",
              own, tables, pages, now.entries_cleaned, now.misses);
}

int Main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const auto number = [&](int i) { return std::strtoull(argv[i], nullptr, 10); };
  if (what == "open" && argc == 4) {
    Open(argv[2], argv[3]);
  } else if (what == "fill" && argc == 4) {
    Fill(argv[2], number(3));
  } else if (what == "absorb" && argc == 5) {
    Absorb(argv[2], number(3), number(4));
  } else if (what == "pending" && argc == 5 && number(3) / kPage >= number(4) && number(4) > 0) {
    Pending(argv[2], number(3), number(4));
  } else {
    std::fprintf(stderr, "usage: nvcache_pool open|fill|absorb|pending ...\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace nvcache::bench

int main(int argc, char** argv) { return nvcache::bench::Main(argc, argv); }
