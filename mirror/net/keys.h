// SPDX-License-Identifier: BSD-3-Clause
//
// Files of keys: "IDENTITY:HEX" or "IDENTITY:HEX:NAMES" a line, as psktool(1) makes them, and '#'
// for a comment. NAMES are globs of mirror names with commas between; without them, a key is for
// the mirror whose name is IDENTITY.
#ifndef NVCACHE_MIRROR_NET_KEYS_H_
#define NVCACHE_MIRROR_NET_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace nvcache::mirror {

inline constexpr size_t kMinSecret = 16, kMaxSecret = 64;  // bytes of a key
inline constexpr size_t kMaxIdentity = 64;

struct Key {
  std::string identity;  // letters, digits, '.', '_', '-', '@'
  std::vector<uint8_t> secret;
  std::vector<std::string> names;

  bool MayUse(const std::string& name) const;
};

// At least one. A NetError names the file, the line, and what is wrong with it; never the key.
std::vector<Key> ReadKeys(const std::string& path);

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_NET_KEYS_H_
