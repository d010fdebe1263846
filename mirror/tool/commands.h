// SPDX-License-Identifier: BSD-3-Clause
//
// The subcommands of nvcache that speak with other machines. They are a program of their own,
// nvcache-mirror, which `nvcache` becomes: so programs do not wait for TLS to start
// (docs/mirror.md).
#ifndef NVCACHE_MIRROR_TOOL_COMMANDS_H_
#define NVCACHE_MIRROR_TOOL_COMMANDS_H_

namespace CLI {
class App;
}

namespace nvcache::tool {

// They add subcommands as the functions of recovery/tool/commands.h do.
void AddServe(CLI::App& app, int* status);
void AddMirror(CLI::App& app, int* status);
// `nvcache recover --mirror`.
void AddMirrorRecover(CLI::App& app, int* status);
// `nvcache status --mirror`.
void AddMirrorStatus(CLI::App& app, int* status);

}  // namespace nvcache::tool

#endif  // NVCACHE_MIRROR_TOOL_COMMANDS_H_
