// SPDX-License-Identifier: BSD-3-Clause
//
// nvcache serve: a memory server, which holds copies of other machines' pools (docs/mirror.md).
#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mirror/core/error.h"
#include "mirror/core/ids.h"
#include "mirror/net/keys.h"
#include "mirror/net/loop.h"
#include "mirror/net/server.h"
#include "mirror/server/replicas.h"
#include "mirror/store/keeper.h"
#include "mirror/store/memories.h"
#include "mirror/store/spill.h"
#include "mirror/tool/commands.h"
#include "mirror/tool/identity.h"
#include "recovery/tool/commands.h"
#include "recovery/tool/text.h"
#include "src/sys/boot.h"
#include "src/sys/descriptor.h"

namespace nvcache::tool {
namespace {

// Between two lines about connections; those that come more often are counted.
constexpr mirror::Time kQuiet = 1000000000;

struct ServeArguments {
  std::vector<std::string> listen;
  std::string keys;
  bool insecure = false;
  std::string limit;
  std::string memory;
  std::string spill;
};

// Strangers do not fill a disk with the lines that they cause.
class Complaints {
 public:
  void Say(const std::string& text) {
    const mirror::Time now = mirror::Loop::Now();
    if (last_ != 0 && now - last_ < kQuiet) {
      ++untold_;
      return;
    }
    last_ = now;
    const uint64_t untold = std::exchange(untold_, 0);
    tool::Say(untold == 0 ? text : fmt::format("{} (and {} more before)", text, untold));
  }

 private:
  mirror::Time last_ = 0;
  uint64_t untold_ = 0;
};

mirror::Id BootId() {
  uint8_t bytes[16];
  sys::ReadBootId(bytes);
  mirror::Id id;
  std::copy_n(bytes, sizeof(bytes), id.bytes.begin());
  if (id.IsNone()) {
    throw Failure{
        kFailed,
        "the boot id cannot be read; mount /proc, by which a server knows that its memory "
        "is the one that it had"};
  }
  return id;
}

uint64_t LimitOf(const ServeArguments& arguments) {
  if (!arguments.limit.empty()) return SizeOf(arguments.limit, "--limit");
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) / 2 *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

std::vector<mirror::Key> KeysOf(const ServeArguments& arguments) {
  if (arguments.insecure == !arguments.keys.empty()) {
    throw Failure{kUsage, "give --keys FILE; or, for addresses of this machine, --insecure"};
  }
  if (arguments.insecure) return {};
  return mirror::ReadKeys(arguments.keys);
}

void KeepOne(const mirror::MemoryStore& store) {
  if (!mirror::HasKeeper() || mirror::Keep(store.name(), store.file())) return;
  Say(fmt::format("the memory of mirror {} cannot be given to systemd: it ends with this process",
                  store.name()));
}

// Remembers what was there before this process.
void Remember(const ServeArguments& arguments, mirror::Memories* memories) {
  memories->keep = KeepOne;
  auto kept = mirror::TakeKept();
  if (!arguments.memory.empty()) {
    memories->UseFolder(arguments.memory);
  } else {
    for (auto& [name, file] : kept) {
      if (mirror::IsName(name)) memories->Adopt(name, std::move(file));
    }
  }
  if (arguments.spill.empty()) return;
  const mirror::Loaded loaded = mirror::LoadSpill(*memories, arguments.spill);
  if (!loaded.ignored.empty()) Say(loaded.ignored + "; what it had is forgotten");
}

void WarnOfLimits(const ServeArguments& arguments, const mirror::Memories& memories) {
  const uint64_t limit = memories.budget().limit();
  if (memories.budget().used() > limit) {
    Say(fmt::format("{} are in use, more than --limit {}: nothing is added",
                    Size(memories.budget().used()), Size(limit)));
  }
  if (memories.RoomInFolder() < limit) {
    Say(fmt::format(
        "{} has room for {}, less than --limit {}; make it larger, or the limit smaller",
        arguments.memory, Size(memories.RoomInFolder()), Size(limit)));
  }
  if (!mirror::CanLock(limit)) {
    Say(
        fmt::format("{} of memory cannot be locked, and may be swapped out; raise the limit of "
                    "locked memory (ulimit -l)",
                    Size(limit)));
  }
}

// SIGTERM and SIGINT end a server; SIGUSR1 and SIGPWR, by which a UPS tells of the end of its
// battery, do if that is of use.
class Signals {
 public:
  Signals(mirror::Loop* loop, bool spills) {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGPWR}) sigaddset(&set, number);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signal(SIGPIPE, SIG_IGN);
    file_ = sys::Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!file_.IsOpen()) throw Failure{kFailed, "signals cannot be waited for"};
    loop->Watch(file_.get(), EPOLLIN, [this, loop, spills](uint32_t) {
      signalfd_siginfo info;
      if (read(file_.get(), &info, sizeof(info)) != sizeof(info)) return;
      const bool power = info.ssi_signo == SIGUSR1 || info.ssi_signo == SIGPWR;
      if (!power || spills) return loop->Stop();
      Say("a signal tells that power is lost; there is no --spill to go to, so this goes on");
    });
  }

 private:
  sys::Descriptor file_;
};

