// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/core/ids.h"

#include <algorithm>

namespace nvcache::mirror {

namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

bool IsAlphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

std::string Id::Text() const {
  std::string text;
  for (const uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::optional<Id> Id::Parse(std::string_view text) {
  Id id;
  if (text.size() != 2 * id.bytes.size()) return std::nullopt;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t digit = kDigits.find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    id.bytes[i / 2] = static_cast<uint8_t>(size_t{id.bytes[i / 2]} << 4 | digit);
  }
  return id;
}

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && IsAlphanumeric(name[0]) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return IsAlphanumeric(c) || c == '.' || c == '_' || c == '-'; });
}

}  // namespace nvcache::mirror
