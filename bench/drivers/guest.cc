// SPDX-License-Identifier: BSD-3-Clause
//
// suites/guest.py runs this program in its virtual machine. It knows nothing of NVCache.
//
//   nvcache_guest prepare WORKLOAD FOLDER OPERATIONS   makes the files that are there before
//   nvcache_guest run WORKLOAD FOLDER OPERATIONS       the operations, each durable when it is over
//   nvcache_guest check WORKLOAD FOLDER OPERATIONS     whether they are there
//   nvcache_guest point NAME                           tells where the counters are
//
//   overwrite   4 KiB at a random place of a file of 16 MiB, fsync
//   append      4 KiB to the end of a file, fsync
//   replace     a new file: 4 KiB, fsync, rename over one of 64 others, fsync of the folder
//   sqlite      a transaction of SQLite (WAL, synchronous=FULL) that inserts a row of 100 bytes
//
// A point is a line "@point NAME ns busy calls": the guest's clock; how long its processor was not
// idle, in ns; the system calls of the whole guest since this program began. The disk, which counts
// its requests itself, is asked for its last sector at the same time.
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sqlite3.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kPages = 4096;  // of the file that is overwritten
constexpr uint64_t kNames = 64;    // that are replaced in turn
constexpr char kCallEvent[] = "/sys/kernel/tracing/events/raw_syscalls/sys_enter/id";
constexpr char kDisk[] = "/dev/vda";
constexpr uint64_t kSector = 512;

