// SPDX-License-Identifier: BSD-3-Clause
//
// Known folders in which this process has changed names lately stay open: the next such call need
// not open, look at and close its folder. A folder is told by its mount as well: a program that
// enters another mount namespace finds it by another one.
//
//   closed --- Offer: it was met twice in a row -----------> in use, by the one who offers it
//   in use --- Release, of the last one -------------------> idle
//   idle   --- Take --------------------------------------> in use
//          --- Offer of another one; Close; Move ---------> closed
//   in use --- Close; Move --- Release, of the last one --> closed
//
// The program may close unseen what it finds there. So whoever takes one sees for himself that it
// is still that folder, before he changes anything by it.
#ifndef NVCACHE_VFS_ENGINE_KEPT_FOLDERS_H_
#define NVCACHE_VFS_ENGINE_KEPT_FOLDERS_H_

#include <atomic>
#include <cstdint>

namespace nvcache::vfs {

// own_descriptors.cc has these: the number is one of ours; it is none any more, and true, if it
// was.
void NoteOwn(int fd);
bool ForgetOwn(int fd);

class KeptFolders {
 public:
  struct Key {
    uint64_t mount = 0;  // 0: the kernel does not say, so it is not kept
    uint64_t device = 0, inode = 0, birth = 0;
    bool operator==(const Key&) const = default;
  };

  constexpr KeptFolders() = default;

  // A handle of the folder's descriptor, until Release(); kNone: it is not kept. Not in a child
  // that shares our memory. No lock, as for the next three.
  static constexpr int kNone = -1;
  int Take(const Key& key);
  // The descriptor is open to the folder, by O_PATH. A handle of a copy, if it is worth to be kept.
  // With a pin.
  int Offer(const Key& key, int fd);
  int fd(int handle) const { return slots_[handle].fd.load(); }
  void Release(int handle);
  // Before that: the descriptor is the program's by now.
  void Forget(int handle);

  // None is kept; those in use are closed by the last one who has them. Any lock.
  void Close();
  // The program wants the number: 0, or -EBUSY, for somebody is using it; 1: it is none of these.
  // Table lock.
  long Move(int fd);
  // The kernel has given the number to the program. Table lock.
  void Lost(int fd);
  // In a child of fork, where nobody uses one.
  void LeaveToParent();

 private:
  // `word`: how many use it; or it is in the hands of one thread that changes it (also closed).
  static constexpr uint32_t kBusy = 1u << 30, kClosed = kBusy + 1, kRetired = 1u << 31;
  struct Slot {
    std::atomic<uint32_t> word{kClosed};
    std::atomic<int> fd{-1};
    Key key;
  };
  static constexpr uint32_t kSlots = 3;

  static bool Seize(Slot& slot);
  static void CloseSeized(Slot& slot);
  // False: somebody uses it.
  static bool Retire(Slot& slot);

  Slot slots_[kSlots];
  std::atomic<uint64_t> met_{0};  // the last one that was offered, and is not kept
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_ENGINE_KEPT_FOLDERS_H_
