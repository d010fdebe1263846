// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/process.h"

#include "src/sys/kernel.h"
#include "src/sys/text.h"

namespace nvcache::sys {

// The state is the letter behind the program's name, which stands in parentheses and may hold some.
bool Runs(uint32_t pid) {
  Text<32> path;
  path.Append("/proc/").AppendNumber(pid).Append("/stat");
  const long fd = Openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char line[128];
  long n = Read(static_cast<int>(fd), line, sizeof(line));
  Close(static_cast<int>(fd));
  while (n > 0 && line[n - 1] != ')') --n;
  const char state = n > 0 ? line[n + 1] : 'X';
  return state != 'Z' && state != 'X';
}

}  // namespace nvcache::sys
