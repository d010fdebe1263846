// SPDX-License-Identifier: BSD-3-Clause
//
// What a sync of a program has to do on a mirrored pool (docs/mirror.md: A mirror). The mirror
// stores it in the pool's shared state; it alone changes it.
#ifndef NVCACHE_MIRROR_CORE_STATE_H_
#define NVCACHE_MIRROR_CORE_STATE_H_

#include <cstdint>

namespace nvcache::mirror {

enum class State : uint32_t {
  kNone = 0,      // it waits: no mirror has come yet
  kReal = 1,      // it is real, and looks at the state again
  kJoining = 2,   // it is real, and waits for the images
  kMirrored = 3,  // it waits for the images
  kLeaving = 4,   // it waits for another state
  kFailing = 5,   // it fails
  kFenced = 6,    // it fails, for good
};

// In lower case, as in docs/mirror.md.
constexpr const char* Text(State state) {
  constexpr const char* kTexts[] = {"none",    "real",    "joining", "mirrored",
                                    "leaving", "failing", "fenced"};
  return kTexts[static_cast<uint32_t>(state)];
}

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_CORE_STATE_H_
