// SPDX-License-Identifier: BSD-3-Clause
//
// nvcache-mirror: the commands of `nvcache` that speak with other machines.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "mirror/tool/commands.h"
#include "mirror/tool/identity.h"
#include "recovery/tool/commands.h"

namespace {

using nvcache::tool::Failure;

int Run(int argc, char** argv) {
  CLI::App app("The commands of nvcache that speak with other machines.", "nvcache");
  int status = nvcache::tool::kOk;
  try {
    app.set_version_flag("--version", "nvcache " NVCACHE_VERSION);
    app.require_subcommand(1);
    nvcache::tool::AddServe(app, &status);
    nvcache::tool::AddMirror(app, &status);
    nvcache::tool::AddMirrorRecover(app, &status);
    nvcache::tool::AddMirrorStatus(app, &status);
    app.parse(argc, argv);
    return status;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const auto commands = app.get_subcommands();
    const std::string command = commands.empty() ? "" : commands[0]->get_name() + ' ';
    nvcache::tool::Say(fmt::format("{}; see 'nvcache {}--help'", error.what(), command));
    return nvcache::tool::kUsage;
  } catch (const Failure& failure) {
    nvcache::tool::Say(failure.text);
    return failure.status;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {  // no memory, for one
    fprintf(stderr, "nvcache: %s\n", error.what());
    return nvcache::tool::kFailed;
  }
}
