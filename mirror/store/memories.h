// SPDX-License-Identifier: BSD-3-Clause
//
// All that a server remembers: a MemoryStore for each mirror name.
#ifndef NVCACHE_MIRROR_STORE_MEMORIES_H_
#define NVCACHE_MIRROR_STORE_MEMORIES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mirror/store/budget.h"
#include "mirror/store/memory_store.h"
#include "src/sys/descriptor.h"

namespace nvcache::mirror {

// Mirror names that a server has at most. systemd keeps no more descriptors (its unit).
inline constexpr size_t kMaxMemories = 1024;

class Memories {
 public:
  // `boot`: the kernel's; not none.
  Memories(uint64_t limit, const Id& boot) : boot_(boot), budget_(limit) {}

  // From now on they are files NAME.image of this folder, which is on a tmpfs; those that are there
  // are opened. A StoreError: it is not, it cannot be used, or another server has it.
  void UseFolder(const std::string& folder);
  // A descriptor that somebody kept while there was no server.
  void Adopt(const std::string& name, sys::Descriptor file);

  // nullptr: there is none of that name.
  MemoryStore* Find(const std::string& name);
  // Makes one that is not there. nullptr: there is no room, or it cannot be made; *why says so.
  MemoryStore* Get(const std::string& name, std::string* why);
  // One that is not there, and is not sealed. A StoreError: it cannot be made.
  MemoryStore* Make(const std::string& name);
  void Remove(const std::string& name);

  std::vector<MemoryStore*> All();
  const Budget& budget() const { return budget_; }
  // Bytes that the folder's file system has left; all, without a folder.
  uint64_t RoomInFolder() const;

  // Called for each memory that is no file of a folder, when it is sealed.
  std::function<void(const MemoryStore&)> keep;
  void Seal(MemoryStore* store);

 private:
  Id boot_;
  Budget budget_;
  std::string folder_;
  sys::Descriptor folder_file_;
  std::map<std::string, std::unique_ptr<MemoryStore>> stores_;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_STORE_MEMORIES_H_
