// SPDX-License-Identifier: BSD-3-Clause
//
// Tests of the engine. A process has one, so each test runs in a child of its own.
#ifndef NVCACHE_TESTS_UNIT_IN_ENGINE_H_
#define NVCACHE_TESTS_UNIT_IN_ENGINE_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <string>
#include <vector>

#include "src/vfs/engine/engine.h"
#include "src/vfs/vfs.h"
#include "tests/unit/host.h"
#include "tests/unit/support.h"

namespace nvcache::vfs {

class EngineTest : public testing::Test {
 protected:
  using Settings = std::vector<std::string>;
  // Nobody outside looks at any file, so each that is hot is cached.
  static constexpr const char* kAllExclusive = "NVCACHE_EXCLUSIVE=*";

  // Runs `body` in a child with an engine on the pool of this name. How the child ends.
  int RunEngine(const std::string& pool, Settings settings, const std::function<void()>& body) {
    return test::InChild([&] {
      settings.push_back("NVCACHE_POOL=" + (memory_ / pool));
      settings.push_back("NVCACHE_EMULATE=1");
      std::vector<char*> environment;
      for (std::string& setting : settings) environment.push_back(setting.data());
      environment.push_back(nullptr);
      engine.lease_folder = memory_.path().c_str();
      Start(*host_, environment.data());
      body();
      Stop();
      return HasFailure() ? 1 : 0;
    });
  }

  std::string Path(const std::string& name) const { return disk_ / name; }
  std::string OnDisk(const std::string& name) const { return test::ReadFile(Path(name)); }
  // As a front end opens it.
  int Open(const std::string& name, int flags = O_RDWR, mode_t mode = 0600) const {
    const std::string path = Path(name);
    OpenGuard guard(AT_FDCWD, path.c_str(), flags, mode);
    EXPECT_EQ(guard.error(), 0);
    const long replaced = guard.Replace();
    const int fd =
        replaced != kNotOurs ? static_cast<int>(replaced) : ::open(path.c_str(), flags, mode);
    EXPECT_GE(fd, 0) << path << ": " << std::strerror(errno);
    EXPECT_EQ(guard.Opened(fd), 0);
    return fd;
  }
  static sys::BornStat BornStatOf(int fd) {
    sys::BornStat st;
    EXPECT_EQ(sys::Look(fd, &st), 0);
    return st;
  }
  static sys::BornStat BornStatOf(const std::string& path) {
    sys::BornStat st;
    EXPECT_EQ(sys::LookAt(AT_FDCWD, path.c_str(), &st, AT_SYMLINK_NOFOLLOW), 0);
    return st;
  }
  static struct stat StatOf(int fd) {
    struct stat st;
    EXPECT_EQ(::fstat(fd, &st), 0);
    return st;
  }

  // As if the program had so many files open: no process here may have that many descriptors.
  static void FillTheTable() {
    TableLock lock;
    sys::BornStat st = {};
    st.st_mode = S_IFREG;
    st.st_dev = ~dev_t{0};
    while (engine.files.New(st) != nullptr) ++st.st_ino;
  }

  // A descriptor that is closed in the end.
  class Closing {
   public:
    explicit Closing(int fd) : fd_(fd) {}
    ~Closing() { EXPECT_EQ(Close(fd_), 0); }
    Closing(const Closing&) = delete;
    Closing& operator=(const Closing&) = delete;
    operator int() const { return fd_; }  // NOLINT(google-explicit-constructor): it is one

   private:
    const int fd_;
  };

  const test::Folder memory_{test::Folder::kMemory};
  const test::Folder disk_;
  const Host* host_ = &test::UsualHost();
};

}  // namespace nvcache::vfs

// A test whose body is that of Fixture::WithEngine(body, settings). The settings are what follows
// the name.
#define TEST_IN_ENGINE(Fixture, Name, ...)                                         \
  class Fixture##_##Name : public Fixture {                                        \
    void TestBody() override {                                                     \
      WithEngine([this] { Body(); }, {__VA_ARGS__});                               \
    }                                                                              \
    void Body();                                                                   \
  };                                                                               \
  [[maybe_unused]] const auto* const g_##Fixture##_##Name =                        \
      testing::RegisterTest(#Fixture, #Name, nullptr, nullptr, __FILE__, __LINE__, \
                            []() -> Fixture* { return new Fixture##_##Name; });    \
  void Fixture##_##Name::Body()

#endif  // NVCACHE_TESTS_UNIT_IN_ENGINE_H_
