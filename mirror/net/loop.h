// SPDX-License-Identifier: BSD-3-Clause
//
// The loop of a process waits for descriptors that are ready and times that have come. Callbacks
// run one at a time, may call anything here, and end what they were called for. One thread runs
// them; another one may take a turn.
#ifndef NVCACHE_MIRROR_NET_LOOP_H_
#define NVCACHE_MIRROR_NET_LOOP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mirror/core/ids.h"
#include "src/sys/descriptor.h"

namespace nvcache::mirror {

class Loop {
 public:
  using Handle = uint64_t;                      // is never used twice; 0: none
  using Ready = std::function<void(uint32_t)>;  // gets the events of epoll_wait(2): EPOLLIN, ...
  using Action = std::function<void()>;

  Loop();

  // Level-triggered. A thread of the owner's that wants to be heard has an eventfd for `fd`.
  Handle Watch(int fd, uint32_t events, Ready ready);
  void Change(Handle watch, uint32_t events);
  // Before the descriptor is closed.
  void Unwatch(Handle watch);

  Handle After(Time delay, Action action);
  // One that has come or was cancelled is none any more.
  void Cancel(Handle timer);
  // When the callback that runs now has returned.
  void Later(Action action) { After(0, std::move(action)); }

  // A turn of another thread: until it ends, no callback runs, and the thread is as free as one.
  // The loop does what the thread has put off (Later) at the turn's end.
  class Turn {
   public:
    explicit Turn(Loop* loop);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Loop& loop_;
    std::unique_lock<std::mutex> lock_;
  };

  // Until Stop().
  void Run();
  void Stop() { stopped_ = true; }
  // Waits for something at most so long, and does all that is ready.
  void RunOnce(Time at_most);

  static Time Now();

 private:
  struct Watched {
    int fd;
    Ready ready;
  };

  Time NextWait(Time at_most) const;
  void RunTimers();

  std::mutex mutex_;  // but for the wait
  sys::Descriptor epoll_;
  sys::Descriptor wake_;  // an eventfd: the wait is too long by now
  Time waits_until_ = 0;  // 0: it does not
  Handle last_ = 0;
  std::atomic<bool> stopped_{false};
  std::unordered_map<Handle, std::shared_ptr<Watched>> watched_;
  std::map<std::pair<Time, Handle>, Action> timers_;
  std::unordered_map<Handle, Time> times_;  // the timers'
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_NET_LOOP_H_
