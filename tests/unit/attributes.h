// SPDX-License-Identifier: BSD-3-Clause
//
// What a front end says of a call that has set attributes: pool::kSetMode and so on.
#ifndef NVCACHE_TESTS_UNIT_ATTRIBUTES_H_
#define NVCACHE_TESTS_UNIT_ATTRIBUTES_H_

#include <fcntl.h>
#include <gtest/gtest.h>

#include <string>

#include "src/vfs/attribute_call.h"

namespace nvcache::test {

inline void Sets(int fd, uint32_t set) {
  vfs::AttributeCall call(fd);
  EXPECT_EQ(call.Begin(set), 0);
  call.End(true);
}

inline void SetsByPath(const std::string& path, uint32_t set) {
  vfs::AttributeCall call(AT_FDCWD, path.c_str(), true);
  EXPECT_EQ(call.Begin(set), 0);
  call.End(true);
}

}  // namespace nvcache::test

#endif  // NVCACHE_TESTS_UNIT_ATTRIBUTES_H_
