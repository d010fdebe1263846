// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/quota.h"

#include <errno.h>
#include <linux/btrfs.h>
#include <linux/dqblk_xfs.h>
#include <linux/magic.h>
#include <linux/quota.h>
#include <sys/sysmacros.h>

#include "src/sys/filter.h"
#include "src/sys/kernel.h"
#include "src/sys/lines.h"
#include "src/sys/scratch.h"

namespace nvcache::vfs {

namespace {

enum class Answer : uint8_t { kNo, kYes, kUnknown };

// The kernel shows the groups while quotas are on.
bool HasQuotaGroups(int fd) {
  sys::Scratch<btrfs_ioctl_fs_info_args> scratch;
  btrfs_ioctl_fs_info_args* const info = scratch.get();
  if (sys::Call(SYS_ioctl, fd, static_cast<long>(BTRFS_IOC_FS_INFO), sys::Address(info)) < 0) {
    return true;
  }
  constexpr char kDigits[] = "0123456789abcdef";
  sys::Text<128> path;
  path.Append("/sys/fs/btrfs/");
  for (int i = 0; i < BTRFS_FSID_SIZE; ++i) {
    const char digits[] = {kDigits[info->fsid[i] / 16], kDigits[info->fsid[i] % 16], '\0'};
    path.Append(i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "").Append(digits);
  }
  struct stat st;
  if (sys::Fstatat(AT_FDCWD, path.c_str(), &st, 0) < 0) return true;
  return sys::Fstatat(AT_FDCWD, path.Append("/qgroups").c_str(), &st, 0) == 0;
}

// Anybody may ask. ESRCH: the kernel knows the question, and there is none.
Answer AskKernel(int fd) {
  constexpr int kUser = 0;  // USRQUOTA; the answer is of the others as well
  constexpr uint16_t kEnforced = FS_QUOTA_UDQ_ENFD | FS_QUOTA_GDQ_ENFD | FS_QUOTA_PDQ_ENFD;
  struct fs_quota_stat state = {};
  uint32_t format = 0;
  const auto ask = [fd](int command, void* at) {
    return sys::CallIfAllowed(SYS_quotactl_fd, fd, QCMD(command, kUser), 0, sys::Address(at));
  };
  const long error = ask(Q_XGETQSTAT, &state);
  if (error == 0) return (state.qs_flags & kEnforced) != 0 ? Answer::kYes : Answer::kNo;
  if (error == -EPERM) return Answer::kUnknown;
  const long none = ask(Q_GETFMT, &format);
  return none == -ESRCH ? Answer::kNo : Answer::kUnknown;
}

// "usrquota", "prjquota" and the like; "noquota" and "uqnoenforce" are not.
bool HasQuotaOption(const char* options) {
  for (; *options != '\0'; ++options) {
    if (*options == 'q' && sys::Behind(options, "quota") != nullptr &&
        sys::Behind(options - 2, "no") == nullptr) {
      return true;
    }
  }
  return false;
}

// As the mount's options say.
bool IsMountedWithQuota(uint64_t device) {
  sys::Scratch<sys::Lines> lines;
  sys::Text<32> number;
  number.AppendNumber(major(device)).Append(":").AppendNumber(minor(device)).Append(" ");
  lines->Open("/proc/thread-self", "mountinfo");
  while (lines->Next()) {
    if (sys::Behind(sys::WordAt(lines->text(), 2), number.c_str()) == nullptr) continue;
    const char* rest = lines->text();
    while (*rest != '\0' && sys::Behind(rest, " - ") == nullptr) ++rest;
    if (*rest != '\0' && HasQuotaOption(sys::WordAt(rest + 3, 2))) return true;
  }
  return false;
}

}  // namespace

bool HasQuota(int fd, uint64_t device) {
  struct statfs fs = {};
  if (sys::Fstatfs(fd, &fs) == 0 && fs.f_type == BTRFS_SUPER_MAGIC) return HasQuotaGroups(fd);
  const Answer answer = AskKernel(fd);
  return answer == Answer::kUnknown ? IsMountedWithQuota(device) : answer == Answer::kYes;
}

}  // namespace nvcache::vfs
