// SPDX-License-Identifier: BSD-3-Clause
//
// The world around the protocol: who goes on, who is killed, what a power failure leaves.
#include <algorithm>
#include <memory>

#include "tests/protocol/protocol.h"

namespace nvcache::protocol {

namespace {

constexpr unsigned kCalls = 5;         // of each process
constexpr Pid kMostProcesses = 6;      // in all; a slot may have several, one after the other
constexpr uint64_t kMostSteps = 8000;  // more: somebody waits for ever
constexpr size_t kFewChanges = 3;      // unsynced: each combination is tried; else none, all, and
constexpr unsigned kSampled = 6;       // so many others
constexpr unsigned kSetsTag = 3;       // a number of Call's that sets the tag
constexpr unsigned kDeathEvery = 60;   // steps
constexpr unsigned kBirthEvery = 30;
constexpr unsigned kOwnerDeathEvery = 40;
constexpr unsigned kStrangerEvery = 40;
constexpr unsigned kStopEvery = 10;
constexpr uint64_t kStopSteps = 80;

}  // namespace

Task<void> Run::Program(size_t self) {
  Process& process = processes_[self];
  for (unsigned call = 0; call < kCalls; ++call) {
    process.at_rest = true;
    if (!OneIn(4)) Close(self);
    co_await Step{};
    if (process.mapped != File::kNone && OneIn(2)) {
      file_system_.Apply(NewChange(process.mapped, false));
      Note(self, "stores into its mapping change", last_number_);
      continue;
    }
    co_await DrainWanted(self, OneIn(3));
    if (HasHandedOver(process.pid) && OneIn(3)) co_await PassHandedOver(self);
    process.at_rest = false;
    if (OneIn(8)) {
      co_await MoveCheckpoint(self);
    } else if (OneIn(16)) {
      co_await Sync(self);
    } else if (OneIn(4)) {
      co_await AdoptLogs(self);
    } else {
      co_await Call(self, OneIn(moves_ ? 2 : 8) ? File::kB : File::kA);
    }
  }
  Close(self);
  process.at_rest = true;
  for (const File file : kFiles) {
    while (process.writes_back[file]) co_await Drain(self, file);
  }
  if (HasHandedOver(process.pid)) left_.push_back(process.pid);
  if (process.mapped != File::kNone && Keeps("mapping-passes"_rule)) Lower(self);
  process.mapped = File::kNone;
}

Task<void> Run::Call(size_t self, File file) {
  co_await Open(self, file);
  const bool back = processes_[self].writes_back[file];
  const unsigned what = moves_ && OneIn(3) ? kSetsTag : random_() % 16;
  if (what < 3) {
    if (back) Promise(Seen(file));  // fsync is nothing
    if (!back) co_await Fsync(self, file);
  } else if (what < 6) {
    if (!back) co_await SetTag(self, file);
  } else if (what == 6) {
    co_await RemoveTag(self, entry_.state.tag);
  } else if (what == 7 && !back) {
    co_await Map(self, file);
  } else if (what < 10 && backs_ && !back) {
    co_await Promote(self, file);
  } else if (back) {
    co_await WriteBack(self, NewChange(file, OneIn(3)));
  } else {
    co_await Write(self, NewChange(file, OneIn(3)));
  }
}

Change Run::NewChange(File file, bool whole) {
  Change change{++last_number_, file, {}};
  for (size_t byte = 0; byte < kBytes; ++byte) change.covers[byte] = FileOf(byte) == file;
  if (!whole && file == File::kA) change.covers[random_() % 2] = false;
  return change;
}

Run::Process* Run::Living(Pid pid) {
  for (Process& process : processes_) {
    if (pid != kNobody && process.pid == pid && !process.dead) return &process;
  }
  return nullptr;
}

// ------------------------------------------------------------------------------------------------
// What happens to processes.

void Run::Start(size_t slot) {
  Process& process = processes_[slot];
  std::destroy_at(&process);
  std::construct_at(&process);
  process.pid = ++last_pid_;
  process.program.emplace(Program(slot));
  process.program->Begin(&process.innermost);
  ++alive_;
  Note(slot, "begins, as", process.pid);
}

void Run::Kill(size_t victim) {
  Process& process = processes_[victim];
  if (process.dead || process.program->done() || alive_ == 1) return;
  Note(victim, "is killed");
  process.dead = true;
  dead_.push_back(process.pid);
  --alive_;
}

// A process without NVCache. That it writes or syncs while groups of the file count is a documented
// limit, and that it writes to a known file that somebody has open.
void Run::Stranger(File file) {
  if (marked_[file] != kNobody || GroupsCount(file)) return;
  const bool quiet = std::all_of(processes_.begin(), processes_.end(),
                                 [](const Process& p) { return p.dead || p.at_rest; });
  const bool known = entry_.state.tag == file && entry_.state.known;
  if (quiet && (!known || !OthersHave(kSlots, file))) {
    file_system_.Apply(NewChange(file, OneIn(2)));
    Note(kSlots, "makes the call of change", last_number_);
  }
  if (OneIn(2)) return;
  Note(kSlots, "syncs file", static_cast<uint64_t>(file));
  file_system_.EndSync(file_system_.BeginSync(), file);
  Promise(Seen(file));
}

void Run::Event() {
  if (OneIn(kDeathEvery)) Kill(random_() % kSlots);
  for (const File file : kFiles) {
    const Process* const owner = Living(marked_[file]);
    if (owner == nullptr || !OneIn(kOwnerDeathEvery)) continue;
    Kill(static_cast<size_t>(owner - processes_.data()));
  }
  const size_t slot = random_() % kSlots;
  if (processes_[slot].dead && last_pid_ < kMostProcesses && OneIn(kBirthEvery)) Start(slot);
  if (OneIn(kStopEvery)) processes_[random_() % kSlots].stopped_until = steps_ + kStopSteps;
  if (OneIn(kStrangerEvery)) Stranger(OneIn(4) ? File::kB : File::kA);
}

// ------------------------------------------------------------------------------------------------
// What was promised.

Run::Floor Run::Seen(File file) const {
  Floor seen = {};
  for (size_t byte = 0; byte < kBytes; ++byte) {
    if (FileOf(byte) == file) seen[byte] = file_system_.versions(byte).size() - 1;
  }
  return seen;
}

void Run::Promise(const Floor& floor) {
  for (size_t byte = 0; byte < kBytes; ++byte) floor_[byte] = std::max(floor_[byte], floor[byte]);
}

void Run::PromiseChange(const Change& change) {
  Floor floor = {};
  for (size_t byte = 0; byte < kBytes; ++byte) {
    if (!change.covers[byte]) continue;
    const auto& versions = file_system_.versions(byte);
    const auto found = std::find(versions.begin(), versions.end(), change.number);
    floor[byte] = static_cast<size_t>(found - versions.begin());
  }
  Promise(floor);
}

// ------------------------------------------------------------------------------------------------
// After a power failure.

void Run::Compare(const Content& content, uint64_t kept, const char* copy) {
  ++images_;
  for (size_t byte = 0; byte < kBytes; ++byte) {
    const auto& versions = file_system_.versions(byte);
    const auto at = std::find(versions.begin(), versions.end(), content[byte]) - versions.begin();
    if (static_cast<size_t>(at) >= floor_[byte] || !failure_.empty()) continue;
    failure_ = "byte " + std::to_string(byte) + " has change " + std::to_string(content[byte]) +
               " after recovery, and " + std::to_string(versions[floor_[byte]]) +
               " was promised (kept of the unsynced: " + std::to_string(kept) +
               "; of the checkpoints: " + copy + ")";
  }
}

// The groups that count, in order, onto what the disk has. `copy` of each checkpoint is read; 2:
// the higher one.
Content Run::Recover(Content disk, const std::vector<Record>& found, size_t copy) const {
  const auto read = [&](const Checkpoint& checkpoint) {
    return copy < 2 ? checkpoint.copies[copy]
                    : std::max(checkpoint.copies[0], checkpoint.copies[1]);
  };
  PerFile<Bounds> bounds;
  for (const File file : kFiles) bounds[file] = BoundsOf(file, found, read(pool_.through));
  std::vector<const Record*> groups;
  for (const Record& record : found) {
    const Bounds& its = bounds[record.file];
    const bool counts = (record.kind == Record::Kind::kThrough && record.lsn >= its.through) ||
                        (record.kind == Record::Kind::kBack &&
                         record.lsn >= std::max(its.back, read(pool_.back[record.log])));
    if (counts) groups.push_back(&record);
  }
  std::ranges::sort(groups, {}, &Record::lsn);
  for (const Record* group : groups) group->change.ApplyTo(&disk);
  return disk;
}

// `checkpoint`: of write-through.
Run::Bounds Run::BoundsOf(File file, const std::vector<Record>& records, Lsn checkpoint) const {
  Lsn settled = 0, back = 0;
  for (const Record& record : records) {
    const bool its = record.kind == Record::Kind::kSettled && record.file == file;
    if (its) settled = std::max(settled, record.bound);
  }
  Lsn synced = std::max(settled, checkpoint);
  if (!Keeps("handed-over-void-by-settled"_rule)) synced = checkpoint;
  if (!Keeps("handed-over-void-by-checkpoint"_rule)) synced = settled;
  for (const Record& record : records) {
    if (record.kind != Record::Kind::kHandedOver || record.file != file) continue;
    const bool is_void = record.bound < synced || !Keeps("handed-over-void-when-synced"_rule);
    if (is_void) back = std::max(back, record.bound);
  }
  if (!Keeps("settled-through-only"_rule)) back = std::max(back, settled);
  return {std::max(settled, checkpoint), back};
}

// Whether recovery would apply any group.
bool Run::GroupsCount(File file) const {
  const Bounds bounds = BoundsOf(file, pool_.records, pool_.through.seen);
  return std::ranges::any_of(pool_.records, [&](const Record& record) {
    if (record.file != file) return false;
    if (record.kind == Record::Kind::kThrough) return record.lsn >= bounds.through;
    return record.kind == Record::Kind::kBack &&
           record.lsn >= std::max(bounds.back, pool_.back[record.log].seen);
  });
}

// Of the records below their checkpoint: all there, any there, none.
std::vector<Record> Run::Found(Overwritten overwritten) {
  std::vector<Record> found;
  found.reserve(pool_.records.size());
  for (const Record& record : pool_.records) {
    const Lsn passed = record.of_write_back() ? pool_.back[record.log].seen : pool_.through.seen;
    const bool may_go = record.lsn < passed && overwritten != Overwritten::kNone;
    if (may_go && (overwritten == Overwritten::kAll || OneIn(2))) continue;
    found.push_back(record);
  }
  return found;
}

// `kept`: of the changes that were not synced, one bit each.
void Run::LookAtImage(uint64_t kept) {
  const Content disk = file_system_.DiskWith(kept);
  const char* const readable[] = {"copy 0", "copy 1", "both copies"};
  for (const Overwritten some : {Overwritten::kNone, Overwritten::kAny, Overwritten::kAll}) {
    const std::vector<Record> found = Found(some);
    for (size_t copy = 0; copy < 3; ++copy) {
      Compare(Recover(disk, found, copy), kept, readable[copy]);
    }
  }
}

// What the page cache has when everybody is killed, and all logs were adopted.
Content Run::CacheWhenAllAreDead() const {
  Content cache = file_system_.cache();
  for (const Record& record : pool_.records) {  // of each file in order: one log has such groups
    if (record.kind != Record::Kind::kBack) continue;
    const auto& copies = pool_.back[record.log].copies;
    const Lsn handed_over = HandedOverBelow(record.log, record.file);
    if (record.lsn >= std::max({copies[0], copies[1], handed_over})) record.change.ApplyTo(&cache);
  }
  return cache;
}

// I7: while nobody writes it back, the kernel has the newest bytes.
void Run::LookAtCache() {
  const Content adopted = CacheWhenAllAreDead();
  for (size_t byte = 0; byte < kBytes; ++byte) {
    const bool back = marked_[FileOf(byte)] != kNobody;
    const Number newest = file_system_.versions(byte).back();
    Number found = back ? newest : file_system_.cache()[byte];
    if (found == newest) found = adopted[byte];
    if (found == newest || !failure_.empty()) continue;
    failure_ = "the page cache has change " + std::to_string(found) + " in byte " +
               std::to_string(byte) + ", and the newest is " + std::to_string(newest);
  }
}

// Nothing new is found if only the entry has changed.
bool Run::HasChanged() {
  std::vector<uint64_t> looked = {file_system_.BeginSync(), file_system_.unsynced(),
                                  pool_.records.size()};
  looked.reserve(looked_.size() + 3);
  looked.insert(looked.end(), floor_.begin(), floor_.end());
  const auto add = [&](const Checkpoint& checkpoint) {
    looked.insert(looked.end(), {checkpoint.copies[0], checkpoint.copies[1], checkpoint.seen});
  };
  add(pool_.through);
  for (Pid log = 1; log <= last_pid_; ++log) add(pool_.back[log]);
  for (const File file : kFiles) looked.push_back(marked_[file]);
  std::swap(looked, looked_);
  return looked != looked_;
}

void Run::LookAtImages() {
  const size_t changes = file_system_.unsynced();
  if (changes <= kFewChanges) {
    for (uint64_t kept = 0; kept < uint64_t{1} << changes; ++kept) LookAtImage(kept);
    return;
  }
  LookAtImage(0);
  LookAtImage((uint64_t{1} << changes) - 1);
  for (unsigned i = 0; i < kSampled; ++i) LookAtImage(random_() % (uint64_t{1} << changes));
}

void Run::Note(size_t self, const char* what, uint64_t number) {
  if (notes_ == nullptr) return;
  std::string line = std::to_string(steps_) + ": ";
  line += self < kSlots ? "process " + std::to_string(self) : std::string("a stranger");
  line += std::string(" ") + what;
  if (number != 0) line += " " + std::to_string(number);
  notes_->push_back(line);
}

// In half of the runs the file is known from the start, in a quarter it is written back, and so is
// the other one, or that is known.
Run::Run(uint64_t seed, std::optional<Rule> broken, std::vector<std::string>* notes)
    : broken_(broken), notes_(notes), random_(seed), moves_(OneIn(2)), backs_(OneIn(2)) {
  for (size_t slot = 0; slot < kSlots; ++slot) Start(slot);
  if (OneIn(2)) {
    entry_.state = {File::kA, true, 0};
    return;
  }
  if (!backs_) return;
  for (const File file : kFiles) {
    if (file == File::kB && moves_) break;
    marked_[file] = pid(0);
    processes_[0].writes_back[file] = true;
  }
  if (moves_) entry_.state = {File::kB, true, 0};
}

// Who goes on: one that is not stopped, if there is any. Null: nobody lives.
Run::Process* Run::Next() {
  std::array<Process*, kSlots> alive, running;
  size_t lives = 0, runs = 0;
  for (Process& process : processes_) {
    if (process.dead || process.program->done()) continue;
    alive[lives++] = &process;
    if (process.stopped_until <= steps_) running[runs++] = &process;
  }
  if (lives == 0) return nullptr;
  return runs == 0 ? alive[random_() % lives] : running[random_() % runs];
}

std::string Run::Failure() {
  while (Process* const next = Next()) {
    next->innermost.resume();
    Event();
    if (HasChanged()) {
      LookAtCache();
      LookAtImages();
    }
    if (!failure_.empty()) break;
    if (++steps_ > kMostSteps) return "somebody waits for ever";
  }
  return failure_;
}

}  // namespace nvcache::protocol
