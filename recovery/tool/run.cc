// SPDX-License-Identifier: BSD-3-Clause
//
// nvcache run: gets the pool ready, then becomes the program.
#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "recovery/tool/checkpointer.h"
#include "recovery/tool/commands.h"
#include "recovery/tool/default_pool.h"
#include "recovery/tool/libpmem.h"
#include "recovery/tool/open.h"
#include "recovery/tool/preload.h"
#include "recovery/tool/program.h"
#include "recovery/tool/take.h"
#include "recovery/tool/text.h"
#include "recovery/tool/wait.h"
#include "src/nvlog/segments.h"
#include "src/settings/settings.h"
#include "src/sys/filter.h"

namespace nvcache::tool {
namespace {

constexpr uint64_t kDefaultSize = uint64_t{1} << 30;

struct RunArguments {
  // Settings that are one value: the variable's name and what the command line says.
  std::vector<std::pair<std::string, std::string>> values;
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  std::vector<std::string> exclusive;
  bool emulate = false;
  bool required = false;
  bool no_drain = false;
  bool waits = false;
  std::string shim;
  bool is_default = false;  // nobody has named a pool
};

void Export(const std::string& name, const std::string& value) {
  setenv(("NVCACHE_" + name).c_str(), value.c_str(), 1);
}

std::string Joined(const std::vector<std::string>& globs) {
  std::string list;
  for (const std::string& glob : globs) {
    if (!list.empty()) list += ':';
    list += glob;
  }
  return list;
}

// Two variables say where page frames are: an option wins over the other one's variable, too.
void ForgetOtherFrames(const RunArguments& arguments) {
  const auto given = [&](const char* setting) {
    return std::any_of(arguments.values.begin(), arguments.values.end(),
                       [&](const auto& value) { return value.first == setting; });
  };
  if (given("DRAM")) unsetenv("NVCACHE_FRAMES");
  if (given("FRAMES")) unsetenv("NVCACHE_DRAM");
}

// The command line goes into the environment first, and the settings are read from there: we then
// check exactly what the library will see.
void ExportAll(const RunArguments& arguments) {
  ForgetOtherFrames(arguments);
  for (const auto& [name, value] : arguments.values) {
    // The program may change its directory before it starts another one.
    Export(name, name == "POOL" ? std::filesystem::absolute(value).string() : value);
  }
  if (!arguments.include.empty()) Export("INCLUDE", Joined(arguments.include));
  if (!arguments.exclude.empty()) Export("EXCLUDE", Joined(arguments.exclude));
  if (!arguments.exclusive.empty()) Export("EXCLUSIVE", Joined(arguments.exclusive));
  if (arguments.emulate) Export("EMULATE", "1");
  if (arguments.required) Export("REQUIRED", "1");
  if (arguments.no_drain) Export("DRAIN_AT_EXIT", "0");
}

settings::Settings FromEnvironment() {
  settings::Settings settings;
  sys::Text<480> wrong;
  if (!settings::FromEnvironment(&settings, environ, &wrong)) {
    throw Failure{kRunFailed, wrong.c_str()};
  }
  return settings;
}

settings::Settings ReadSettings(RunArguments* arguments) {
  const settings::Settings settings = FromEnvironment();
  if (settings.pool.size() != 0) return settings;
  const std::string path = DefaultPool();
  if (path.empty()) {
    throw Failure{kRunFailed,
                  "no pool is named, and there is no home for one; give --pool PATH, or set "
                  "NVCACHE_POOL or HOME"};
  }
  arguments->is_default = true;
  Export("POOL", path);
  return FromEnvironment();
}

// False: another one that was started at the same time was faster.
bool MakePool(const std::string& path, const settings::Settings& settings, bool is_default) {
  if (is_default) MakeDefaultFolder();
  const uint64_t wanted = settings.size != 0 ? settings.size
                          : is_default       ? kDefaultPoolSize
                                             : kDefaultSize;
  const uint64_t size = pool::Pool::SizeWithin(path.c_str(), wanted, settings.emulate);
  pool::Problem problem;
  const pool::CreateOptions options = {.size = size, .emulate = settings.emulate};
  if (pool::Pool::Create(path.c_str(), options, LoadLibpmem(), &problem)) {
    if (size < wanted && settings.notice) {
      fmt::print(stderr,
                 "nvcache: {} is made with {}, not {}: that is half of what a control group, or "
                 "/dev/shm, has left of memory\n",
                 Printable(path), Size(size), Size(wanted));
    }
    return true;
  }
  if (problem.error != EEXIST) throw Failure{kRunFailed, problem.text.c_str()};
  return false;
}

// As the library says it.
void AskFilter() {
  if (const long call = sys::ForbiddenCall(); call != 0) {
    throw Failure{kRunFailed,
                  fmt::format("a filter of system calls (seccomp) forbids call {}, which "
                              "the cache needs",
                              call)};
  }
}

// One line, for whoever has to know what is promised.
void SayLevel(const pool::Pool& pool, bool is_new_default) {
  const std::string made =
      is_new_default
          ? fmt::format("is made with {}, for no pool was named, and ", Size(pool.size()))
          : std::string();
  const bool is_mirrored = pool.view().superblock->commit != pool::kCommitOwn;
  if (is_mirrored) {
    fmt::print(stderr, "nvcache: {} {}{}: {}\n", Printable(pool.path()), made,
               pool.has_journal() ? "has a journal on its disk" : "is mirrored",
               LevelOf(pool).meaning);
  } else if (pool.durability() == pmem::Durability::kProcess) {
    fmt::print(stderr,
               "nvcache: {} {}is emulated: writes survive the death of the process, not a power "
               "failure\n",
               Printable(pool.path()), made);
  } else if (is_new_default) {
    fmt::print(stderr, "nvcache: {} {}lies in persistent memory: {}\n", Printable(pool.path()),
               made, LevelOf(pool).meaning);
  }
}

void PreparePool(const settings::Settings& settings, bool is_default) {
  AskFilter();
  const std::string path = settings.pool.c_str();
  const bool is_missing = access(path.c_str(), F_OK) != 0 && errno == ENOENT;
  const bool is_made = is_missing && MakePool(path, settings, is_default);
  pool::Pool pool;
  TakePool(&pool, path, settings.emulate);
  RecoverTaken(pool);
  pool::Problem problem;
  if (settings.frames_in_pool && !nvlog::HasRoomForFrames(pool, settings.frame_bytes(), &problem)) {
    throw Failure{kRunFailed, problem.text.c_str()};
  }
  if (settings.notice) SayLevel(pool, is_made && is_default);
  pool.Close();  // for the program, which takes it
}

// A problem of the pool ends us only if the cache is required; as in the library. It is said once:
// programs that the program starts are not told of the pool, unless that may be free by then.
void WarnOfPool(const Failure& failure, bool required, bool free_later) {
  if (required) throw Failure{kRunFailed, failure.text};
  fmt::print(stderr, "nvcache: {}; the program runs without the cache\n", Printable(failure.text));
  if (!free_later) unsetenv("NVCACHE_POOL");
}

// Says that the program runs without the cache, or ends when that is required.
void Warn(const Program& program, bool required) {
  const Obstacle obstacle = ObstacleOf(program);
  const char* const who = PassesPreload(program.kind) ? "it runs" : "it and what it starts run";
  const std::string then =
      required ? ", and the cache is required" : fmt::format(", so {} without the cache", who);
  const std::string text = program.path + ": " + obstacle.what + then + "; " + obstacle.remedy;
  if (required) throw Failure{kRunFailed, text};
  fmt::print(stderr, "nvcache: {}\n", Printable(text));
}

// Why execvp failed.
std::string Reason(const Program& program, int error) {
  if (error == ETXTBSY) {
    return fmt::format("{}; a process has it open for writing: wait until it is closed there",
                       strerror(error));
  }
  if (error == EACCES || error == ENOEXEC) {
    return fmt::format("{}; it must be an executable file", strerror(error));
  }
  if (error != ENOENT) return fmt::format("{}; see execve(2)", strerror(error));
  const std::string& linker = program.linker;
  if (linker.empty() || access(linker.c_str(), F_OK) == 0) {
    return fmt::format("{}; check the name and PATH", strerror(error));
  }
  return fmt::format("its dynamic linker {} is missing; install it", linker);
}

[[noreturn]] void Become(const std::vector<std::string>& command, const Program& program) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int error = errno;
  throw Failure{error == ENOENT ? kNotFound : kNotExecutable,
                fmt::format("{}: cannot be started: {}", command[0], Reason(program, error))};
}

int Run(RunArguments arguments, const std::vector<std::string>& command) {
  ExportAll(arguments);
  const settings::Settings settings = ReadSettings(&arguments);
  const Program program = Examine(command[0]);
  if (!CanCache(program.kind)) Warn(program, settings.required);
  SetPreload(program, arguments.shim);
  if (PassesPreload(program.kind)) {
    try {
      PreparePool(settings, arguments.is_default);
      const bool used = settings.write_back != settings::WriteBack::kNever;
      if (settings.checkpointer && used) StartCheckpointer(settings.pool.c_str());
    } catch (const Busy& busy) {
      WarnOfPool(busy, settings.required, true);
    } catch (const Failure& failure) {
      WarnOfPool(failure, settings.required, false);
    }
    Export("NOTICE", "0");  // it has been given
  }
  // Nothing is to be waited for where the pool is not used; and a fork may be what is refused.
  if (!arguments.waits || getenv("NVCACHE_POOL") == nullptr) Become(command, program);
  const int status = RunAsChild([&] { Become(command, program); });
  AwaitDisk(settings.pool.c_str());
  return EndAs(status);
}

// The program and its arguments: what stands behind "--", or what begins with the first word that
// is no option.
std::vector<std::string> CommandOf(const CLI::App& command,
                                   const std::vector<std::string>& from_dashes) {
  std::vector<std::string> program = command.remaining();
  if (!program.empty() && program[0][0] == '-') {
    throw Failure{kRunFailed, fmt::format("{}: there is no such option; see 'nvcache run --help'",
                                          Printable(program[0]))};
  }
  // A "--" behind the program's name is one of its arguments.
  const bool ours = program.empty() && !from_dashes.empty();
  program.insert(program.end(), from_dashes.begin() + (ours ? 1 : 0), from_dashes.end());
  if (program.empty()) {
    throw Failure{kRunFailed, "no program is named; put it behind --, as in 'nvcache run -- ls'"};
  }
  return program;
}

void AddOptions(CLI::App* command, const std::shared_ptr<RunArguments>& arguments) {
  const auto value = [&](const char* option, const char* setting, const char* type,
                         const char* help) {
    command
        ->add_option_function<std::string>(
            option,
            [arguments, setting](const std::string& text) {
              arguments->values.emplace_back(setting, text);
            },
            help)
        ->type_name(type);
  };
  value("--pool", "POOL", "PATH",
        "The pool; made when it is missing. Else: NVCACHE_POOL; or\n/var/lib/nvcache/pool, or "
        "$XDG_STATE_HOME/nvcache/pool of a user that is not root");
  value("--size", "SIZE", "SIZE", "Size of a pool that has to be made [1G; 256M if none is named]");
  command->add_flag("--emulate", arguments->emulate, "Accept a pool that is not persistent memory");
  value("--dram", "DRAM", "SIZE", "Memory for the read cache [256M]");
  value("--frames", "FRAMES", "WHERE", "The same as dram:SIZE; or in the pool: pool:SIZE");
  const auto globs = [&](const char* option, std::vector<std::string>* list, const char* help) {
    command->add_option(option, *list, help)->type_name("GLOB")->allow_extra_args(false);
  };
  globs("--include", &arguments->include, "Log only files whose path matches; repeatable");
  globs("--exclude", &arguments->exclude, "Do not log these; repeatable");
  globs("--exclusive", &arguments->exclusive,
        "No other program looks at these meanwhile: cache them; repeatable");
  value("--write-back", "WRITE_BACK", "RULE",
        "Which files are logged: auto, always or never [auto: those often synced]");
  command->add_flag("--required", arguments->required,
                    "Exit with 125 instead of running without the cache");
  command->add_flag("--no-drain", arguments->no_drain,
                    "Leave the log as it is at the program's exit; the next start recovers it");
  value("--names", "NAMES", "RULE",
        "Whether the log has the names in folders that are synced: auto or never [auto]");
  value("--checkpointer", "CHECKPOINTER", "RULE",
        "Leave a checkpointer behind, unless there is one: auto or never [auto]");
  value(
      "--huge", "HUGE", "SIZE",
      "Of an emulated pool, what it may put into huge pages; or auto or never [auto: all in use]");
  command->add_flag("--wait", arguments->waits,
                    "End when all that the program wrote is on the disk");
  value("--batch-min", "BATCH_MIN", "N", "Pages that start a write-back [1000]");
  value("--batch-max", "BATCH_MAX", "N", "Pages of one write-back [10000]");
  value("--batch-delay", "BATCH_DELAY", "MS", "Time after which fewer start one [50]");
  command->add_option("--library", arguments->shim, "libnvcache.so; else the one beside nvcache")
      ->type_name("PATH");
}

}  // namespace

void AddRun(CLI::App& app, const std::vector<std::string>& from_dashes, int* status) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* command = app.add_subcommand(
      "run",
      "Run a program on NVCache: make the pool if it is missing, recover it if it is dirty,\n"
      "then become the program.");
  command->prefix_command();
  AddOptions(command, arguments);
  command->footer(
      "A pool that cannot be used is named in one line, and the program runs without the cache; "
      "with\n"
      "--required it is not started.\n"
      "\n"
      "Exit status: the program's; 125 when it is not started because the cache is required, or a\n"
      "setting is wrong, or --wait finds that not all can be brought to the disk, 126 when the\n"
      "program cannot be executed, 127 when it is not found.\n"
      "\n"
      "Examples:\n"
      "  nvcache run -- sqlite3 my.db\n"
      "  nvcache run --pool /mnt/pmem/pool --size 16G -- postgres -D data\n"
      "  nvcache run --pool /mnt/pmem/pool --size 64G --frames pool:48G -- postgres -D data\n"
      "  nvcache run --pool /dev/shm/pool --emulate --include '/srv/*' -- sqlite3 /srv/my.db\n");
  command->callback([=] { *status = Run(*arguments, CommandOf(*command, from_dashes)); });
}

}  // namespace nvcache::tool
