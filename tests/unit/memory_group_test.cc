// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/memory_group.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/support.h"

namespace nvcache::sys {
namespace {

// A process's folder in /proc, and file systems of groups.
class MemoryGroupTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = (folder_ / name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  // `root` is what the mount shows.
  void Mount(const std::string& type, const std::string& options, const std::string& root) {
    mounts_ += "35 31 0:32 " + root + " " + (folder_ / type) + " rw,relatime shared:5 - " + type +
               " " + type + " rw" + options + "\n";
    Write("proc/mountinfo", "22 1 0:4 / / rw - ext4 /dev/sda rw,cgroup\n" + mounts_);
  }
  void Second(const std::string& group, const std::string& max, uint64_t used, uint64_t file = 0) {
    Write("cgroup2" + group + "/memory.max", max + "\n");
    Write("cgroup2" + group + "/memory.high", "max\n");
    Write("cgroup2" + group + "/memory.current", std::to_string(used) + "\n");
    Write("cgroup2" + group + "/memory.stat",
          "anon 7\nactive_file 0\nunevictable 9\ninactive_file " + std::to_string(file) + "\n");
  }
  void First(const std::string& group, uint64_t limit, uint64_t used, uint64_t file = 0) {
    Write("cgroup" + group + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    Write("cgroup" + group + "/memory.usage_in_bytes", std::to_string(used) + "\n");
    Write("cgroup" + group + "/memory.stat",
          "inactive_file 5\ntotal_inactive_file 0\n"
          "total_active_file " +
              std::to_string(file) + "\n");
  }
  uint64_t Free() { return FreeInGroups((folder_ / "proc").c_str()); }

  test::Folder folder_;
  std::string mounts_;
};

TEST_F(MemoryGroupTest, NobodyTells) {
  EXPECT_EQ(Free(), kNoLimit);
  Mount("cgroup2", "", "/");
  EXPECT_EQ(Free(), kNoLimit);
  Write("proc/cgroup", "0::/a/b\n");
  EXPECT_EQ(Free(), kNoLimit);
}

TEST_F(MemoryGroupTest, TheTightestOfAllUpwards) {
  Mount("cgroup2", "", "/");
  Write("proc/cgroup", "0::/a/b\n");
  Second("/a/b", "max", 700);
  EXPECT_EQ(Free(), kNoLimit);
  Second("/a", "1000", 800);
  EXPECT_EQ(Free(), 200u);
  Second("/a/b", "5000", 4900);
  EXPECT_EQ(Free(), 100u);
  Write("cgroup2/a/memory.high", "850\n");
  EXPECT_EQ(Free(), 50u);
  Second("", "900", 900);
  EXPECT_EQ(Free(), 0u);
  Second("/b", "1", 1);  // another one
  EXPECT_EQ(Free(), 0u);
}

TEST_F(MemoryGroupTest, PagesOfFilesCountAsLeft) {
  Mount("cgroup2", "", "/");
  Write("proc/cgroup", "0::/a\n");
  Second("/a", "1000", 1000, 300);
  EXPECT_EQ(Free(), 300u);
  Second("/a", "1000", 2000, 300);
  EXPECT_EQ(Free(), 300u);
  Second("/a", "1000", 1000, 5000);
  EXPECT_EQ(Free(), 1000u);
}

TEST_F(MemoryGroupTest, VersionOne) {
  Mount("cgroup", ",cpu,memory", "/");
  Mount("cgroup2", "", "/");
  Write("proc/cgroup", "9:name=systemd:/x\n4:cpu,memory:/a\n0::/\n");
  First("/a", 9223372036854771712u, 900);
  EXPECT_EQ(Free(), kNoLimit);
  First("/a", 1000, 900, 20);
  EXPECT_EQ(Free(), 120u);
}

TEST_F(MemoryGroupTest, OtherControllersAreNone) {
  Mount("cgroup", ",memoryless", "/");
  Write("proc/cgroup", "4:memoryless:/a\n");
  First("/a", 1000, 900);
  EXPECT_EQ(Free(), kNoLimit);
}

// A container sees its own group as the mount's root, and by its name outside in /proc.
TEST_F(MemoryGroupTest, AMountOfAPartOfTheTree) {
  Mount("cgroup", ",memory", "/docker/1234");
  Write("proc/cgroup", "4:memory:/docker/1234/a\n");
  First("", 1000, 100);
  First("/a", 500, 100);
  EXPECT_EQ(Free(), 400u);
  Write("proc/cgroup", "4:memory:/docker/1234\n");
  EXPECT_EQ(Free(), 900u);
  for (const char* outside :
       {"/elsewhere", "/docker/12345", "/docker/1234a/a", "/docker/123", "/"}) {
    Write("proc/cgroup", std::string("4:memory:") + outside + "\n");
    EXPECT_EQ(Free(), 900u) << outside;
  }
}

}  // namespace
}  // namespace nvcache::sys
