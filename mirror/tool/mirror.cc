// SPDX-License-Identifier: BSD-3-Clause
//
// nvcache mirror: copies a pool to memory servers while programs use it (docs/mirror.md).
#include <fmt/format.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mirror/core/error.h"
#include "mirror/core/lag.h"
#include "mirror/core/writer.h"
#include "mirror/net/page_server.h"
#include "mirror/pool/source.h"
#include "mirror/tool/commands.h"
#include "mirror/tool/links.h"
#include "mirror/tool/metrics.h"
#include "recovery/tool/commands.h"
#include "recovery/tool/open.h"
#include "recovery/tool/take.h"
#include "recovery/tool/text.h"
#include "recovery/tool/wait.h"
#include "src/pool/byte_locks.h"
#include "src/pool/mirror_words.h"
#include "src/sys/descriptor.h"

namespace nvcache::tool {
namespace {

using mirror::Loop;
using mirror::Time;
using mirror::Writer;

constexpr Time kTick = 20'000'000;           // ns
constexpr uint64_t kBellWait = 100'000'000;  // ns, until the end of the thread is looked for
constexpr std::chrono::seconds kLease(10);
constexpr Time kLeasePause = 1'000'000'000;

struct MirrorArguments {
  std::string pool;
  Connecting connecting;
  std::vector<std::string> servers;
  Writer::Below below = Writer::Below::kReal;
  uint64_t patience_ms = 2000;
  bool takes_over = false;
  std::string metrics;  // where they can be read; empty: nowhere
};

// A number that a thread raises, and the loop hears of.
class Signal {
 public:
  Signal(Loop* loop, std::function<void()> heard)
      : loop_(*loop), file_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    watch_ = loop_.Watch(file_.get(), EPOLLIN, [this, heard = std::move(heard)](uint32_t) {
      uint64_t count = 0;
      if (read(file_.get(), &count, sizeof(count)) == sizeof(count)) heard();
    });
  }
  ~Signal() { loop_.Unwatch(watch_); }
  void Raise() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(file_.get(), &one, sizeof(one));
  }

 private:
  Loop& loop_;
  sys::Descriptor file_;
  Loop::Handle watch_ = 0;
};

// The pool, as a process that uses it and appends nothing.
class MirroredPool : public ScopedPool {
 public:
  explicit MirroredPool(const std::string& path) {
    TakePool(this, path, kAnyMemory);
    if (view().superblock->commit == pool::kCommitOwn || has_journal()) {
      throw Failure{kFailed, fmt::format("pool {} is not for a mirror; make one with 'nvcache "
                                         "create --commit fsync'",
                                         path)};
    }
    RecoverTaken(*this);
    pool::Problem problem;
    if (!Join(&problem)) throw Failure{kFailed, problem.text.c_str()};
    if (!pool::HoldByte(fd(), pool::kMirrorByte, false)) {
      Leave();
      throw Failure{kFailed, fmt::format("pool {} has a mirror; there can be one", path)};
    }
  }
  ~MirroredPool() {
    if (is_open()) Leave();
  }
};

class MirrorProcess : private Writer::Host, private Links::Owner {
 public:
  explicit MirrorProcess(const MirrorArguments& arguments)
      : arguments_(arguments),
        pool_(arguments.pool),
        words_(pool_.view()),
        source_(pool_),
        links_(arguments.connecting, &loop_, this),
        drained_(&loop_, [this] { OnDrained(); }),
        page_(&loop_, "/metrics", [this] { return Text(Metrics()); }) {}
  ~MirrorProcess() override;

  void Run();

 private:
  // Writer::Host.
  void ReadRecord() override;
  void WriteRecord(const mirror::Record& record, uint64_t revision) override;
  std::unique_ptr<mirror::Link::Wire> MakeWire(size_t server) override;
  std::unique_ptr<mirror::Cursor> OpenCursor() override { return source_.NewCursor(); }
  mirror::Position Draw() override { return words_.Draw(); }
  void Publish(mirror::State state, mirror::Position position) override;
  void Drain(mirror::Position position) override;

  // Links::Owner.
  void OnConnected(size_t server) override { writer_->Connected(server, Loop::Now()); }
  void OnMessage(size_t server, const mirror::Message& message) override;
  void OnClosed(size_t server, const std::string& why) override;

  void TakeLease();
  void Begin();
  void Tick();
  void OnBell();
  void OnDrained();
  void OnSignal();
  void ListenToBell();
  void TellProblems();

  // How it is, for people.
  void Note();
  MirrorMetrics Metrics();
  ServerMetrics MetricsOf(size_t server) const;
  bool HasMajority() const;

  std::string Named() const { return "mirror " + arguments_.connecting.name; }

