// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/check.h"

#include <signal.h>

#include "src/sys/kernel.h"
#include "src/sys/text.h"

namespace nvcache::sys {

void Report(const char* text) {
  Text<512> line;
  line.Append("nvcache: ").Append(text, 500).Append("\n");
  Write(2, line.c_str(), line.size());
}

void CheckFailed(const char* expression, const char* file, int line) {
  Text<512> message;
  message.Append("invariant broken, the process stops and the log is kept: ")
      .Append(expression)
      .Append(" at ")
      .Append(file)
      .Append(":")
      .AppendNumber(static_cast<uint64_t>(line));
  Report(message.c_str());
  // Not abort(): its handlers belong to the program, and it may be holding our locks.
  Call(SYS_kill, Getpid(), SIGKILL);
  ExitGroup(134);
}

}  // namespace nvcache::sys
