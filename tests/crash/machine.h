// SPDX-License-Identifier: BSD-3-Clause
//
// The machine after a crash: a pool in memory and a handful of files, with as much of a kernel as
// recovery needs. So an image is there in microseconds, is the same wherever it is looked at again,
// and the files keep their inode numbers and times of birth. What recovery does is recorded, too:
// it may be killed itself.
#ifndef NVCACHE_TESTS_CRASH_MACHINE_H_
#define NVCACHE_TESTS_CRASH_MACHINE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/crash/medium.h"
#include "tests/crash/recorder.h"
#include "tests/crash/trace.h"

namespace nvcache::crash {

inline constexpr char kPoolPath[] = "/crash/pool";      // opened as a file
inline constexpr char kDevicePath[] = "/crash/device";  // the same, as a device
// Which run of the kernel it is, and what is there in each: 0 is that of the recording.
inline constexpr char kBootPath[] = "/proc/sys/kernel/random/boot_id";
std::string BootText(uint32_t boot);

class Machine : public Recording {
 public:
  struct File {
    Identity identity;
    bool named;
    std::string content;
    // What the kernel says of it. Handle(): 0, or an error.
    void Stat(uint32_t links, void* out) const;
    void StatX(uint32_t links, void* out) const;
    long Handle(void* out) const;
  };

  explicit Machine(size_t pool_size);
  ~Machine() override;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  uint8_t* pool() { return pool_; }
  size_t pool_size() const { return size_; }
  void set_boot(uint32_t boot) { boot_ = boot; }
  std::vector<File>& files() { return files_; }
  // The file with that name, or null.
  File* Find(const std::string& path);

  // What was done since the last call: a trace that begins where `files` and the pool were then.
  // The lines of the pool that were changed are in `lines`.
  virtual void Begin();
  Trace& done() { return trace_; }
  const std::vector<uint32_t>& lines() const { return lines_; }

  void Store(uint8_t* to, const uint8_t* from, size_t n) override;
  void Pwb(const uint8_t* address, size_t n, Step step) override;
  void Fence(Step step) override;
  long Call(long number, long a, long b, long c, long d, long e, long f) override;

 protected:
  struct Descriptor {
    enum Kind { kPool, kDevice, kDeviceSize, kFile, kFolder, kBoot, kMounts } kind;
    uint32_t file;
    std::string path;
  };
  int New(Descriptor descriptor);
  // As if it had just been created.
  void Renumber(File* file);
  std::vector<File> files_;
  std::map<int, Descriptor> descriptors_;

 private:
  bool IsFolder(const std::string& path) const;
  long Open(const std::string& path, long flags);
  long Control(const Descriptor& descriptor, long command, long argument);
  long OfDescriptor(Descriptor& descriptor, long number, long fd, long b, long c, long d, long e);
  void Changed(uint32_t number);  // by the last event
  void Write(uint32_t number, const void* bytes, size_t n, uint64_t at);
  void FillStat(const Descriptor& descriptor, void* out) const;

  uint8_t* pool_;
  size_t size_;
  int next_ = 0;
  uint32_t boot_ = 0;
  uint64_t inodes_ = 0;
  std::vector<uint32_t> lines_;
};

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_MACHINE_H_
