// SPDX-License-Identifier: BSD-3-Clause
//
// The subcommands of `nvcache`, and what they have in common.
#ifndef NVCACHE_RECOVERY_TOOL_COMMANDS_H_
#define NVCACHE_RECOVERY_TOOL_COMMANDS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace nvcache::tool {

// The command's exit status.
inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kUnresolved = 3;  // recover: records are left in the pool
inline constexpr int kDamaged = 4;     // recover: damaged groups were left out, all others applied
// `nvcache run`, like env(1) and nohup(1): these cannot be told from the program's own status, so
// they are numbers that programs do not use.
inline constexpr int kRunFailed = 125;
inline constexpr int kNotExecutable = 126;
inline constexpr int kNotFound = 127;

// Ends the command: main prints "nvcache: <text>" and exits with `status`.
struct Failure {
  int status;
  std::string text;
};

// A size as settings::ParseSize reads it; a Failure that names `what` when it cannot be read.
uint64_t SizeOf(const std::string& text, const char* what);

// Each adds its subcommand. When the command line names it, *status is its exit status.
void AddCreate(CLI::App& app, int* status);
// `from_dashes`: the command line from the first "--" on.
void AddRun(CLI::App& app, const std::vector<std::string>& from_dashes, int* status);
void AddCheckpointer(CLI::App& app, int* status);
void AddRecover(CLI::App& app, int* status);
// Names the commands of nvcache-mirror, for --help.
void AddMirrorCommands(CLI::App& app);
// If the command line is for one of them, becomes that program; returns if it is not.
void BecomeMirror(int argc, char** argv);
void AddStatus(CLI::App& app, int* status);
void AddTop(CLI::App& app, int* status);
void AddDump(CLI::App& app, int* status);

}  // namespace nvcache::tool

#endif  // NVCACHE_RECOVERY_TOOL_COMMANDS_H_
