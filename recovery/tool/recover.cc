// SPDX-License-Identifier: BSD-3-Clause
//
// nvcache recover: brings what a dead program left in the log to its files.
#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "recovery/tool/acting.h"
#include "recovery/tool/checkpointer.h"
#include "recovery/tool/commands.h"
#include "recovery/tool/default_pool.h"
#include "recovery/tool/export.h"
#include "recovery/tool/findings.h"
#include "recovery/tool/pool_list.h"
#include "recovery/tool/summary.h"
#include "recovery/tool/take.h"
#include "recovery/tool/text.h"
#include "src/pool/glance.h"
#include "src/replay/replay.h"
#include "src/sys/kernel.h"

namespace nvcache::tool {
namespace {

struct RecoverArguments {
  std::vector<std::string> pools;
  std::string list;
  bool has_default = false;
  std::string user;
  bool emulate = false;  // accepted, never needed
  bool dry_run = false;
  bool json = false;
  std::string export_folder;
  bool discard = false;
};

// The outcome for one pool.
struct Result {
  int status = kOk;
  std::string message;  // says what is wrong, if the status is not kOk
  Json json;
};

void Replay(pool::Pool& pool, const User& user, const std::string& label, Findings* findings) {
  const Acting acting(user);
  findings->progress.emplace(label.c_str());
  findings->clean = replay::Replay(pool, {.dry_run = findings->dry_run, .discard = false},
                                   ObserverOf(findings), &findings->summary);
  findings->progress.reset();
}

// Records are discarded by a second replay, after everything that is exported is durable.
void Discard(pool::Pool& pool, const User& user, Findings* findings) {
  const Acting acting(user);
  replay::Summary summary;
  findings->clean = replay::Replay(pool, {.dry_run = false, .discard = true}, {}, &summary);
  findings->discarded = summary.unresolved_records;
}

// The exit status, with one line when it is not 0.
void Conclude(const RecoverArguments& arguments, const std::string& path, const Findings& findings,
              Result* result) {
  const replay::Summary& summary = findings.summary;
  const std::string pool = Printable(path);
  const bool left =
      arguments.dry_run
          ? summary.unresolved_files + summary.unresolved_names + summary.failed_files != 0
          : !findings.clean;
  if (left) {
    const uint64_t not_there =
        summary.unresolved_files + summary.unresolved_names - summary.refused_names;
    const char* advice = not_there != 0
                             ? "bring the files back and recover again, or save the records with "
                               "--export DIR --discard"
                             : "see to the disk and recover again";
    result->status = kUnresolved;
    result->message =
        fmt::format("pool {} {} {}; {}", pool, arguments.dry_run ? "would keep" : "keeps",
                    Kept(summary), advice);
  } else if (summary.damaged_groups != 0) {
    result->status = kDamaged;
    result->message =
        fmt::format("pool {}: {}; check the program's data and the memory", pool, LeftOut(summary));
  }
}

// The pool is clean, and its journal, if it has failed, does not know that. (Pool::MarkClean has
// tried already.)
void LeaveJournal(pool::Pool* pool, const std::string& path, Result* result) {
  if (!pool->has_journal() || pool::Peek(pool->journal().failed) == 0) return;
  if (pool->own_journal().MakeVoid() == 0) return;
  result->status = kFailed;
  result->message = fmt::format(
      "pool {}: all is in the files, but its journal cannot be written: remove it, for another "
      "recovery would bring old bytes back",
      Printable(path));
}

// Prints what it found, unless it is to be JSON.
void RecoverPool(const RecoverArguments& arguments, const ListedPool& listed,
                 const std::string& label, Result* result) {
  RecoveredPool pool(listed.path);
  const User user = UserOf(pool, listed.user);
  std::optional<Exporter> exporter;
  if (!arguments.export_folder.empty()) exporter.emplace(arguments.export_folder);

  Findings findings;
  findings.dry_run = arguments.dry_run;
  findings.segment_units = pool.view().segment_units();
  findings.exporter = exporter ? &*exporter : nullptr;
  Replay(pool, user, label, &findings);
  if (exporter) exporter->Finish();
  if (arguments.discard && !arguments.dry_run && !findings.clean) Discard(pool, user, &findings);

  if (arguments.json) {
    result->json["user"] = user.name;
    result->json.update(ToJson(findings));
  } else {
    PrintText(findings);
  }
  Conclude(arguments, listed.path, findings, result);
  if (result->status == kOk && !arguments.dry_run) LeaveJournal(&pool, listed.path, result);
}

// True: its journal had failed while it was used.
bool IsVoid(const ListedPool& listed, const RecoverArguments& arguments, Result* result) {
  if (pool::GlanceAt(listed.path.c_str()).kind != pool::Glance::Kind::kVoid) return false;
  result->json["clean"] = true;
  result->json["void"] = true;
  if (!arguments.json) {
    fmt::print(
        "nothing to do: the journal had failed, and the files have all it promised; make the "
        "pool anew\n");
  }
  return true;
}

Result RecoverOne(const RecoverArguments& arguments, const ListedPool& listed,
                  const std::string& label) {
  Result result;
  PutPath(result.json, "pool", listed.path);
  try {
    if (!listed.mistake.empty()) throw Failure{kFailed, listed.mistake};
    const bool missing = access(listed.path.c_str(), F_OK) != 0 && errno == ENOENT;
    if (missing && listed.may_be_missing) {
      if (!arguments.json) fmt::print("not there\n");
      return result;
    }
    if (IsVoid(listed, arguments, &result)) return result;
    RecoverPool(arguments, listed, label, &result);
  } catch (const Busy& busy) {
    if (listed.may_be_used) {
      if (!arguments.json) fmt::print("in use\n");
      return result;
    }
    result.status = kFailed;
    result.message = busy.text;
  } catch (const Failure& failure) {
    result.status = failure.status;
    result.message = failure.text;
  }
  return result;
}

int RecoverSingle(const RecoverArguments& arguments, const ListedPool& listed) {
  const Result result = RecoverOne(arguments, listed, "recovering");
  if (arguments.json && result.json.contains("clean")) {
    fmt::print("{}\n", Indented(result.json));
  }
  FinishOutput();
  if (result.status != kOk) throw Failure{result.status, result.message};
  return kOk;
}

// ---------------------------------------------------------------------------------------------
// Several pools.

void Say(const std::string& message) {
  fmt::print(stderr, "nvcache: {}\n", Printable(message));
  fflush(stderr);
}

// In a child: a pool that is cut off by its owner while it is read kills the process that reads it.
int InChild(const RecoverArguments& arguments, const ListedPool& listed, const std::string& label,
            int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Result result = RecoverOne(arguments, listed, label);
  if (result.status != kOk) Say(result.message);
  if (arguments.json) {
    result.json["status"] = result.status;
    result.json["message"] = result.message.empty() ? Json() : Json(Printable(result.message));
    const std::string text = OneLine(result.json);
    for (size_t done = 0; done < text.size();) {
      const ssize_t n = write(out, text.data() + done, text.size() - done);
      if (n <= 0) return kFailed;
      done += static_cast<size_t>(n);
    }
    return result.status;
  }
  FinishOutput();
  return result.status;
}

std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n = 0; (n = read(fd, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(n));
  }
  return text;
}

Result RecoverApart(const RecoverArguments& arguments, const ListedPool& listed,
                    const std::string& label) {
  std::array<int, 2> ends;
  if (!arguments.json) fmt::print("{}: ", Printable(listed.path));
  fflush(stdout);
  if (pipe(ends.data()) != 0) throw Failure{kFailed, fmt::format("pipe: {}", strerror(errno))};
  const pid_t child = fork();
  if (child < 0) throw Failure{kFailed, fmt::format("fork: {}", strerror(errno))};
  if (child == 0) {
    close(ends[0]);
    int status = kFailed;
    try {
      status = InChild(arguments, listed, label, ends[1]);
    } catch (const Failure& failure) {
      Say(failure.text);
    }
    _exit(status);
  }
  close(ends[1]);
  Result result;
  result.json = Parse(ReadAll(ends[0]));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : kFailed;
  if (WIFSIGNALED(status)) {
    result.message = fmt::format("pool {}: the recovery was killed by signal {}; recover it again",
                                 Printable(listed.path), WTERMSIG(status));
    Say(result.message);
  }
  if (arguments.json && !result.json.is_object()) {
    result.json = Json::object();
    PutPath(result.json, "pool", listed.path);
    result.json["status"] = result.status;
    result.json["message"] = result.message;
  }
  return result;
}

// The status of several: that something was not done at all weighs most.
int Worse(int a, int b) {
  constexpr std::array kOrder = {kOk, kDamaged, kUnresolved, kFailed};
  return std::find(kOrder.begin(), kOrder.end(), a) > std::find(kOrder.begin(), kOrder.end(), b)
             ? a
             : b;
}

int RecoverSeveral(const RecoverArguments& arguments, const std::vector<ListedPool>& pools) {
  int worst = kOk;
  size_t wrong = 0;
  Json all = Json::array();
  for (size_t i = 0; i < pools.size(); ++i) {
    const std::string label = fmt::format("recovering {} of {}", i + 1, pools.size());
    Result result = RecoverApart(arguments, pools[i], label);
    worst = Worse(worst, result.status);
    wrong += result.status != kOk ? 1 : 0;
    if (arguments.json) all.push_back(std::move(result.json));
  }
  if (arguments.json) fmt::print("{}\n", Indented({{"pools", all}}));
  FinishOutput();
  if (worst != kOk) {
    throw Failure{worst, fmt::format("{} of {} not recovered completely; see above", wrong,
                                     Many(pools.size(), "pool was", "pools were"))};
  }
  return kOk;
}

// The pool that `nvcache run` takes without a name, unless it is one of these: nobody has to know
// of it.
void AddDefault(const std::string& user, std::vector<ListedPool>* pools) {
  const std::string path = DefaultPool();
  const auto is_it = [&path](const ListedPool& pool) { return pool.path == path; };
  if (path.empty() || std::any_of(pools->begin(), pools->end(), is_it)) return;
  pools->push_back({path, user, true, true, {}});
}

int Recover(const RecoverArguments& arguments) {
  std::vector<ListedPool> pools;
  for (const std::string& path : arguments.pools)
    pools.push_back({path, arguments.user, false, false, {}});
  const bool several = !arguments.list.empty() || arguments.has_default;
  if (!arguments.list.empty()) {
    for (ListedPool& pool : ReadPoolList(arguments.list)) {
      if (pool.user.empty()) pool.user = arguments.user;
      pools.push_back(std::move(pool));
    }
  }
  if (arguments.has_default) AddDefault(arguments.user, &pools);
  if (pools.empty() && !several) {
    throw Failure{kUsage,
                  "no pool is named; give POOL or --list FILE; see 'nvcache recover --help'"};
  }
  const bool single = pools.size() == 1 && !several;
  if (single) return RecoverSingle(arguments, pools[0]);
  if (!arguments.export_folder.empty()) {
    throw Failure{kUsage, "--export is for one pool; name it alone, without --list"};
  }
  if (pools.empty() && !arguments.json) fmt::print("no pools are listed\n");
  return RecoverSeveral(arguments, pools);
}

}  // namespace

