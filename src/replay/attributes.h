// SPDX-License-Identifier: BSD-3-Clause
//
// Attributes of what is open with O_PATH, as a record has them, if it has others. 0, or a negated
// errno.
#ifndef NVCACHE_REPLAY_ATTRIBUTES_H_
#define NVCACHE_REPLAY_ATTRIBUTES_H_

#include <cstdint>

#include "src/pool/name_record.h"

namespace nvcache::replay {

// Owner before mode: to be given away takes set-user-ID away.
inline constexpr uint32_t kInOrder[] = {pool::kSetOwner, pool::kSetMode, pool::kSetTimes};
// One of these. `is_changed`: bytes that came later have set the time of a change anew.
long SetAttribute(uint32_t which, const pool::NameRecord& record, bool is_changed, int look);
// Owner and mode.
long SetAsBorn(int look, const pool::NameRecord& record);

}  // namespace nvcache::replay

#endif  // NVCACHE_REPLAY_ATTRIBUTES_H_
