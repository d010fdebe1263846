// SPDX-License-Identifier: BSD-3-Clause
//
// Numbers and names as people read them.
#ifndef NVCACHE_RECOVERY_TOOL_TEXT_H_
#define NVCACHE_RECOVERY_TOOL_TEXT_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "src/pool/format.h"

namespace nvcache::tool {

using Json = nlohmann::ordered_json;

// "512 B", "4 KiB", "1.5 GiB".
std::string Size(uint64_t bytes);
// "1 record", "7 records".
std::string Many(uint64_t n, std::string_view one, std::string_view several);
// "340 ms", "12.3 s", "4 min", "3 h", "9 days".
std::string Duration(uint64_t nanoseconds);
// The same of microseconds, for what may be less than one of its units.
std::string Microseconds(uint64_t us);
// Nanoseconds since 1970 as "2024-02-29 12:34:56 UTC".
std::string Time(uint64_t nanoseconds);
// "ENOSPC", or the number where it has no name.
std::string ErrorName(int error);
// Safe to print on a terminal: control characters and what is not UTF-8 as \x1b.
std::string Printable(std::string_view bytes);

std::string PathOf(const pool::FileRecord& record);
// `key`, and `key`_hex when its bytes are not UTF-8, which JSON cannot hold.
void PutPath(Json& object, const std::string& key, const std::string& path);

std::string OneLine(const Json& json);
std::string Indented(const Json& json);
// A text that is no JSON gives a value that is discarded, of no type.
Json Parse(const std::string& text);

// Nanoseconds since `then`; 0 when that lies in the future.
uint64_t Since(uint64_t then);

// Flushes stdout. A Failure when not everything could be written (a full disk).
void FinishOutput();

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_TEXT_H_
