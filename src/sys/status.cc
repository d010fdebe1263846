// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/status.h"

#include "src/sys/kernel.h"
#include "src/sys/scratch.h"

namespace nvcache::sys {

namespace {

// The text behind `line` where a line begins with it, or nullptr.
const char* Find(const char* text, const char* line) {
  while (*text != '\0') {
    size_t n = 0;
    while (line[n] != '\0' && text[n] == line[n]) ++n;
    if (line[n] == '\0') return text + n;
    while (*text != '\0' && *text != '\n') ++text;
    if (*text == '\n') ++text;
  }
  return nullptr;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool ReadStatus(const char* line, int place, uint64_t* number) {
  const long fd = Openat(AT_FDCWD, "/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  Scratch<char[kScratchSize]> scratch;
  char* const text = scratch.get();
  const long n = Read(static_cast<int>(fd), text, kScratchSize - 1);
  Close(static_cast<int>(fd));
  text[n > 0 ? n : 0] = '\0';
  const char* at = Find(text, line);
  for (; at != nullptr; --place) {
    while (*at == ' ' || *at == '\t') ++at;
    if (!IsDigit(*at)) return false;
    for (*number = 0; IsDigit(*at); ++at) *number = *number * 10 + static_cast<uint64_t>(*at - '0');
    if (place == 0) return true;
  }
  return false;
}

}  // namespace nvcache::sys
