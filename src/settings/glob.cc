// SPDX-License-Identifier: BSD-3-Clause
#include "src/settings/settings.h"

namespace nvcache::settings {

namespace {

// A pattern is [p, end): one of a list has no zero behind it.

// The end of the bracket expression that begins at p ("[...]"), or nullptr if it is not closed.
// A ']' that comes first stands for itself.
const char* BracketEnd(const char* p, const char* end) {
  ++p;
  if (p != end && *p == '!') ++p;
  for (bool first = true; p != end; ++p, first = false) {
    if (*p == ']' && !first) return p + 1;
  }
  return nullptr;
}

bool InBracket(const char* p, const char* bracket_end, char c) {
  ++p;
  const bool negated = *p == '!';
  if (negated) ++p;
  const char* last = bracket_end - 1;  // the ']'
  bool found = false;
  while (p != last) {
    char high = *p;
    const char low = *p++;
    if (last - p >= 2 && *p == '-') {
      high = p[1];
      p += 2;
    }
    const auto value = static_cast<unsigned char>(c);
    if (static_cast<unsigned char>(low) <= value && value <= static_cast<unsigned char>(high)) {
      found = true;
    }
  }
  return found != negated;
}

// One element of the pattern, not '*', against one character. Its end, or nullptr: no match.
const char* MatchOne(const char* p, const char* end, char c) {
  switch (*p) {
    case '?':
      return p + 1;
    case '[': {
      const char* bracket_end = BracketEnd(p, end);
      return bracket_end != nullptr && InBracket(p, bracket_end, c) ? bracket_end : nullptr;
    }
    case '\\':
      return p + 1 != end && p[1] == c ? p + 2 : nullptr;
    default:
      return *p == c ? p + 1 : nullptr;
  }
}

bool Matches(const char* p, const char* end, const char* text) {
  const char* star = nullptr;  // the pattern behind the last '*'
  const char* rest = nullptr;  // the text that it has not taken
  for (;;) {
    if (p != end && *p == '*') {
      star = ++p;
      rest = text;
      continue;
    }
    if (*text == '\0') return p == end;
    const char* next = p != end ? MatchOne(p, end, *text) : nullptr;
    if (next != nullptr) {
      p = next;
      ++text;
    } else if (star != nullptr) {
      p = star;
      text = ++rest;
    } else {
      return false;
    }
  }
}

}  // namespace

bool IsGlob(const char* pattern) {
  const char* end = pattern + sys::Length(pattern);
  if (pattern == end) return false;
  for (const char* p = pattern; p != end;) {
    if (*p == '[') {
      p = BracketEnd(p, end);
      if (p == nullptr) return false;
    } else if (*p == '\\') {
      if (p + 1 == end) return false;
      p += 2;
    } else {
      ++p;
    }
  }
  return true;
}

bool GlobMatches(const char* pattern, const char* text) {
  return Matches(pattern, pattern + sys::Length(pattern), text);
}

bool AnyGlobMatches(const char* list, const char* text) {
  for (const char* begin = list;;) {
    const char* end = begin;
    while (*end != '\0' && *end != ':') ++end;
    if (end != begin && Matches(begin, end, text)) return true;
    if (*end == '\0') return false;
    begin = end + 1;
  }
}

}  // namespace nvcache::settings
