// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/lost.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "recovery/tool/commands.h"
#include "recovery/tool/text.h"
#include "src/journal/file.h"
#include "src/journal/ring.h"
#include "src/nvlog/cut.h"
#include "src/pmem/persist.h"
#include "src/pool/byte_locks.h"
#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/memory_group.h"

namespace nvcache::tool {
namespace {

// For somebody who makes the pool's memory.
constexpr std::chrono::seconds kPatience(10);
constexpr std::chrono::milliseconds kPause(1);

[[noreturn]] void Fail(const std::string& path, const std::string& what) {
  throw Failure{kFailed, fmt::format("pool {} {}", path, what)};
}

[[noreturn]] void FailCall(const std::string& path, long result) {
  Fail(path, fmt::format("cannot be read, {}: see errno(3)", ErrorName(static_cast<int>(-result))));
}

// Who makes its memory has both locks.
bool IsUsed(int fd) {
  const auto begin = std::chrono::steady_clock::now();
  while (pool::AreBytesHeld(fd, pool::kUsersByte, 1)) {
    const bool is_made = pool::AreBytesHeld(fd, pool::kMakerByte, 1);
    if (!is_made || std::chrono::steady_clock::now() - begin > kPatience) return true;
    std::this_thread::sleep_for(kPause);
  }
  return false;
}

// Of the size of the pool, and zero; what is stored to it is seen in the file.
class Memory {
 public:
  Memory(const std::string& path, uint64_t size) : size_(size) {
    if (size > sys::FreeInGroups()) {
      Fail(path,
           "takes memory of its size to be looked at, and a control group has less: raise "
           "its limit, or run 'nvcache recover'");
    }
    file_ = sys::Descriptor(memfd_create("nvcache", MFD_CLOEXEC));
    const bool sized = file_.IsOpen() && ftruncate(file_.get(), static_cast<off_t>(size)) == 0;
    void* const base = sized
                           ? mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0)
                           : MAP_FAILED;
    if (base == MAP_FAILED) FailCall(path, -errno);
    base_ = static_cast<uint8_t*>(base);
  }
  ~Memory() { munmap(base_, size_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  uint8_t* base() const { return base_; }
  std::string name() const { return sys::LinkTo(file_.get()).c_str(); }

 private:
  uint64_t size_;
  sys::Descriptor file_{-1};
  uint8_t* base_;
};

// Returns the last batch's bound.
pool::Lsn ReadRing(const std::string& path, int fd, const journal::Header& header, uint8_t* base) {
  const journal::Buffer buffer(journal::kMaxBatch);
  if (buffer.get() == nullptr) FailCall(path, -ENOMEM);
  journal::Ring ring(fd, header, buffer.get());
  journal::Position next = {};
  pool::Lsn bound = 0;
  switch (ring.Read(base, &next, &bound)) {
    case journal::Ring::Result::kRead:
      return bound;
    case journal::Ring::Result::kNothing:
      Fail(path, "holds nothing: keep the file, and use another pool");
    case journal::Ring::Result::kFailed:
      FailCall(path, ring.error());
    case journal::Ring::Result::kDamaged:
      break;
  }
  Fail(path, fmt::format("is damaged at byte {}, before what was written later: keep the file, and "
                         "use another pool",
                         ring.damaged_at()));
}

}  // namespace

// What came after the moment that counts is taken out, as a recovery does it, by the superblock
// that Open() has checked.
void OpenLost(pool::Pool* pool, const std::string& path, pool::Mode mode) {
  const sys::Descriptor file(journal::Open(path.c_str(), false));
  if (!file.IsOpen()) FailCall(path, file.error());
  journal::Header header;
  const long error = journal::ReadHeaderAgain(file.get(), &header);
  if (error < 0) FailCall(path, error);
  if (header.is_void != 0) {
    Fail(
        path,
        "has failed as a journal, and the files have all it promised: remove it, and make the pool "
        "anew");
  }
  if (IsUsed(file.get())) {
    Fail(path, "is in use by processes whose memory in /dev/shm was removed: end them first");
  }
  const Memory memory(path, header.pool_size);
  const pool::Lsn bound = ReadRing(path, file.get(), header, memory.base());
  pool::Problem problem;
  if (!pool->Open(memory.name().c_str(), mode, true, nullptr, &problem)) {
    Fail(path, "has a journal that holds no pool: keep the file, and use another pool");
  }
  pmem::Initialize();
  nvlog::CutFrom({memory.base(), pool->view().superblock}, bound);
}

}  // namespace nvcache::tool
