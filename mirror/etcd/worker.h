// SPDX-License-Identifier: BSD-3-Clause
//
// A thread that does jobs in turn, and answers that wait for the thread that asked.
#ifndef NVCACHE_MIRROR_ETCD_WORKER_H_
#define NVCACHE_MIRROR_ETCD_WORKER_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace nvcache::mirror {

using Job = std::function<void()>;

// Functions that other threads leave for the owner of the loop.
class Inbox {
 public:
  Inbox();
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  int fd() const { return fd_; }  // readable: something is there
  void Add(Job job);
  // Calls what is there. Never blocks.
  void Dispatch();

 private:
  int fd_;
  std::mutex mutex_;
  std::deque<Job> jobs_;
};

class Worker {
 public:
  using Due = std::function<std::optional<std::chrono::steady_clock::time_point>()>;

  // In between the jobs, and then at the time that it says, the worker calls `due`. Signals are for
  // other threads.
  explicit Worker(Due due);
  // After the job that is under way; those that wait are dropped.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void Do(Job job);

 private:
  void Run();
  // None: the worker ends. Empty: something may be due.
  std::optional<Job> Next(std::optional<std::chrono::steady_clock::time_point> until);

  Due due_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_ETCD_WORKER_H_
