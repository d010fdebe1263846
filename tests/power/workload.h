// SPDX-License-Identifier: BSD-3-Clause
//
// What the guest does to its files, as sequences of numbered operations. All of an operation is
// determined by the seed and its number, so after a power failure the files can be compared with
// those after any operation.
#ifndef NVCACHE_TESTS_POWER_WORKLOAD_H_
#define NVCACHE_TESTS_POWER_WORKLOAD_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/kit/acknowledged.h"
#include "tests/kit/random.h"

namespace nvcache::power_test {

using kit::Content;
using kit::Fill;
using kit::Mix;
using kit::Random;

// When an operation is acknowledged.
enum class Promise {
  kWrite,     // NVCache's: data when the write has returned, names as the rule says
  kFsync,     // any file system's: everything is synced first
  kNothing,   // at once, and nothing is synced: what a power failure loses without NVCache
  kMirrored,  // as kWrite; a call that a mirror refuses has done its work, so nobody calls again
};

struct Verdict {
  bool ok;
  uint64_t found;    // the files are as after this many operations
  std::string what;  // is wrong with them
};
Verdict Good(uint64_t found);
Verdict Bad(const char* format, ...) __attribute__((format(printf, 1, 2)));

struct Settings {
  std::string name;
  std::string folder;
  uint64_t seed;
  Promise promise;
};

class Workload {
 public:
  explicit Workload(const Settings& settings)
      : name_(settings.name),
        folder_(settings.folder),
        settings_seed_(settings.seed),
        seed_(Mix(settings.seed ^ Mix(NameHash(name_)))),
        promise_(settings.promise) {}
  virtual ~Workload() = default;
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  // It is not one of the threads of the process that all others share.
  virtual bool HasProcess() const { return false; }
  // To be called first, with the same number.
  virtual void Prepare(uint64_t) {}
  // Goes on after operation `done`, until it is killed.
  virtual void Run(uint64_t done) = 0;
  // Whether the files are as after `acknowledged` operations, or some more; `announced` is the last
  // one that was.
  virtual Verdict Check(uint64_t acknowledged, uint64_t announced) = 0;

  const std::string& name() const { return name_; }

 protected:
  // How many operations beyond the acknowledged ones are looked at. The lines on their way to the
  // host are lost with the guest.
  static constexpr uint64_t kUnacknowledged = 5000;

  // Operation `n` has been done, to what the promise says. Of the guest's, which is slow, at most
  // one line each few milliseconds.
  void Acknowledge(uint64_t n);
  // The same, and the host has heard of it when this returns.
  void AcknowledgeAtOnce(uint64_t n) const;
  // Operation `n` comes next: the host has heard of it when this returns. The acknowledgement that
  // follows is not held back.
  void Announce(uint64_t n);
  [[noreturn]] void Die(const char* what) const;
  // The disk has failed, which matters only to who has been promised a working one. A mirror that
  // refuses ends the writer.
  void Refused(const char* what) const;

  const std::string& folder() const { return folder_; }
  std::string Path(const char* file) const { return folder_ + "/" + file; }
  uint64_t seed() const { return seed_; }
  // What is the same for all workloads of a run.
  uint64_t settings_seed() const { return settings_seed_; }
  Promise promise() const { return promise_; }
  // Whether to sync what the promise does not ask for.
  bool MustSync(Random& random) const {
    const bool may_sync = promise_ == Promise::kWrite || promise_ == Promise::kMirrored;
    return promise_ == Promise::kFsync || (may_sync && random.OneIn(2));
  }
  void SyncFolder() const;

 private:
  static uint64_t NameHash(const std::string& name) {
    uint64_t hash = 0;
    for (const char c : name) hash = Mix(hash ^ static_cast<uint8_t>(c));
    return hash;
  }

  const std::string name_;
  const std::string folder_;
  const uint64_t settings_seed_;
  const uint64_t seed_;
  const Promise promise_;
  int64_t last_line_ = 0;  // when, in nanoseconds
};

// nullptr: there is no such workload.
std::unique_ptr<Workload> MakeWorkload(const Settings& settings);

// The kinds. A digit behind the name makes it another one of its kind.
std::unique_ptr<Workload> MakeRaw(const Settings& settings);
std::unique_ptr<Workload> MakeCut(const Settings& settings);
std::unique_ptr<Workload> MakeRecords(const Settings& settings);
std::unique_ptr<Workload> MakeReplace(const Settings& settings);
std::unique_ptr<Workload> MakeRecreate(const Settings& settings);
std::unique_ptr<Workload> MakeRotate(const Settings& settings);
std::unique_ptr<Workload> MakeNames(const Settings& settings);
std::unique_ptr<Workload> MakeTurns(const Settings& settings);
std::unique_ptr<Workload> MakeMaildir(const Settings& settings);
std::unique_ptr<Workload> MakeGit(const Settings& settings);
std::unique_ptr<Workload> MakeDpkg(const Settings& settings);
std::unique_ptr<Workload> MakeSqlite(const Settings& settings);
std::unique_ptr<Workload> MakeRocksdb(const Settings& settings);
std::unique_ptr<Workload> MakePostgres(const Settings& settings);

// A whole file; empty, with *exists false, if there is none.
std::vector<uint8_t> ReadFile(const std::string& path, bool* exists);

// Starts a program, whose input and output are these descriptors; of -1, those of this one. -1: it
// could not be started.
pid_t StartProgram(const std::vector<std::string>& words, int input, int output);
// Whether the program has ended well. `output`: what it said is appended, unless null.
bool RunProgram(const std::vector<std::string>& words, std::string* output);

}  // namespace nvcache::power_test

#endif  // NVCACHE_TESTS_POWER_WORKLOAD_H_
