// SPDX-License-Identifier: BSD-3-Clause
//
// The numbers and names that mirrors, servers and the record speak of (docs/mirror.md).
#ifndef NVCACHE_MIRROR_CORE_IDS_H_
#define NVCACHE_MIRROR_CORE_IDS_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace nvcache::mirror {

using Epoch = uint64_t;     // 0: none was ever taken
using Position = uint64_t;  // an LSN; an image has every group below it. 0: it has nothing
using Version = uint64_t;   // the record's
using Time = uint64_t;      // ns of a clock that never goes back

// A lineage (the uuid of a pool) or the incarnation of a server. All zero: none.
struct Id {
  std::array<uint8_t, 16> bytes = {};

  auto operator<=>(const Id&) const = default;
  bool IsNone() const { return *this == Id{}; }
  // 32 hexadecimal digits, in lower case.
  std::string Text() const;
  static std::optional<Id> Parse(std::string_view text);
};

// Mirror names are 1 to kMaxName letters, digits, '.', '_' and '-', and begin with a letter or
// digit.
inline constexpr size_t kMaxName = 64;
bool IsName(std::string_view name);

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_CORE_IDS_H_
