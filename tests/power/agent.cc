// SPDX-License-Identifier: BSD-3-Clause
//
// The program in the guest. It knows nothing of NVCache.
//
//   agent work FOLDER SEED PROMISE NAME...         the workloads, each in a thread or in
//                                                  processes of its own, until killed
//   agent apart FOLDER SEED PROMISE NAME...        the same, each in processes of its own
//   agent verify FOLDER SEED PROMISE NAME:ACKNOWLEDGED:ANNOUNCED...
//                                                  whether what was acknowledged is there
//
// PROMISE is write, fsync, nothing or mirrored. What the host is to know are lines that begin with
// @. What `verify` finds, `work` goes on from: it is kept in /tmp/found, in the guest's memory.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>

#include "tests/power/workload.h"

namespace nvcache::power_test {

namespace {

// Where one run tells the next what it has found.
std::string FoundFile() {
  const char* path = std::getenv("FOUND");
  return path != nullptr ? path : "/tmp/found";
}

constexpr int64_t kBetweenLines = 2'000'000;  // nanoseconds

// One line, by one call, so that those of several threads are not mixed.
void Tell(const char* format, ...) __attribute__((format(printf, 1, 2)));
void Tell(const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  int n = std::vsnprintf(line, sizeof(line) - 1, format, arguments);
  va_end(arguments);
  if (n < 0) return;
  if (static_cast<size_t>(n) > sizeof(line) - 2) n = static_cast<int>(sizeof(line) - 2);
  std::replace(line, line + n, '\n', ';');
  line[n] = '\n';
  if (::write(STDOUT_FILENO, line, static_cast<size_t>(n) + 1) < 0) std::_Exit(2);
}

int64_t Now() {
  timespec t = {};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

std::vector<uint8_t> ReadFile(const std::string& path, bool* exists) {
  std::vector<uint8_t> bytes;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  *exists = fd >= 0;
  if (fd < 0) return bytes;
  struct stat st = {};
  ::fstat(fd, &st);
  bytes.resize(static_cast<size_t>(st.st_size));
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t n = ::read(fd, bytes.data() + got, bytes.size() - got);
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  bytes.resize(got);
  ::close(fd);
  return bytes;
}

Verdict Good(uint64_t found) { return {true, found, {}}; }

Verdict Bad(const char* format, ...) {
  char text[600];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return {false, 0, text};
}

void Workload::Acknowledge(uint64_t n) {
  const int64_t now = Now();
  if (::isatty(STDOUT_FILENO) != 0 && now - last_line_ < kBetweenLines) return;
  Tell("@acked %s %llu", name_.c_str(), static_cast<unsigned long long>(n));
  last_line_ = Now();
}

void Workload::AcknowledgeAtOnce(uint64_t n) const {
  Tell("@acked %s %llu", name_.c_str(), static_cast<unsigned long long>(n));
  ::tcdrain(STDOUT_FILENO);
}

void Workload::Announce(uint64_t n) {
  Tell("@next %s %llu", name_.c_str(), static_cast<unsigned long long>(n));
  ::tcdrain(STDOUT_FILENO);
  last_line_ = 0;
}

void Workload::Die(const char* what) const {
  Tell("@bad %s %s: %s", name_.c_str(), what, std::strerror(errno));
  std::_Exit(2);
}

void Workload::Refused(const char* what) const {
  if (promise_ == Promise::kMirrored) Die(what);
  Tell("@refused %s %s: %s", name_.c_str(), what, std::strerror(errno));
}

void Workload::SyncFolder() const {
  const int fd = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || ::fsync(fd) != 0) Die("fsync of the folder");
  ::close(fd);
}

std::unique_ptr<Workload> MakeWorkload(const Settings& settings) {
  static const std::map<std::string, std::unique_ptr<Workload> (*)(const Settings&)> kKinds = {
      {"raw", MakeRaw},
      {"cut", MakeCut},
      {"records-fsync", MakeRecords},
      {"records-fdatasync", MakeRecords},
      {"records-dsync", MakeRecords},
      {"records-rwf", MakeRecords},
      {"records-msync", MakeRecords},
      {"records-syncfs", MakeRecords},
      {"replace", MakeReplace},
      {"recreate", MakeRecreate},
      {"rotate", MakeRotate},
      {"names", MakeNames},
      {"names-bare", MakeNames},
      {"names-sync", MakeNames},
      {"turns", MakeTurns},
      {"maildir", MakeMaildir},
      {"maildir-synced", MakeMaildir},
      {"git", MakeGit},
      {"dpkg", MakeDpkg},
      {"sqlite-wal", MakeSqlite},
      {"sqlite-delete", MakeSqlite},
      {"sqlite-full", MakeSqlite},
      {"sqlite-truncate", MakeSqlite},
      {"sqlite-persist", MakeSqlite},
      {"both-wal", MakeSqlite},
      {"both-delete", MakeSqlite},
      {"both-truncate", MakeSqlite},
      {"both-persist", MakeSqlite},
      {"rocksdb", MakeRocksdb},
      {"postgres", MakePostgres},
  };
  const auto kind = kKinds.find(settings.name.substr(0, settings.name.find_first_of("0123456789")));
  return kind == kKinds.end() ? nullptr : kind->second(settings);
}

namespace {

struct Job {
  std::unique_ptr<Workload> workload;
  uint64_t acknowledged;  // operations
  uint64_t announced;
};

int Work(std::vector<Job>& jobs, bool apart) {
  std::map<std::string, uint64_t> found;
  std::ifstream file(FoundFile());
  std::string name;
  uint64_t number = 0;
  while (file >> name >> number) found[name] = number;
  for (const Job& job : jobs) job.workload->Prepare(found[job.workload->name()]);
  Tell("@started");
  for (Job& job : jobs) {
    // One alone has this process.
    const bool own = apart || job.workload->HasProcess();
    if (own && (jobs.size() == 1 || ::fork() == 0)) {
      job.workload->Run(found[job.workload->name()]);
    }
  }
  std::vector<std::thread> threads;
  for (Job& job : jobs) {
    if (apart || job.workload->HasProcess()) continue;
    threads.emplace_back([&job, done = found[job.workload->name()]] { job.workload->Run(done); });
  }
  for (std::thread& thread : threads) thread.join();
  while (::wait(nullptr) > 0) {
  }
  return 0;
}

int Verify(const std::vector<Job>& jobs) {
  std::ofstream file(FoundFile());
  bool ok = true;
  for (const Job& job : jobs) {
    const char* name = job.workload->name().c_str();
    const Verdict verdict = job.workload->Check(job.acknowledged, job.announced);
    if (verdict.ok) {
      Tell("@found %s %llu", name, static_cast<unsigned long long>(verdict.found));
      file << name << ' ' << verdict.found << '\n';
    } else {
      Tell("@bad %s %s", name, verdict.what.c_str());
      ok = false;
    }
  }
  return ok ? 0 : 1;
}

bool ParsePromise(const char* text, Promise* promise) {
  constexpr const char* kNames[] = {"write", "fsync", "nothing", "mirrored"};
  static_assert(std::size(kNames) == static_cast<size_t>(Promise::kMirrored) + 1);
  const auto* found = std::find_if(std::begin(kNames), std::end(kNames), [text](const char* name) {
    return std::strcmp(text, name) == 0;
  });
  if (found == std::end(kNames)) return false;
  *promise = static_cast<Promise>(found - std::begin(kNames));
  return true;
}

int Usage() {
  std::fprintf(stderr,
               "usage: agent work|apart|verify FOLDER SEED PROMISE NAME[:NUMBER:NUMBER]...\n");
  return 2;
}

int Main(int argc, char** argv) {
  Promise promise;
  if (argc < 6 || !ParsePromise(argv[4], &promise)) return Usage();
  const uint64_t seed = std::strtoull(argv[3], nullptr, 0);
  std::vector<Job> jobs;
  for (int i = 5; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string name = word.substr(0, word.find(':'));
    Job job = {MakeWorkload({name, std::string(argv[2]) + "/" + name, seed, promise}), 0, 0};
    std::sscanf(word.c_str() + name.size(), ":%" SCNu64 ":%" SCNu64, &job.acknowledged,
                &job.announced);
    jobs.push_back(std::move(job));
    if (jobs.back().workload == nullptr) return Usage();
  }
  const std::string mode = argv[1];
  if (mode == "work" || mode == "apart") return Work(jobs, mode == "apart");
  if (mode == "verify") return Verify(jobs);
  return Usage();
}

}  // namespace
}  // namespace nvcache::power_test

int main(int argc, char** argv) { return nvcache::power_test::Main(argc, argv); }
