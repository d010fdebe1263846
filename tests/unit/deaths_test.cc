// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/deaths.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "src/pool/pool.h"
#include "tests/unit/host.h"
#include "tests/unit/support.h"

namespace nvcache::vfs {
namespace {

// Nobody rings, and no look would come: who does not hear sleeps until the test has no more time.
constexpr uint64_t kNever = uint64_t{3600} * 1000 * 1000 * 1000;

// A process with a seat, which does nothing.
class User {
 public:
  explicit User(const std::string& path) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    pid_ = fork();
    if (pid_ == 0) {
      pool::Pool pool;
      pool::Problem problem;
      if (!pool.Open(path.c_str(), pool::Mode::kShared, true, nullptr, &problem)) _exit(1);
      if (!pool.Join(&problem) || write(ready[1], "", 1) != 1) _exit(1);
      for (;;) pause();
    }
    close(ready[1]);
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 1) << "it has no seat";
    close(ready[0]);
  }
  ~User() { Kill(); }
  User(const User&) = delete;
  User& operator=(const User&) = delete;

  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
};

class DeathsTest : public testing::Test {
 protected:
  DeathsTest() { test::MakePool(path_); }
  ~DeathsTest() override { deaths_.End(); }

  // As the checkpointer sees it.
  void Begin() {
    pool::Problem problem;
    ASSERT_TRUE(pool_.Open(path_.c_str(), pool::Mode::kInspect, true, nullptr, &problem));
    ASSERT_TRUE(deaths_.Begin(test::UsualHost(), pool_.seats()));
    deaths_.Watch();
  }
  uint32_t Orphans() const {
    uint32_t count = 0;
    for (uint32_t seat = 0; seat < pool_.seats().end(); ++seat) {
      count += pool_.seats().IsOrphan(seat) ? 1 : 0;
    }
    return count;
  }

  const test::Folder folder_{test::Folder::kMemory};
  const std::string path_ = folder_ / "pool";
  test::ScopedPool pool_;
  Deaths deaths_;
};

TEST_F(DeathsTest, ASleeperHears) {
  std::vector<std::unique_ptr<User>> users;
  for (int i = 0; i < 3; ++i) users.push_back(std::make_unique<User>(path_));
  Begin();
  ASSERT_EQ(Orphans(), 0u);
  for (const auto& user : users) user->Kill();
  while (Orphans() < 3) pool_.seats().AwaitBell(pool_.seats().bell(), kNever);
}

TEST_F(DeathsTest, ItIsToldAgainWhatCameBeforeItSlept) {
  User user(path_);
  Begin();
  user.Kill();
  while (Orphans() == 0) usleep(1000);
  usleep(20 * 1000);
  pool_.seats().AwaitBell(pool_.seats().bell(), kNever);
}

TEST_F(DeathsTest, OneThatCameSinceIsHeardOfFromTheNextLookOn) {
  Begin();
  User user(path_);
  deaths_.Watch();
  user.Kill();
  while (Orphans() == 0) pool_.seats().AwaitBell(pool_.seats().bell(), kNever);
}

}  // namespace
}  // namespace nvcache::vfs
