// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/text.h"

#include <fmt/format.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "recovery/tool/commands.h"
#include "src/sys/kernel.h"

namespace nvcache::tool {
namespace {

constexpr uint64_t kSecond = 1000000000;

// Bytes of the UTF-8 character at the start of `s`; 0 when there is none.
size_t Utf8Length(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  const size_t n = byte(0) < 0x80   ? 1
                   : byte(0) < 0xc2 ? 0
                   : byte(0) < 0xe0 ? 2
                   : byte(0) < 0xf0 ? 3
                   : byte(0) < 0xf5 ? 4
                                    : 0;
  if (n == 0 || s.size() < n) return 0;
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies beyond U+10FFFF.
  if ((byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xed && byte(1) > 0x9f)) return 0;
  if ((byte(0) == 0xf0 && byte(1) < 0x90) || (byte(0) == 0xf4 && byte(1) > 0x8f)) return 0;
  return n;
}

bool IsUtf8(std::string_view s) {
  while (!s.empty()) {
    const size_t n = Utf8Length(s);
    if (n == 0) return false;
    s.remove_prefix(n);
  }
  return true;
}

bool IsControl(std::string_view character) {
  const uint8_t first = static_cast<uint8_t>(character[0]);
  if (first < 0x20 || first == 0x7f) return true;
  return first == 0xc2 && static_cast<uint8_t>(character[1]) < 0xa0;  // U+0080 to U+009F
}

}  // namespace

std::string Size(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  while (unit + 1 < std::size(kUnits) && bytes >> (10 * (unit + 1)) != 0) ++unit;
  const uint64_t whole = uint64_t{1} << (10 * unit);
  if (bytes % whole == 0) return fmt::format("{} {}", bytes / whole, kUnits[unit]);
  return fmt::format("{:.1f} {}", static_cast<double>(bytes) / static_cast<double>(whole),
                     kUnits[unit]);
}

std::string Many(uint64_t n, std::string_view one, std::string_view several) {
  return fmt::format("{} {}", n, n == 1 ? one : several);
}

std::string Duration(uint64_t nanoseconds) {
  const uint64_t seconds = nanoseconds / kSecond;
  if (seconds < 1) return fmt::format("{} ms", nanoseconds / 1000000);
  if (seconds < 120) return fmt::format("{:.1f} s", static_cast<double>(nanoseconds) / 1e9);
  if (seconds < 2 * 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 2 * 86400) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} days", seconds / 86400);
}

std::string Microseconds(uint64_t us) {
  return us < 1000 ? fmt::format("{} us", us) : Duration(us * 1000);
}

std::string Time(uint64_t nanoseconds) {
  const time_t seconds = static_cast<time_t>(nanoseconds / kSecond);
  tm utc = {};
  gmtime_r(&seconds, &utc);
  char text[64];
  text[strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &utc)] = '\0';
  return text;
}

std::string ErrorName(int error) {
  const char* name = strerrorname_np(error);
  return name != nullptr ? name : std::to_string(error);
}

std::string Printable(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const size_t n = Utf8Length(bytes);
    if (n != 0 && !IsControl(bytes)) {
      text += bytes.substr(0, n);
    } else {
      for (const char c : bytes.substr(0, std::max<size_t>(n, 1))) {
        text += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
      }
    }
    bytes.remove_prefix(std::max<size_t>(n, 1));
  }
  return text;
}

std::string PathOf(const pool::FileRecord& record) {
  const size_t length = std::min<size_t>(record.path_length, pool::kMaxPath - 1);
  return std::string(record.path, strnlen(record.path, length));
}

void PutPath(Json& object, const std::string& key, const std::string& path) {
  if (IsUtf8(path)) {
    object[key] = path;
    return;
  }
  object[key] = Printable(path);
  std::string hex;
  for (const char c : path) hex += fmt::format("{:02x}", static_cast<uint8_t>(c));
  object[key + "_hex"] = hex;
}

// Here alone, for what writes and reads JSON takes a compiler seconds wherever it is used.
std::string OneLine(const Json& json) { return json.dump(); }
std::string Indented(const Json& json) { return json.dump(2); }
Json Parse(const std::string& text) { return Json::parse(text, nullptr, false); }

uint64_t Since(uint64_t then) {
  const uint64_t now = sys::Now(CLOCK_REALTIME);
  return now > then ? now - then : 0;
}

void FinishOutput() {
  if (fflush(stdout) == 0 && ferror(stdout) == 0) return;
  throw Failure{kFailed, fmt::format("the output cannot be written: {}; what was printed is not "
                                     "complete",
                                     strerror(errno))};
}

}  // namespace nvcache::tool
