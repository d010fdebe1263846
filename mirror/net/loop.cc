// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/net/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

namespace nvcache::mirror {

namespace {

constexpr Time kMillisecond = 1000000;
constexpr Time kLongest = 60000 * kMillisecond;

}  // namespace

Loop::Loop() : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_.IsOpen() || !wake_.IsOpen()) {
    throw std::system_error(errno, std::generic_category(), "epoll");
  }
  Watch(wake_.get(), EPOLLIN, [this](uint32_t) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = read(wake_.get(), &count, sizeof(count));
  });
}

Loop::Turn::Turn(Loop* loop) : loop_(*loop), lock_(loop->mutex_) {}

Loop::Turn::~Turn() {
  loop_.RunTimers();
  const bool is_due = loop_.NextWait(kLongest) + Now() < loop_.waits_until_;
  if (loop_.waits_until_ == 0 || (!is_due && !loop_.stopped_)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(loop_.wake_.get(), &one, sizeof(one));
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

Time Loop::NextWait(Time at_most) const {
  const Time wait = std::min(at_most, kLongest);
  if (timers_.empty()) return wait;
  const Time now = Now(), next = timers_.begin()->first.first;
  return std::min(wait, next > now ? next - now : 0);
}

void Loop::RunOnce(Time at_most) {
  std::array<epoll_event, 64> events;
  std::unique_lock lock(mutex_);
  const Time wait = NextWait(at_most);
  waits_until_ = Now() + wait;
  lock.unlock();
  const int n = epoll_wait(epoll_.get(), events.data(), events.size(),
                           static_cast<int>((wait + kMillisecond - 1) / kMillisecond));
  lock.lock();
  waits_until_ = 0;
  for (int i = 0; i < n; ++i) {
    const epoll_event event = events[static_cast<size_t>(i)];
    const Handle handle = event.data.u64;  // it is not aligned there
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
