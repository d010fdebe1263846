// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_TESTS_UNIT_TRACED_H_
#define NVCACHE_TESTS_UNIT_TRACED_H_

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "tests/unit/support.h"

namespace nvcache::test {

// Runs `body` in a child, and `act` as the child's n-th system call begins or ends, if there are so
// many. The result is that of InChild, but for a child that cannot be traced: kSkip.
inline int WithActAt(int n, const std::function<void(pid_t)>& act,
                     const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kSkip);
    raise(SIGSTOP);
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  while (WIFSTOPPED(status)) {
    if (n-- == 0) act(pid);
    ptrace(PTRACE_SYSCALL, pid, nullptr, nullptr);
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
  }
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// Runs `body` in a child, after `begin` there, and `act` when so many instructions of the body are
// done, if there are so many. The result as above.
inline int WithActAfter(int instructions, const std::function<void(pid_t)>& act,
                        const std::function<void()>& begin, const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    begin();
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kSkip);
    raise(SIGSTOP);
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  for (; WIFSTOPPED(status) && instructions > 0; --instructions) {
    ptrace(PTRACE_SINGLESTEP, pid, nullptr, nullptr);
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
  }
  if (WIFSTOPPED(status)) {
    act(pid);
    ptrace(PTRACE_CONT, pid, nullptr, nullptr);
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
  }
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// Runs `body` in a child and kills it as its first system call begins, then, after `prepare`, as it
// ends, and so on, `share` calls further each time, until a child comes to its end. `check` looks
// at what each of them has left. The result says how many calls there were; -1 for a child that
// cannot be traced. The body's result is to be 0.
inline int KillAtEveryCall(const std::function<void()>& prepare, const std::function<int()>& body,
                           const std::function<void()>& check, int first = 0, int share = 1) {
  int status = -SIGKILL;
  int steps = first;
  for (; status == -SIGKILL; steps += share) {
    SCOPED_TRACE(steps);
    prepare();
    status = WithActAt(
        steps, [](pid_t pid) { kill(pid, SIGKILL); }, body);
    if (status == kSkip) return -1;
    EXPECT_TRUE(status == -SIGKILL || status == 0) << status;
    check();
    if (testing::Test::HasFailure()) break;
  }
  return steps;
}

}  // namespace nvcache::test

#endif  // NVCACHE_TESTS_UNIT_TRACED_H_
