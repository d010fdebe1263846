// SPDX-License-Identifier: BSD-3-Clause
//
// The Store of a server: a file in memory (a memfd, or one on a tmpfs), which outlives the process.
//
// Invariants
//   What callers see after each call is what they see after the process was killed behind it and
//   the file was opened again; in the middle of a call: as before it, or as behind it. So nothing
//   has to reach a disk, and the order of stores is the compiler's and the processor's. A file of
//   another run of the kernel is as an empty one. Pages are had before a byte is changed: a store
//   that the machine has no memory for is refused by NoRoom, and not by SIGBUS.
#ifndef NVCACHE_MIRROR_STORE_MEMORY_STORE_H_
#define NVCACHE_MIRROR_STORE_MEMORY_STORE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mirror/core/error.h"
#include "mirror/core/store.h"
#include "mirror/store/budget.h"
#include "mirror/store/layout.h"
#include "src/sys/descriptor.h"

namespace nvcache::mirror {

class MemoryStore : public Store {
 public:
  // The file is empty, or as another MemoryStore has left it. `boot` is not none. A StoreError says
  // what is wrong with the file; NoRoom: the machine, or the budget.
  MemoryStore(sys::Descriptor file, std::string name, const Id& boot, Budget* budget);
  ~MemoryStore() override;
  MemoryStore(const MemoryStore&) = delete;
  MemoryStore& operator=(const MemoryStore&) = delete;

  // It was there before, in this run of the kernel.
  bool remembers() const { return remembers_; }
  // One that does not remember is as if it were not there, until this was called.
  void Seal();
  // One that is not sealed goes on as the one that was spilled.
  void Become(const Id& incarnation, Epoch promised, Version version);

  const std::string& name() const { return name_; }
  int file() const { return file_.get(); }
  bool locked() const { return locked_; }

  Id incarnation() const override { return header_->incarnation; }
  Epoch promised() const override { return header_->promised; }
  Version version() const override { return header_->version; }
  const ImageInfo& image() const override { return image_; }
  void SetPromised(Epoch epoch) override;
  void SetVersion(Version version) override;
  bool BeginCopy(const Id& lineage, uint64_t pool_size) override;
  bool HasCopy() const override { return copy_size_ != 0; }
  uint64_t copy_size() const override { return copy_size_; }
  void DropCopy() override;
  void WriteCopy(const std::vector<Range>& ranges, const uint8_t* bytes) override;
  void Exchange(Epoch epoch, Position position) override;
  void Write(const std::vector<Range>& ranges, const uint8_t* bytes, Epoch epoch,
             Position position) override;
  void Forget() override;
  Range Find(uint64_t offset) const override;
  void Read(const Range& range, uint8_t* bytes) const override;

  // For tests: called between any two stores whose order matters.
  std::function<void()> on_step;

 private:
  struct Area {
    uint8_t* bytes = nullptr;  // mapped
    uint64_t size = 0;
    std::vector<bool> reserved;  // by pieces of kPiece bytes
  };

  void ReadOrMake(const Id& boot);
  void Make(const Id& boot);
  void CheckKnown() const;
  bool Map(size_t area, uint64_t size);
  void Drop(size_t area);
  void Reserve(size_t area, const std::vector<Range>& ranges);
  void Copy(size_t area, const Range* ranges, size_t count, const uint8_t* bytes);
  ImageInfo FinishStaged();
  size_t ImageArea() const { return static_cast<size_t>(header_->selected) - 1; }
  void Step() const {
    if (on_step) on_step();
  }

  sys::Descriptor file_;
  std::string name_;
  Budget& budget_;
  uint8_t* front_ = nullptr;
  MemoryHeader* header_ = nullptr;
  std::array<Area, 2> areas_;
  ImageInfo image_;
  uint64_t copy_size_ = 0;  // 0: there is no copy
  size_t copy_area_ = 0;
  bool remembers_ = false;
  bool locked_ = true;
};

// A file in memory that ends with the last descriptor of it.
sys::Descriptor MakeMemory(const std::string& name);
// So much memory may be locked by this process.
bool CanLock(uint64_t bytes);
Id RandomId();

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_STORE_MEMORY_STORE_H_
