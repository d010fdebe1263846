// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/wait.h"

#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "recovery/tool/checkpointer.h"
#include "recovery/tool/commands.h"
#include "recovery/tool/open.h"
#include "recovery/tool/owner.h"
#include "recovery/tool/pending.h"
#include "recovery/tool/progress.h"
#include "recovery/tool/take.h"
#include "recovery/tool/text.h"
#include "src/replay/replay.h"

namespace nvcache::tool {
namespace {

// Between two looks at what is pending, and for each of them.
constexpr std::chrono::milliseconds kPause(20);
constexpr std::chrono::milliseconds kLook(200);
// Nothing has moved for so long: the checkpointer, if it was stopped, is let go on; then a process
// that is stopped is not waited for.
constexpr std::chrono::seconds kStall(2), kPatience(10);

// A signal that somebody has sent to this process alone. The program gets the terminal's signals as
// well: it is in the same process group.
bool IsForUs(const siginfo_t& info) { return info.si_code <= 0; }

// The status of the child, when it has ended; -1: not yet. Any other process that loses its parent
// and becomes our child, as process 1, is let go of.
int StatusOf(pid_t child) {
  int ended = -1, status = 0;
  for (pid_t found; (found = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
    if (found != child) continue;
    if (!WIFSTOPPED(status)) ended = status;
    // The terminal has stopped it: the shell is to see that. A user who sends SIGSTOP knows the
    // program.
    if (WIFSTOPPED(status) && WSTOPSIG(status) != SIGSTOP) raise(SIGSTOP);
  }
  return ended;
}

// Recovers what dead processes have left, if nobody else sees to it.
void RecoverDead(const std::string& path) {
  ScopedPool pool;
  try {
    TakePool(&pool, path, kAnyMemory);
  } catch (const Busy&) {
    return;
  }
  replay::Summary summary;
  if (pool.alone()) {
    RecoverTaken(pool);
  } else if (!replay::ReplayOrphans(pool, &summary)) {
    throw Failure{kRunFailed, fmt::format("pool {0} still holds records; see 'nvcache status {0}'",
                                          Printable(path))};
  }
}

// Whether what is pending gets less, and what is done where a stopped process is in the way.
class Stall {
 public:
  explicit Stall(const pool::Pool& pool, const std::string& path) : pool_(pool), path_(path) {}

  // A Failure: a process that is stopped has what is pending, and nothing helps.
  void Look(const Pending& pending) {
    const auto now = std::chrono::steady_clock::now();
    if (pending.oldest != oldest_ || pending.bytes != bytes_ || since_ == Time()) {
      oldest_ = pending.oldest;
      bytes_ = pending.bytes;
      since_ = now;
    }
    if (now - since_ < kStall) return;
    for (const Process& process : FindProcesses(pool_)) {
      if (!process.stopped) continue;
      // The terminal stops it with the program's process group. It is ours, and nobody else waits
      // for it to stay stopped.
      if (process.checkpointer) kill(static_cast<pid_t>(process.pid), SIGCONT);
      if (now - since_ < kPatience) continue;
      throw Failure{
          kRunFailed,
          fmt::format("process {0} ({1}) is stopped, and has records in pool {2} that are "
                      "not on the disk: let it go on with 'kill -CONT {0}'",
                      process.pid, Name(process), Printable(path_))};
    }
  }

 private:
  using Time = std::chrono::steady_clock::time_point;
  const pool::Pool& pool_;
  const std::string& path_;
  pool::Lsn oldest_ = 0;
  uint64_t bytes_ = 0;
  Time since_;
};

}  // namespace

int RunAsChild(const std::function<void()>& become) {
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  struct sigaction old = {};
  const struct sigaction ordinary = {};
  sigaction(SIGCHLD, &ordinary, &old);
  const pid_t child = fork();
  if (child < 0) throw Failure{kRunFailed, fmt::format("fork: {}", strerror(errno))};
  if (child == 0) {
    sigaction(SIGCHLD, &old, nullptr);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    become();
  }
  int status = -1;
  while (status < 0) {
    siginfo_t info;
    const int number = sigwaitinfo(&all, &info);
    if (number == SIGCHLD) {
      status = StatusOf(child);
    } else if (number > 0 && IsForUs(info)) {
      kill(child, number);
    }
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return status;
}

bool AwaitDisk(const std::string& path, Dead dead, const std::atomic<bool>* ends) {
  ScopedPool pool;
  pool::Problem problem;
  if (!pool.Open(path.c_str(), pool::Mode::kInspect, kAnyMemory, nullptr, &problem)) return false;
  const pool::Seats& seats = pool.seats();
  const pool::Lsn end = seats.next_lsn().load();
  const Wish wish(path, Wish::kHurry);
  Progress progress("bringing to the disk");
  Stall stall(pool, path);
  for (uint64_t most = 0; pool.dirty();) {
    if (ends != nullptr && *ends) return false;
    const bool left = !seats.AnybodyLives() || seats.HasOrphans(pool::kNoSeat);
    if (left && dead == Dead::kOurs) RecoverDead(path);
    seats.WakeCheckpointer();
    const Pending pending = FindPending(pool, kLook);
    if (pending.oldest == 0 ? pending.complete : pending.oldest >= end) break;
    most = std::max(most, pending.bytes);
    progress.Update(most - pending.bytes, most);
    stall.Look(pending);
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

int EndAs(int wait_status) {
  if (WIFEXITED(wait_status)) return WEXITSTATUS(wait_status);
  const int number = WTERMSIG(wait_status);
  const rlimit no_core = {};
  setrlimit(RLIMIT_CORE, &no_core);  // the program has left one
  signal(number, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  sigprocmask(SIG_UNBLOCK, &one, nullptr);
  raise(number);
  return 128 + number;  // shells say it so
}

}  // namespace nvcache::tool
