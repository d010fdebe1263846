// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/explorer.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "recovery/replay/replay.h"
#include "src/nvlog/reader.h"

namespace nvcache::crash {

namespace {

// How often a recovered pool is used and recovered once more.
constexpr uint64_t kAgainEvery = 16;

class ScopedListen {
 public:
  explicit ScopedListen(Listener* listener) { Listen(listener); }
  ~ScopedListen() { Listen(nullptr); }
};

class ScopedPool : public pool::Pool {
 public:
  ~ScopedPool() { Close(); }
};

// Nothing that lies in the log may be taken for an entry of the positions to come.
std::string OldEntries(const pool::View& view) {
  uint64_t tail = 0;
  int valid = 0;
  if (!pool::ReadTail(view, &tail, &valid) || valid != 2) return "a tail record is damaged";
  const nvlog::Reader reader(view);
  const uint64_t units = view.log_units();
  for (uint64_t unit = 0; unit < units; ++unit) {
    nvlog::EntryHeader header;
    std::memcpy(&header, view.log() + unit * pool::kUnitSize, sizeof(header));
    if (header.position < tail || header.position >= tail + 2 * units) continue;
    if (header.position % units != unit) continue;
    const nvlog::Verdict verdict = reader.Examine(header.position, &header);
    if (verdict == nvlog::Verdict::kNothing || verdict == nvlog::Verdict::kInFlight) continue;
    return "an old entry lies at position " + std::to_string(header.position) +
           ", past the tail " + std::to_string(tail);
  }
  return "";
}

// What the format says of a new pool: all but superblock, tail, state and log is zero.
bool IsZeroed(const pool::View& view) {
  const auto zero = [&](uint64_t from, uint64_t to) {
    return std::all_of(view.base + from, view.base + to, [](uint8_t byte) { return byte == 0; });
  };
  return zero(sizeof(pool::Superblock), pool::kTailOffset) &&
         zero(pool::kStateOffset + sizeof(uint64_t), view.superblock->log_offset);
}

std::string Difference(const std::string& found, const Expected::File& expected) {
  if (expected.contents.empty()) return "it should not be there";
  const std::string& wanted = expected.contents[0];
  size_t at = 0;
  while (at < found.size() && at < wanted.size() && found[at] == wanted[at]) ++at;
  return "it has " + std::to_string(found.size()) + " bytes and differs at " + std::to_string(at) +
         " from the " + std::to_string(wanted.size()) + " bytes expected (the first of " +
         std::to_string(expected.contents.size()) + " contents)";
}

}  // namespace

// ---------------------------------------------------------------------------------------------

Explorer::Level::Level(const Trace& t, Machine* m)
    : trace(t), machine(*m), memory(t.pool), disk(t.files) {
  std::memcpy(machine.pool(), t.pool.data(), t.pool.size());
}

void Explorer::Level::Advance(size_t events, Model* model) {
  for (; at < events; ++at) {
    const Event& event = trace.events[at];
    memory.Apply(event, trace);
    disk.Apply(event, trace);
    if (model != nullptr) model->Apply(event);
  }
  for (const uint32_t line : memory.TakeChanged()) {
    std::memcpy(machine.pool() + line * kLine, memory.certain().data() + line * kLine, kLine);
  }
}

Explorer::Explorer(const Trace& trace, const Plan& plan)
    : trace_([&] {
        Trace mutated = trace;
        if (plan.mutate) plan.mutate(&mutated.events);
        return mutated;
      }()),
      plan_(plan),
      model_(trace_),
      machine_(trace.pool.size()),
      nested_machine_(trace.pool.size()),
      level_(trace_, &machine_),
      random_(plan.seed) {}

// Before what takes possible images away, and after what makes more of them wrong.
std::vector<size_t> Explorer::Moments(const std::vector<Event>& events) {
  std::vector<size_t> moments;
  bool changed = true;
  for (size_t i = 0; i < events.size(); ++i) {
    switch (events[i].type) {
      case Event::kStore:
      case Event::kWrite:
      case Event::kTruncate:
        changed = true;
        break;
      case Event::kFence:
      case Event::kSyncEnd:
      case Event::kNamed:
      case Event::kFolderSync:
        if (changed) moments.push_back(i);
        changed = events[i].type == Event::kNamed;
        break;
      case Event::kEnd:
        moments.push_back(i + 1);
        changed = false;
        break;
      default:
        break;
    }
  }
  if (moments.empty() || moments.back() != events.size()) moments.push_back(events.size());
  return moments;
}

std::optional<Failure> Explorer::Run() {
  for (const size_t moment : Moments(trace_.events)) {
    level_.Advance(moment, &model_);
    ++counts_.moments;
    if (const auto wrong = TryAll(model_.Now())) return Failure{*wrong, crashes_};
    if (std::chrono::steady_clock::now() >= plan_.end) break;
  }
  return std::nullopt;
}

std::optional<std::string> Explorer::TryAll(const Expected& expected) {
  bool complete = false;
  for (const Choice& choice :
       Choose(level_.memory, level_.disk, plan_.limits, &random_, &complete)) {
    if (std::chrono::steady_clock::now() >= plan_.end) return std::nullopt;
    std::string wrong = TryImage(choice, expected);
    if (!wrong.empty()) return wrong;
  }
  counts_.exhaustive += complete ? 1 : 0;
  return std::nullopt;
}

std::string Explorer::TryImage(const Choice& choice, const Expected& expected) {
  crashes_ = {{level_.at, choice}};
  if (plan_.trying) plan_.trying(crashes_);
  ++counts_.images;
  Put(&level_, choice);
  const bool removed = std::any_of(choice.files.begin(), choice.files.end(),
                                   [](const FileChoice& file) { return file.removed; });
  const bool nest = !trace_.creation && !removed && plan_.nested_every > 0 &&
                    random_() % plan_.nested_every == 0;
  std::string image;
  if (nest) image.assign(reinterpret_cast<char*>(machine_.pool()), machine_.pool_size());
  std::string wrong = Check(&level_, choice, expected);
  if (wrong.empty() && nest) {
    recovery_.pool = std::move(image);
    wrong = ExploreRecovery(expected, choice);
  }
  Restore(&level_, choice);
  return wrong;
}

// What the first recovery has made of an image, the second must make of it, too.
Expected Explorer::AfterFirst(const Expected& expected) const {
  Expected after = expected;
  after.clean = false;
  for (size_t i = 0; i < expected.files.size(); ++i) {
    if (trace_.files[i].away) continue;
    const Machine::File* file =
        const_cast<Machine&>(machine_).Find(trace_.files[i].identity.path);
    after.files[i].absent = file == nullptr;
    after.files[i].contents.clear();
    if (file != nullptr) after.files[i].contents.push_back(file->content);
  }
  return after;
}

std::string Explorer::ExploreRecovery(const Expected& expected, const Choice& outer) {
  Trace recovery = std::move(recovery_);
  const bool kept = kept_;
  Expected after = AfterFirst(expected);
  const size_t all = recovery.events.size();
  if (plan_.mutate) plan_.mutate(&recovery.events);
  Level level(recovery, &nested_machine_);
  for (const size_t moment : Moments(recovery.events)) {
    level.Advance(moment, nullptr);
    after.clean = moment == recovery.events.size() && all > 0 && !kept;
    kept_ = kept;
    for (const Choice& choice :
         Choose(level.memory, level.disk, plan_.nested_limits, &random_, nullptr)) {
      ++counts_.nested;
      crashes_ = {{level_.at, outer}, {moment, choice}};
      if (plan_.trying) plan_.trying(crashes_);
      Put(&level, choice);
      kept_ = kept;
      std::string wrong = Check(&level, choice, after);
      Restore(&level, choice);
      if (!wrong.empty()) return "after a crash of recovery: " + wrong;
    }
  }
  return "";
}

std::string Explorer::Again(const Crashes& crashes) {
  level_.Advance(crashes[0].events, &model_);
  Put(&level_, crashes[0].choice);
  const std::string image(reinterpret_cast<char*>(machine_.pool()), machine_.pool_size());
  const Expected expected = model_.Now();
  std::string wrong = Check(&level_, crashes[0].choice, expected);
  if (!wrong.empty() || crashes.size() < 2) return wrong;
  Trace recovery = std::move(recovery_);
  recovery.pool = image;
  Expected after = AfterFirst(expected);
  if (plan_.mutate) plan_.mutate(&recovery.events);
  Level level(recovery, &nested_machine_);
  level.Advance(crashes[1].events, nullptr);
  after.clean = level.at == recovery.events.size() && level.at > 0 && !kept_;
  Put(&level, crashes[1].choice);
  wrong = Check(&level, crashes[1].choice, after);
  return wrong.empty() ? "" : "after a crash of recovery: " + wrong;
}

// ---------------------------------------------------------------------------------------------
// One image

void Explorer::Put(Level* level, const Choice& choice) {
  Machine& machine = level->machine;
  for (const LineChoice& line : choice.lines) {
    level->memory.Build(line, level->trace, machine.pool() + line.line * kLine);
  }
  // Nothing depends on the counters, so they may be anything; but in a new pool.
  if (!level->trace.creation) std::memset(machine.pool() + pool::kStatisticsOffset, static_cast<int>(level->at * 37 & 0xff),
              sizeof(pool::Statistics));
  const bool first = !level->trace.operations.empty();  // not recovery's own trace
  machine.files().resize(level->trace.files.size());
  for (const FileChoice& file : choice.files) {
    const FileInfo& info = level->trace.files[file.file];
    Machine::File& there = machine.files()[file.file];
    there.identity = info.identity;
    there.content.clear();
    there.named = level->disk.Build(file, level->trace, &there.content);
    if (!info.away) continue;
    there.named = !first;
    if (!first) there.content = level->disk.files()[file.file].content;
  }
}

void Explorer::Restore(Level* level, const Choice& choice) {
  const auto restore = [&](uint64_t line) {
    std::memcpy(level->machine.pool() + line * kLine, level->memory.certain().data() + line * kLine,
                kLine);
  };
  for (const LineChoice& line : choice.lines) restore(line.line);
  for (const uint32_t line : level->machine.lines()) restore(line);
  for (uint64_t at = 0; at < sizeof(pool::Statistics); at += kLine) {
    restore((pool::kStatisticsOffset + at) / kLine);
  }
}

// The first recovery of a level's image, or the one after a recovery that crashed.
std::string Explorer::Check(Level* level, const Choice& choice, const Expected& expected) {
  if (trace_.creation) return CheckCreation(level, expected);
  Machine& machine = level->machine;
  Expected wanted = expected;
  const bool second = level != &level_;
  const bool after_kept = second && kept_ && level->at == level->trace.events.size();
  bool may_keep = false;
  for (const FileChoice& file : choice.files) may_keep |= file.removed;
  for (size_t i = 0; i < trace_.files.size(); ++i) {
    may_keep |= trace_.files[i].away && !second;
    if (!after_kept || trace_.files[i].away) continue;
    // The recovery before had returned, and the program went on without the cache.
    Machine::File* file = machine.Find(trace_.files[i].identity.path);
    if (file == nullptr) continue;
    for (char& byte : file->content) byte = static_cast<char>(byte ^ 0x55);
    wanted.files[i].contents = {file->content};
  }
  ScopedListen listen(&machine);
  machine.Begin();
  bool clean = false;
  std::string wrong = Recover(&machine, &clean, may_keep);
  if (wrong.empty() && wanted.clean && !clean_before_) wrong = "the pool is not clean";
  kept_ = !clean;
  if (wrong.empty()) wrong = CompareFiles(&machine, choice, wanted);
  recovery_ = std::move(machine.done());
  recovery_.events.resize(std::min(recovery_.events.size(), recovery_events_));
  for (size_t i = 0; i < level->trace.files.size(); ++i) {
    recovery_.files[i].away = level->trace.files[i].away;
  }
  return wrong;
}

std::string Explorer::Recover(Machine* machine, bool* clean, bool may_keep) {
  ScopedPool pool;
  pool::Problem problem;
  if (!pool.Open(kPoolPath, pool::Access::kExclusive, true, nullptr, &problem)) {
    return problem.text.c_str();
  }
  clean_before_ = !pool.dirty();
  recovery::Summary summary;
  *clean = recovery::Replay(pool, {}, {}, &summary);
  recovery_events_ = machine->done().events.size();
  if (summary.damaged_groups > 0) return "a group is reported as damaged";
  if (summary.failed_files > 0) return "a file is reported to refuse bytes";
  if (!*clean && !may_keep) {
    return "entries of " + std::to_string(summary.unresolved_files) + " files are kept, error " +
           std::to_string(summary.error);
  }
  if (!*clean) return "";
  if (pool.dirty()) return "the pool is dirty after recovery";
  std::string wrong = OldEntries(pool.view());
  if (!wrong.empty() || counts_.images % kAgainEvery != 0) return wrong;
  // Used again, and nothing done: there is nothing to recover (I6).
  pool.MarkInUse();
  if (!recovery::Replay(pool, {}, {}, &summary)) return "a second recovery keeps entries";
  return summary.entries > 0 ? "a second recovery applies entries" : "";
}

std::string Explorer::CompareFiles(Machine* machine, const Choice& choice,
                                   const Expected& expected) const {
  for (size_t i = 0; i < expected.files.size(); ++i) {
    const std::string& path = trace_.files[i].identity.path;
    const bool removed = i < choice.files.size() && choice.files[i].removed;
    const Machine::File* file = machine->Find(path);
    if (file == nullptr) {
      if (removed || expected.files[i].absent || trace_.files[i].away) continue;
      return path + ": the file is gone";
    }
    const std::vector<std::string>& contents = expected.files[i].contents;
    if (std::find(contents.begin(), contents.end(), file->content) != contents.end()) continue;
    return path + ": " + Difference(file->content, expected.files[i]);
  }
  return "";
}

std::string Explorer::CheckCreation(Level* level, const Expected& expected) {
  ScopedListen listen(&level->machine);
  level->machine.Begin();
  pool::Problem problem;
  ScopedPool pool;
  bool open = pool.Open(kDevicePath, pool::Access::kExclusive, true, nullptr, &problem);
  if (!open) {
    const std::string text = problem.text.c_str();
    if (expected.clean || text.find("is not a pool") == std::string::npos) return text;
    if (!pool::Pool::Create(kDevicePath, {.size = 0, .emulate = true}, nullptr, &problem) ||
        !pool.Open(kDevicePath, pool::Access::kExclusive, true, nullptr, &problem)) {
      return std::string("made again: ") + problem.text.c_str();
    }
  }
  if (pool.dirty()) return "the new pool is dirty";
  if (!IsZeroed(pool.view())) return "the new pool holds what was there before";
  return OldEntries(pool.view());
}

// crash EVENTS
// lines LINE STORES TORN ...
// files FILE EXISTS REMOVED REACHED ...
std::string ToText(const Crashes& crashes) {
  std::ostringstream out;
  for (const Crash& crash : crashes) {
    out << "crash " << crash.events << "\nlines";
    for (const LineChoice& line : crash.choice.lines) {
      out << " " << line.line << " " << line.stores << " " << line.torn;
    }
    out << "\nfiles";
    for (const FileChoice& file : crash.choice.files) {
      out << " " << file.file << " " << file.exists << " " << file.removed << " r";
      for (const bool reached : file.reached) out << (reached ? '1' : '0');
    }
    out << "\n";
  }
  return out.str();
}

Crashes FromText(const std::string& text) {
  Crashes crashes;
  std::istringstream in(text);
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::string word;
    fields >> word;
    if (word == "crash") {
      fields >> crashes.emplace_back().events;
    } else if (word == "lines") {
      for (LineChoice c; fields >> c.line >> c.stores >> c.torn;) {
        crashes.back().choice.lines.push_back(c);
      }
    } else if (word == "files") {
      FileChoice c;
      for (std::string reached; fields >> c.file >> c.exists >> c.removed >> reached;) {
        c.reached.clear();
        for (size_t i = 1; i < reached.size(); ++i) c.reached.push_back(reached[i] == '1');
        crashes.back().choice.files.push_back(c);
      }
    }
  }
  return crashes;
}

}  // namespace nvcache::crash
