// SPDX-License-Identifier: BSD-3-Clause
//
// What a process does next: descriptors that are ready, times that have come. One thread. Callbacks
// may call anything here, and end what they were called for.
#ifndef NVCACHE_MIRROR_NET_LOOP_H_
#define NVCACHE_MIRROR_NET_LOOP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mirror/core/descriptor.h"
#include "mirror/core/ids.h"

namespace nvcache::mirror {

class Loop {
 public:
  using Handle = uint64_t;                      // is never used twice; 0: none
  using Ready = std::function<void(uint32_t)>;  // of epoll_wait(2): EPOLLIN, ...
  using Action = std::function<void()>;

  Loop();

  // Level-triggered. Of a thread of the owner's that wants to be heard: an eventfd.
  Handle Watch(int fd, uint32_t events, Ready ready);
  void Change(Handle watch, uint32_t events);
  // Before the descriptor is closed.
  void Unwatch(Handle watch);

  Handle After(Time delay, Action action);
  // One that has come or was cancelled is none any more.
  void Cancel(Handle timer);
  // When the callback that runs now has returned.
  void Later(Action action) { After(0, std::move(action)); }

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

  int Milliseconds(Time at_most) const;
  void RunTimers();

  Descriptor epoll_;
  Handle last_ = 0;
  bool stopped_ = false;
  std::unordered_map<Handle, std::shared_ptr<Watched>> watched_;
  std::map<std::pair<Time, Handle>, Action> timers_;
  std::unordered_map<Handle, Time> times_;  // of the timers
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_NET_LOOP_H_