  const MirrorArguments& arguments_;
  Loop loop_;
  MirroredPool pool_;
  const pool::MirrorWords words_;
  const mirror::PoolSource source_;
  Links links_;
  Signal drained_;
  mirror::PageServer page_;
  sys::Descriptor signals_;
  const std::string self_ = Self();
  std::unique_ptr<Writer> writer_;
  mirror::State told_ = mirror::State::kNone;
  std::map<size_t, std::string> problems_;  // that were told, by server
  bool etcd_told_ = false;
  mirror::Lag lag_;
  // The position of each server's image when it last followed; 0: it never has.
  std::vector<mirror::Position> positions_ =
      std::vector<mirror::Position>(arguments_.servers.size());
  Time noted_ = Loop::Now();
  Time below_quorum_ = 0;

  std::atomic<bool> over_{false};
  std::thread listener_;       // takes turns of the loop: a call waits for it
  std::exception_ptr broken_;  // the error that it has met; it has ended
  // The position that is to be drained, and the one that was; the thread ends when both are the
  // same.
  std::thread drainer_;
  std::atomic<mirror::Position> to_drain_{0}, was_drained_{0};
};

MirrorProcess::~MirrorProcess() {
  over_ = true;
  words_.RingBell();
  if (listener_.joinable()) listener_.join();
  if (drainer_.joinable()) drainer_.join();
}

void MirrorProcess::Run() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT}) sigaddset(&set, number);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signals_ = sys::Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  loop_.Watch(signals_.get(), EPOLLIN, [this](uint32_t) { OnSignal(); });
  if (!arguments_.metrics.empty()) {
    const uint16_t port = page_.Listen(arguments_.metrics);
    Say(fmt::format("{}: metrics are at {}", Named(), mirror::WithPort(arguments_.metrics, port)));
  }
  // Not before callbacks are kept apart.
  loop_.Later([this] {
    listener_ = std::thread([this] { ListenToBell(); });
    TakeLease();
  });
  loop_.Run();
  if (broken_) std::rethrow_exception(broken_);
  const std::string failure = writer_ ? writer_->failure() : "";
  if (!failure.empty()) throw Failure{kFailed, fmt::format("{}: {}", Named(), failure)};
}

// One writer at a time, as long as nobody loses its way; what protects the data is the epoch. The
// pool's own lock says that no other mirror has this pool, so a lease of a dead one is not waited
// for.
void MirrorProcess::TakeLease() {
  const std::string lineage = source_.lineage().Text();
  const auto held = [this, lineage](const mirror::HoldAnswer& answer) {
    const bool own = answer.by.starts_with(lineage);
    if (answer.held || own || arguments_.takes_over) return Begin();
    if (!answer.error.empty()) {
      if (!std::exchange(etcd_told_, true)) Say(fmt::format("{}: {}", Named(), answer.error));
      loop_.After(kLeasePause, [this] { TakeLease(); });
      return;
    }
    Say(
        fmt::format("{}: another mirror has this name ({}); end it, or wait until it is dead for "
                    "{} s, or say --take-over",
                    Named(), answer.by, kLease.count()));
    loop_.Stop();
  };
  const auto lost = [this](const std::string& why) {
    Say(fmt::format("{}: its lease in etcd is lost: {}", Named(), why));
  };
  links_.etcd().Hold(arguments_.connecting.name, lineage + " " + self_, kLease, held, lost);
}

void MirrorProcess::Begin() {
  if (writer_) return;
  Writer::Options options = {.name = arguments_.connecting.name,
                             .self = self_,
                             .servers = arguments_.servers,
                             .lineage = source_.lineage(),
                             .pool_size = source_.pool_size(),
                             .takes_over = arguments_.takes_over,
                             .below = arguments_.below,
                             .patience = arguments_.patience_ms * 1'000'000};
  Writer::Host* const host = this;
  writer_ = std::make_unique<Writer>(std::move(options), host,
                                     static_cast<mirror::State>(words_.state()), words_.mirrored());
  Tick();
}

void MirrorProcess::Tick() {
  writer_->Tick(Loop::Now());
  TellProblems();
  Note();
  if (!writer_->failure().empty() || writer_->HasEnded()) return loop_.Stop();
  loop_.After(kTick, [this] { Tick(); });
}

void MirrorProcess::OnSignal() {
  signalfd_siginfo info;
  if (read(signals_.get(), &info, sizeof(info)) != sizeof(info)) return;
  if (!writer_) return loop_.Stop();
  Say(fmt::format("{}: ends when all is on the disk", Named()));
  writer_->End(Loop::Now());
}

// ---- Programs

void MirrorProcess::ListenToBell() {
  for (uint32_t heard = words_.bell(); !over_;) {
    words_.AwaitBell(heard, kBellWait);
    if (words_.bell() == heard) continue;
    heard = words_.bell();
    const Loop::Turn turn(&loop_);
    try {
      OnBell();
    } catch (...) {
      broken_ = std::current_exception();
      return loop_.Stop();
    }
  }
}

