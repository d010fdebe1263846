// SPDX-License-Identifier: BSD-3-Clause
#ifndef NVCACHE_TESTS_UNIT_CAPABILITY_H_
#define NVCACHE_TESTS_UNIT_CAPABILITY_H_

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace nvcache::test {

// The calling thread has this capability no more. False: it could not give it up.
inline bool GiveUp(int capability) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  data[CAP_TO_INDEX(capability)].effective &= ~CAP_TO_MASK(capability);
  return syscall(SYS_capset, &header, data) == 0;
}

}  // namespace nvcache::test

#endif  // NVCACHE_TESTS_UNIT_CAPABILITY_H_
