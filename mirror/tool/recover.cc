// SPDX-License-Identifier: BSD-3-Clause
//
// nvcache recover --mirror: takes from the servers what the lost memory of a machine held, and
// brings it to the files (docs/mirror.md: A recovery).
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mirror/core/error.h"
#include "mirror/core/recoverer.h"
#include "mirror/tool/commands.h"
#include "mirror/tool/image_file.h"
#include "mirror/tool/links.h"
#include "recovery/tool/commands.h"
#include "recovery/tool/open.h"
#include "recovery/tool/text.h"

namespace nvcache::tool {
namespace {

using mirror::Loop;
using mirror::Recoverer;
using Phase = Recoverer::Phase;

constexpr mirror::Time kTick = 20'000'000;      // ns
constexpr mirror::Time kQuiet = 2'000'000'000;  // before it says for which server it waits

struct RecoverArguments {
  std::string pool;
  Connecting connecting;
  std::string export_folder;
  bool discard = false;
};

// Before the pool is made dead for all machines: programs of this one may be at work.
void RefuseInUse(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) return;
  ScopedPool pool;
  OpenPool(&pool, path, pool::Mode::kInspect, kAnyMemory);
  if (!pool.seats().AnybodyLives()) return;
  throw Failure{
      kFailed,
      fmt::format("pool {} is in use, so it is not lost; see 'nvcache status {}'", path, path)};
}

// Nobody uses a pool there, and it is not another one than the servers have.
void CheckPlace(const std::string& path, const mirror::Id& lineage) {
  if (access(path.c_str(), F_OK) != 0 && errno == ENOENT) return;
  ScopedPool pool;
  OpenPool(&pool, path, pool::Mode::kRecovery, kAnyMemory);
  const uint8_t* uuid = pool.view().superblock->uuid;
  if (std::memcmp(uuid, lineage.bytes.data(), lineage.bytes.size()) == 0 || !pool.dirty()) return;
  throw Failure{kFailed, fmt::format("pool {} is another one than the servers have, and holds "
                                     "records; run 'nvcache recover {}' first",
                                     path, path)};
}

class Recovery : private Recoverer::Host, private Links::Owner {
 public:
  explicit Recovery(const RecoverArguments& arguments)
      : arguments_(arguments),
        links_(arguments.connecting, &loop_, this),
        image_(arguments.pool),
        recoverer_({.name = arguments.connecting.name, .self = Self()}, this) {}

  // The exit status.
  int Run();

 private:
  void ReadRecord() override;
  void WriteRecord(const mirror::Record& record, uint64_t revision) override;
  std::unique_ptr<mirror::Link::Wire> MakeWire(size_t holder, const std::string& address) override {
    return links_.MakeWire(holder, address);
  }
  void AskForMirror() override;
  bool Prepare(const mirror::Id& lineage, uint64_t pool_size) override;
  void WritePool(const mirror::Range& range, const uint8_t* bytes) override {
    image_.Write(range.offset, bytes, range.length);
  }
  std::unique_ptr<mirror::Cursor> OpenCursor(mirror::Position position) override {
    return image_.NewCursor(position);
  }
  void Replay() override { replays_ = true; }

  void OnConnected(size_t server) override { recoverer_.Connected(server, Loop::Now()); }
  void OnMessage(size_t server, const mirror::Message& message) override {
    recoverer_.Take(server, message, Loop::Now());
  }
  void OnClosed(size_t server, const std::string&) override {
    recoverer_.Closed(server, Loop::Now());
  }

  void Tick();
  void TellWaiting();
  void ReplayNow();
  std::string Named() const { return "mirror " + arguments_.connecting.name; }

  const RecoverArguments& arguments_;
  Loop loop_;
  Links links_;
  ImageFile image_;
  Recoverer recoverer_;
  const mirror::Time begun_ = Loop::Now();
  bool told_ = false, etcd_told_ = false;
  std::string writer_;  // the holder of the writer's key
  bool replays_ = false;
  int status_ = kOk;
};

int Recovery::Run() {
  Tick();
  loop_.Run();
  if (!recoverer_.failure().empty()) {
    throw Failure{status_ == kOk ? kFailed : status_,
                  fmt::format("{}: {}", Named(), recoverer_.failure())};
  }
  fmt::print("{}: {}\n", Named(),
             recoverer_.phase() == Phase::kNothing
                 ? "nothing to recover: all that was acknowledged is on the disk"
                 : "recovered");
  return kOk;
}

void Recovery::Tick() {
  recoverer_.Tick(Loop::Now());
  if (std::exchange(replays_, false)) ReplayNow();
  TellWaiting();
  const Phase phase = recoverer_.phase();
  const bool is_over = phase == Phase::kNothing || phase == Phase::kDone;
  if (is_over || !recoverer_.failure().empty()) return loop_.Stop();
  loop_.After(kTick, [this] { Tick(); });
}

void Recovery::TellWaiting() {
  if (told_ || (recoverer_.phase() != Phase::kLooking && recoverer_.phase() != Phase::kPromising)) {
    return;
  }
  if (Loop::Now() - begun_ < kQuiet) return;
  told_ = true;
  const mirror::Record& record = *recoverer_.record().known();
  if (record.mode == mirror::Mode::kReal) {
    if (recoverer_.MirrorLives()) {
      Say(fmt::format(
          "{}: its mirror lives ({}), so nothing is lost; waiting until it ends. If its "
          "machine is given up, make a new pool, and begin its mirror with --take-over",
          Named(), writer_));
    }
    return;
  }
  std::string text;
  for (size_t i = 0; i < record.holders.size(); ++i) {
    if (recoverer_.Counts(i)) continue;
    const mirror::Link& link = recoverer_.links()[i];
    const bool forgot = link.stage() >= mirror::Link::Stage::kCopying;
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", record.holders[i].address,
                        forgot ? "it has forgotten" : link.problem());
  }
  Say(fmt::format("{}: {} of {} servers have to remember; waiting for {}", Named(),
                  record.Majority(), record.holders.size(), text));
}