[[noreturn]] void Die(const std::string& what) {
  std::printf("nvcache_guest: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

void Must(bool ok, const std::string& what) {
  if (!ok) Die(what);
}

// -------------------------------------------------------------------------------------------------
// Counters.

// Counts the calls of the only processor, whoever makes them: NVCache's thread is older than
// main().
int OpenCallCounter() {
  perf_event_attr attributes = {};
  attributes.type = PERF_TYPE_TRACEPOINT;
  attributes.size = sizeof(attributes);
  std::FILE* file = std::fopen(kCallEvent, "r");
  Must(file != nullptr &&
           std::fscanf(file, "%" SCNu64, reinterpret_cast<uint64_t*>(&attributes.config)) == 1,
       kCallEvent);
  std::fclose(file);
  const long fd = ::syscall(SYS_perf_event_open, &attributes, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
  Must(fd >= 0, "perf_event_open");
  return static_cast<int>(fd);
}

// The kernel adds up what a task has run when it gives the processor away, so this one does.
uint64_t BusyNanoseconds() {
  ::prctl(PR_SET_TIMERSLACK, 1);
  const timespec shortest = {0, 1};
  ::nanosleep(&shortest, nullptr);
  std::FILE* file = std::fopen("/proc/schedstat", "r");
  Must(file != nullptr, "/proc/schedstat");
  char line[512];
  uint64_t busy = 0;
  bool found = false;
  while (!found && std::fgets(line, sizeof(line), file) != nullptr) {
    found = std::sscanf(line, "cpu0 %*u %*u %*u %*u %*u %*u %" SCNu64, &busy) == 1;
  }
  std::fclose(file);
  Must(found, "/proc/schedstat");
  return busy;
}

void MarkDisk() {
  const int fd = ::open(kDisk, O_RDONLY | O_DIRECT | O_CLOEXEC);
  alignas(kSector) char sector[kSector];
  Must(fd >= 0 && ::lseek(fd, -static_cast<off_t>(kSector), SEEK_END) >= 0 &&
           ::read(fd, sector, kSector) == kSector,
       kDisk);
  ::close(fd);
}

class Counters {
 public:
  void Tell(const std::string& name) const {
    uint64_t calls = 0;
    Must(::read(calls_, &calls, sizeof(calls)) == sizeof(calls), "the counter of system calls");
    timespec now = {};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t busy = BusyNanoseconds();
    MarkDisk();
    std::printf(
        "@point %s %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", name.c_str(),
        static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec),
        busy, calls);
    std::fflush(stdout);
  }

 private:
  const int calls_ = OpenCallCounter();
};

// -------------------------------------------------------------------------------------------------
// Workloads.

// Operation `n` writes this.
std::vector<uint64_t> Page(uint64_t n) { return std::vector<uint64_t>(kPage / sizeof(n), n); }

uint64_t Place(uint64_t n) {
  uint64_t x = n * 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  return (x ^ x >> 27) % kPages;
}

class File {
 public:
  File(const std::string& path, int flags)
      : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {
    Must(fd_ >= 0, path);
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void Write(uint64_t n) const {
    const std::vector<uint64_t> page = Page(n);
    Must(::write(fd_, page.data(), kPage) == kPage, path_);
  }
  void WriteAt(uint64_t n, uint64_t offset) const {
    const std::vector<uint64_t> page = Page(n);
    Must(::pwrite(fd_, page.data(), kPage, static_cast<off_t>(offset)) == kPage, path_);
  }
  void Sync() const { Must(::fsync(fd_) == 0, path_); }
  // Whether operation `n` has written the page there.
  void Expect(uint64_t n, uint64_t offset) const {
    std::vector<uint64_t> page(kPage / sizeof(n));
    Must(::pread(fd_, page.data(), kPage, static_cast<off_t>(offset)) == kPage, path_);
    errno = 0;
    Must(page == Page(n), path_ + ": other bytes than were written");
  }
  uint64_t Size() const {
    struct stat st = {};
    Must(::fstat(fd_, &st) == 0, path_);
    return static_cast<uint64_t>(st.st_size);
  }

 private:
  const std::string path_;
  const int fd_;
};

struct Workload {
  const char* name;
  void (*prepare)(const std::string& folder);
  void (*run)(const std::string& folder, uint64_t operations);
  void (*check)(const std::string& folder, uint64_t operations);
};

void PrepareOverwrite(const std::string& folder) {
  const File file(folder + "/file", O_WRONLY | O_CREAT);
  for (uint64_t i = 0; i < kPages; ++i) file.Write(0);
}

void Overwrite(const std::string& folder, uint64_t operations) {
  const File file(folder + "/file", O_WRONLY);
  for (uint64_t n = 1; n <= operations; ++n) {
    file.WriteAt(n, Place(n) * kPage);
    file.Sync();
  }
}

void CheckOverwrite(const std::string& folder, uint64_t operations) {
  std::vector<uint64_t> last(kPages, 0);
  for (uint64_t n = 1; n <= operations; ++n) last[Place(n)] = n;
  const File file(folder + "/file", O_RDONLY);
  for (uint64_t i = 0; i < kPages; ++i) file.Expect(last[i], i * kPage);
}

void PrepareAppend(const std::string& folder) {
  const File file(folder + "/log", O_WRONLY | O_CREAT);
}

void Append(const std::string& folder, uint64_t operations) {
  const File file(folder + "/log", O_WRONLY | O_APPEND);
  for (uint64_t n = 1; n <= operations; ++n) {
    file.Write(n);
    file.Sync();
  }
}

void CheckAppend(const std::string& folder, uint64_t operations) {
  const File file(folder + "/log", O_RDONLY);
  for (uint64_t n = 1; n <= operations; ++n) file.Expect(n, (n - 1) * kPage);
  errno = 0;
  Must(file.Size() == operations * kPage, "the log's size");
}

std::string Name(const std::string& folder, uint64_t n) {
  return folder + "/name" + std::to_string(n % kNames);
}

void PrepareReplace(const std::string& folder) {
  for (uint64_t n = 0; n < kNames; ++n) File(Name(folder, n), O_WRONLY | O_CREAT).Write(0);
}

void Replace(const std::string& folder, uint64_t operations) {
  const std::string fresh = folder + "/new";
  const File directory(folder, O_RDONLY | O_DIRECTORY);
  for (uint64_t n = 1; n <= operations; ++n) {
    {
      const File file(fresh, O_WRONLY | O_CREAT | O_EXCL);
      file.Write(n);
      file.Sync();
    }
    Must(::rename(fresh.c_str(), Name(folder, n).c_str()) == 0, "rename");
    directory.Sync();
  }
}

void CheckReplace(const std::string& folder, uint64_t operations) {
  for (uint64_t n = operations; n > 0 && n + kNames > operations; --n) {
    File(Name(folder, n), O_RDONLY).Expect(n, 0);
  }
}

class Database {
 public:
  explicit Database(const std::string& folder) {
    Must(sqlite3_open((folder + "/database").c_str(), &handle_) == SQLITE_OK, "sqlite3_open");
    Do("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL");
  }
  ~Database() { sqlite3_close(handle_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  void Do(const std::string& text) {
    char* error = nullptr;
    if (sqlite3_exec(handle_, text.c_str(), nullptr, nullptr, &error) != SQLITE_OK) {
      Die(text + ": " + (error == nullptr ? "" : error));
    }
  }
  sqlite3* handle() { return handle_; }

 private:
  sqlite3* handle_ = nullptr;
};

void PrepareSqlite(const std::string& folder) {
  Database(folder).Do("CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB)");
}

void Sqlite(const std::string& folder, uint64_t operations) {
  Database database(folder);
  sqlite3_stmt* statement = nullptr;
  Must(sqlite3_prepare_v2(database.handle(), "INSERT INTO t VALUES (?, randomblob(100))", -1,
                          &statement, nullptr) == SQLITE_OK,
       "prepare");
  for (uint64_t n = 1; n <= operations; ++n) {
    sqlite3_bind_int64(statement, 1, static_cast<sqlite3_int64>(n));
    Must(sqlite3_step(statement) == SQLITE_DONE, "INSERT");
    sqlite3_reset(statement);
  }
  sqlite3_finalize(statement);
}

void CheckSqlite(const std::string& folder, uint64_t operations) {
  Database database(folder);
  sqlite3_stmt* statement = nullptr;
  Must(sqlite3_prepare_v2(database.handle(), "SELECT count(*), sum(id) FROM t", -1, &statement,
                          nullptr) == SQLITE_OK &&
           sqlite3_step(statement) == SQLITE_ROW,
       "SELECT");
  errno = 0;
  Must(static_cast<uint64_t>(sqlite3_column_int64(statement, 0)) == operations &&
           static_cast<uint64_t>(sqlite3_column_int64(statement, 1)) ==
               operations * (operations + 1) / 2,
       "other rows than were inserted");
  sqlite3_finalize(statement);
}

constexpr Workload kWorkloads[] = {
    {"overwrite", PrepareOverwrite, Overwrite, CheckOverwrite},
    {"append", PrepareAppend, Append, CheckAppend},
    {"replace", PrepareReplace, Replace, CheckReplace},
    {"sqlite", PrepareSqlite, Sqlite, CheckSqlite},
};

int Usage() {
  std::fprintf(stderr,
               "usage: nvcache_guest prepare|run|check WORKLOAD FOLDER OPERATIONS\n"
               "       nvcache_guest point NAME\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "point" && argc == 3) {
    Counters().Tell(argv[2]);
    return 0;
  }
  if (argc != 5) return Usage();
  const std::string folder = argv[3];
  const uint64_t operations = std::strtoull(argv[4], nullptr, 10);
  for (const Workload& workload : kWorkloads) {
    if (std::strcmp(workload.name, argv[2]) != 0) continue;
    if (mode == "prepare") {
      workload.prepare(folder);
    } else if (mode == "check") {
      workload.check(folder, operations);
    } else if (mode == "run") {
      const Counters counters;
      counters.Tell("begin");
      workload.run(folder, operations);
      counters.Tell("acknowledged");
    } else {
      return Usage();
    }
    return 0;
  }
  return Usage();
}
