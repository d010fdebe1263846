// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/store/memories.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/vfs.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "mirror/core/error.h"

namespace nvcache::mirror {

namespace {

constexpr const char* kSuffix = ".image";

}  // namespace

void Memories::UseFolder(const std::string& folder) {
  sys::Descriptor file(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file.IsOpen()) {
    throw StoreError("folder " + folder + " cannot be opened (" + Why(errno) + "); make it first");
  }
  struct statfs st = {};
  if (fstatfs(file.get(), &st) != 0 || st.f_type != TMPFS_MAGIC) {
    throw StoreError("folder " + folder + " is not in memory; name one on a tmpfs, as /dev/shm");
  }
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    throw StoreError("folder " + folder + " is in use by another server; end that one, or name " +
                     "another folder");
  }
  folder_ = folder;
  folder_file_ = std::move(file);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() == kSuffix && IsName(name)) Seal(Make(name));
  }
  if (error) throw StoreError("folder " + folder + " cannot be read: " + error.message());
}

void Memories::Adopt(const std::string& name, sys::Descriptor file) {
  auto store = std::make_unique<MemoryStore>(std::move(file), name, boot_, &budget_);
  store->Seal();
  stores_[name] = std::move(store);
}

MemoryStore* Memories::Find(const std::string& name) {
  const auto found = stores_.find(name);
  return found == stores_.end() ? nullptr : found->second.get();
}

MemoryStore* Memories::Get(const std::string& name, std::string* why) {
  if (MemoryStore* store = Find(name); store != nullptr) return store;
  try {
    MemoryStore* store = Make(name);
    Seal(store);
    return store;
  } catch (const StoreError& error) {
    *why = error.what();
    return nullptr;
  }
}

MemoryStore* Memories::Make(const std::string& name) {
  if (stores_.size() >= kMaxMemories) {
    throw NoRoom("mirror " + name + " is one name too many for a server; it has " +
                 std::to_string(kMaxMemories) + " at most");
  }
  const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
  sys::Descriptor file = folder_file_.IsOpen()
                             ? sys::Descriptor(openat(folder_file_.get(), (name + kSuffix).c_str(),
                                                      flags, S_IRUSR | S_IWUSR))
                             : MakeMemory(name);
  if (!file.IsOpen()) throw NoRoom("no memory for mirror " + name + ": " + Why(errno));
  auto store = std::make_unique<MemoryStore>(std::move(file), name, boot_, &budget_);
  return (stores_[name] = std::move(store)).get();
}

void Memories::Seal(MemoryStore* store) {
  store->Seal();
  if (!folder_file_.IsOpen() && keep) keep(*store);
}

void Memories::Remove(const std::string& name) {
  stores_.erase(name);
  if (folder_file_.IsOpen()) unlinkat(folder_file_.get(), (name + kSuffix).c_str(), 0);
}

std::vector<MemoryStore*> Memories::All() {
  std::vector<MemoryStore*> all;
  for (const auto& [name, store] : stores_) all.push_back(store.get());
  return all;
}

uint64_t Memories::RoomInFolder() const {
  struct statfs st = {};
  if (!folder_file_.IsOpen() || fstatfs(folder_file_.get(), &st) != 0 || st.f_blocks == 0) {
    return ~uint64_t{0};
  }
  return st.f_bavail * static_cast<uint64_t>(st.f_bsize);
}

}  // namespace nvcache::mirror