// Whoever rang has drawn its LSN before.
void MirrorProcess::OnBell() {
  lag_.Note(Loop::Now(), words_.next(), words_.taken());
  if (writer_) writer_->Wake(pool_.seats().next_lsn().load() - 1, Loop::Now());
}

void MirrorProcess::Publish(mirror::State state, mirror::Position position) {
  words_.SetMirrored(position);
  if (words_.state() != static_cast<uint32_t>(state)) {
    words_.SetState(static_cast<uint32_t>(state));
  }
  if (std::exchange(told_, state) == state) return;
  static const std::map<mirror::State, const char*> kMeanings = {
      {mirror::State::kReal, "syncs are real: slow, and as safe as the disk"},
      {mirror::State::kMirrored, "syncs wait for a majority of the servers"},
      {mirror::State::kLeaving, "syncs wait until all is on the disk"},
      {mirror::State::kFailing, "no majority answers: syncs fail"},
      {mirror::State::kFenced, "another writer has come: syncs fail"}};
  const auto found = kMeanings.find(state);
  if (found != kMeanings.end()) Say(fmt::format("{}: {}", Named(), found->second));
}

// ---- The disk

void MirrorProcess::Drain(mirror::Position position) {
  to_drain_ = position;
  if (drainer_.joinable()) {
    if (was_drained_ == 0) return;  // it sees the new one
    drainer_.join();
  }
  was_drained_ = 0;
  drainer_ = std::thread([this] {
    mirror::Position done = 0;
    try {
      while (done < to_drain_) {
        done = to_drain_;
        if (!AwaitDisk(arguments_.pool)) throw Failure{kFailed, "the pool cannot be looked at"};
      }
    } catch (const Failure& failure) {
      Say(failure.text);
      done = 1;  // not enough; it is tried again
    }
    was_drained_ = done;
    drained_.Raise();
  });
}

void MirrorProcess::OnDrained() {
  if (was_drained_ < to_drain_) {
    loop_.After(kLeasePause, [this] { Drain(to_drain_); });
    return;
  }
  if (writer_) writer_->Drained(was_drained_);
}

// ---- etcd and servers

void MirrorProcess::ReadRecord() {
  links_.etcd().Read(arguments_.connecting.name, [this](const mirror::ReadAnswer& answer) {
    const bool is_readable = answer.reached && (answer.record || answer.revision == 0);
    if (!answer.error.empty() && !std::exchange(etcd_told_, true)) {
      Say(fmt::format("{}: {}", Named(), answer.error));
    }
    if (is_readable && std::exchange(etcd_told_, false)) {
      Say(fmt::format("{}: etcd answers again", Named()));
    }
    writer_->Found(is_readable, answer.record, static_cast<uint64_t>(answer.revision), Loop::Now());
  });
}

void MirrorProcess::WriteRecord(const mirror::Record& record, uint64_t revision) {
  links_.etcd().Write(arguments_.connecting.name, record, static_cast<mirror::Revision>(revision),
                      [this](const mirror::WriteAnswer& answer) {
                        writer_->Written(answer.outcome, static_cast<uint64_t>(answer.revision),
                                         Loop::Now());
                      });
}

std::unique_ptr<mirror::Link::Wire> MirrorProcess::MakeWire(size_t server) {
  return links_.MakeWire(server, arguments_.servers[server]);
}

void MirrorProcess::OnMessage(size_t server, const mirror::Message& message) {
  writer_->Take(server, message, Loop::Now());
}

void MirrorProcess::OnClosed(size_t server, const std::string& why) {
  if (std::exchange(problems_[server], why) != why) {
    Say(fmt::format("{}: server {}: {}", Named(), arguments_.servers[server], why));
  }
  writer_->Closed(server, Loop::Now());
}

void MirrorProcess::TellProblems() {
  for (size_t i = 0; i < arguments_.servers.size(); ++i) {
    const mirror::Link& link = writer_->link(i);
    std::string& told = problems_[i];
    if (link.IsFollowing()) {
      if (!told.empty()) Say(fmt::format("{}: server {} follows", Named(), arguments_.servers[i]));
      told.clear();
    } else if (told.empty() && !link.problem().empty()) {
      told = link.problem();
      Say(fmt::format("{}: server {}: {}", Named(), arguments_.servers[i], told));
    }
  }
}

// ---- Metrics

bool MirrorProcess::HasMajority() const {
  size_t following = 0;
  for (size_t i = 0; writer_ && i < arguments_.servers.size(); ++i) {
    following += writer_->link(i).IsFollowing() ? 1 : 0;
  }
  return following > arguments_.servers.size() / 2;
}

