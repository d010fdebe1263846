// SPDX-License-Identifier: BSD-3-Clause
//
// nvcache top: a pool and its processes, again and again. Changes nothing, takes no lock.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "recovery/tool/commands.h"
#include "recovery/tool/counters.h"
#include "recovery/tool/default_pool.h"
#include "recovery/tool/huge.h"
#include "recovery/tool/sample.h"
#include "recovery/tool/screen.h"
#include "recovery/tool/text.h"
#include "src/sys/kernel.h"

namespace nvcache::tool {
namespace {

// The first numbers on a screen come after this, not after a whole interval.
constexpr std::chrono::milliseconds kFirstInterval{200};

struct TopArguments {
  std::string pool;
  double interval = 1;  // seconds
  uint64_t count = 0;   // 0: without end
  bool once = false;
  bool batch = false;
  bool json = false;
};

// ---------------------------------------------------------------------------------------------
// SIGINT and SIGTERM end the command between two steps. They come while it waits, and at no other
// time.

volatile sig_atomic_t ended = 0;

class Signals {
 public:
  Signals() {
    sigset_t both;
    sigemptyset(&both);
    for (const int number : {SIGINT, SIGTERM}) {
      struct sigaction action = {}, before = {};
      action.sa_handler = [](int) { ended = 1; };
      sigaction(number, nullptr, &before);
      // A shell's job in the background ignores SIGINT.
      if (before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
      sigaddset(&both, number);
    }
    sigprocmask(SIG_BLOCK, &both, &open_);
    sigdelset(&open_, SIGINT);
    sigdelset(&open_, SIGTERM);
  }

  // Until then, or until a signal comes, or a key if they are `wanted`. False: this is the end.
  bool WaitUntil(Clock::time_point then, bool wanted) const {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::max(then - Clock::now(), Clock::duration::zero()));
    const timespec timeout = {.tv_sec = left.count() / 1000000000,
                              .tv_nsec = left.count() % 1000000000};
    pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    ppoll(&keys, wanted ? 1 : 0, &timeout, &open_);
    const bool hung_up = (keys.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
    return ended == 0 && !hung_up;
  }

 private:
  sigset_t open_;  // the mask while it waits
};

// ---------------------------------------------------------------------------------------------
// The text.

struct Row {
  Process process;
  PendingOfSeat pending;
  uint64_t room = 0;   // bytes
  uint64_t age = 0;    // its oldest pending record's, ns; 0: there is none
  double written = 0;  // to the disk, bytes each second
  double through = 0;  // through the log of write-through, the same
};

struct View {
  const ScopedPool& pool;
  const std::string& path;
  const Sample& before;
  const Sample& now;
};

std::vector<Row> RowsOf(const View& view) {
  std::vector<Row> rows;
  for (const Process& process : view.now.processes) {
    const PendingOfSeat pending = view.now.pending->OfSeat(process.seat);
    rows.push_back(
        {.process = process,
         .pending = pending,
         .room = process.segments * view.pool.view().superblock->segment_size,
         .age = AgeOfOldest(process, pending),
         .written = UnitsRate(view.before, view.now, process, &Process::written),
         .through = UnitsRate(view.before, view.now, process, &Process::through_written)});
  }
  return rows;
}

std::string BytesRate(double bytes) { return Size(static_cast<uint64_t>(bytes)) + "/s"; }

// "0", "0.3", "1250".
std::string CountRate(double rate) {
  return rate == 0 || rate >= 10 ? fmt::format("{:.0f}", rate) : fmt::format("{:.1f}", rate);
}

struct Column {
  const char* title;
  size_t width;  // 0: the last one
  int rank;      // the highest are left out first where the terminal is narrow
  std::string (*text)(const Row& row);
  double (*number)(const Row& row);  // the highest comes first; null: by the text
};

constexpr Column kColumns[] = {
    {"PID", 7, 0, [](const Row& row) { return fmt::format("{}", row.process.pid); },
     [](const Row& row) -> double { return row.process.pid; }},
    {"STATE", 10, 0, [](const Row& row) -> std::string { return StateName(row.process); }, nullptr},
    {"MODE", 6, 0, [](const Row& row) -> std::string { return ModeName(row.process); }, nullptr},
    {"FILES", 5, 0, [](const Row& row) { return fmt::format("{}", row.process.files); },
     [](const Row& row) -> double { return row.process.files; }},
    {"ROOM", 9, 1, [](const Row& row) { return Size(row.room); },
     [](const Row& row) { return static_cast<double>(row.room); }},
    {"RECORDS", 7, 3, [](const Row& row) { return fmt::format("{}", row.pending.records); },
     [](const Row& row) { return static_cast<double>(row.pending.records); }},
    {"BYTES", 9, 0, [](const Row& row) { return Size(row.pending.bytes); },
     [](const Row& row) { return static_cast<double>(row.pending.bytes); }},
    {"OLDEST", 7, 2, [](const Row& row) { return row.age != 0 ? Duration(row.age) : "-"; },
     [](const Row& row) { return static_cast<double>(row.age); }},
    {"TO DISK", 10, 0, [](const Row& row) { return BytesRate(row.written); },
     [](const Row& row) { return row.written; }},
    {"THROUGH", 10, 0, [](const Row& row) { return BytesRate(row.through); },
     [](const Row& row) { return row.through; }},
    {"PROGRAM", 0, 0, [](const Row& row) { return Name(row.process); }, nullptr},
};
constexpr size_t kDefaultSort = 8;
constexpr size_t kProgramWidth = 15;
constexpr size_t kUnlimited = ~size_t{0};

void Sort(std::vector<Row>* rows, const Column& column) {
  std::stable_sort(rows->begin(), rows->end(), [&](const Row& a, const Row& b) {
    return column.number != nullptr ? column.number(a) > column.number(b)
                                    : column.text(a) < column.text(b);
  });
}

// How many ranks of columns, and the names of programs, go into that many columns of a terminal.
int RanksFor(size_t width) {
  for (int ranks = 3; ranks > 0; --ranks) {
    size_t sum = kProgramWidth;
    for (const Column& column : kColumns) {
      if (column.rank <= ranks && column.width != 0) sum += column.width + 1;
    }
    if (sum <= width) return ranks;
  }
  return 0;
}

// A line of the table: cell(column) for each column of these ranks. `begin`: where that of `wanted`
// begins, if it is there.
template <typename Cell>
std::string Line(int ranks, Cell cell, size_t* begin = nullptr, const Column* wanted = nullptr) {
  std::string line;
  for (const Column& column : kColumns) {
    if (column.rank > ranks) continue;
    if (!line.empty()) line += ' ';
    if (&column == wanted) *begin = line.size();
    line += column.width != 0 ? fmt::format("{:>{}}", cell(column), column.width) : cell(column);
  }
  return line;
}

std::string PendingText(const Pending& pending) {
  if (pending.records == 0 && pending.complete) return "nothing";
  return fmt::format("{}{}, {}, of {}", pending.complete ? "" : "more than ",
                     Many(pending.records, "record", "records"), Size(pending.bytes),
                     Many(pending.files.size(), "file", "files"));
}

// Its waits are those since the look before.
Mirroring MirroringOf(const View& view) {
  Mirroring mirroring = view.now.mirroring;
  mirroring.waits = Between(view.before.mirroring.waits, mirroring.waits);
  mirroring.outputs = Between(view.before.mirroring.outputs, mirroring.outputs);
  return mirroring;
}

std::string MirrorLine(const View& view) {
  const Mirroring mirroring = MirroringOf(view);
  return fmt::format("mirror   {}, {}; images lack {}; {}", MirrorStateName(mirroring.state),
                     mirroring.alive ? "running" : "none is running",
                     Many(mirroring.lacking, "LSN", "LSNs"), WaitsText(mirroring.waits));
}

// With commit at output.
std::string OutputsLine(const pool::OutputWaits& outputs) {
  return "outputs  " + OutputsText(outputs);
}

// The same of the journal: what has happened since the look before.
Journaling JournalingOf(const View& view) {
  return Between(view.before.journaling, view.now.journaling);
}

std::string JournalLine(const View& view) {
  const Journaling journaling = JournalingOf(view);
  if (!journaling.has_memory) return fmt::format("journal  {}", JournalText(journaling));
  const double seconds = std::chrono::duration<double>(Between(view.before, view.now)).count();
  const auto rate = [&](uint64_t count) { return static_cast<double>(count) / seconds; };
  const uint64_t waits = CountOf(journaling.waits);
  const std::string each =
      journaling.batches == 0
          ? ""
          : fmt::format(" for {:.1f} waits each",
                        static_cast<double>(waits) / static_cast<double>(journaling.batches));
  return fmt::format("journal  {}{} writes/s{}, {}; {} ahead of it; {}",
                     journaling.failed != 0 ? "has failed; " : "",
                     CountRate(rate(journaling.batches)), each, BytesRate(rate(journaling.bytes)),
                     Size(journaling.ahead), WaitsText(journaling.waits));
}

std::string HugePart(const View& view) {
  if (view.pool.lost) return "";
  const std::optional<uint64_t> huge = HugeBytes(view.pool);
  return huge ? fmt::format("; {} in huge pages", Size(*huge)) : "";
}

std::vector<std::string> Head(const View& view) {
  const pool::Superblock& superblock = *view.pool.view().superblock;
  const auto rate = [&](uint64_t pool::Statistics::*counter) {
    return Rate(view.before, view.now, counter);
  };
  const auto count = [&](uint64_t pool::Statistics::*counter) { return CountRate(rate(counter)); };
  using Statistics = pool::Statistics;
  const double full = 100 * static_cast<double>(view.now.segments_taken) /
                      static_cast<double>(superblock.segment_count);
  double through = 0;
  for (const Row& row : RowsOf(view)) through += row.through;
  std::vector<std::string> head = {
      fmt::format("pool     {}", Printable(view.path)),
      fmt::format("size     {}, durability {}, {}", Size(superblock.pool_size),
                  LevelOf(view.pool).name, Many(view.now.processes.size(), "process", "processes")),
      fmt::format("room     {} of {} segments taken ({:.1f} %){}", view.now.segments_taken,
                  superblock.segment_count, full, HugePart(view)),
      fmt::format("pending  {}", PendingText(*view.now.pending)),
      fmt::format("to disk  {} records/s, {}, {} batches/s, {} flushes/s",
                  count(&Statistics::entries_cleaned), BytesRate(rate(&Statistics::bytes_cleaned)),
                  count(&Statistics::batches), count(&Statistics::syncs)),
      fmt::format("through  {}; {}", BytesRate(through),
                  ThroughText(view.now.through, *view.now.pending)),
      fmt::format("waits    {} full log/s, {} dirty misses/s, {} errors/s",
                  count(&Statistics::full_waits), count(&Statistics::dirty_misses),
                  count(&Statistics::write_back_errors)),
  };
  if (view.now.mirroring.commit != pool::kCommitOwn) head.push_back(MirrorLine(view));
  if (view.now.journaling.there) head.push_back(JournalLine(view));
  if (view.now.mirroring.commit == pool::kCommitOutput) {
    head.push_back(OutputsLine(MirroringOf(view).outputs));
  } else if (view.now.journaling.commit == pool::kCommitOutput) {
    head.push_back(OutputsLine(JournalingOf(view).outputs));
  }
  head.emplace_back();
  return head;
}

Frame FrameOf(const View& view, const Column& sort, size_t width = kUnlimited) {
  std::vector<Row> rows = RowsOf(view);
  Sort(&rows, sort);
  const int ranks = RanksFor(width);
  Frame frame;
  frame.head = Head(view);
  frame.head.push_back(Line(
      ranks, [](const Column& column) { return column.title; }, &frame.marked, &sort));
  frame.marked_length = sort.rank <= ranks ? std::max(sort.width, strlen(sort.title)) : 0;
  for (const Row& row : rows) {
    frame.table.push_back(Line(ranks, [&](const Column& column) { return column.text(row); }));
  }
  frame.foot = fmt::format("q: quit   left, right: sort by {}   up, down: scroll", sort.title);
  return frame;
}

Json ToJson(const View& view) {
  const pool::Superblock& superblock = *view.pool.view().superblock;
  const Pending& pending = *view.now.pending;
  Json json;
  json["time_ns"] = sys::Now(CLOCK_REALTIME);
  json["interval_ns"] = Between(view.before, view.now).count();
  PutPath(json, "pool", view.path);
  json["durability"] = LevelOf(view.pool).name;
  json["size"] = superblock.pool_size;
  json["segments"] = superblock.segment_count;
  json["segment_size"] = superblock.segment_size;
  json["segments_taken"] = view.now.segments_taken;
  const std::optional<uint64_t> huge = view.pool.lost ? std::nullopt : HugeBytes(view.pool);
  json["huge"] = huge ? Json(*huge) : Json();
  json["pending_records"] = pending.records;
  json["pending_bytes"] = pending.bytes;
  json["pending_complete"] = pending.complete;
  json["write_through"] = ThroughJson(view.now.through, pending);
  json["mirror"] = MirrorJson(MirroringOf(view));
  json["journal"] = JournalJson(JournalingOf(view));
  for (const Counter& counter : kCounters) {
    json["per_second"][counter.name] = Rate(view.before, view.now, counter.field);
  }
  json["processes"] = Json::array();
  for (const Row& row : RowsOf(view)) {
    Json process = ProcessJson(row.process, row.pending);
    process["bytes_cleaned_per_second"] = row.written;
    process["through_bytes_per_second"] = row.through;
    json["processes"].push_back(std::move(process));
  }
  return json;
}

// ---------------------------------------------------------------------------------------------
// The two ways to show it.

void Print(const View& view, bool json, bool first) {
  if (json) {
    fmt::print("{}\n", OneLine(ToJson(view)));
  } else {
    const Frame frame = FrameOf(view, kColumns[kDefaultSort]);
    if (!first) fmt::print("\n");
    for (const std::string& line : frame.head) fmt::print("{}\n", line);
    for (const std::string& line : frame.table) fmt::print("{}\n", line);
  }
  FinishOutput();
}

void PrintAgainAndAgain(const TopArguments& arguments, Clock::duration interval) {
  const Signals signals;
  Sampler sampler(arguments.pool);
  Sample before = sampler.Take();
  const uint64_t count = arguments.once ? 1 : arguments.count;
  for (uint64_t n = 0; count == 0 || n < count; ++n) {
    if (!signals.WaitUntil(before.time + interval, false)) return;
    Sample now = sampler.Take();
    Print({sampler.pool(), arguments.pool, before, now}, arguments.json, n == 0);
    before = std::move(now);
  }
}

// The column that sorts, and the lines that are seen.
struct Position {
  size_t sort = kDefaultSort;
  size_t skipped = 0;

