// SPDX-License-Identifier: BSD-3-Clause
#include "tests/differential/side.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <thread>

#include "tests/kit/files.h"

namespace nvcache::differential {
namespace {

namespace fs = std::filesystem;

// No sequence takes so long; who does is stuck.
constexpr int kStuckMs = 120'000;
constexpr int kStuck = -1;

bool EndsFirstProcess(const std::string& line) {
  return line.starts_with("0.") && line.find(" exit") == 3;
}

}  // namespace

std::vector<std::string> WithEnds(const std::vector<std::string>& operations) {
  std::vector<std::string> all = operations;
  for (int process = kProcesses - 1; process >= 0; --process) {
    all.push_back(fmt::format("{}.0 exit", process));
  }
  return all;
}

Side::Side(std::string runner, FrontEnd front_end, std::string folder, std::string memory)
    : runner_(std::move(runner)),
      front_end_(std::move(front_end)),
      folder_(std::move(folder)),
      memory_(std::move(memory)) {
  fs::create_directories(folder_);
  fs::create_directories(memory_);
  const int fd = ::open((memory_ + "/shared").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(Shared)) != 0) throw std::bad_alloc();
  void* memory_map = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory_map == MAP_FAILED) throw std::bad_alloc();
  shared_ = static_cast<Shared*>(memory_map);
}

Side::~Side() {
  ::munmap(shared_, sizeof(Shared));
  if (keep_) return;
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
  fs::remove_all(memory_, ignored);
  fs::remove(fs::path(folder_).parent_path(), ignored);  // the last one
}

std::string Side::said() const { return kit::Slurp(memory_ + "/output"); }

void Side::Prepare(const Sequence& sequence) {
  fs::remove_all(root());
  fs::create_directories(root());
  fs::remove(pool());
  fs::remove(memory_ + "/output");
  std::memset(static_cast<void*>(shared_), 0, sizeof(Shared));
  std::ofstream file(memory_ + "/operations");
  for (const std::string& line : WithEnds(sequence.operations)) file << line << '\n';
}

pid_t Side::Start(const Sequence& sequence, uint32_t index, long kill_before) const {
  std::vector<std::string> words = {
      runner_, memory_ + "/operations",    memory_ + "/shared", root(), std::to_string(index),
      "-1",    std::to_string(kill_before)};
  std::vector<std::string> environment = {"PATH=/usr/bin:/bin", "LC_ALL=C"};
  if (front_end_.cached) {
    if (!front_end_.preload.empty()) environment.push_back("LD_PRELOAD=" + front_end_.preload);
    environment.push_back("NVCACHE_POOL=" + pool());
    environment.emplace_back("NVCACHE_EMULATE=1");
    environment.push_back("NVCACHE_INCLUDE=" + root() + "/*");
    if (const char* plant = std::getenv("DIFFERENTIAL_PLANT")) {
      environment.push_back(std::string("DIFFERENTIAL_PLANT=") + plant);
    }
    for (const std::string& setting : sequence.settings) environment.push_back(setting);
  }
  const auto pointers = [](std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (std::string& string : strings) result.push_back(string.data());
    result.push_back(nullptr);
    return result;
  };
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const std::string output = memory_ + "/output";
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  ::posix_spawn(&pid, runner_.c_str(), &actions, &attributes, pointers(words).data(),
                pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

// The status, or kStuck.
int Side::Await(pid_t pid, const Kill& kill) const {
  if (kill.during >= 0) {
    siginfo_t ended = {};
    while (shared_->next.load() < kill.during && ended.si_pid == 0) {
      ::waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(kill.delay_us));
    ::kill(-pid, SIGKILL);
  }
  const auto pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  pollfd event = {pidfd, POLLIN, 0};
  const bool ended = ::poll(&event, 1, kStuckMs) == 1;
  ::close(pidfd);
  if (!ended) ::kill(-pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return ended ? status : kStuck;
}

void Side::RunAll(const Sequence& sequence, const Kill& kill, std::string* trouble) {
  Prepare(sequence);
  const std::vector<std::string> all = WithEnds(sequence.operations);
  while (shared_->next.load() < all.size()) {
    const pid_t pid = Start(sequence, shared_->next.load(), kill.before);
    const int status = Await(pid, kill);
    // Whoever is left of its children, which are ours now.
    ::kill(-pid, SIGKILL);
    while (::waitpid(-pid, nullptr, 0) > 0) {
    }
    const uint32_t index = shared_->next.load();
    if (kill.during >= 0 || index == kill.before) return;
    if (status == kStuck || index >= all.size() || !EndsFirstProcess(all[index])) {
      *trouble = status == kStuck ? fmt::format("stuck at {}", index)
                                  : fmt::format("ended at {} with status {:#x}", index, status);
      return;
    }
    std::snprintf(shared_->lines[index], kLineSize, "status=%d", status);
    shared_->next.store(index + 1);
    if (kill.before == index + 1) return;
  }
}

Outcome Side::Run(const Sequence& sequence, const Kill& kill) {
  Outcome outcome;
  RunAll(sequence, kill, &outcome.trouble);
  const size_t all = sequence.operations.size() + kProcesses;
  for (size_t i = 0; i < all; ++i) outcome.lines.emplace_back(shared_->lines[i]);
  outcome.tree = ReadTree(root());
  return outcome;
}

std::string Side::Answer(uint32_t index) const { return shared_->lines[index]; }

uint32_t Side::RunUntilKilled(const Sequence& sequence, const Kill& kill, std::string* trouble) {
  RunAll(sequence, kill, trouble);
  return shared_->next.load();
}

}  // namespace nvcache::differential
