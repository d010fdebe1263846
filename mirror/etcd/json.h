// SPDX-License-Identifier: BSD-3-Clause
//
// The record as etcd has it: one JSON object, of layout 1.
//
//   {"layout":1,"version":7,"epoch":3,"writer":"host a, process 81",
//    "lineage":"32 hexadecimal digits","pool_size":1073741824,"mode":"mirrored",
//    "holders":[{"address":"a:7070","incarnation":"…"}, …]}
#ifndef NVCACHE_MIRROR_ETCD_JSON_H_
#define NVCACHE_MIRROR_ETCD_JSON_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "mirror/core/record.h"

namespace nvcache::mirror {

inline constexpr size_t kMaxWriter = 1024;   // bytes
inline constexpr size_t kMaxAddress = 261;   // bytes: the longest name of a host, ':', a port
inline constexpr size_t kMaxRecord = 16384;  // bytes of a record's text

// Empty if the record may be stored; else one line that says what is wrong with it.
std::string Problem(const Record& record);

// The text of a record without a Problem. Bytes of the writer that are no UTF-8 become U+FFFD.
std::string ToText(const Record& record);

// None: `*problem` is one line that says what is wrong with the text.
std::optional<Record> ParseRecord(std::string_view text, std::string* problem);

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_ETCD_JSON_H_
