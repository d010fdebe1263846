// SPDX-License-Identifier: BSD-3-Clause
//
// Files that the kernel makes as text, in /proc and the like, line by line.
#ifndef NVCACHE_SYS_LINES_H_
#define NVCACHE_SYS_LINES_H_

#include "src/sys/kernel.h"
#include "src/sys/text.h"

namespace nvcache::sys {

inline constexpr size_t kLongestLine = 4096;

// One that is longer is cut.
class Lines {
 public:
  Lines() = default;
  ~Lines() { Leave(); }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  void Open(const char* folder, const char* name) {
    Leave();
    at_ = filled_ = 0;
    line_.Clear();
    line_.Append(folder).Append("/").Append(name);
    fd_ = Openat(AT_FDCWD, line_.c_str(), O_RDONLY | O_CLOEXEC);
  }
  bool Next() {
    line_.Clear();
    char c[2] = {};
    while (Get(c) && c[0] != '\n') line_.Append(c);
    return c[0] == '\n' || line_.size() > 0;
  }
  const char* text() const { return line_.c_str(); }

 private:
  void Leave() {
    if (fd_ >= 0) Close(static_cast<int>(fd_));
    fd_ = -1;
  }
  bool Get(char* c) {
    if (at_ == filled_) {
      const long n = fd_ < 0 ? 0 : Read(static_cast<int>(fd_), buffer_, sizeof(buffer_));
      if (n <= 0) return false;
      at_ = 0;
      filled_ = n;
    }
    *c = buffer_[at_++];
    return true;
  }

  long fd_ = -1;
  Text<kLongestLine> line_;
  char buffer_[2048];
  long at_ = 0, filled_ = 0;
};

// What `text` has behind `begin`, or nullptr.
inline const char* Behind(const char* text, const char* begin) {
  while (*begin != '\0') {
    if (*text++ != *begin++) return nullptr;
  }
  return text;
}

// One of the words between commas, up to a blank, a colon or the end.
inline bool HasWord(const char* list, const char* word) {
  const auto ends = [](char c) { return c == '\0' || c == ' ' || c == ':' || c == ','; };
  for (;;) {
    const char* const end = Behind(list, word);
    if (end != nullptr && ends(*end)) return true;
    while (!ends(*list)) ++list;
    if (*list != ',') return false;
    ++list;
  }
}

inline bool IsSpace(char c) { return c == ' ' || c == '\0'; }

// The word at this place of a line, from 0 on.
inline const char* WordAt(const char* line, int place) {
  for (; place > 0; --place) {
    while (!IsSpace(*line)) ++line;
    if (*line == ' ') ++line;
  }
  return line;
}

inline size_t WordLength(const char* word) {
  size_t n = 0;
  while (!IsSpace(word[n])) ++n;
  return n;
}

}  // namespace nvcache::sys

#endif  // NVCACHE_SYS_LINES_H_
