// SPDX-License-Identifier: BSD-3-Clause
//
// Base64 with padding (RFC 4648, 4), in which etcd's gateway has keys and values.
#ifndef NVCACHE_MIRROR_ETCD_BASE64_H_
#define NVCACHE_MIRROR_ETCD_BASE64_H_

#include <optional>
#include <string>
#include <string_view>

namespace nvcache::mirror {

std::string Base64(std::string_view bytes);
// None for what Base64 does not make.
std::optional<std::string> FromBase64(std::string_view text);

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_ETCD_BASE64_H_