void AddRecover(CLI::App& app, int* status) {
  auto arguments = std::make_shared<RecoverArguments>();
  CLI::App* command = app.add_subcommand(
      "recover", "Bring what a dead program left in a pool to its files. May be repeated.");
  command->add_option("POOL", arguments->pools,
                      "The pool; not in use. Several: one after the other");
  command
      ->add_option(
          "--list", arguments->list,
          "Also the pools in this file: one a line, [USER] [-]/PATH; '-': may be missing,\n"
          "as FILE with a '-' before it")
      ->type_name("FILE");
  command->add_flag("--default", arguments->has_default,
                    "Also the pool that 'nvcache run' takes without a name, if it is there");
  command
      ->add_option("--user", arguments->user,
                   "As root: write with this user's rights; else with those of the pool's owner")
      ->type_name("USER");
  command->add_flag("--dry-run", arguments->dry_run, "Look and report, change nothing");
  command->add_flag("--json", arguments->json, "Report as JSON");
  command
      ->add_option("--export", arguments->export_folder,
                   "Save records whose file cannot be found to this new folder")
      ->type_name("DIR");
  command->add_flag("--discard", arguments->discard,
                    "Then drop them from the pool; without --export they are lost");
  command->add_flag("--emulate", arguments->emulate, "Accepted as elsewhere, but never needed");
  command->footer(
      "Root recovers the pool of another user with that user's rights: no file is written that\n"
      "its owner could not write. --user is for devices and for pools of root's.\n"
      "\n"
      "Exit status: 0 when the pool is clean, 3 when records are left in it, 4 when damaged\n"
      "groups were found and everything else was applied. Of several pools: 1 when one of them\n"
      "could not be recovered at all, else 3, else 4; the others are recovered all the same.\n"
      "\n"
      "Examples:\n"
      "  nvcache recover /dev/shm/pool\n"
      "  nvcache recover /dev/shm/pool --export lost --discard\n"
      "  nvcache recover --list /etc/nvcache/pools\n");
  command->callback([arguments, status] { *status = Recover(*arguments); });
}

}  // namespace nvcache::tool
