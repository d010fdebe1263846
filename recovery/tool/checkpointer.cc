// SPDX-License-Identifier: BSD-3-Clause
//
// nvcache checkpointer, and how `nvcache run` leaves one behind.
#include "recovery/tool/checkpointer.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "recovery/tool/commands.h"
#include "recovery/tool/libpmem.h"
#include "recovery/tool/take.h"
#include "recovery/tool/wait.h"
#include "src/pool/glance.h"
#include "src/sys/kernel.h"
#include "src/sys/thread.h"
#include "src/vfs/checkpointer.h"

namespace nvcache::tool {
namespace {

// The open file with the lock, in the process that `nvcache run` leaves behind.
constexpr int kPost = 3;
// Between two looks for a pool, or for the end of another checkpointer.
constexpr std::chrono::milliseconds kPause(500);
// For it to give the pool up; it may have to wait for the disk first.
constexpr std::chrono::seconds kPatience(30), kShortPatience(2), kNoPatience(0);
constexpr std::chrono::milliseconds kShortPause(10);
// The one setting that it has from whoever starts it.
constexpr char kHuge[] = "NVCACHE_HUGE";

struct CheckpointerArguments {
  std::string pool;
  bool stays = false;
  bool left = false;  // `nvcache run` has left it, with kPost
};

volatile sig_atomic_t stopped = 0;

std::string Assignment(const char* name, const char* value) {
  return fmt::format("{}={}", name, value);
}

// ---------------------------------------------------------------------------------------------
// The process.

// "\040" is a blank.
std::string Unescaped(const std::string& text) {
  std::string path;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '\\' && i + 3 < text.size();
    path +=
        escaped ? static_cast<char>(strtol(text.substr(i + 1, 3).c_str(), nullptr, 8)) : text[i];
    if (escaped) i += 3;
  }
  return path;
}

// The folder, if it is of that device. Its type is looked at before it is opened.
int OpenFolder(const std::string& path, uint64_t device) {
  struct stat st = {};
  const int place = open(path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  int fd = -1;
  if (place >= 0 && fstat(place, &st) == 0 && st.st_dev == device) {
    fd = openat(place, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }
  if (place >= 0) close(place);
  return fd;
}

// Some place where the file system is mounted, and that may be read. No other one is asked: its
// server may not answer. The files of Btrfs do not have the device of their mount.
int OpenFileSystem(uint64_t device) {
  std::ifstream mounts("/proc/self/mountinfo");
  const std::string number = fmt::format("{}:{}", major(device), minor(device));
  // "36 35 98:0 /root /mount options shared:1 - ext4 /dev/root rw".
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string id, parent, found, root, mount, word, type;
    words >> id >> parent >> found >> root >> mount;
    while (words >> word && word != "-") continue;
    words >> type;
    if (found != number && type != "btrfs") continue;
    if (const int fd = OpenFolder(Unescaped(mount), device); fd >= 0) return fd;
  }
  return -1;
}

// Brings all to the disk, on a thread of its own, for the engine's adopts the dead.
class ToDisk {
 public:
  using Disk = vfs::CheckpointerHost::Disk;
  ToDisk() = default;
  ~ToDisk() {
    ends_ = true;
    if (thread_.joinable()) thread_.join();
  }
  ToDisk(const ToDisk&) = delete;
  ToDisk& operator=(const ToDisk&) = delete;

  // CheckpointerHost::bring_to_disk.
  Disk Look(const char* pool) {
    if (!thread_.joinable()) return Begin(pool);
    const Disk now = disk_;
    if (now != Disk::kLacksSome) thread_.join();
    return now;
  }

 private:
  Disk Begin(const char* pool) {
    disk_ = Disk::kLacksSome;
    try {
      thread_ = std::thread([this, path = std::string(pool)] { Bring(path); });
    } catch (const std::system_error&) {
      return Disk::kRefuses;
    }
    return Disk::kLacksSome;
  }
  void Bring(const std::string& path) {
    try {
      disk_ = AwaitDisk(path, Dead::kTheirs, &ends_) ? Disk::kHasAll : Disk::kRefuses;
    } catch (const Failure&) {
      disk_ = Disk::kRefuses;
    }
  }

  std::thread thread_;  // joinable from the first question to the last answer
  std::atomic<Disk> disk_{Disk::kLacksSome};
  std::atomic<bool> ends_{false};
};
ToDisk* to_disk = nullptr;  // while the checkpointer runs

void StopOnSignals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { stopped = 1; };
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaction(signal, &action, nullptr);
  signal(SIGXFSZ, SIG_IGN);
}

// The name, priority and limits of the program that `nvcache run` has become are not ours.
void BeNobodys() {
  prctl(PR_SET_NAME, "nvcache");
  std::ofstream("/proc/self/oom_score_adj") << "0\n";
  const sched_param no_priority = {};
  sched_setscheduler(0, SCHED_OTHER, &no_priority);
  for (const auto resource : {RLIMIT_AS, RLIMIT_CPU, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_NOFILE}) {
    rlimit limit;
    if (getrlimit(resource, &limit) != 0) continue;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(resource, &limit);
  }
}

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0 || errno != ENOENT; }

