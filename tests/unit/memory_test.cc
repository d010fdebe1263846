// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/memory.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "src/sys/kernel.h"
#include "tests/unit/support.h"

namespace nvcache::sys {
namespace {

TEST(MemoryTest, APlaceForHugePagesBeginsAtTheBoundaryOfOne) {
  const int fd = memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 4 * kHugePage), 0);
  for (const size_t bytes : {kHugePage, kHugePage + 4096, 3 * kHugePage - 4096}) {
    void* const place = HugePlace(bytes);
    ASSERT_NE(place, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(place) % kHugePage, 0u);
    EXPECT_EQ(MapUnlocked(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, place),
              reinterpret_cast<long>(place));
    static_cast<char*>(place)[bytes - 1] = 'x';
    UnmapUnlocked(place, bytes);
  }
  close(fd);
}

TEST(MemoryTest, ThereIsNoneWhereTheAddressSpaceIsFull) {
  EXPECT_EQ(HugePlace(size_t{1} << 60), nullptr);
}

uint64_t LockedKib() {
  std::ifstream status("/proc/self/status");
  std::string name;
  uint64_t kib = 0;
  while (status >> name && name != "VmLck:") continue;
  status >> kib;
  return kib;
}

// What is mapped there would count twice for the limit of locked memory.
TEST(MemoryTest, APlaceIsNotLocked) {
  if (test::kThreadSanitizer || test::kAddressSanitizer) GTEST_SKIP() << "they lock what they have";
  const pid_t child = fork();
  if (child == 0) {
    if (LockAll(MCL_FUTURE) != 0) _exit(test::kSkip);
    const uint64_t before = LockedKib();
    _exit(HugePlace(4 * kHugePage) != nullptr && LockedKib() < before + kHugePage / 1024 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == test::kSkip) GTEST_SKIP() << "no memory may be locked";
  EXPECT_EQ(status, 0);
}

TEST(MemoryTest, WhatTheKernelRefusesIsAnError) {
  EXPECT_EQ(MapUnlocked(kHugePage, PROT_READ, MAP_SHARED, -1, HugePlace(kHugePage)), -EBADF);
}

}  // namespace
}  // namespace nvcache::sys
