// SPDX-License-Identifier: BSD-3-Clause
//
// The `nvcache` command.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "recovery/tool/commands.h"
#include "recovery/tool/preload.h"
#include "recovery/tool/text.h"

namespace {

using nvcache::tool::Failure;

constexpr const char* kAbout = "NVCache makes the writes of unmodified programs durable in a log.";
constexpr const char* kFooter =
    "Example:\n"
    "  nvcache run -- sqlite3 my.db\n"
    "\n"
    "'nvcache COMMAND --help' tells more.\n";

int Report(int status, const std::string& text) {
  // One message is one line, whatever is in the names that it repeats.
  fmt::print(stderr, "nvcache: {}\n", nvcache::tool::Printable(text));
  return status;
}

class Formatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = CLI::Formatter::make_usage(app, name);
    if (!app->get_prefix_command()) return usage;
    return usage.substr(0, usage.find_last_not_of('\n') + 1) + " -- PROGRAM [ARGUMENT...]\n\n";
  }
};

int Parse(CLI::App& app, int argc, char** argv) {
  // Words after "--" are another program's business, not CLI11's.
  const bool run = argc > 1 && std::string_view(argv[1]) == "run";
  char** const end = argv + argc;
  char** const dashes = run ? std::find(argv, end, std::string_view("--")) : end;
  const std::vector<std::string> from_dashes(dashes, end);

  int status = nvcache::tool::kOk;
  app.set_version_flag("--version", "nvcache " NVCACHE_VERSION);
  app.formatter(std::make_shared<Formatter>());
  app.require_subcommand(1);
  app.footer(kFooter);
  nvcache::tool::AddCreate(app, &status);
  nvcache::tool::AddRun(app, from_dashes, &status);
  nvcache::tool::AddCheckpointer(app, &status);
  nvcache::tool::AddRecover(app, &status);
  nvcache::tool::AddStatus(app, &status);
  nvcache::tool::AddTop(app, &status);
  nvcache::tool::AddDump(app, &status);
  nvcache::tool::AddMirrorCommands(app);
  const auto is_meant = [argv](CLI::App* command) { return command->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(is_meant).empty()) {
    throw Failure{nvcache::tool::kUsage,
                  fmt::format("{}: there is no such command; see 'nvcache --help'", argv[1])};
  }
  app.parse(static_cast<int>(dashes - argv), argv);
  return status;
}

int Run(int argc, char** argv) {
  nvcache::tool::LeaveLibrary(argv);
  try {
    nvcache::tool::BecomeMirror(argc, argv);
  } catch (const Failure& failure) {
    return Report(failure.status, failure.text);
  }
  CLI::App app(kAbout, "nvcache");
  try {
    return Parse(app, argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const auto commands = app.get_subcommands();
    const std::string command = commands.empty() ? "" : commands[0]->get_name() + ' ';
    return Report(command == "run " ? nvcache::tool::kRunFailed : nvcache::tool::kUsage,
                  fmt::format("{}; see 'nvcache {}--help'", error.what(), command));
  } catch (const Failure& failure) {
    return Report(failure.status, failure.text);
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
