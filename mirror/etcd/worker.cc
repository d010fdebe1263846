// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/etcd/worker.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <system_error>
#include <utility>

namespace nvcache::mirror {

Inbox::Inbox() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Inbox::~Inbox() { close(fd_); }

void Inbox::Add(Job job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  // Fails only where the counter is full, and then the descriptor is readable.
  const uint64_t one = 1;
  (void)!write(fd_, &one, sizeof(one));
}

void Inbox::Dispatch() {
  std::deque<Job> jobs;
  {
    const std::lock_guard lock(mutex_);
    uint64_t count = 0;
    (void)!read(fd_, &count, sizeof(count));
    jobs.swap(jobs_);
  }
  for (const Job& job : jobs) job();
}

Worker::Worker(Due due) : due_(std::move(due)) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Worker::Do(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

std::optional<Job> Worker::Next(std::optional<std::chrono::steady_clock::time_point> until) {
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return ends_ || !jobs_.empty(); };
  if (!until) {
    changed_.wait(lock, ready);
  } else {
    changed_.wait_until(lock, *until, ready);
  }
  if (ends_) return std::nullopt;
  if (jobs_.empty()) return Job();
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

void Worker::Run() {
  while (const std::optional<Job> job = Next(due_())) {
    if (*job) (*job)();
  }
}

}  // namespace nvcache::mirror
