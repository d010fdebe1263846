// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/scenarios.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "src/vfs/access.h"
#include "src/vfs/engine.h"
#include "src/vfs/vfs.h"
#include "tests/crash/capture.h"
#include "tests/crash/log_stage.h"
#include "tests/crash/machine.h"
#include "tests/unit/host.h"

namespace nvcache::crash {

namespace {

constexpr size_t kPage = pool::kPageSize;

// ---------------------------------------------------------------------------------------------
// The log alone

// A group of two entries and one that overlaps it: small enough for every image.
Trace Tiny(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 2 * kPage);
  LogStage stage("tiny", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  stage.Allocate(a);
  stage.Write(a, kPage - 40, 80);
  stage.Write(a, kPage - 10, 60);
  stage.Clean(1);
  stage.Abandon(a, kPage - 40, 80);
  stage.Write(a, kPage - 60, 30);
  stage.Close();
  return stage.Finish();
}

// The log is filled to its last unit, so the second lap's headers lie where the first lap's did.
void FillLap(LogStage* stage, uint32_t file) {
  constexpr size_t kEntries = 58;  // of a quarter of the smallest log
  const uint64_t units = stage->log_units();
  uint64_t used = 0;
  while (units - used >= kEntries * nvlog::kMaxEntryUnits) {
    stage->Write(file, 0, kEntries * kPage);
    used += kEntries * nvlog::kMaxEntryUnits;
  }
  if (used < units) stage->Write(file, 100, (units - used - 1) * pool::kUnitSize);
}

Trace Lap(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 3 * kPage);
  LogStage stage("lap", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  stage.Allocate(a);
  FillLap(&stage, a);
  std::thread([&] { stage.Clean(2); }).join();
  stage.Write(a, 0, 40);
  stage.Write(a, 30, 200);
  stage.Write(a, kPage - 100, 300);
  stage.Write(a, 5 * kPage, 20 * kPage);
  std::thread([&] { stage.Clean(3); }).join();
  stage.Write(a, 10, 40);
  stage.Write(a, 3, 2 * kPage);
  return stage.Finish();
}

// A payload that goes on at the log's beginning, and a group of which an entry lies there.
Trace Wrap(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 3 * kPage);
  LogStage stage("wrap", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  stage.Allocate(a);
  constexpr size_t kEntries = 58;
  for (int lap = 0; lap < 3; ++lap) {
    for (int i = 0; i < 4; ++i) {
      stage.Write(a, 1000 * static_cast<uint64_t>(lap), kEntries * kPage);
      stage.Clean(1);
    }
    stage.Write(a, 50, 3 * kPage);
    stage.Write(a, 20, 200);
    stage.Clean();
  }
  stage.Write(a, 7, kPage);
  return stage.Finish();
}

// One thread makes the file known, another is the first to commit.
Trace Record(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  LogStage stage("record", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  std::thread([&] { stage.Allocate(a); }).join();
  stage.Write(a, 10, 100);
  stage.Write(a, 50, 100);
  return stage.Finish();
}

// One thread attaches the pool and makes the file known, another one writes.
Trace Attach(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  LogStage stage("attach", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  std::thread([&] {
    stage.Allocate(a);
    stage.Write(a, 10, 100);
    stage.Write(a, 50, 100);
    stage.Close();
    stage.Reopen();
    stage.Allocate(a);
    stage.Write(a, 90, 10);
  }).join();
  return stage.Finish();
}

// A slot of the file table has one file after the other.
Trace Slot(const Place& place, uint64_t seed) {
  for (const char* name : {"a", "b", "c"}) MakeFile(place, name, 300);
  LogStage stage("slot", place, seed, MakeAgedPool(place, seed));
  for (const char* name : {"a", "b", "c", "d"}) {
    const uint32_t file = stage.Open(name, *name != 'd');
    stage.Allocate(file);
    stage.Write(file, 10, 100);
    stage.Write(file, 100, 250);
    if (*name == 'd') break;
    stage.Clean();
    stage.DropSlot(file);
  }
  return stage.Finish();
}

// Two files, one of which is not there when recovery looks: the other's groups are marked.
Trace Kept(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  LogStage stage("kept", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  stage.Away(b);
  stage.Allocate(a);
  stage.Allocate(b);
  stage.Write(a, 10, 100);
  stage.Write(b, 10, 100);
  stage.Write(a, 50, 100);
  stage.Write(b, 100, 500);
  stage.Write(a, 20, 60);
  stage.Write(a, kPage - 10, 30);
  return stage.Finish();
}

// A file that the file system may lose until its first entries are freed.
Trace Lost(const Place& place, uint64_t seed) {
  LogStage stage("lost", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", false);
  stage.Allocate(a);
  stage.Write(a, 0, 100);
  stage.Write(a, 50, 100);
  std::thread([&] { stage.Clean(1); }).join();
  stage.Write(a, 120, 80);
  stage.Clean(1);
  stage.Write(a, 10, 80);
  return stage.Finish();
}

// A new file's groups are marked while another file is away.
Trace Marked(const Place& place, uint64_t seed) {
  MakeFile(place, "b", kPage);
  LogStage stage("marked", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", false);
  const uint32_t b = stage.Open("b", true);
  stage.Away(b);
  stage.Allocate(a);
  stage.Allocate(b);
  stage.Write(b, 10, 100);
  stage.Write(a, 0, 100);
  stage.Write(a, 100, 100);
  return stage.Finish();
}

// A clean pool of which the newer record of the tail is damaged.
Trace Repair(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  const std::string pool = MakeAgedPool(place, seed);
  {
    LogStage stage("before", place, seed, pool);
    const uint32_t a = stage.Open("a", true);
    stage.Allocate(a);
    for (int i = 0; i < 5; ++i) {
      stage.Write(a, 0, 58 * kPage);
      stage.Clean();
    }
    stage.Close();
    stage.Finish();
  }
  {
    std::fstream out(pool, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(pool::kTailOffset + pool::kTailDistance);  // five times: it is the newer one
    out << "damaged";
  }
  LogStage stage("repair", place, seed, pool);
  const uint32_t a = stage.Open("a", true);
  stage.Allocate(a);
  stage.Write(a, 10, 100);
  stage.Write(a, 60, 2 * kPage);
  return stage.Finish();
}

// ---------------------------------------------------------------------------------------------
// Creation, on a device that held a pool: its header was overwritten with zeros.

Trace Create(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  const std::string pool = MakeAgedPool(place, seed);
  {
    LogStage stage("before", place, seed, pool);
    const uint32_t a = stage.Open("a", true);
    stage.Allocate(a);
    for (uint64_t i = 0; i < 20; ++i) stage.Write(a, i * 10, 500);
    stage.Clean(3);
    stage.Finish();
  }
  std::ifstream in(pool, std::ios::binary);
  std::string old{std::istreambuf_iterator<char>(in), {}};
  std::fill_n(old.begin(), pool::kFileTableOffset, '\0');

  Machine machine(old.size());
  std::memcpy(machine.pool(), old.data(), old.size());
  machine.Begin();
  Listen(&machine);
  pool::Problem problem;
  const bool ok = pool::Pool::Create(kDevicePath, {.size = 0, .emulate = true}, nullptr, &problem);
  Listen(nullptr);
  if (!ok) throw std::runtime_error(problem.text.c_str());
  Trace trace = std::move(machine.done());
  trace.scenario = "create";
  trace.seed = seed;
  trace.creation = true;
  trace.pool = old;
  trace.operations.push_back({Operation::kClose, 0, 0, 0, 0});
  trace.events.insert(trace.events.begin(), {Event::kBegin, {}, 0, 0, 0, 0, 0});
  trace.events.push_back({Event::kEnd, {}, 0, 0, 0, 0, 0});
  return trace;
}

// ---------------------------------------------------------------------------------------------
// The whole engine

class Program {
 public:
  Program(const std::string& name, const Place& place, uint64_t seed, const char* batch_delay = "1",
          const char* batch_min = "8")
      : place_(place),
        random_(seed),
        capture_(*new Capture(name, seed, MakeAgedPool(place, seed))) {
    static Host host;  // what notes a call is the test, on any thread; libpmem would go past it
    host = test::HostOfLibcThreads();
    host.load_libpmem = []() -> const pmem::Libpmem* { return nullptr; };
    std::string settings[] = {"NVCACHE_POOL=" + place.memory + "/pool",
                              "NVCACHE_EMULATE=1",
                              "NVCACHE_NOTICE=0",
                              "NVCACHE_DRAM=128k",
                              "NVCACHE_INCLUDE=*",
                              std::string("NVCACHE_BATCH_DELAY=") + batch_delay,
                              std::string("NVCACHE_BATCH_MIN=") + batch_min};
    std::vector<char*> environment;
    for (std::string& setting : settings) environment.push_back(setting.data());
    environment.push_back(nullptr);
    vfs::engine.lease_folder = place_.memory.c_str();
    vfs::Start(host, environment.data());
  }

  // A descriptor; the file's number is files()[fd].
  int Open(const std::string& name, int flags = O_RDWR) {
    const std::string path = place_.disk + "/" + name;
    const bool exists = ::access(path.c_str(), F_OK) == 0;
    vfs::OpenGuard guard(AT_FDCWD, path.c_str(), flags);
    const int fd = ::open(path.c_str(), flags, 0600);
    if (fd < 0) throw std::runtime_error(path + " cannot be opened");
    auto [known, is_new] = numbers_.try_emplace(path, 0);
    if (is_new) known->second = capture_.Watch(fd, path, exists);
    files_[fd] = known->second;
    guard.Opened(fd);
    return fd;
  }
  // Opens a file that is known with O_TRUNC.
  int Cut(const std::string& name) {
    const uint32_t file = numbers_.at(place_.disk + "/" + name);
    int fd = -1;
    capture_.Do({Operation::kTruncate, file, 0, 0, 0}, "", [&] {
      const std::string path = place_.disk + "/" + name;
      vfs::OpenGuard guard(AT_FDCWD, path.c_str(), O_RDWR | O_TRUNC);
      fd = ::open(path.c_str(), O_RDWR | O_TRUNC);
      Must(fd >= 0);
      capture_.Cut(file);
      files_[fd] = file;
      guard.Opened(fd);
    });
    return fd;
  }
  void Write(int fd, uint64_t offset, size_t n, std::mt19937_64* random) {
    const std::string bytes = RandomBytes(random, n);
    capture_.Do({Operation::kWrite, files_.at(fd), offset, 0, 0}, bytes, [&] {
      Must(vfs::Pwrite(fd, bytes.data(), n, static_cast<off_t>(offset)) == static_cast<long>(n));
    });
  }
  void Write(int fd, uint64_t offset, size_t n) { Write(fd, offset, n, &random_); }
  void Read(int fd, uint64_t offset, size_t n) {
    std::string bytes(n, '\0');
    vfs::Pread(fd, bytes.data(), n, static_cast<off_t>(offset));
  }
  void Sync(int fd) {
    capture_.Do({Operation::kSync, files_.at(fd), 0, 0, 0}, "", [&] { Must(vfs::Fsync(fd) == 0); });
  }
  void Truncate(int fd, uint64_t size) {
    capture_.Do({Operation::kTruncate, files_.at(fd), size, 0, 0}, "",
                [&] { Must(vfs::Ftruncate(fd, static_cast<off_t>(size)) == 0); });
  }
  void Close(int fd) {
    vfs::Close(fd);
    ::close(fd);
  }
  void Drain() { vfs::DrainAll(); }
  // Gives the pool back, if no file is open any more.
  void Detach() {
    capture_.Do({Operation::kClose, 0, 0, 0, 0}, "", [&] {
      vfs::TableLock lock;
      vfs::engine.ReleaseUnlessOpen();
      Must(!vfs::engine.attached());
    });
  }
  // The next Open() takes the pool again, which need not be clean from now on.
  void Reattach() {
    capture_.Do({Operation::kOther, 0, 0, 0, 0}, "", [] {});
  }
  std::mt19937_64& random() { return random_; }

  Trace Finish() {
    Trace trace = capture_.Finish();
    trace.FindItems();
    return trace;
  }

 private:
  static void Must(bool ok) {
    if (!ok) throw std::runtime_error("the scenario failed: a call's result is wrong");
  }

  const Place place_;
  std::mt19937_64 random_;
  Capture& capture_;  // the engine's threads outlive us
  std::map<std::string, uint32_t> numbers_;
  std::map<int, uint32_t> files_;
};

// Appends, overwrites, an fsync, and a clean end.
Trace Small(const Place& place, uint64_t seed) {
  Program program("small", place, seed);
  const int fd = program.Open("a", O_RDWR | O_CREAT);
  uint64_t end = 0;
  for (int i = 0; i < 12; ++i) {
    const size_t n = 1 + program.random()() % 300;
    program.Write(fd, end, n);
    end += n;
    if (i % 3 == 2) program.Write(fd, program.random()() % end, 40);
    if (i == 5) program.Sync(fd);
    if (i == 8) program.Drain();
  }
  program.Close(fd);
  program.Detach();
  program.Reattach();
  const int again = program.Open("a");
  program.Write(again, 17, 100);
  program.Write(again, end, 5000);
  return program.Finish();
}

// Write calls of several pages, with and without frames, that overlap.
Trace Groups(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 5 * kPage);
  Program program("groups", place, seed);
  const int fd = program.Open("a");
  auto& random = program.random();
  for (int i = 0; i < 40; ++i) {
    if (i % 4 == 1) program.Read(fd, random() % (8 * kPage), kPage);
    program.Write(fd, random() % (8 * kPage), 1 + random() % (6 * kPage));
    if (i % 10 == 9) program.Drain();
  }
  return program.Finish();
}

// Write calls that are too long for one group, and a file that is cut when it is opened.
Trace Split(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 100);
  MakeFile(place, "b", 3 * kPage);
  Program program("split", place, seed);
  const int a = program.Open("a");
  program.Write(a, 50, 100);
  program.Write(a, 120, 170 * kPage);
  program.Write(a, 60 * kPage, 2 * kPage);
  const int b = program.Open("b");
  program.Write(b, kPage, 500);
  program.Drain();
  program.Close(b);
  const int cut = program.Cut("b");
  program.Write(cut, 2000, 200);
  program.Write(a, 10, 90 * kPage);
  return program.Finish();
}

// Several times round the log, with entries of all sizes.
Trace Laps(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 100);
  Program program("laps", place, seed, "1", "1");
  const int a = program.Open("a");
  const int b = program.Open("b", O_RDWR | O_CREAT);
  auto& random = program.random();
  for (int i = 0; i < 130; ++i) {
    const size_t n = i % 3 == 0 ? 1 + random() % 500 : 1 + random() % (40 * kPage / 2);
    program.Write(i % 5 == 0 ? b : a, random() % (16 * kPage), n);
  }
  return program.Finish();
}

Trace Threads(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  Program program("threads", place, seed);
  const int fds[] = {program.Open("a"), program.Open("b", O_RDWR | O_CREAT)};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed * 3 + t);
      for (int i = 0; i < 60; ++i) {
        program.Write(fds[random() % 2], random() % (4 * kPage), 1 + random() % (2 * kPage),
                      &random);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return program.Finish();
}

// New files, fsync before and after writes, files that are cut.
Trace Names(const Place& place, uint64_t seed) {
  MakeFile(place, "old", 2 * kPage);
  Program program("names", place, seed);
  const int old = program.Open("old");
  const int a = program.Open("a", O_RDWR | O_CREAT);
  const int b = program.Open("b", O_RDWR | O_CREAT);
  program.Write(a, 0, 100);
  program.Write(b, 0, 100);
  program.Write(old, 100, 100);
  program.Sync(a);
  program.Write(a, 50, 200);
  program.Truncate(old, 150);
  program.Write(old, 300, 50);
  program.Drain();
  program.Write(b, 80, 100);
  program.Truncate(a, 20);
  program.Truncate(b, 5000);
  program.Write(b, 4900, 300);
  program.Write(a, 10, 70);
  program.Sync(old);
  program.Truncate(old, 10);
  program.Sync(old);
  const int c = program.Open("c", O_RDWR | O_CREAT);
  program.Write(c, 10, 5000);
  program.Write(old, 0, 5);
  return program.Finish();
}

// Files that lose all of their bytes while some are pending, as SQLite cuts its journal; an fsync
// after that waits for nothing.
Trace Cut(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 2 * kPage);
  MakeFile(place, "b", 300);
  Program program("cut", place, seed);
  const int a = program.Open("a");
  const int b = program.Open("b");
  program.Sync(a);
  program.Write(a, 100, 100);
  program.Write(b, 10, 100);
  program.Truncate(a, 0);
  program.Sync(a);
  program.Write(b, 50, 100);
  program.Write(a, 20, 50);
  program.Write(a, kPage, 30);
  program.Drain();
  program.Write(b, 200, 20);
  program.Truncate(a, 0);
  program.Sync(a);
  program.Write(b, 100, 150);
  program.Drain();
  program.Write(a, 0, 10);
  program.Truncate(a, 0);
  program.Write(a, 5, 70);
  program.Truncate(a, 40);
  program.Write(a, 60, 10);
  const int c = program.Open("c", O_RDWR | O_CREAT);
  program.Write(c, 0, 500);
  program.Truncate(c, 0);
  program.Sync(c);
  program.Write(c, 10, 20);
  program.Truncate(b, 0);
  program.Truncate(b, 1000);
  program.Sync(b);
  program.Close(b);
  const int again = program.Cut("b");
  program.Write(again, 30, 10);
  program.Close(a);
  program.Close(c);
  program.Close(again);
  program.Detach();
  return program.Finish();
}

// The same while another file is away: groups are marked as applied, the cut is forgotten.
Trace CutKept(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  LogStage stage("cut-kept", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  stage.Away(b);
  stage.Allocate(a);
  stage.Allocate(b);
  stage.Write(a, 10, 100);
  stage.Write(b, 10, 100);
  stage.Write(a, 300, 40);
  stage.Empty(a);
  stage.Write(b, 50, 40);
  stage.Write(a, 20, 60);
  stage.Write(a, 100, 30);
  return stage.Finish();
}

// More files than slots.
Trace Slots(const Place& place, uint64_t seed) {
  Program program("slots", place, seed);
  for (int i = 0; i < 40; ++i) {
    const int fd = program.Open("f" + std::to_string(i % 22), O_RDWR | O_CREAT);
    program.Write(fd, static_cast<uint64_t>(i), 200);
    if (i % 2 == 0) program.Write(fd, 150, 100);
    program.Close(fd);
  }
  return program.Finish();
}

}  // namespace

std::vector<Scenario> AllScenarios() {
  return {
      {"create", "a pool is made where another one was", Create, false, 0, 64, 0},
      {"tiny", "two small groups that overlap, an abandoned one, a clean end", Tiny, false, 10, 512,
       1},
      {"record", "one thread makes a file known, another one commits first", Record, false, 20, 64,
       1},
      {"attach", "one thread attaches the pool, another one writes", Attach, false, 20, 64, 2},
      {"kept", "a file is away while its entries are recovered", Kept, false, 2, 64, 2},
      {"lost", "a new file that the file system may lose", Lost, true, 4, 64, 1},
      {"marked", "a new file is recovered while another one is away", Marked, true, 1, 64, 3},
      {"slot", "one slot of the file table for one file after the other", Slot, false, 20, 64, 3},
      {"repair", "a clean pool with a damaged tail record", Repair, false, 20, 64, 2},
      {"lap", "headers over the headers of the lap before", Lap, false, 40, 64, 0},
      {"wrap", "groups across the end of the log", Wrap, false, 60, 64, 0},
      {"small", "small writes, fsync, a clean end, and on", Small, true, 40, 64, 5},
      {"names", "new files and files that are cut", Names, true, 40, 64, 5},
      {"cut", "files that lose all of their bytes while some are pending", Cut, true, 40, 64, 3},
      {"cut-kept", "a file that was cut is recovered while another one is away", CutKept, false, 2,
       64, 2},
      {"groups", "overlapping writes of several pages", Groups, false, 60, 64, 0},
      {"split", "write calls of several groups, a file that is cut", Split, false, 60, 64, 0},
      {"slots", "more files than slots", Slots, true, 60, 64, 0},
      {"threads", "three threads on two files", Threads, false, 60, 64, 0},
      {"laps", "many laps with the cleanup thread at work", Laps, false, 60, 64, 0},
  };
}

}  // namespace nvcache::crash
