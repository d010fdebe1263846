// SPDX-License-Identifier: BSD-3-Clause
#include "src/replay/rights.h"

#include <errno.h>
#include <linux/capability.h>

#include "src/sys/credentials.h"
#include "src/sys/kernel.h"

namespace nvcache::replay {

namespace {

constinit Rights acting;  // user 0: nobody else

uint32_t SetUser(uint32_t user) {
  return static_cast<uint32_t>(sys::Call(SYS_setfsuid, static_cast<long>(user)));
}
uint32_t SetGroup(uint32_t group) {
  return static_cast<uint32_t>(sys::Call(SYS_setfsgid, static_cast<long>(group)));
}

// The kernel takes them with the user, unless it was told not to (SECBIT_NO_SETUID_FIXUP).
bool HasFileCapabilities() {
  constexpr uint32_t kOfFiles = 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE |
                                1u << CAP_DAC_READ_SEARCH | 1u << CAP_FOWNER | 1u << CAP_FSETID |
                                1u << CAP_LINUX_IMMUTABLE | 1u << CAP_MKNOD;
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (sys::Call(SYS_capget, sys::Address(&header), sys::Address(data)) < 0) return true;
  return (data[0].effective & kOfFiles) != 0;
}

void UseOwn() {
  SetUser(static_cast<uint32_t>(sys::Geteuid()));
  SetGroup(static_cast<uint32_t>(sys::Call(SYS_getegid)));
}

void UseActing() {
  SetGroup(acting.group);
  SetUser(acting.user);
}

}  // namespace

long ActFor(const Rights& rights) {
  if (rights.user == 0 || sys::Geteuid() != 0 || ActsForAnother()) return -EINVAL;
  const long error =
      sys::Call(SYS_setgroups, static_cast<long>(rights.group_count), sys::Address(rights.groups));
  if (error < 0) return error;
  acting = rights;
  UseActing();
  constexpr auto kNobody = ~uint32_t{0};  // changes nothing, and says what it is
  if (SetUser(kNobody) == rights.user && SetGroup(kNobody) == rights.group &&
      !HasFileCapabilities()) {
    return 0;
  }
  ActForOneself();
  return -EPERM;
}

void ActForOneself() {
  acting = {};
  UseOwn();
}

bool ActsForAnother() { return acting.user != 0; }

uint32_t ActingUser() { return sys::FsUser(); }

OwnRights::OwnRights() {
  if (ActsForAnother()) UseOwn();
}

OwnRights::~OwnRights() {
  if (ActsForAnother()) UseActing();
}

}  // namespace nvcache::replay
