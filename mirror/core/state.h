// SPDX-License-Identifier: BSD-3-Clause
//
// A mirror's state says what a program's sync has to do (docs/mirror.md: A mirror). The mirror
// stores it in the pool's shared state; it alone changes it.
#ifndef NVCACHE_MIRROR_CORE_STATE_H_
#define NVCACHE_MIRROR_CORE_STATE_H_

#include <cstdint>

#include "src/pool/shared_state.h"

namespace nvcache::mirror {

enum class State : uint32_t {
  kNone = pool::kMirrorNone,
  kReal = pool::kMirrorReal,
  kJoining = pool::kMirrorJoining,
  kMirrored = pool::kMirrorMirrored,
  kLeaving = pool::kMirrorLeaving,
  kFailing = pool::kMirrorFailing,
  kFenced = pool::kMirrorFenced,
};

// In lower case, as in docs/mirror.md.
constexpr const char* Text(State state) {
  constexpr const char* kTexts[] = {"none",    "real",    "joining", "mirrored",
                                    "leaving", "failing", "fenced"};
  return kTexts[static_cast<uint32_t>(state)];
}

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_CORE_STATE_H_
