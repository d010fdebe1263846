// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/credentials.h"

#include <linux/capability.h>

#include "src/sys/filter.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/sys/status.h"

namespace nvcache::sys {

namespace {

constexpr uint32_t kNobody = ~uint32_t{0};    // changes nothing, and says what it is
constexpr long kMostGroups = 2048;            // that are compared one by one
constexpr uint32_t kAllUsers = ~uint32_t{0};  // in uid_map
constexpr uint64_t kNoCapabilities = 0;

uint32_t Number(long number) { return static_cast<uint32_t>(Call(number)); }

// The call that says it could set it as well, so that a service's filter may end the process for
// it.
uint32_t FsId(long number, const char* line) {
  constexpr int kFourth = 3;  // after the real, effective and saved one
  uint64_t id = kNobody;
  if (!IsFiltered()) return static_cast<uint32_t>(Call(number, long{kNobody}));
  return ReadStatus(line, kFourth, &id) ? static_cast<uint32_t>(id) : kNobody;
}

uint64_t EffectiveCapabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (Call(SYS_capget, Address(&header), Address(data)) < 0) return kNoCapabilities;
  return uint64_t{data[1].effective} << 32 | data[0].effective;
}

// Where there are more than fit, their number has to do.
uint32_t GroupsSum(uint32_t* count) {
  Scratch<uint32_t[kMostGroups]> list;
  long n = Call(SYS_getgroups, kMostGroups, Address(list.get()));
  if (n < 0) n = Call(SYS_getgroups, 0, 0);
  *count = static_cast<uint32_t>(n);
  constexpr uint32_t kPrime = 0x01000193;  // FNV-1a
  uint32_t sum = 0;
  for (long i = 0; i < n && n <= kMostGroups; ++i) sum = (sum ^ list.get()[i]) * kPrime;
  return sum;
}

uint64_t UserNamespace() {
  struct stat st;
  return Fstatat(AT_FDCWD, "/proc/thread-self/ns/user", &st, 0) == 0 ? st.st_ino : 0;
}

// The next number of a text, behind blanks.
uint64_t TakeNumber(const char** text) {
  uint64_t number = 0;
  while (**text == ' ') ++*text;
  for (; **text >= '0' && **text <= '9'; ++*text) {
    number = number * 10 + static_cast<uint64_t>(**text - '0');
  }
  return number;
}

// False where our user 0 is user 0 outside as well, but other users of there are not to be had
// here. A root that is somebody else outside is that user to everybody there.
bool IsRootOfAllUsers() {
  char map[256] = {};
  const long fd = Openat(AT_FDCWD, "/proc/thread-self/uid_map", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return true;  // without /proc nothing is cached
  Read(static_cast<int>(fd), map, sizeof(map) - 1);
  Close(static_cast<int>(fd));
  // "inside outside count"; user 0 is in the first line, or in none.
  const char* at = map;
  const uint64_t inside = TakeNumber(&at), outside = TakeNumber(&at), count = TakeNumber(&at);
  return inside != 0 || outside != 0 || count == kAllUsers;
}

}  // namespace

uint32_t FsUser() { return FsId(SYS_setfsuid, "Uid:"); }
uint32_t FsGroup() { return FsId(SYS_setfsgid, "Gid:"); }

bool Credentials::Take() {
  if (taken_) return false;
  taken_ = true;
  user_ = Number(SYS_geteuid);
  group_ = Number(SYS_getegid);
  fs_user_ = FsUser();
  fs_group_ = FsGroup();
  capabilities_ = EffectiveCapabilities();
  groups_ = GroupsSum(&group_count_);
  user_namespace_ = UserNamespace();
  return true;
}

bool Credentials::AreCurrent() {
  if (Take()) return true;
  if (Number(SYS_geteuid) != user_ || Number(SYS_getegid) != group_) return false;
  if (FsUser() != fs_user_ || FsGroup() != fs_group_) return false;
  if (EffectiveCapabilities() != capabilities_ || UserNamespace() != user_namespace_) return false;
  uint32_t count = 0;
  const uint32_t groups = GroupsSum(&count);
  return count == group_count_ && groups == groups_;
}

bool IsWholeRoot() {
  constexpr uint64_t kOfFiles =
      uint64_t{1} << CAP_CHOWN | uint64_t{1} << CAP_DAC_OVERRIDE | uint64_t{1} << CAP_FOWNER;
  return (EffectiveCapabilities() & kOfFiles) == kOfFiles && IsRootOfAllUsers();
}

}  // namespace nvcache::sys
