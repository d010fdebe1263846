// SPDX-License-Identifier: BSD-3-Clause
//
// The calling thread's rights to files, as far as the kernel tells.
#ifndef NVCACHE_SYS_CREDENTIALS_H_
#define NVCACHE_SYS_CREDENTIALS_H_

#include <cstdint>

namespace nvcache::sys {

class Credentials {
 public:
  // Those of the moment in which it is called first: before anything that may change them. So not
  // at the program's start, where the look takes 15 µs: it changes them by a call that we see.
  // True: this is that moment.
  bool Take();
  // Whether the calling thread has exactly these. The users, which differ most often, are compared
  // first: a process that is another user by now pays for one system call.
  bool AreCurrent();

 private:
  uint32_t user_ = 0, group_ = 0;        // effective
  uint32_t fs_user_ = 0, fs_group_ = 0;  // setfsuid, setfsgid
  uint64_t capabilities_ = 0;            // effective
  uint32_t group_count_ = 0;             // supplementary groups, and a checksum of them
  uint32_t groups_ = 0;
  uint64_t user_namespace_ = 0;  // its inode
  bool taken_ = false;
};

// The user and the group by which the kernel judges the calling thread's rights to files.
uint32_t FsUser();
uint32_t FsGroup();

// Whether the calling thread, which is user 0, has root's rights to files: nobody has taken the
// capabilities from it, and it is root of all users, not of some that a user namespace has.
bool IsWholeRoot();

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_CREDENTIALS_H_
