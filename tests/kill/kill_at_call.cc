// SPDX-License-Identifier: BSD-3-Clause
//
// Runs a program and kills it at the boundary of a system call, of whichever thread.
//
//   kill_at_call REPORT N [NAME=VALUE...] PROGRAM ARGUMENT...
//
// Boundaries are where a system call begins or ends, counted over all threads and children from the
// first exec on. At the N-th, all of them are killed before anything more of them runs: a call that
// begins there is not made. With N = 0, or more than there are, the program runs to its end.
//
// One line goes to the file REPORT: how many boundaries there were; 0, or the number of the system
// call that it was killed at, with "begin" or "end"; and the exit status, 137 if killed.
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                         PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
constexpr int kCannotTrace = 77;

[[noreturn]] void Die(const char* what, int status) {
  std::fprintf(stderr, "kill_at_call: %s: %s\n", what, std::strerror(errno));
  std::_Exit(status);
}

pid_t Start(char** command) {
  const pid_t pid = ::fork();
  if (pid < 0) Die("fork", 2);
  if (pid == 0) {
    ::setpgid(0, 0);
    ::raise(SIGSTOP);
    for (; *command != nullptr && std::strchr(*command, '=') != nullptr; ++command) {
      ::putenv(*command);
    }
    ::execvp(command[0], command);
    Die(command[0], 127);
  }
  int status = 0;
  ::waitpid(pid, &status, WUNTRACED);
  if (::ptrace(PTRACE_SEIZE, pid, nullptr, kOptions) != 0) {
    ::kill(pid, SIGKILL);
    Die("it cannot be traced", kCannotTrace);
  }
  ::kill(pid, SIGCONT);
  return pid;
}

class Tracer {
 public:
  Tracer(pid_t pid, unsigned long kill_at) : main_(pid), kill_at_(kill_at) {}

  // The exit status of the first process, once all are gone.
  int Run() {
    int status = 0;
    for (pid_t tid; (tid = ::waitpid(-1, &status, __WALL)) > 0 || errno == EINTR;) {
      if (tid < 0) continue;
      if (WIFSTOPPED(status)) {
        Stopped(tid, status);
      } else if (tid == main_) {
        status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      }
    }
    return status_;
  }

  void Report(const char* path) const {
    FILE* file = std::fopen(path, "w");
    if (file == nullptr) Die(path, 2);
    std::fprintf(file, "%lu %llu %s %d\n", boundaries_, call_, begins_ ? "begin" : "end", status_);
    std::fclose(file);
  }

 private:
  void Stopped(pid_t tid, int status) {
    const int event = status >> 16;
    int signal = WSTOPSIG(status);
    if (event == PTRACE_EVENT_EXEC) started_ = true;
    if (signal == (SIGTRAP | 0x80)) {
      if (started_ && ++boundaries_ == kill_at_) {
        Kill(tid);
        return;
      }
      signal = 0;
    } else if (event != 0) {
      signal = 0;  // of ptrace, not for the program; nobody here wants to stay stopped
    }
    ::ptrace(PTRACE_SYSCALL, tid, nullptr, signal);
  }

  void Kill(pid_t tid) {
    __ptrace_syscall_info info = {};
    ::ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof info, &info);
    begins_ = info.op == PTRACE_SYSCALL_INFO_ENTRY;
    if (begins_) last_ = info.entry.nr;
    call_ = begins_ ? last_ : CallOf(tid);
    ::kill(-main_, SIGKILL);
  }

  // Of a call that has just ended, the register still tells the number.
  static unsigned long long CallOf(pid_t tid) {
    constexpr long kOrigRax = 15 * 8;
    return static_cast<unsigned long long>(::ptrace(PTRACE_PEEKUSER, tid, kOrigRax, nullptr));
  }

  const pid_t main_;
  const unsigned long kill_at_;
  bool started_ = false;
  unsigned long boundaries_ = 0;
  unsigned long long last_ = 0;
  unsigned long long call_ = 0;
  bool begins_ = false;
  int status_ = -1;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr,
                 "usage: kill_at_call REPORT N [NAME=VALUE...] PROGRAM ARGUMENT...\n"
                 "example: kill_at_call report 100 nvcache recover /dev/shm/pool\n");
    return 2;
  }
  const pid_t pid = Start(argv + 3);
  Tracer tracer(pid, std::strtoul(argv[2], nullptr, 0));
  tracer.Run();
  tracer.Report(argv[1]);
  return 0;
}