void MirrorProcess::Note() {
  const Time now = Loop::Now(), before = std::exchange(noted_, now);
  if (!HasMajority()) below_quorum_ += now - before;
  lag_.Note(now, words_.next(), words_.taken());
  for (size_t i = 0; writer_ && i < positions_.size(); ++i) {
    if (writer_->link(i).IsFollowing()) positions_[i] = writer_->link(i).position();
  }
}

ServerMetrics MirrorProcess::MetricsOf(size_t server) const {
  ServerMetrics metrics = {.address = arguments_.servers[server]};
  if (!writer_) return metrics;
  const mirror::Link& link = writer_->link(server);
  metrics.stage = link.stage();
  metrics.epoch = link.promised().epoch;
  metrics.incarnation = link.incarnation();
  if (const auto& record = writer_->record().known()) {
    const mirror::Holder holder = {metrics.address, metrics.incarnation};
    const auto& holders = record->holders;
    metrics.counts = std::find(holders.begin(), holders.end(), holder) != holders.end();
  }
  metrics.position = positions_[server];
  if (metrics.position != 0) metrics.lag = lag_.Of(metrics.position);
  if (metrics.lag) {
    metrics.lag_bytes = std::max<uint64_t>(
        link.in_flight(), metrics.lag->segments * pool_.view().superblock->segment_size);
  }
  metrics.counters = link.counters();
  return metrics;
}

MirrorMetrics MirrorProcess::Metrics() {
  Note();
  MirrorMetrics metrics = {.state = static_cast<mirror::State>(words_.state()),
                           .position = words_.mirrored(),
                           .next = words_.next(),
                           .below_quorum = below_quorum_,
                           .waits = words_.waits()};
  if (writer_) {
    metrics.epoch = writer_->epoch();
    if (const auto& record = writer_->record().known()) metrics.mode = record->mode;
  }
  for (size_t i = 0; i < arguments_.servers.size(); ++i) metrics.servers.push_back(MetricsOf(i));
  return metrics;
}

int RunMirror(const MirrorArguments& arguments) {
  Check(arguments.connecting);
  std::vector<std::string> sorted = arguments.servers;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    throw Failure{kUsage, "--server: one address is given twice"};
  }
  if (sorted.size() % 2 == 0 || sorted.size() > mirror::kMaxHolders) {
    throw Failure{kUsage,
                  fmt::format("--server: give 1, 3, 5, 7 or {} addresses, not {}; more than "
                              "half of them have to answer",
                              mirror::kMaxHolders, sorted.size())};
  }
  try {
    MirrorProcess(arguments).Run();
  } catch (const mirror::NetError& error) {
    throw Failure{kFailed, error.what()};
  }
  return kOk;
}

}  // namespace

void AddMirror(CLI::App& app, int* status) {
  auto arguments = std::make_shared<MirrorArguments>();
  CLI::App* command =
      app.add_subcommand("mirror", "Copy a pool to memory servers while it is used.");
  command->add_option("--pool", arguments->pool, "The pool; made with 'nvcache create --commit'")
      ->required();
  AddConnecting(command, &arguments->connecting);
  command->add_option("--server", arguments->servers, "HOST:PORT of a server; three times, or five")
      ->required()
      ->allow_extra_args(false);
  const std::map<std::string, Writer::Below> kBelow = {{"real", Writer::Below::kReal},
                                                       {"block", Writer::Below::kBlock},
                                                       {"error", Writer::Below::kError}};
  command
      ->add_option("--below-quorum", arguments->below,
                   "When no majority answers, syncs become real, block, or fail with an error")
      ->transform(CLI::CheckedTransformer(kBelow));
  command->add_option("--patience", arguments->patience_ms,
                      "ms that a sync waits for a majority before that; 2000 by default");
  command->add_flag("--take-over", arguments->takes_over,
                    "Another machine's mirror had this name, and never comes back");
  command->add_option(
      "--metrics", arguments->metrics,
      "ADDRESS:PORT of this machine, or path of a UNIX socket, where Prometheus and "
      "'nvcache status --mirror' read how it is");
  command->footer(
      "Runs until SIGTERM or SIGINT comes; then it brings all to the disk, and ends. If it is "
      "killed,\n"
      "syncs wait for the next one.\n"
      "\n"
      "Example:\n"
      "  nvcache mirror --pool /dev/shm/pool --name db1 --etcd http://10.0.0.1:2379 --keys key \\\n"
      "    --server 10.0.0.1:7070 --server 10.0.0.2:7070 --server 10.0.0.3:7070 \\\n"
      "    --metrics 127.0.0.1:9100\n");
  command->callback([arguments, status] { *status = RunMirror(*arguments); });
}

}  // namespace nvcache::tool