  void Move(Key key, size_t lines) {
    constexpr size_t kLast = std::size(kColumns) - 1;
    if (key == Key::kLeft) sort = sort > 0 ? sort - 1 : kLast;
    if (key == Key::kRight) sort = sort < kLast ? sort + 1 : 0;
    if (key == Key::kDown) ++skipped;
    if (key == Key::kUp && skipped > 0) --skipped;
    skipped = std::min(skipped, lines > 0 ? lines - 1 : 0);
  }
};

void ShowOnScreen(const TopArguments& arguments, Clock::duration interval) {
  const Signals signals;  // before the screen, which handles those that nobody does
  Sampler sampler(arguments.pool);
  Sample before = sampler.Take();
  if (!signals.WaitUntil(before.time + std::min<Clock::duration>(interval, kFirstInterval), false))
    return;
  Sample now = sampler.Take();
  Position position;
  Screen screen;
  for (;;) {
    if (Clock::now() >= now.time + interval) {
      before = std::move(now);
      now = sampler.Take();
    }
    const View view = {sampler.pool(), arguments.pool, before, now};
    screen.Draw(FrameOf(view, kColumns[position.sort], screen.width()), position.skipped);
    if (!signals.WaitUntil(now.time + interval, true)) return;
    for (Key key; (key = screen.ReadKey()) != Key::kNone;) {
      if (key == Key::kQuit) return;
      position.Move(key, now.processes.size());
    }
  }
}

int RunTop(TopArguments arguments) {
  if (arguments.pool.empty()) arguments.pool = NamedPool("top");
  const auto interval = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(arguments.interval));
  const bool plain = arguments.batch || arguments.once || arguments.json || arguments.count != 0;
  if (plain || isatty(STDIN_FILENO) != 1 || isatty(STDOUT_FILENO) != 1) {
    PrintAgainAndAgain(arguments, interval);
  } else {
    ShowOnScreen(arguments, interval);
  }
  return kOk;
}

}  // namespace

void AddTop(CLI::App& app, int* status) {
  auto arguments = std::make_shared<TopArguments>();
  CLI::App* command = app.add_subcommand("top", "Show a pool and its processes, live.");
  command->add_option("POOL", arguments->pool, "The pool. Else: that of 'nvcache run'");
  command->add_option("--interval", arguments->interval, "Seconds between two looks [1]")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 86400.0));
  command->add_flag("--batch", arguments->batch,
                    "Plain text, one look after the other; without a terminal always");
  command->add_option("--count", arguments->count, "The same, so many times")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command->add_flag("--once", arguments->once, "The same, once, after an interval");
  command->add_flag("--json", arguments->json, "The same, one JSON object a line");
  command->footer(
      "Keys: q quits; left and right choose the column to sort by; up and down scroll.\n"
      "\n"
      "Examples:\n"
      "  nvcache top /dev/shm/pool\n"
      "  nvcache top /dev/shm/pool --interval 5 --json | jq .per_second.bytes_cleaned\n");
  command->callback([arguments, status] { *status = RunTop(*arguments); });
}

}  // namespace nvcache::tool