std::string Greeting(const std::vector<std::string>& addresses, mirror::Memories& memories) {
  std::string text = "serves on";
  for (const std::string& address : addresses) text += " " + address;
  size_t images = 0;
  for (const mirror::MemoryStore* store : memories.All()) {
    images += store->image().lineage.IsNone() ? 0 : 1;
  }
  return fmt::format("{}; {} at most, remembers {} with {}", text, Size(memories.budget().limit()),
                     Many(memories.All().size(), "mirror", "mirrors"),
                     Many(images, "image", "images"));
}

void Serve(const ServeArguments& arguments) {
  std::vector<mirror::Key> keys = KeysOf(arguments);
  mirror::Loop loop;
  const Signals signals(&loop, !arguments.spill.empty());
  mirror::Memories memories(LimitOf(arguments), BootId());
  Remember(arguments, &memories);
  WarnOfLimits(arguments, memories);

  Complaints complaints;
  mirror::Replicas replicas(&memories, [&](const std::string& text) { complaints.Say(text); });
  mirror::Server server(&loop, &replicas, std::move(keys));
  replicas.SetServer(&server);
  std::vector<std::string> addresses;
  for (const std::string& address : arguments.listen) {
    addresses.push_back(mirror::WithPort(address, server.Listen(address)));
  }
  Say(Greeting(addresses, memories));
  mirror::Notify("READY=1");
  loop.Run();

  // Nobody is answered any more: what is written now is the last.
  mirror::Notify("STOPPING=1");
  server.StopAll();
  if (!arguments.spill.empty()) mirror::WriteSpill(memories, arguments.spill);
}

int RunServe(const ServeArguments& arguments) {
  try {
    Serve(arguments);
  } catch (const mirror::StoreError& error) {
    throw Failure{kFailed, error.what()};
  } catch (const mirror::NetError& error) {
    throw Failure{kFailed, error.what()};
  }
  return kOk;
}

}  // namespace

void AddServe(CLI::App& app, int* status) {
  auto arguments = std::make_shared<ServeArguments>();
  CLI::App* command =
      app.add_subcommand("serve", "Hold copies of other machines' pools in this one's memory.");
  command
      ->add_option("--listen", arguments->listen,
                   "ADDRESS:PORT to be reached at; may be given more than once")
      ->required()
      ->allow_extra_args(false);
  command->add_option("--keys", arguments->keys,
                      "File with the keys of those who may come: IDENTITY:HEX[:NAMES] a line");
  command->add_flag("--insecure", arguments->insecure,
                    "No keys: everybody on this machine may come, and nobody else");
  command->add_option("--limit", arguments->limit,
                      "Of all copies together; half of the machine's memory by default");
  command->add_option("--memory", arguments->memory,
                      "Folder on a tmpfs for the copies, so that they outlive this process; not "
                      "needed as a service of systemd");
  command->add_option("--spill", arguments->spill,
                      "File on a disk to which all is written when SIGTERM, SIGINT, SIGUSR1 or "
                      "SIGPWR comes, and read at the next start");
  command->footer(
      "Runs until SIGTERM or SIGINT comes. It may be killed: with --memory, or under systemd, the "
      "next\n"
      "one has what this one had.\n"
      "\n"
      "Example:\n"
      "  nvcache serve --listen 192.0.2.1:7070 --keys /etc/nvcache/keys --memory "
      "/dev/shm/mirrors\n");
  command->callback([arguments, status] { *status = RunServe(*arguments); });
}

}  // namespace nvcache::tool
