// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/explorer.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "src/nvlog/walk.h"
#include "src/replay/replay.h"
#include "tests/crash/name_check.h"
#include "tests/kit/random.h"

namespace nvcache::crash {

namespace {

// How often a recovered pool is used and recovered once more.
constexpr uint64_t kAgainEvery = 16;

// The engine's end, a recovery's, and that of the recovery after one that was killed.
constexpr int kMaxDepth = 2;

class ScopedListen {
 public:
  explicit ScopedListen(Listener* listener) { Listen(listener); }
  ~ScopedListen() { Listen(nullptr); }
};

class ScopedPool : public pool::Pool {
 public:
  ~ScopedPool() { Close(); }
};

// Nothing that lies in the segments may be taken for a group of LSNs to come (I5).
std::string OldGroups(const pool::View& view) {
  uint64_t checkpoint = 0;
  if (pool::LoadCheckpoint(view, pool::kOfPool, &checkpoint) != 2) {
    return "a checkpoint record is damaged";
  }
  for (uint32_t seat = 0; seat < view.seat_count(); ++seat) {
    uint64_t own = 0;
    if (pool::LoadCheckpoint(view, seat, &own) != 2) {
      return "a seat's checkpoint record is damaged";
    }
    if (own > checkpoint) return "a seat's checkpoint is above the pool's";
  }
  uint64_t through = 0;
  if (pool::LoadCheckpoint(view, pool::kOfThrough, &through) != 2) {
    return "a checkpoint record of write-through is damaged";
  }
  if (through > checkpoint) return "the checkpoint of write-through is above the pool's";
  const uint64_t units = view.segment_units();
  for (uint32_t segment = 0; segment < view.segment_count(); ++segment) {
    pool::SegmentHeader taken;
    if (!pool::CopySegmentHeader(view, *view.segment(segment), segment, &taken) &&
        !pool::CopySegmentHeader(view, *view.segment_copy(segment), segment, &taken)) {
      continue;
    }
    if (std::max(taken.generation, taken.checkpoint) >= checkpoint) {
      return "a segment's header is not below the checkpoint " + std::to_string(checkpoint);
    }
    for (uint64_t unit = 0; unit < units; ++unit) {
      const nvlog::Place place = segment * units + unit;
      nvlog::RecordHeader header;
      std::memcpy(&header, view.unit(place), sizeof(header));
      if (header.lsn < checkpoint || header.lsn >> pool::kLsnBits != 0 ||
          !nvlog::IsSane(header, units - unit) ||
          header.header_crc != nvlog::HeaderCrc(header, place, taken.generation, view.salt())) {
        continue;
      }
      return "an old record has LSN " + std::to_string(header.lsn) + ", past the checkpoint " +
             std::to_string(checkpoint);
    }
  }
  nvlog::Reader reader;
  nvlog::GroupWalk walk(reader);
  if (!reader.Open(view) || !walk.Open()) return "no memory";
  for (nvlog::Group group; walk.Next(&group);) {
    if (group.verdict == nvlog::Verdict::kVoid || group.verdict == nvlog::Verdict::kOnDisk)
      continue;
    return "an old group counts, with LSN " + std::to_string(group.lsn) + ", verdict " +
           std::to_string(static_cast<int>(group.verdict));
  }
  return "";
}

// What the format says of a new pool: all but superblocks, checkpoint, state and segments is zero.
bool IsZeroed(const pool::View& view) {
  constexpr struct {
    uint64_t begin, length;
  } kUsed[] = {
      {0, sizeof(pool::Superblock)},
      {pool::kCheckpointOffset, sizeof(pool::CheckpointRecord)},
      {pool::kStateOffset, sizeof(uint64_t)},
      {pool::kCheckpointOffset + pool::kCheckpointDistance, sizeof(pool::CheckpointRecord)},
      {pool::kSuperblockCopyOffset, sizeof(pool::Superblock)},
  };
  const auto zero = [&](uint64_t from, uint64_t to) {
    return std::all_of(view.base + from, view.base + to, [](uint8_t byte) { return byte == 0; });
  };
  uint64_t end = 0;
  for (const auto& used : kUsed) {
    if (!zero(end, used.begin)) return false;
    end = used.begin + used.length;
  }
  return zero(end, pool::kSegmentsOffset);
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

Explorer::Level::Level(const Trace& t, Machine* m, int d, bool k, uint32_t b)
    : trace(t),
      machine(*m),
      memory(t.pool),
      disk(t.files),
      names(t),
      shared(t.pool, pool::kSharedOffset, kVolatileEnd - pool::kSharedOffset),
      depth(d),
      kept(k),
      boot(b) {
  std::memcpy(machine.pool(), t.pool.data(), t.pool.size());
}

// What the killed process had not made durable is not durable now.
Explorer::Level::Level(const Level& killed, const Trace& t, Machine* m, bool k)
    : trace(t),
      machine(*m),
      memory(killed.memory),
      disk(killed.disk),
      names(killed.names),
      shared(killed.shared),
      depth(killed.depth + 1),
      kept(k),
      boot(killed.boot) {
  for (size_t i = disk.files().size(); i < t.files.size(); ++i) {
    disk.Add(t.files[i]);
    names.Add(t.files[i]);
  }
  std::memcpy(machine.pool(), memory.certain().data(), memory.certain().size());
}

void Explorer::Level::Advance(size_t events, Model* model) {
  for (; at < events; ++at) {
    const Event& event = trace.events[at];
    memory.Apply(event, trace);
    disk.Apply(event, trace);
    names.Apply(event, trace);
    if (event.type == Event::kVolatile) {
      std::memcpy(&shared[event.at - pool::kSharedOffset], trace.Data(event.data), event.length);
    } else {
      ++moment;
    }
    if (model != nullptr) model->Apply(event);
  }
  for (const uint32_t line : memory.TakeChanged()) {
    std::memcpy(machine.pool() + line * kLine, memory.certain().data() + line * kLine, kLine);
  }
}

Explorer::Explorer(const Trace& trace, const Plan& plan)
    : trace_([&] {
        Trace mutated = trace;
        if (plan.mutate) plan.mutate(&mutated, false);
        return mutated;
      }()),
      plan_(plan),
      model_(trace_),
      garbage_(kVolatileEnd - pool::kSharedOffset, '\0') {
  std::mt19937_64 garbage(plan.seed);
  for (char& byte : garbage_) byte = static_cast<char>(garbage());
  for (int depth = 0; depth <= kMaxDepth; ++depth) {
    if (has_names()) {
      machines_.push_back(std::make_unique<NameMachine>(trace.pool.size(), trace.root));
    } else {
      machines_.push_back(std::make_unique<Machine>(trace.pool.size()));
    }
  }
}

// Before what takes possible images away, and after what makes more of them wrong.
std::vector<size_t> Explorer::Moments(const std::vector<Event>& events) const {
  std::vector<size_t> moments;
  bool changed = true;
  for (size_t i = 0; i < events.size(); ++i) {
    if (plan_.watched && events[i].type == Event::kWrite) {
      if (moments.empty() || moments.back() != i) moments.push_back(i);
      moments.push_back(i + 1);
    }
    switch (events[i].type) {
      case Event::kStore:
      case Event::kWrite:
      case Event::kTruncate:
      case Event::kErase:
      case Event::kEntry:
      case Event::kAttributes:
        changed = true;
        break;
      case Event::kFence:
      case Event::kSyncEnd:
      case Event::kSyncFailed:
      case Event::kNamed:
      case Event::kNamesEnd:
        if (changed && (moments.empty() || moments.back() != i)) moments.push_back(i);
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
  Level level(trace_, machines_[0].get(), 0, false, 0);
  const std::string wrong = Explore(&level, {});
  if (wrong.empty()) return std::nullopt;
  return Failure{wrong, crashes_};
}

// `fixed`: what has to be there after any crash of recovery.
std::string Explorer::Explore(Level* level, const Expected& fixed) {
  const bool outermost = level->depth == 0;
  for (const size_t events : Moments(level->trace.events)) {
    level->Advance(events, outermost ? &model_ : nullptr);
    if (outermost && level->moment < plan_.first_moment) continue;
    if (outermost) BeginMoment(level->moment);
    const Expected expected = ExpectedAt(*level, fixed);
    bool complete = false;
    for (const Choice& choice :
         Choose(level->memory, level->disk, outermost ? plan_.limits : plan_.nested_limits,
                &random_, &complete, has_names() ? &level->names : nullptr)) {
      if (Over()) return "";
      std::string wrong = TryImage(level, choice, expected);
      if (!wrong.empty()) return wrong;
    }
    if (outermost) {
      ++counts_.moments;
      counts_.exhaustive += complete ? 1 : 0;
    }
    if (plan_.killed_every == 0 || level->depth + 1 >= kMaxDepth + (outermost ? 0 : 1)) continue;
    const bool nest = random_() % plan_.killed_every == 0;
    std::string wrong = outermost || nest ? TryKill(level, expected, nest) : "";
    if (!wrong.empty()) return wrong;
  }
  return "";
}

bool Explorer::Over() const {
  return counts_.images + counts_.nested >= plan_.images ||
         std::chrono::steady_clock::now() >= plan_.end;
}

Expected Explorer::ExpectedAt(const Level& level, const Expected& fixed) const {
  if (level.depth == 0) return model_.Now();
  Expected expected = fixed;
  expected.clean = level.AtEnd() && !level.kept && !level.trace.events.empty();
  return expected;
}

std::string Explorer::TryImage(Level* level, const Choice& choice, const Expected& expected) {
  crashes_.push_back({level->at, false, choice});
  if (plan_.trying) plan_.trying(crashes_);
  CountImage(*level);
  Put(level, choice, level->depth == 0, false);
  const bool removed = std::any_of(choice.files.begin(), choice.files.end(),
                                   [](const FileChoice& file) { return file.removed; });
  const bool nest = level->depth == 0 && !trace_.creation && !removed && plan_.nested_every > 0 &&
                    random_() % plan_.nested_every == 0;
  std::string image;
  Machine& machine = level->machine;
  if (nest) image.assign(reinterpret_cast<char*>(machine.pool()), machine.pool_size());
  std::string wrong = Check(level, choice, expected, level->depth == 0);
  if (wrong.empty() && nest) {
    const Trace recovery = Recovery(*level, std::move(image));
    Level next(recovery, machines_[1].get(), 1, kept_, level->boot + 1);
    wrong = Explore(&next, AfterFirst(*level, expected));
  }
  Restore(level, choice);
  if (wrong.empty()) crashes_.pop_back();
  return wrong;
}

// What is tried in it is the same, wherever it began.
void Explorer::BeginMoment(size_t moment) {
  moment_ = in_moment_ = moment;
  random_.seed(kit::Mix(kit::Mix(plan_.seed) ^ moment));
}

void Explorer::CountImage(const Level& level) {
  ++(level.depth == 0 ? counts_.images : counts_.nested);
  if (level.depth == 0) ++in_moment_;
}

Expected Explorer::ExpectedOfKilled(const Level& level, const Expected& expected) const {
  return level.depth == 0 ? model_.Now(true) : expected;
}

// What is there because it was not lost with the process need not be durable, so after a crash of
// this recovery the same is expected as before.
std::string Explorer::TryKill(Level* level, const Expected& expected, bool nest) {
  const Choice choice = Everything(*level);
  crashes_.push_back({level->at, true, choice});
  if (plan_.trying) plan_.trying(crashes_);
  CountImage(*level);
  Put(level, choice, true, true);
  std::string wrong = CheckKilled(level, choice, ExpectedOfKilled(*level, expected), true);
  if (wrong.empty() && nest) {
    const Trace recovery = RecoveryOfKilled(*level);
    Level next(*level, recovery, machines_[static_cast<size_t>(level->depth) + 1].get(), kept_);
    wrong = Explore(&next, expected);
  }
  Restore(level, choice);
  if (wrong.empty()) crashes_.pop_back();
  return wrong;
}

Trace Explorer::Recovery(const Level& level, std::string image) {
  Trace recovery = std::move(recovery_);
  recovery.pool = std::move(image);
  for (size_t i = 0; i < level.trace.files.size(); ++i) {
    recovery.files[i].away = level.trace.files[i].away;
  }
  if (plan_.mutate) plan_.mutate(&recovery, true);
  return recovery;
}

// Its events go on where the killed process left the medium.
Trace Explorer::RecoveryOfKilled(const Level& level) {
  constexpr uint16_t kThread = 1000;
  Trace recovery = Recovery(level, "");
  const auto before = static_cast<uint32_t>(level.trace.bytes.size());
  recovery.bytes.insert(0, level.trace.bytes);
  for (Event& event : recovery.events) {
    event.data += before;
    event.thread = static_cast<uint16_t>(kThread + level.depth);
  }
  return recovery;
}

Choice Explorer::Everything(const Level& level) {
  Choice choice;
  for (const auto& [number, line] : level.memory.uncertain()) {
    choice.lines.push_back({number, static_cast<uint32_t>(line.stores.size()), 0});
  }
  for (uint32_t i = 0; i < level.disk.files().size(); ++i) {
    choice.files.push_back(
        {i, true, false, std::vector<bool>(level.disk.files()[i].calls.size(), true)});
  }
  choice.names = level.names.Everything();
  return choice;
}

// What one recovery has made of an image, the next must make of it, too.
Expected Explorer::AfterFirst(const Level& level, const Expected& expected) const {
  Expected after = expected;
  if (has_names()) {
    after.names = {NamesOf(level).names()};
    after.files.clear();
    for (const Machine::File& file : level.machine.files()) {
      after.files.push_back({{file.content}, false, {file.identity}});
    }
    return after;
  }
  for (size_t i = 0; i < expected.files.size(); ++i) {
    if (trace_.files[i].away) continue;
    const Machine::File* file = level.machine.Find(trace_.files[i].identity.path);
    after.files[i].absent = file == nullptr;
    after.files[i].contents.clear();
    if (file != nullptr) after.files[i].contents.push_back(file->content);
  }
  return after;
}

std::string Explorer::Again(const Crashes& crashes) {
  Level level(trace_, machines_[0].get(), 0, false, 0);
  return Step(&level, crashes, 0, {});
}

std::string Explorer::Step(Level* level, const Crashes& crashes, size_t next,
                           const Expected& fixed) {
  const Crash& crash = crashes[next];
  level->Advance(crash.events, level->depth == 0 ? &model_ : nullptr);
  const Expected expected = ExpectedAt(*level, fixed);
  const bool away = level->depth == 0 || crash.killed;
  Machine& machine = level->machine;
  Put(level, crash.choice, away, crash.killed);
  std::string image(reinterpret_cast<char*>(machine.pool()), machine.pool_size());
  const Expected now = crash.killed ? ExpectedOfKilled(*level, expected) : expected;
  std::string wrong = crash.killed ? CheckKilled(level, crash.choice, now, away)
                                   : Check(level, crash.choice, now, away);
  if (!wrong.empty() || next + 1 == crashes.size()) return wrong;
  Machine* m = machines_[static_cast<size_t>(level->depth) + 1].get();
  if (crash.killed) {
    const Trace recovery = RecoveryOfKilled(*level);
    Level deeper(*level, recovery, m, kept_);
    return Step(&deeper, crashes, next + 1, expected);
  }
  const Expected after = AfterFirst(*level, expected);
  const Trace recovery = Recovery(*level, std::move(image));
  Level deeper(recovery, m, level->depth + 1, kept_, level->boot + 1);
  return Step(&deeper, crashes, next + 1, after);
}

// ---------------------------------------------------------------------------------------------
// One image

// `away`: the files that are to be away are.
void Explorer::Put(Level* level, const Choice& choice, bool away, bool killed) {
  Machine& machine = level->machine;
  machine.set_boot(level->boot + (killed ? 0 : 1));
  for (const LineChoice& line : choice.lines) {
    level->memory.Build(line, level->trace, machine.pool() + line.line * kLine);
  }
  // Nothing depends on the counters, so they may be anything; but in a new pool.
  // The same goes for what the processes share, but where they were only killed.
  if (!level->trace.creation) {
    std::memset(machine.pool() + pool::kStatisticsOffset,
                static_cast<int>(level->moment * 37 & 0xff), sizeof(pool::Statistics));
    const std::string& shared = level->moment % 2 == 0 && !killed ? garbage_ : level->shared;
    std::memcpy(machine.pool() + pool::kSharedOffset, shared.data(), shared.size());
  }
  if (plan_.damage) {
    DamageCheckpoints(level);
    DamageSegment(level);
  }
  machine.files().resize(level->trace.files.size());
  for (const FileChoice& file : choice.files) {
    const FileInfo& info = level->trace.files[file.file];
    Machine::File& there = machine.files()[file.file];
    there.identity = info.identity;
    there.content.clear();
    there.named = level->disk.Build(file, level->trace, &there.content);
    if (!info.away) continue;
    there.named = !away;
    there.content = level->disk.files()[file.file].content;
  }
  if (!has_names()) return;
  NameMedium::Left left = level->names.Build(choice.names);
  for (size_t i = 0; i < left.attributes.size(); ++i) {
    static_cast<Attributes&>(machine.files()[i].identity) = left.attributes[i];
  }
  NamesOf(*level).names() = std::move(left.names);
  if (level->depth == 0) privileged_ = plan_.handles || level->moment % 4 < 2;
  NamesOf(*level).set_privileged(privileged_);
}

// The first record of each, or the second of each.
void Explorer::DamageCheckpoints(Level* level) {
  uint8_t* base = level->machine.pool();
  const pool::View view = {base, reinterpret_cast<const pool::Superblock*>(base)};
  uint64_t checkpoint = 0;
  const uint64_t which = level->moment % 3;
  if (which == 2) return;
  const auto damage = [&](pool::CheckpointRecord* record) {
    auto* bytes = reinterpret_cast<uint8_t*>(record);
    bytes[3] ^= 0x40;
    blinded_.push_back(static_cast<uint32_t>(static_cast<uint64_t>(bytes - base) / kLine));
  };
  if (pool::LoadCheckpoint(view, pool::kOfPool, &checkpoint) == 2) {
    damage(view.checkpoint_record(which));
  }
  if (pool::LoadCheckpoint(view, pool::kOfThrough, &checkpoint) == 2) {
    damage(view.through_checkpoint_record(which));
  }
  for (uint32_t seat = 0; seat < view.seat_count(); ++seat) {
    if (pool::LoadCheckpoint(view, seat, &checkpoint) == 2) {
      damage(view.seat_checkpoint_record(seat, which));
    }
  }
}

// Of a segment that holds a group, the first header: the copy has to do.
void Explorer::DamageSegment(Level* level) {
  uint8_t* base = level->machine.pool();
  const pool::View view = {base, reinterpret_cast<const pool::Superblock*>(base)};
  if (level->moment % 3 != 2) return;
  const auto number = static_cast<uint32_t>(level->moment / 3 % view.segment_count());
  pool::SegmentHeader header;
  if (!pool::CopySegmentHeader(view, *view.segment(number), number, &header)) return;
  const nvlog::Place first = number * view.segment_units() + nvlog::kFirstUnit;
  nvlog::RecordHeader record;
  std::memcpy(&record, view.unit(first), sizeof(record));
  if (record.lsn <= header.generation ||
      record.commit != nvlog::CommitWord(record.lsn, view.salt()) ||
      record.header_crc != nvlog::HeaderCrc(record, first, header.generation, view.salt())) {
    return;
  }
  // One that is free may be about to be taken again: then its copy is not what it was.
  pool::SegmentHeader copy;
  const bool twice = pool::CopySegmentHeader(view, *view.segment_copy(number), number, &copy) &&
                     copy.generation == header.generation;
  if (!twice && record.lsn < pool::LoadCheckpointOfLog(view, header.log)) return;
  auto* damaged = reinterpret_cast<uint8_t*>(view.segment(number));
  damaged[offsetof(pool::SegmentHeader, generation) + 1] ^= 0x10;
  blinded_.push_back(static_cast<uint32_t>(static_cast<uint64_t>(damaged - base) / kLine));
}

void Explorer::Restore(Level* level, const Choice& choice) {
  const auto restore = [&](uint64_t line) {
    std::memcpy(level->machine.pool() + line * kLine, level->memory.certain().data() + line * kLine,
                kLine);
  };
  for (const LineChoice& line : choice.lines) restore(line.line);
  for (const uint32_t line : level->machine.lines()) restore(line);
  for (const uint32_t line : blinded_) restore(line);
  blinded_.clear();
  for (uint64_t at = 0; at < sizeof(pool::Statistics); at += kLine) {
    restore((pool::kStatisticsOffset + at) / kLine);
  }
}

std::string Explorer::Check(Level* level, const Choice& choice, const Expected& expected,
                            bool away) {
  if (trace_.creation) return CheckCreation(level, expected);
  Machine& machine = level->machine;
  Expected wanted = expected;
  const bool after_kept = level->depth > 0 && level->kept && level->AtEnd();
  bool may_keep = false;
  for (const FileChoice& file : choice.files) may_keep |= file.removed;
  for (size_t i = 0; i < trace_.files.size(); ++i) {
    may_keep |= trace_.files[i].away && away;
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
  std::string wrong = Recover(*level, wanted.running, &clean, may_keep);
  if (wrong.empty() && wanted.clean && !clean_before_) wrong = "the pool is not clean";
  kept_ = !clean;
  if (wrong.empty()) wrong = CompareFiles(*level, choice, wanted);
  recovery_ = std::move(machine.done());
  recovery_.events.resize(std::min(recovery_.events.size(), recovery_events_));
  return wrong;
}

// The tool has the pool for itself, a process of the engine is the first one to come.
std::string Explorer::Recover(const Level& level, uint32_t running, bool* clean, bool may_keep) {
  ScopedPool pool;
  pool::Problem problem;
  const auto access = level.moment % 2 == 0 ? pool::Mode::kShared : pool::Mode::kExclusive;
  if (!pool.Open(kPoolPath, access, true, nullptr, &problem)) return problem.text.c_str();
  if (!pool.alone()) return "somebody is said to use the pool";
  clean_before_ = !pool.dirty();
  if (plan_.blind) {
    for (const nvlog::Place place : plan_.blind(pool.view())) {
      blinded_.push_back(static_cast<uint32_t>(pool::kSegmentsOffset / kLine + place));
    }
  }
  replay::Summary summary;
  *clean = replay::Replay(pool, {}, {}, &summary);
  recovery_events_ = level.machine.done().events.size();
  if (summary.damaged_groups > 0) return "a group is reported as damaged";
  if (summary.unfinished_groups > running) return "a call that had returned is unfinished";
  if (summary.failed_files > 0) return "a file is reported to refuse bytes";
  if (summary.unresolved_names > 0) {
    return std::to_string(summary.unresolved_names) +
           " names are not as the logs have them, error " + std::to_string(summary.error);
  }
  if (!*clean && !may_keep) {
    return "groups of " + std::to_string(summary.unresolved_files) + " files stay, error " +
           std::to_string(summary.error);
  }
  if (!*clean) return "";
  if (pool.dirty()) return "the pool is dirty after recovery";
  std::string wrong = OldGroups(pool.view());
  return !wrong.empty() || in_moment_ % kAgainEvery != 0 ? wrong : UseAgain(&pool);
}

// And nothing is done: there is nothing to recover (I6).
std::string Explorer::UseAgain(pool::Pool* pool) {
  pool->MarkInUse();
  const pool::Seats& seats = pool->seats();
  if (pool->seat() != 0 || seats.OthersHaveSeats(0) || seats.HasUnresolved() ||
      seats.CountFree() != pool->view().segment_count() ||
      seats.next_lsn().load() < pool->checkpoint()) {
    return "what the processes share is not as if there were none";
  }
  replay::Summary summary;
  if (!replay::Replay(*pool, {}, {}, &summary)) return "a second recovery leaves groups";
  return summary.records > 0 ? "a second recovery applies records" : "";
}

std::string Explorer::CompareFiles(const Level& level, const Choice& choice,
                                   const Expected& expected) const {
  if (has_names()) return CompareNames(NamesOf(level), trace_.root, expected);
  for (size_t i = 0; i < expected.files.size(); ++i) {
    const std::string& path = trace_.files[i].identity.path;
    const bool removed =
        std::any_of(choice.files.begin(), choice.files.end(), [&](const FileChoice& c) {
          return c.removed && level.trace.files[c.file].identity.path == path;
        });
    const Machine::File* file = level.machine.Find(path);
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

// The kernel that recovery has is the one that the killed process had.
std::string Explorer::CheckKilled(Level* level, const Choice& choice, const Expected& expected,
                                  bool away) {
  const std::vector<Machine::File> seen = level->machine.files();
  const std::string wrong = Check(level, choice, expected, away);
  return wrong.empty() && plan_.watched ? CompareSeen(seen) : wrong;
}

// `seen`: before recovery. What it writes to a place is nowhere older than what is there.
std::string Explorer::CompareSeen(std::vector<Machine::File> seen) const {
  std::vector<std::vector<std::string>> histories;
  for (uint32_t file = 0; file < seen.size(); ++file) histories.push_back(model_.History(file));
  for (const Event& event : recovery_.events) {
    if (event.type != Event::kWrite) continue;
    const std::vector<std::string>& history = histories[event.file];
    std::string& content = seen[event.file].content;
    std::string next = content;
    recovery_.Do(event, &next);
    for (uint64_t at = event.at; at < std::min(event.at + event.length, content.size()); ++at) {
      const auto has = [at](char byte) {
        return
            [at, byte](const std::string& state) { return at < state.size() && state[at] == byte; };
      };
      const auto first = std::find_if(history.begin(), history.end(), has(content[at]));
      if (std::none_of(first, history.end(), has(next[at]))) {
        return seen[event.file].identity.path + ": others see an older byte again at " +
               std::to_string(at);
      }
    }
    content = std::move(next);
  }
  return "";
}

std::string Explorer::CheckCreation(Level* level, const Expected& expected) {
  ScopedListen listen(&level->machine);
  level->machine.Begin();
  pool::Problem problem;
  ScopedPool pool;
  bool open = pool.Open(kDevicePath, pool::Mode::kExclusive, true, nullptr, &problem);
  if (!open) {
    std::string text = problem.text.c_str();
    if (expected.clean || text.find("is not a pool") == std::string::npos) return text;
    if (!pool::Pool::Create(kDevicePath, {.size = 0, .emulate = true}, nullptr, &problem) ||
        !pool.Open(kDevicePath, pool::Mode::kExclusive, true, nullptr, &problem)) {
      return std::string("made again: ") + problem.text.c_str();
    }
  }
  if (pool.dirty()) return "the new pool is dirty";
  if (expected.clean && pool.superblock_damaged())
    return "a superblock of the new pool is not there";
  if (!IsZeroed(pool.view())) return "the new pool holds what was there before";
  return OldGroups(pool.view());
}

// crash EVENTS
// lines LINE STORES TORN ...
// files FILE EXISTS REMOVED REACHED ...
// names ALL FOLDER CHANGES ...
std::string ToText(const Crashes& crashes) {
  std::ostringstream out;
  for (const Crash& crash : crashes) {
    out << (crash.killed ? "kill " : "crash ") << crash.events << "\nlines";
    for (const LineChoice& line : crash.choice.lines) {
      out << " " << line.line << " " << line.stores << " " << line.torn;
    }
    out << "\nfiles";
    for (const FileChoice& file : crash.choice.files) {
      out << " " << file.file << " " << file.exists << " " << file.removed << " r";
      for (const bool reached : file.reached) out << (reached ? '1' : '0');
    }
    out << "\nnames " << crash.choice.names.all;
    for (const auto& [folder, n] : crash.choice.names.folders) out << " " << folder << " " << n;
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
    if (word == "crash" || word == "kill") {
      fields >> crashes.emplace_back().events;
      crashes.back().killed = word == "kill";
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
    } else if (word == "names") {
      NameChoice& names = crashes.back().choice.names;
      fields >> names.all;
      for (uint32_t folder, n; fields >> folder >> n;) names.folders.emplace_back(folder, n);
    }
  }
  return crashes;
}

}  // namespace nvcache::crash