bool Recovery::Prepare(const mirror::Id& lineage, uint64_t pool_size) {
  CheckPlace(arguments_.pool, lineage);
  image_.Begin(pool_size);
  return true;
}

// In a process of its own: the command that recovers every pool.
void Recovery::ReplayNow() {
  image_.End();
  const std::string program =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "nvcache").string();
  const pid_t child = fork();
  if (child < 0) throw Failure{kFailed, fmt::format("fork: {}", strerror(errno))};
  if (child == 0) {
    std::vector<const char*> words = {"nvcache", "recover", arguments_.pool.c_str()};
    if (!arguments_.export_folder.empty()) {
      words.insert(words.end(), {"--export", arguments_.export_folder.c_str()});
    }
    if (arguments_.discard) words.push_back("--discard");
    words.push_back(nullptr);
    execv(program.c_str(), const_cast<char* const*>(words.data()));
    _exit(kFailed);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : kFailed;
  recoverer_.Replayed(status_ == kOk);
}

void Recovery::ReadRecord() {
  links_.etcd().Read(arguments_.connecting.name, [this](const mirror::ReadAnswer& answer) {
    if (!answer.error.empty() && !std::exchange(etcd_told_, true)) {
      Say(fmt::format("{}: {}", Named(), answer.error));
    }
    recoverer_.Found(answer.reached && (answer.record || answer.revision == 0), answer.record,
                     static_cast<uint64_t>(answer.revision), Loop::Now());
  });
}

void Recovery::AskForMirror() {
  links_.etcd().FindWriter(arguments_.connecting.name, [this](const mirror::WriterAnswer& answer) {
    if (!answer.reached) return;
    writer_ = answer.by;
    recoverer_.HeardOfMirror(!answer.by.empty());
  });
}

void Recovery::WriteRecord(const mirror::Record& record, uint64_t revision) {
  links_.etcd().Write(arguments_.connecting.name, record, static_cast<mirror::Revision>(revision),
                      [this](const mirror::WriteAnswer& answer) {
                        recoverer_.Written(answer.outcome, static_cast<uint64_t>(answer.revision),
                                           Loop::Now());
                      });
}

int RunRecover(const RecoverArguments& arguments) {
  Check(arguments.connecting);
  RefuseInUse(arguments.pool);
  signal(SIGPIPE, SIG_IGN);
  try {
    return Recovery(arguments).Run();
  } catch (const mirror::NetError& error) {
    throw Failure{kFailed, error.what()};
  }
}

}  // namespace

void AddMirrorRecover(CLI::App& app, int* status) {
  auto arguments = std::make_shared<RecoverArguments>();
  CLI::App* command = app.add_subcommand(
      "recover", "Take a lost pool from its memory servers, and bring it to its files.");
  command->add_option("POOL", arguments->pool, "Where the pool is made again")->required();
  AddConnecting(command, &arguments->connecting);
  command->add_option("--export", arguments->export_folder,
                      "Save records whose file cannot be found to this new folder");
  command->add_flag("--discard", arguments->discard,
                    "Then drop them; without --export they are lost");
  command->footer(
      "Waits until a majority of the servers answers that has not forgotten. It may be killed, and "
      "run again.\n"
      "Exit status: 0, all is in the files; 3 or 4, as without --mirror: see to it, and run it "
      "again.\n"
      "Each run takes the pool from the servers: what it cannot bring to a file is dropped here.\n"
      "\n"
      "Example:\n"
      "  nvcache recover /dev/shm/pool --mirror http://10.0.0.1:2379 --name db1 --keys key\n");
  command->callback([arguments, status] { *status = RunRecover(*arguments); });
}

}  // namespace nvcache::tool
