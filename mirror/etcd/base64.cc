// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/etcd/base64.h"

#include <cstddef>
#include <cstdint>

namespace nvcache::mirror {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string Base64(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const std::string_view part = bytes.substr(i, 3);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (j < part.size() ? static_cast<uint8_t>(part[j]) : 0);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += j <= part.size() ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

std::optional<std::string> FromBase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string bytes;
  uint32_t bits = 0;
  size_t digits = 0;
  for (const char c : text.substr(0, text.find('='))) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    ++digits;
    if (digits % 4 != 1) bytes += static_cast<char>(bits >> (2 * (3 - (digits - 1) % 4)) & 255);
  }
  // So the padding is as long as it has to be, and the bits that are left over are zero.
  if (Base64(bytes) != text) return std::nullopt;
  return bytes;
}

}  // namespace nvcache::mirror
