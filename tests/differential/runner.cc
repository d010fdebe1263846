// SPDX-License-Identifier: BSD-3-Clause
//
// Executes a sequence of file calls and writes down what each of them answered. It knows nothing of
// NVCache.
//
//   runner OPERATIONS SHARED ROOT START [PROCESS [KILL]]
//
// An operation says which process and which thread does it. All processes walk through the whole
// sequence, and each waits until the operation's turn has come: so there is one at a time, and the
// results do not depend on the scheduler. PROCESS is who goes on after exec; -1, a new first one.
// Before operation KILL, everybody dies.
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/differential/calls.h"
#include "tests/differential/libc.h"

namespace nvcache::differential {

// ---------------------------------------------------------------------------------------------
// The trace.

void Line::Add(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (used_ > 0 && used_ < kLineSize - 1) out_[used_++] = ' ';
  const int room = kLineSize - used_;
  const int wanted = vsnprintf(out_ + used_, static_cast<size_t>(room), format, arguments);
  used_ += wanted < room ? wanted : room - 1;
  va_end(arguments);
}

void Line::Result(long result) {
  const int error = errno;
  if (result < 0) {
    Add("r=%ld e=%s", result, ErrorName(error).c_str());
  } else {
    Add("r=%ld", result);
  }
}

void Line::Digest(const void* bytes, size_t size) {
  Add("h=%016llx", static_cast<unsigned long long>(Hash(bytes, size)));
}

namespace {

std::vector<Operation> g_operations;
std::string g_operations_file;
std::string g_shared_file;
long g_kill = -1;

// ---------------------------------------------------------------------------------------------
// Turns.

void FutexWait(std::atomic<uint32_t>* word, uint32_t seen) {
  syscall(SYS_futex, word, FUTEX_WAIT, seen, nullptr, nullptr, 0);
}
void FutexWake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Until it is `index`'s turn. Short, mostly, but for who has nothing to do for long.
void AwaitTurn(uint32_t index) {
  for (;;) {
    const uint32_t now = g_shared->next.load();
    if (now >= index) return;
    FutexWait(&g_shared->next, now);
  }
}

void GiveTurn(uint32_t index) {
  g_shared->next.store(index + 1);
  FutexWake(&g_shared->next);
}

bool HasChildren(int process) {
  for (const ProcessState& other : g_shared->processes) {
    if (other.alive && other.parent == process) return true;
  }
  return false;
}

// ---------------------------------------------------------------------------------------------
// Threads other than the one that walks.

struct Worker {
  std::atomic<uint32_t> state;  // 0: none, 1: idle, 2: has a call
  const Operation* op;
  Line* line;
  uint32_t index;
};
Worker g_workers[kThreads];

void Execute(const Operation& op, Line* line, uint32_t index);

void* Work(void* argument) {
  auto* worker = static_cast<Worker*>(argument);
  for (;;) {
    uint32_t state;
    while ((state = worker->state.load()) != 2) FutexWait(&worker->state, state);
    Execute(*worker->op, worker->line, worker->index);
    worker->state.store(1);
    FutexWake(&worker->state);
  }
}

void ExecuteOnThread(int thread, const Operation& op, Line* line, uint32_t index) {
  Worker& worker = g_workers[thread];
  worker.op = &op;
  worker.line = line;
  worker.index = index;
  if (worker.state.exchange(2) == 0) {
    pthread_t id;
    if (pthread_create(&id, nullptr, Work, &worker) != 0) abort();
    pthread_detach(id);
  } else {
    FutexWake(&worker.state);
  }
  while (worker.state.load() != 1) FutexWait(&worker.state, 2);
}

// ---------------------------------------------------------------------------------------------
// Processes.

[[noreturn]] void Walk(uint32_t index);

void Fork(const Operation& op, Line* line, uint32_t index) {
  const int child = static_cast<int>(op.Number("child", 1));
  if (child <= g_process || child >= kProcesses || g_shared->processes[child].alive) {
    line->Add("skipped");
    return;
  }
  ProcessState& state = g_shared->processes[child];
  state = Me();
  state.alive = true;
  state.parent = g_process;
  const pid_t pid = fork();
  if (pid == 0) {
    g_process = child;
    for (Worker& worker : g_workers) worker.state = 0;
    Walk(index + 1);
  }
  state.pid = pid;
  line->Add("r=%d", pid > 0 ? child : -1);
}

// The new program writes the line, unless there is none.
void Exec(const Operation& op, Line* line, uint32_t index) {
  const std::string start = std::to_string(index);
  const std::string process = std::to_string(g_process);
  const std::string kill_at = std::to_string(g_kill);
  const char* program = op.Has("missing") ? "/nonexistent/program" : "/proc/self/exe";
  const char* arguments[] = {
      "runner",      g_operations_file.c_str(), g_shared_file.c_str(), g_root.c_str(),
      start.c_str(), process.c_str(),           kill_at.c_str(),       nullptr};
  errno = 0;
  execv(program, const_cast<char**>(arguments));
  line->Result(-1);
}

void Spawn(Line* line) {
  const char* arguments[] = {"true", nullptr};
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, "/bin/true", nullptr, nullptr, const_cast<char**>(arguments), environ);
  int status = -1;
  if (error == 0) waitpid(pid, &status, 0);
  line->Add("r=%d status=%d", error, status);
}

[[noreturn]] void Exit(const Operation& op) {
  if (op.Text("how") == "_exit") _exit(0);
  if (op.Text("how") == "kill") {
    g_shared->killed = 1;
    g_shared->times_used = 0;
    raise(SIGKILL);
  }
  exit(0);
}

void Limit(const Operation& op, Line* line) {
  rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
  if (op.Number("size", -1) >= 0) limit.rlim_cur = static_cast<rlim_t>(op.Number("size"));
  line->Result(setrlimit(RLIMIT_FSIZE, &limit));
}

void Execute(const Operation& op, Line* line, uint32_t index) {
  const std::string& name = op.name();
  const Call call = {op, *line};
  errno = 0;
  if (name == "fork") {
    Fork(op, line, index);
  } else if (name == "exec") {
    Exec(op, line, index);
  } else if (name == "spawn") {
    Spawn(line);
  } else if (name == "rlimit") {
    Limit(op, line);
  } else if (name == "exit") {
    Exit(op);
  } else if (!DoDataCall(call) && !DoDescriptorCall(call) && !DoNameCall(call) &&
             !DoStreamCall(call)) {
    fprintf(stderr, "no such operation: %s\n", name.c_str());
    _exit(2);
  }
}

void Step(uint32_t index) {
  const Operation& op = g_operations[index];
  const int actor = op.process();
  ProcessState& state = g_shared->processes[actor];
  const bool skipped = !state.alive || (op.name() == "exit" && HasChildren(actor));
  Line line(g_shared->lines[index]);
  if (skipped) {
    if (g_process != 0) return;
    line.Add("skipped");
    GiveTurn(index);
  } else if (op.name() == "exit" && actor != 0) {
    // Whoever waits for it writes its line.
    if (g_process == actor) Execute(op, &line, index);
    if (g_process != state.parent) return;
    int status = 0;
    waitpid(state.pid, &status, 0);
    state.alive = false;
    line.Add("status=%d", status);
    GiveTurn(index);
  } else if (g_process == actor) {
    if (op.thread() == 0) {
      Execute(op, &line, index);
    } else {
      ExecuteOnThread(op.thread(), op, &line, index);
    }
    GiveTurn(index);
  }
}

void Walk(uint32_t index) {
  for (; index < g_operations.size(); ++index) {
    AwaitTurn(index);
    if (static_cast<long>(index) == g_kill) kill(0, SIGKILL);
    Step(index);
  }
  _exit(0);  // the last operation of each process is an exit
}

// After exec: which descriptors came through.
void ArriveAfterExec(uint32_t index) {
  Line line(g_shared->lines[index]);
  line.Add("r=0");
  for (const int fd : Me().descriptors) {
    if (fd >= 0) line.Add("%d:%d", fd, fcntl(fd, F_GETFD));
  }
  GiveTurn(index);
}

void ReadOperations() {
  std::ifstream file(g_operations_file);
  for (std::string line; std::getline(file, line);) {
    // Settings and remarks are the driver's.
    if (!line.empty() && line[0] >= '0' && line[0] <= '9') g_operations.emplace_back(line);
  }
  if (g_operations.size() > kMaxOperations) abort();
}

void MapShared() {
  const int fd = open(g_shared_file.c_str(), O_RDWR | O_CLOEXEC);
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) abort();
  g_shared = static_cast<Shared*>(memory);
}

}  // namespace
}  // namespace nvcache::differential

int main(int count, char** arguments) {
  using namespace nvcache::differential;
  if (count < 5) return 2;
  g_operations_file = arguments[1];
  g_shared_file = arguments[2];
  g_root = arguments[3];
  const auto start = static_cast<uint32_t>(std::atol(arguments[4]));
  const int process = count > 5 ? std::atoi(arguments[5]) : -1;
  if (count > 6) g_kill = std::atol(arguments[6]);
  ReadOperations();
  MapShared();
  MakeBuffers();
  signal(SIGXFSZ, SIG_IGN);
  umask(022);
  if (process >= 0) {
    g_process = process;
    ArriveAfterExec(start);
    Walk(start + 1);
  }
  if (chdir(g_root.c_str()) != 0) return 2;
  for (ProcessState& state : g_shared->processes) state.alive = false;
  Me().alive = true;
  Me().parent = -1;
  Me().used_aio = false;
  for (int& fd : Me().descriptors) fd = -1;
  Walk(start);
}
