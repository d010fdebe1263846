// SPDX-License-Identifier: BSD-3-Clause
//
// Records the real engine on a real pool and real files.
#ifndef NVCACHE_TESTS_CRASH_CAPTURE_H_
#define NVCACHE_TESTS_CRASH_CAPTURE_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/crash/recorder.h"
#include "tests/crash/trace.h"

namespace nvcache::crash {

class Capture : public Recording {
 public:
  // `pool`: the file; what it holds now is the beginning of the trace.
  Capture(const std::string& scenario, uint64_t seed, const std::string& pool);
  ~Capture() override;

  // A file that is open as `fd`. It `exists` durably with the content that it has now, or has just
  // been created.
  uint32_t Watch(int fd, const std::string& path, bool exists);
  // All files are in that folder, durably, and so are those that will be made there: from now on
  // what happens to names is noted. Before any file is watched.
  void WatchFolder(const std::string& path);
  // The file that is open there, or kNobody.
  uint32_t FileAt(int fd);
  // The kernel refuses the next call that changes a name, with `error`.
  void RefuseNextName(int error) { name_error_ = error; }
  void Away(uint32_t file) { trace_.files[file].away = true; }
  // The program has cut the open file `fd` to nothing.
  void Cut(uint32_t file);
  // From now on the disk refuses what is written to the file, with `error`, or only to sync it, and
  // loses what it had not synced. 0: not any more.
  void RefuseWrites(uint32_t file, int error);
  void RefuseSyncs(uint32_t file, int error);

  // What is done from now on, the process with that number does: for what another one has stored,
  // its fences are none.
  void As(uint16_t process) { process_ = process; }
  // Called once, before the next file is synced; or, if that is a step, before that fence.
  void BeforeNext(Step step, std::function<void()> function) {
    awaited_ = step;
    before_ = std::move(function);
  }
  bool Awaits() const { return before_ != nullptr; }

  // Around what the program asks for. Returns the operation's bytes, of the length asked for.
  template <typename Function>
  void Do(Operation operation, const std::string& bytes, Function function) {
    const uint32_t number = Begin(operation, bytes);
    function();
    End(number);
  }

  // Nobody is recorded any more. What a thread is about to say still looks at the files.
  Trace Finish();

  void Store(uint8_t* to, const uint8_t* from, size_t n) override;
  void Pwb(const uint8_t* address, size_t n, Step step) override;
  void Fence(Step step) override;
  long Call(long number, long a, long b, long c, long d, long e, long f) override;

 private:
  static Identity IdentityOf(int fd, const std::string& path);
  uint32_t Begin(Operation operation, const std::string& bytes);
  void End(uint32_t number);
  void Add(const Event& event) override;
  int SyncError(uint32_t file) override { return sync_errors_[static_cast<int>(file)]; }
  // In any mapping of it. False: it lies elsewhere.
  bool InPool(const uint8_t* address, uint64_t* at) const;
  uint16_t Who() const override;
  void CompareShadow();
  void NoteVolatile();
  // The watched file that `fd` is, or -1.
  int FileOf(long fd) const;
  long Sync(long number, long fd, int file);
  long SyncAll();
  static long OpenBoot();
  // Of name_capture.cc: names, and attributes.
  struct Place {
    uint32_t folder;  // kNobody: none that is watched
    std::string name;
  };
  uint32_t AddFile(int fd, const std::string& path);  // with the lock
  void WatchNames(uint32_t folder, const std::string& path);
  Place PlaceOf(long dirfd, long path) const;
  void NoteName(const Place& place, uint32_t file, bool more = false);
  void AddMade(const Place& place, long dirfd, long path);
  bool ChangesNames(long number, long c) const;
  long ChangeNames(long number, long a, long b, long c, long d, long e);
  long SetAttributes(long number, long a, long b, long c, long d, long e);
  long Fallocate(long fd, long mode, long offset, long length);

  std::mutex lock_;
  bool finished_ = false;
  ino_t pool_inode_ = 0;
  std::vector<uint8_t*> bases_;  // one for each process that has it mapped
  std::string shadow_;
  std::map<ino_t, uint32_t> by_inode_;
  std::map<int, int> write_errors_, sync_errors_;  // of files
  uint16_t process_ = 0;
  Entries names_;  // now
  int name_error_ = 0;
  Step awaited_ = Step::kCount;
  std::function<void()> before_;
};

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_CAPTURE_H_
