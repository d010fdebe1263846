// SPDX-License-Identifier: BSD-3-Clause
//
// What the calling thread may do to files, as far as the kernel tells.
#ifndef NVCACHE_SYS_CREDENTIALS_H_
#define NVCACHE_SYS_CREDENTIALS_H_

#include <cstdint>

namespace nvcache::sys {

class Credentials {
 public:
  // Those of this moment, but for the namespace.
  void Take();
  // Before anything that may change it. By itself the look at it takes 12 µs, and a program that
  // changes it does so by a call that we see.
  void TakeNamespace();
  // Whether the calling thread has exactly these. What differs most often is looked at first: a
  // process that is another user by now pays for one system call.
  bool AreCurrent();

 private:
  uint32_t user_ = 0, group_ = 0;        // effective
  uint32_t fs_user_ = 0, fs_group_ = 0;  // setfsuid, setfsgid
  uint64_t capabilities_ = 0;            // effective
  uint32_t group_count_ = 0;             // supplementary groups, and a checksum of them
  uint32_t groups_ = 0;
  uint64_t user_namespace_ = 0;  // its inode
};

// Whether the calling thread, which is user 0, may do to files what root may: nobody has taken the
// capabilities from it, and it is root of all users, not of some that a user namespace has.
bool IsWholeRoot();

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_CREDENTIALS_H_