// The open file, with the lock; -1: another checkpointer has it.
int TryPost(const std::string& path) {
  ScopedPool pool;
  TakePool(&pool, path, kAnyMemory);
  RecoverTaken(pool);
  const auto fd = static_cast<int>(pool::OpenLocked(path.c_str(), true));
  if (fd >= 0 && pool::HoldByte(fd, pool::kCheckpointerByte, false)) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

// One that is to stay waits for the pool, for the end of another checkpointer and of a recovery;
// -1: until it was stopped.
int TakePost(const std::string& path, bool stays) {
  for (; stopped == 0; std::this_thread::sleep_for(kPause)) {
    if (stays && !Exists(path)) continue;
    try {
      if (const int fd = TryPost(path); fd >= 0) return fd;
    } catch (const Busy& busy) {
      if (!stays) throw Failure{kFailed, busy.text};
    } catch (const Failure& failure) {
      throw Failure{kFailed, failure.text};
    }
    if (!stays) {
      throw Failure{kFailed, fmt::format("pool {} has a checkpointer; leave the work to it", path)};
    }
  }
  return -1;
}

int Serve(const CheckpointerArguments& arguments) {
  const std::string path = std::filesystem::absolute(arguments.pool).string();
  StopOnSignals();
  if (arguments.left) BeNobodys();
  const int post = arguments.left ? kPost : TakePost(path, arguments.stays);
  if (post < 0) return kOk;
  std::vector<std::string> settings = {"NVCACHE_POOL=" + path, "NVCACHE_EMULATE=1",
                                       "NVCACHE_NOTICE=0", "NVCACHE_DRAM=64k"};
  if (const char* const huge = getenv(kHuge); huge != nullptr) {
    settings.push_back(Assignment(kHuge, huge));
  }
  std::vector<char*> environment;
  for (std::string& setting : settings) environment.push_back(setting.data());
  environment.push_back(nullptr);
  ToDisk bringing;
  to_disk = &bringing;
  const auto bring = [](const char* pool) { return to_disk->Look(pool); };
  static vfs::Checkpointer checkpointer(
      {OpenFileSystem, bring, [] { return stopped != 0; }, arguments.stays});
  return checkpointer.Run(sys::kOwnThreads, environment.data(), post) ? kOk : kFailed;
}

// ---------------------------------------------------------------------------------------------
// Starting it.

// The process is made from this, which is never freed.
struct NewProcess {
  int post;
  std::array<std::string, 4> words;
  std::vector<std::string> settings;
  std::array<char*, 5> arguments;    // and a null pointer
  std::array<char*, 3> environment;  // the same
  struct alignas(64) Stack {
    std::array<char, 8192> bytes;
    void* top() { return bytes.data() + bytes.size(); }
  };
  Stack own_stack, stack_between;
};

// It shares our memory until it is another program, while we go on: so it has nothing to do with
// what libc keeps there, errno included.
int Execute(void* pointer) {
  auto& process = *static_cast<NewProcess*>(pointer);
  const auto post = static_cast<int>(sys::Fcntl(process.post, F_DUPFD, kPost + 1));
  const auto nothing = static_cast<int>(sys::Openat(AT_FDCWD, "/dev/null", O_RDWR));
  if (post >= 0 && nothing >= 0 && sys::Call(SYS_chdir, sys::Address("/")) == 0) {
    for (const int fd : {0, 1, 2}) sys::Call(SYS_dup2, nothing, fd);
    sys::Call(SYS_dup2, post, kPost);
    sys::Call(SYS_close_range, kPost + 1, ~0U, 0);
    constexpr long kSetSize = 8;
    const std::array<uint64_t, 4> ordinary = {};  // SIG_DFL, as the kernel has it; and no signal
    for (int number = 1; number < NSIG; ++number) {
      sys::Call(SYS_rt_sigaction, number, sys::Address(&ordinary), 0, kSetSize);
    }
    sys::Call(SYS_rt_sigprocmask, SIG_SETMASK, sys::Address(&ordinary), 0, kSetSize);
    sys::Call(SYS_setsid);
    sys::Call(SYS_execve, sys::Address("/proc/self/exe"), sys::Address(process.arguments.data()),
              sys::Address(process.environment.data()));
  }
  sys::ExitGroup(1);
}

// Its child loses its parent at once.
int Between(void* pointer) {
  auto& process = *static_cast<NewProcess*>(pointer);
  clone(Execute, process.own_stack.top(), CLONE_VM | SIGCHLD, pointer);
  sys::ExitGroup(0);
}

// Processes that lose their parent become children of ours: as process 1 of a container, say. The
// program that we become shall see none that it has not made.
bool IsReaper() {
  int reaper = 0;
  prctl(PR_GET_CHILD_SUBREAPER, &reaper);
  return getpid() == 1 || reaper != 0;
}

// For how long to wait until nobody uses the pool. Its checkpointer, which is told to look what is
// wanted of it, gives it up; but it may just be taking a seat, and be no other process. The
// kernel may not have freed all of one that was killed.
std::chrono::seconds PatienceWith(const std::string& path) {
  ScopedPool pool;
  pool::Problem problem;
  if (!pool.Open(path.c_str(), pool::Mode::kInspect, kAnyMemory, nullptr, &problem)) return {};
  const pool::Seats& seats = pool.seats();
  const bool has_one = seats.HasCheckpointer();
  seats.WakeCheckpointer();
  uint32_t others = 0, dying = 0;
  for (uint32_t seat = 0; seat < seats.end(); ++seat) {
    if (seat == seats.checkpointer() || !seats.Lives(seat)) continue;
    const bool exists = kill(static_cast<pid_t>(pool::Peek(seats.At(seat).pid)), 0) == 0;
    ++(exists || errno != ESRCH ? others : dying);
  }
  if (others > (has_one && seats.checkpointer() == pool::kNoSeat ? 1 : 0)) return kNoPatience;
  if (others > 0) return kShortPatience;
  return has_one ? kPatience : dying > 0 ? kShortPatience : kNoPatience;
}

}  // namespace

