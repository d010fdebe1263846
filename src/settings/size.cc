// SPDX-License-Identifier: BSD-3-Clause
#include "src/settings/settings.h"

namespace nvcache::settings {

namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// "", "b", "k", "kb", "kib", ... "p": the power of two, or -1.
int Shift(const char* suffix) {
  constexpr char kPrefixes[] = "kmgtp";
  int shift = 0;
  for (int i = 0; kPrefixes[i] != '\0'; ++i) {
    if (Lower(*suffix) == kPrefixes[i]) shift = 10 * (i + 1);
  }
  if (shift > 0) ++suffix;
  if (shift > 0 && Lower(suffix[0]) == 'i' && Lower(suffix[1]) == 'b') ++suffix;
  if (Lower(*suffix) == 'b') ++suffix;
  return *suffix == '\0' ? shift : -1;
}

}  // namespace

bool ParseSize(const char* text, uint64_t* bytes) {
  constexpr uint64_t kLimit = uint64_t{1} << 63;
  if (!IsDigit(*text)) return false;
  uint64_t whole = 0;
  for (; IsDigit(*text); ++text) {
    const uint64_t digit = static_cast<uint64_t>(*text - '0');
    if (whole > (kLimit - digit) / 10) return false;
    whole = whole * 10 + digit;
  }
  uint64_t fraction = 0;  // in units of 1 / scale
  uint64_t scale = 1;
  if (*text == '.') {
    if (!IsDigit(*++text)) return false;
    for (; IsDigit(*text); ++text) {
      if (scale >= 1000) continue;  // a thousandth is as fine as anybody means it
      fraction = fraction * 10 + static_cast<uint64_t>(*text - '0');
      scale *= 10;
    }
  }
  const int shift = Shift(text);
  if (shift < 0 || whole > kLimit >> shift) return false;
  const uint64_t part = (fraction << shift) / scale;
  if ((whole << shift) > kLimit - part) return false;
  *bytes = (whole << shift) + part;
  return true;
}

}  // namespace nvcache::settings
