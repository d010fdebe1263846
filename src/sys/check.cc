// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/check.h"

#include <signal.h>

#include <atomic>

#include "src/sys/kernel.h"
#include "src/sys/text.h"

namespace nvcache::sys {

namespace {

constinit std::atomic<KeepWords> g_keep{nullptr};

[[gnu::noinline]] void TellKernel(const char* text) {  // its frame is not that of all
  constexpr char kCritical[] = "<2>nvcache[";
  Text<512> line;
  line.Append(kCritical).AppendNumber(static_cast<uint64_t>(Getpid())).Append("]: ");
  line.Append(text).Append("\n");
  const long log = Openat(AT_FDCWD, "/dev/kmsg", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (log < 0) return;
  Write(static_cast<int>(log), line.c_str(), line.size());
  Close(static_cast<int>(log));
}

}  // namespace

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
  TellKernel(message.c_str());
  if (const KeepWords keep = g_keep.load(); keep != nullptr) keep(message.c_str());
  // Not abort(): its handlers belong to the program, and it may be holding our locks.
  Call(SYS_kill, Getpid(), SIGKILL);
  ExitGroup(134);
}

void SetKeepWords(KeepWords keep) { g_keep.store(keep); }

}  // namespace nvcache::sys
