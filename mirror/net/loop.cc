// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/net/loop.h"

#include <sys/epoll.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

namespace nvcache::mirror {

namespace {

constexpr Time kMillisecond = 1000000;
constexpr Time kLongest = 60000 * kMillisecond;

}  // namespace

Loop::Loop() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_.IsOpen()) throw std::system_error(errno, std::generic_category(), "epoll");
}

Time Loop::Now() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<Time>(now.tv_sec) * 1000 * kMillisecond + static_cast<Time>(now.tv_nsec);
}

Loop::Handle Loop::Watch(int fd, uint32_t events, Ready ready) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = ++last_;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw std::system_error(errno, std::generic_category(), "epoll");
  }
  watched_[last_] = std::make_shared<Watched>(Watched{fd, std::move(ready)});
  return last_;
}

void Loop::Change(Handle watch, uint32_t events) {
  const auto found = watched_.find(watch);
  if (found == watched_.end()) return;
  epoll_event event = {};
  event.events = events;
  event.data.u64 = watch;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second->fd, &event);
}

void Loop::Unwatch(Handle watch) {
  const auto found = watched_.find(watch);
  if (found == watched_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second->fd, nullptr);
  watched_.erase(found);
}

Loop::Handle Loop::After(Time delay, Action action) {
  const Time time = Now() + delay;
  timers_[{time, ++last_}] = std::move(action);
  times_[last_] = time;
  return last_;
}

void Loop::Cancel(Handle timer) {
  const auto found = times_.find(timer);
  if (found == times_.end()) return;
  timers_.erase({found->second, timer});
  times_.erase(found);
}

void Loop::Run() {
  for (stopped_ = false; !stopped_;) RunOnce(kLongest);
}

int Loop::Milliseconds(Time at_most) const {
  Time wait = std::min(at_most, kLongest);
  if (!timers_.empty()) {
    const Time now = Now(), next = timers_.begin()->first.first;
    wait = std::min(wait, next > now ? next - now : 0);
  }
  return static_cast<int>((wait + kMillisecond - 1) / kMillisecond);
}

void Loop::RunOnce(Time at_most) {
  std::array<epoll_event, 64> events;
  const int n = epoll_wait(epoll_.get(), events.data(), events.size(), Milliseconds(at_most));
  for (int i = 0; i < n; ++i) {
    const epoll_event event = events[static_cast<size_t>(i)];
    const Handle handle = event.data.u64;  // which is not aligned there
    const auto found = watched_.find(handle);
    if (found == watched_.end()) continue;  // a callback before this one has ended it
    const std::shared_ptr<Watched> watched = found->second;
    watched->ready(event.events);
  }
  RunTimers();
}

// Those that had come when this began: one that makes another one at once holds up nobody.
void Loop::RunTimers() {
  const std::pair<Time, Handle> end = {Now(), last_ + 1};
  while (!timers_.empty() && timers_.begin()->first < end) {
    const auto first = timers_.begin();
    const Action action = std::move(first->second);
    times_.erase(first->first.second);
    timers_.erase(first);
    action();
  }
}

}  // namespace nvcache::mirror
