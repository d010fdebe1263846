// SPDX-License-Identifier: BSD-3-Clause
//
// The commands that another program has, nvcache-mirror, which lies beside this one: TLS takes
// milliseconds to start, which no program that is run under NVCache shall wait for.
#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>

#include "recovery/tool/commands.h"

namespace nvcache::tool {

namespace {

bool IsForMirror(int argc, char** argv) {
  if (argc < 2) return false;
  const std::string_view command = argv[1];
  if (command == "serve" || command == "mirror") return true;
  return (command == "recover" || command == "status") &&
         std::any_of(argv + 2, argv + argc, [](const char* word) {
           const std::string_view text = word;
           return text == "--mirror" || text.starts_with("--mirror=");
         });
}

}  // namespace

void AddMirrorCommands(CLI::App& app) {
  app.add_subcommand("serve", "Hold copies of other machines' pools in this one's memory.");
  app.add_subcommand("mirror", "Copy a pool to memory servers while it is used.");
}

void BecomeMirror(int argc, char** argv) {
  if (!IsForMirror(argc, argv)) return;
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (self.parent_path() / "nvcache-mirror").string();
  execv(program.c_str(), argv);
  throw Failure{kFailed,
                fmt::format("{}: {}; install it beside nvcache", program, strerror(errno))};
}

}  // namespace nvcache::tool
