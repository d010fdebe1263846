// SPDX-License-Identifier: BSD-3-Clause
//
// Calls by paths that only a function behind the front end knows the meaning of
// (Callers::see_paths; docs/architecture.md#paths). Whatever they change may be any file or folder,
// of any process.
#ifndef NVCACHE_VFS_UNSEEN_H_
#define NVCACHE_VFS_UNSEEN_H_

namespace nvcache::vfs {

// A path of the program's may be looked at, and a call may be made with it past the front end.
bool SeesPaths();

// A call that may take a name away, or give one to what has one, or change a file's size or its
// attributes, from Begin() on. This process caches nothing, and no log knows of any file when the
// call is made, nor when it is over; what this process has logged before is on the disk. No lock is
// held meanwhile: the function behind may call ours.
class UnseenCall {
 public:
  UnseenCall() = default;
  ~UnseenCall() { End(); }
  UnseenCall(const UnseenCall&) = delete;
  UnseenCall& operator=(const UnseenCall&) = delete;

  // Where paths are not seen; else it does nothing, and answers false. No lock, in both.
  bool Begin();
  void End();

 private:
  bool begun_ = false;
};

// Before a sync of what is open there tells the program that such calls are durable: nothing is
// pending that a recovery would undo them with. No lock.
void SettleUnseen(int fd);

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_UNSEEN_H_
