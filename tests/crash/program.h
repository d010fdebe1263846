// SPDX-License-Identifier: BSD-3-Clause
//
// A program under the whole engine. Its calls are made as a front end makes them, and what the
// engine leaves to the kernel is noted as well.
#ifndef NVCACHE_TESTS_CRASH_PROGRAM_H_
#define NVCACHE_TESTS_CRASH_PROGRAM_H_

#include <fcntl.h>

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/crash/capture.h"
#include "tests/crash/scenarios.h"
#include "tests/crash/script.h"

namespace nvcache::crash {

class Program : public Actor {
 public:
  // `settings` of the engine, besides those of the pool, which is that large.
  Program(const std::string& name, const Place& place, uint64_t seed, uint64_t pool,
          const std::vector<std::string>& settings);
  virtual ~Program() = default;

  // A file is spoken of by its name, or another one that it gets here (`as`).
  virtual void Open(const std::string& name, int flags, const std::string& as);
  void Open(const std::string& name, int flags = O_RDWR) { Open(name, flags, name); }
  void Create(const std::string& name) { Open(name, O_RDWR | O_CREAT); }
  // It is logged if the file is cached; else the kernel is told at once.
  void Write(const std::string& name, uint64_t offset, size_t n, std::mt19937_64* random);
  void Write(const std::string& name, uint64_t offset, size_t n) {
    Write(name, offset, n, &random_);
  }
  void Read(const std::string& name, uint64_t offset, size_t n);
  void Truncate(const std::string& name, uint64_t size);
  void Punch(const std::string& name, uint64_t offset, uint32_t n);
  void Sync(const std::string& name);
  void Close(const std::string& name);
  // All that is pending of cached files is on the disk when it returns.
  void Drain();
  // Gives the pool back. No file is open any more.
  void Detach();
  // The next Open() takes the pool again, which need not be clean from now on.
  void Reattach();
  std::mt19937_64& random() { return random_; }
  Trace Finish();

 protected:
  static void Must(bool ok, int line = __builtin_LINE());
  std::string Path(const std::string& name) const;
  int Descriptor(const std::string& name) const { return descriptors_.at(name); }
  uint32_t FileOf(const std::string& name) { return capture_.FileAt(Descriptor(name)); }
  uint32_t FileNamed(const std::string& name);
  // In our cache; else its bytes are the kernel's.
  static bool IsCached(int fd);
  // Of the kernel's: all of it is on the disk, or in a log.
  static bool IsKnown(int fd);
  // Syncs until it is so.
  void SyncUntil(const std::string& name, bool (*is)(int fd));

  const Place place_;
  std::mt19937_64 random_;
  Capture& capture_;  // the engine's threads outlive us
  std::map<std::string, int> descriptors_;

 private:
  void Cut(const std::string& name);
  void AwaitDisk(const std::string& name);
};

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_PROGRAM_H_
