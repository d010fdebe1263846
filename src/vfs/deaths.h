// SPDX-License-Identifier: BSD-3-Clause
//
// The checkpointer hears of the death of processes that have a seat: the kernel makes a pidfd
// readable. A process whose number means another one here (in another name space), or that came
// since the last look, has died unheard until the next look.
//
// The checkpointer sleeps on the bell, a word of the pool that it may not write to. So the thread
// that hears wakes it again and again, until it has looked: the first time may come just before it
// sleeps.
#ifndef NVCACHE_VFS_DEATHS_H_
#define NVCACHE_VFS_DEATHS_H_

#include <cstdint>

#include "src/pool/seats.h"
#include "src/sys/host.h"
#include "src/sys/lock.h"

namespace nvcache::vfs {

class Deaths {
 public:
  constexpr Deaths() = default;
  Deaths(const Deaths&) = delete;
  Deaths& operator=(const Deaths&) = delete;

  // False: there is no thread, or no descriptor, for it. The seats are mapped until End().
  bool Begin(const Host& host, const pool::Seats& seats);
  void End();
  // The caller looks for the dead from here on, and hears of those who have a seat by now. The
  // thread that has called Begin.
  void Watch();

 private:
  struct Watched {
    uint32_t pid;  // 0: nobody
    int fd;        // -1: nothing is heard of it
  };

  bool Start(const Host& host);
  static Watched Open(int epoll, uint32_t pid);
  void Run();
  void Tell();

  const Host* host_ = nullptr;
  const pool::Seats* seats_ = nullptr;
  void* thread_ = nullptr;
  int epoll_ = -1;
  int end_ = -1;                           // an eventfd: the thread is to end
  sys::Word ends_{0};                      // the same
  sys::Word heard_{0};                     // deaths; the thread's
  sys::Word looked_{0};                    // heard_ at the last Watch()
  Watched watched_[pool::kMaxSeats] = {};  // the caller's
};

}  // namespace nvcache::vfs

#endif  // NVCACHE_VFS_DEATHS_H_
