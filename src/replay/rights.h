// SPDX-License-Identifier: BSD-3-Clause
//
// With whose rights the calling thread uses the file system.
//
// A pool's owner put all that lies in the pool there, and it names files. So root recovers a
// pool of another user with that user's rights and none of its own: then no record, however it was
// made, leads to a file that its owner could not write. The one thing that takes root's own right,
// opening a file by its handle, asks for it (resolve.cc).
//
// In a program that recovers its own pool nothing of this is used.
#ifndef NVCACHE_REPLAY_RIGHTS_H_
#define NVCACHE_REPLAY_RIGHTS_H_

#include <cstddef>
#include <cstdint>

namespace nvcache::replay {

struct Rights {
  uint32_t user = 0;
  uint32_t group = 0;
  const uint32_t* groups = nullptr;  // supplementary
  size_t group_count = 0;
};

// From now on, and in threads that are started from now on, these rights count for the file system,
// without the capabilities of root. Only for root, once. 0, or a negated errno: then nothing may be
// done in the name of that user.
long ActFor(const Rights& rights);
// Ends it. The supplementary groups stay.
void ActForOneself();

// A user that somebody else acts for.
bool ActsForAnother();
// The user whose rights count.
uint32_t ActingUser();

// One's own rights again, for as long as it lives.
class OwnRights {
 public:
  OwnRights();
  ~OwnRights();
  OwnRights(const OwnRights&) = delete;
  OwnRights& operator=(const OwnRights&) = delete;
};

}  // namespace nvcache::replay

#endif  // NVCACHE_REPLAY_RIGHTS_H_