// Nobody is told of the end of the child between (no SIGCHLD, which might stay pending in the
// program), and it is waited for, as it cannot be by accident.
void StartCheckpointer(const std::string& pool) {
  if (IsReaper()) return;
  const auto post = static_cast<int>(pool::OpenLocked(pool.c_str(), true));
  if (post < 0) return;
  if (pool::HoldByte(post, pool::kCheckpointerByte, false)) {
    static auto* const process = new NewProcess{};
    process->post = post;
    process->words = {"nvcache", "checkpointer", "--left",
                      std::filesystem::absolute(pool).string()};
    for (size_t i = 0; i < process->words.size(); ++i) {
      process->arguments[i] = process->words[i].data();
    }
    for (const char* const name : {"LD_LIBRARY_PATH", kHuge}) {
      const char* const value = getenv(name);
      if (value != nullptr) process->settings.push_back(Assignment(name, value));
    }
    for (size_t i = 0; i < process->settings.size(); ++i) {
      process->environment[i] = process->settings[i].data();
    }
    const int child = clone(Between, process->stack_between.top(), CLONE_VM | CLONE_VFORK, process);
    while (child > 0 && waitpid(child, nullptr, __WALL) < 0 && errno == EINTR) continue;
  }
  close(post);
}

Wish::Wish(const std::string& pool, What what)
    : fd_(static_cast<int>(pool::OpenLocked(pool.c_str(), false))) {
  if (fd_ >= 0) pool::HoldByte(fd_, what, true);
}

Wish::~Wish() {
  if (fd_ >= 0) close(fd_);
}

RecoveredPool::RecoveredPool(const std::string& path) : wish_(path, Wish::kKeepOff) {
  const auto begin = std::chrono::steady_clock::now();
  for (;; std::this_thread::sleep_for(kShortPause)) {
    pool::Problem problem;
    if (Open(path.c_str(), pool::Mode::kRecovery, kAnyMemory, LoadLibpmem(), &problem)) return;
    const auto patience = problem.error == EBUSY ? PatienceWith(path) : kNoPatience;
    if (std::chrono::steady_clock::now() - begin < patience) continue;
    if (problem.error == EBUSY) throw Busy(problem);
    throw Failure{kFailed, problem.text.c_str()};
  }
}

void AddCheckpointer(CLI::App& app, int* status) {
  auto arguments = std::make_shared<CheckpointerArguments>();
  CLI::App* command = app.add_subcommand(
      "checkpointer",
      "Bring to the disk what programs that end leave in a pool, until nobody uses the pool.");
  command->add_option("POOL", arguments->pool, "The pool")->required();
  command->add_flag("--stay", arguments->stays,
                    "Do not end when nobody uses the pool; wait for one that is missing");
  command->add_flag("--left", arguments->left)->group("");
  command->footer(
      "'nvcache run' leaves one behind by itself; a pool has one at a time. SIGTERM and SIGINT end "
      "it,\n"
      "when it has brought to the disk what was left. It may be killed: nothing is lost.\n"
      "\n"
      "Example:\n"
      "  nvcache checkpointer --stay /mnt/pmem/pool\n");
  command->callback([arguments, status] { *status = Serve(*arguments); });
}

}  // namespace nvcache::tool
