// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/deaths.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "src/pool/view.h"
#include "src/sys/kernel.h"

namespace nvcache::vfs {

namespace {

// Between two attempts to wake the checkpointer.
constexpr uint64_t kWakeAgainNs = 1000 * 1000;

long Add(int epoll, int fd, uint32_t once) {
  epoll_event event = {.events = EPOLLIN | once, .data = {.fd = fd}};
  return sys::Call(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, fd, sys::Address(&event));
}

void CloseIfOpen(int* fd) {
  if (*fd >= 0) sys::Close(*fd);
  *fd = -1;
}

uint32_t PidOf(const pool::Seats& seats, uint32_t seat) {
  const uint32_t state = seats.State(seat);
  const bool has_one = state == pool::kSeatTaken || state == pool::kSeatReplayed;
  return has_one ? pool::Peek(seats.At(seat).pid) : 0;
}

}  // namespace

bool Deaths::Begin(const Host& host, const pool::Seats& seats) {
  host_ = &host;
  seats_ = &seats;
  ends_.store(0);
  if (Start(host)) return true;
  End();
  return false;
}

bool Deaths::Start(const Host& host) {
  epoll_ = static_cast<int>(sys::Call(SYS_epoll_create1, EPOLL_CLOEXEC));
  end_ = static_cast<int>(sys::Call(SYS_eventfd2, 0, EFD_CLOEXEC));
  if (epoll_ < 0 || end_ < 0 || Add(epoll_, end_, 0) < 0) return false;
  thread_ = host.start_thread([](void* self) { static_cast<Deaths*>(self)->Run(); }, this);
  return thread_ != nullptr;
}

void Deaths::End() {
  if (thread_ != nullptr) {
    constexpr uint64_t kOne = 1;
    ends_.store(1);
    sys::Write(end_, &kOne, sizeof(kOne));
    host_->join_thread(thread_);
    thread_ = nullptr;
  }
  for (Watched& watched : watched_) {
    if (watched.pid != 0) CloseIfOpen(&watched.fd);
    watched.pid = 0;
  }
  CloseIfOpen(&end_);
  CloseIfOpen(&epoll_);
}

Deaths::Watched Deaths::Open(int epoll, uint32_t pid) {
  Watched watched = {pid, -1};
  if (pid == 0 || static_cast<long>(pid) == sys::Getpid()) return watched;
  watched.fd = static_cast<int>(sys::Call(SYS_pidfd_open, pid, 0));
  if (watched.fd >= 0 && Add(epoll, watched.fd, EPOLLONESHOT) < 0) CloseIfOpen(&watched.fd);
  return watched;
}

void Deaths::Watch() {
  if (thread_ == nullptr) return;
  looked_.store(heard_.load());
  for (uint32_t seat = 0; seat < seats_->count(); ++seat) {
    Watched& watched = watched_[seat];
    const uint32_t pid = seat < seats_->end() ? PidOf(*seats_, seat) : 0;
    if (pid == watched.pid) continue;
    if (watched.pid != 0) CloseIfOpen(&watched.fd);
    watched = Open(epoll_, pid);
  }
}

void Deaths::Run() {
  for (;;) {
    epoll_event event;
    const long n = sys::Call(SYS_epoll_wait, epoll_, sys::Address(&event), 1, -1);
    if (n == -EINTR) continue;
    if (n < 0 || event.data.fd == end_) return;
    heard_.fetch_add(1);
    Tell();
  }
}

void Deaths::Tell() {
  for (;;) {
    const uint32_t looked = looked_.load();
    if (looked == heard_.load() || ends_.load() != 0) return;
    seats_->WakeCheckpointer();
    sys::FutexWait(&looked_, looked, kWakeAgainNs);
  }
}

}  // namespace nvcache::vfs
