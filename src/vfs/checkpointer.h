// SPDX-License-Identifier: BSD-3-Clause
//
// The checkpointer: a process without a program, which brings to the disk what processes leave that
// end or die, so that none of them has to wait for the disk at its end (docs/architecture.md).
//
// It uses the engine as any other process does, and has a seat while others have one. So if it ends
// or dies, the others see to the pool as if there had been none.
#ifndef NVCACHE_VFS_CHECKPOINTER_H_
#define NVCACHE_VFS_CHECKPOINTER_H_

#include <cstdint>

#include "src/pool/pool.h"
#include "src/sys/host.h"
#include "src/vfs/deaths.h"
#include "src/vfs/huge_pages.h"

namespace nvcache::vfs {

// Its requests to the program that carries it.
struct CheckpointerHost {
  // A folder of the file system with this st_dev, open; -1: none can be had.
  int (*open_file_system)(uint64_t device);
  // Begins to bring all to the disk that the pool's logs have by now, and says, asked again, how
  // that stands; after another answer than the first it begins anew.
  enum class Disk { kLacksSome, kHasAll, kRefuses };
  Disk (*bring_to_disk)(const char* pool);
  // It is to end.
  bool (*stopped)();
  // Not by itself.
  bool stays;
};

class Checkpointer {
 public:
  constexpr explicit Checkpointer(const CheckpointerHost& host) : host_(host) {}

  // Until the pool that NVCACHE_POOL names is clean, and nobody has used it for some seconds; or
  // the pool has lost its name. `post`: an open file of the pool, with the lock of its
  // checkpointer. False: the pool cannot be had, or keeps what cannot be brought to the files; one
  // line on stderr says why.
  bool Run(const Host& threads, char** environment, int post);

 private:
  bool Watches(int post);
  bool IsNamed() const;
  bool Serve();
  bool Attach();
  void Detach();
  void ServeDescriptor();
  bool OpenFileSystem(uint64_t device);
  void CloseFileSystem();
  void MoveCheckpoint();
  bool MustLeaveJournal() const;
  void LeaveJournal();
  void End();

  const CheckpointerHost host_;
  pool::Pool watched_;  // looked at, whether the engine has it or not
  Deaths deaths_;       // of those who use it
  HugePages huge_pages_;
  uint32_t rung_ = 0;     // the bell when it was answered last
  uint64_t asked_ = 0;    // monotonic ns: when that was
  uint64_t used_ = 0;     // the same: when the pool was seen to be used last
  uint64_t refused_ = 0;  // the same: when the failed journal could not be left
  // Groups of idle processes that began to log before `cared_to_` are on the disk;
  // before `wanted_at_`, when the checkpoint has reached `wanted_`. Real-time ns; 0: nothing is
  // waited for.
  uint64_t cared_to_ = 0, wanted_at_ = 0;
  pool::Lsn wanted_ = 0;
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_CHECKPOINTER_H_
