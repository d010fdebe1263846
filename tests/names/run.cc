// SPDX-License-Identifier: BSD-3-Clause
//
// The world around the processes: who goes on, who is killed, what a power failure leaves, and what
// must be found again.
#include "tests/names/run.h"

#include <algorithm>

namespace nvcache::names {

namespace {

constexpr unsigned kDeathEvery = 150;  // steps
constexpr unsigned kStopEvery = 15;
constexpr uint64_t kStopSteps = 60;
constexpr unsigned kStrangerEvery = 8;
constexpr uint64_t kMostSteps = 3000;  // more: somebody waits for ever
constexpr unsigned kSampled = 3;       // images after each step
constexpr int kMostRecoveries = 4;     // of one image: all but the last are killed

}  // namespace

// What is left of the file system and the pool, and what recovery has made of it.
struct Run::Image {
  FileSystem fs;
  Pool pool;
  Names left = {};
  std::set<File> unresolved, missed;

  File OriginOf(File file) const {
    for (const Record& record : pool.records) {
      if (record.kind == Kind::kContinues && record.other == file) return record.file;
    }
    return file;
  }
  File At(Name name) const { return OriginOf(fs.At(name)); }
  bool Has(File file) const {
    for (Name name = 0; name < kNames; ++name) {
      if (At(name) == file) return true;
    }
    return false;
  }
  bool Left(File file) const { return std::find(left.begin(), left.end(), file) != left.end(); }
};

Run::Run(uint64_t seed, std::optional<Rule> broken, std::vector<std::string>* notes)
    : random_(seed),
      broken_(broken),
      notes_(notes),
      strangers_(random_() % 2 == 0),
      linked_(random_() % 4 == 0),
      fs_(kLosses[random_() % std::size(kLosses)]) {}

Run::Run(const std::vector<Act>& script, bool linked, Loss loss)
    : notes_(nullptr), linked_(linked), script_(script), fs_(loss) {}

void Run::Note(const std::string& who, const std::string& text) {
  if (notes_ == nullptr) return;
  std::string line = std::to_string(steps_) + " " + who + ": " + text + ";";
  for (Name name = 0; name < kProgramNames; ++name) {
    line += " " + TextOf(name) + "=" + std::to_string(fs_.At(name));
  }
  notes_->push_back(line + "; lsn " + std::to_string(pool_.newest) + ", checkpoint " +
                    std::to_string(pool_.checkpoint));
}

void Run::NoteRecord(const Record& record) {
  constexpr const char* kKinds[] = {"created", "links",   "linked",    "removes", "removed",
                                    "renames", "renamed", "has bytes", "settled", "continues"};
  if (notes_ == nullptr) return;
  std::string line = "record " + std::to_string(record.lsn) + ": file " +
                     std::to_string(record.file) + " " + kKinds[static_cast<size_t>(record.kind)];
  if (record.from >= 0) line += " from " + TextOf(record.from);
  if (record.name >= 0) line += ", name " + TextOf(record.name);
  if (record.other != kNoFile) line += ", other file " + std::to_string(record.other);
  notes_->push_back(line);
}

State Run::Now() const {
  State now;
  for (Name name = 0; name < kProgramNames; ++name) now[Index(name)] = fs_.At(name);
  return now;
}

void Run::Happened() { states_.push_back(Now()); }

void Run::Promise(size_t state) { promised_ = std::max(promised_, state); }

// Two files are there, and on the disk; one of them with two names, sometimes.
void Run::Begin() {
  for (const Name name : {0, 2}) {
    const File file = fs_.Create(name);
    fs_.Write(file, ++last_version_);
    known_[Index(file)] = true;
    PromiseBytes(file);
  }
  if (linked_) fs_.Link(fs_.At(2), 1);
  fs_.Sync();
  Happened();
  for (int self = 0; self < (script_ ? 1 : kProcesses); ++self) {
    Process& process = processes_[Index(self)];
    process.program.emplace(script_ ? Scripted(self) : Program(self));
    process.program->Begin(&process.innermost);
  }
}

void Run::Kill(int victim) {
  if (processes_[Index(victim)].dead || processes_[Index(1 - victim)].dead) return;
  processes_[Index(victim)].dead = true;
  Note(std::to_string(victim), "is killed");
}

// A process without NVCache. It syncs nothing.
void Run::Stranger() {
  const Name name = AnyName(), to = AnyName();
  const unsigned what = static_cast<unsigned>(random_() % 4);
  const File file = fs_.At(name), other = fs_.At(to);
  if (what == 0 && file == kNoFile && fs_.newest() < kMostFiles / 4) {
    strangers_files_.insert(fs_.Create(name));
  } else if (what == 1 && file != kNoFile) {
    fs_.Remove(name);
  } else if (what == 2 && file != kNoFile && file != other) {
    fs_.Rename(name, to);
    touched_names_[to] = touched_files_[other] = steps_;
  } else {
    return;
  }
  touched_names_[name] = touched_files_[file] = touched_files_[fs_.At(name)] = steps_;
  Happened();
  Note("somebody", "changes a name");
}

void Run::Event() {
  if (OneIn(kDeathEvery)) Kill(static_cast<int>(random_() % kProcesses));
  if (OneIn(kStopEvery)) {
    processes_[random_() % kProcesses].stopped_until = steps_ + random_() % kStopSteps;
  }
  if (strangers_ && OneIn(kStrangerEvery)) Stranger();
}

std::string Run::Failure() {
  Begin();
  for (; steps_ < kMostSteps; ++steps_) {
    if (!script_) Event();
    std::vector<int> ready;
    bool over = true;
    for (int self = 0; self < kProcesses; ++self) {
      const Process& process = processes_[Index(self)];
      if (!process.program || process.dead || process.program->done()) continue;
      over = false;
      if (!IsStopped(self)) ready.push_back(self);
    }
    if (over) return "";
    if (ready.empty()) continue;
    processes_[Index(ready[random_() % ready.size()])].innermost.resume();
    if (std::string failure = Explore(); !failure.empty()) return failure;
  }
  return "somebody waits for ever";
}

// ------------------------------------------------------------------------------------- Recovering

std::string Run::Explore() {
  if (script_ && begun_ < script_->size()) return "";  // a shorter one has been there
  if (script_) {
    for (const FileSystem& left : fs_.AllLeft()) {
      if (std::string failure = Explore(left); !failure.empty()) return failure;
    }
    return "";
  }
  for (unsigned i = 0; i < kSampled; ++i) {
    FileSystem left = fs_;
    left.LosePower(&random_);
    if (std::string failure = Explore(left); !failure.empty()) return failure;
  }
  return "";
}

std::string Run::Explore(const FileSystem& left) {
  Image image{left, pool_, left.names(), {}, {}};
  ++images_;
  std::string failure = Recover(&image);
  if (failure.empty()) failure = Check(image);
  if (failure.empty()) return "";
  std::string found;
  for (Name name = 0; name < kProgramNames; ++name) {
    found.append(" ").append(TextOf(name));
    found.append("=").append(std::to_string(image.left[Index(name)]));
    found.append("→").append(std::to_string(image.At(name)));
  }
  for (const Record& record : image.pool.records) NoteRecord(record);
  return failure.append(":").append(found);
}

// The first ones are killed, or lose power themselves.
std::string Run::Recover(Image* image) {
  for (int n = 0; n < kMostRecoveries; ++n) {
    Recovery recovery(&image->fs, &image->pool, [this](Rule rule) { return Keeps(rule); });
    Task<void> task = recovery.Run();
    std::coroutine_handle<> innermost;
    task.Begin(&innermost);
    uint64_t steps = n + 1 < kMostRecoveries && OneIn(2) ? random_() % 12 : UINT64_MAX;
    for (; !task.done() && steps > 0; --steps) innermost.resume();
    if (task.done()) {
      image->unresolved = recovery.unresolved();
      image->missed = recovery.missed();
      return "";
    }
    if (OneIn(2)) image->fs.LosePower(&random_);
  }
  return "recovery does not end";
}

// --------------------------------------------------------------------------------------- Checking

// In all states that may be found again.
bool Run::Stays(File file) const {
  return std::all_of(
      states_.begin() + static_cast<std::ptrdiff_t>(promised_), states_.end(),
      [&](const State& s) { return std::find(s.begin(), s.end(), file) != s.end(); });
}

std::string Run::Check(const Image& image) const {
  for (Name name = kProgramNames; name < kNames; ++name) {
    const bool needed = image.unresolved.contains(image.At(name));
    if (image.fs.At(name) != kNoFile && !needed) return "a safe name is left";
  }
  for (Name name = 0; name < kProgramNames; ++name) {
    const File file = image.At(name);
    if (image.fs.Version(image.fs.At(name)) < promised_bytes_[Index(file)]) {
      return TextOf(name) + " has bytes that are too old";
    }
  }
  return strangers_ ? CheckBesideStrangers(image) : CheckAll(image);
}

// Of the changes that have not returned, the file system may have kept any, or halves of them: in
// one folder, or one name of a rename. But no file is missing that none of them removes.
std::string Run::CheckAll(const Image& image) const {
  if (!image.unresolved.empty()) return "a file could not be placed";
  // One that has lost the lock may be about to say so; and that a call past the log settles the
  // file before is for tests/protocol.
  const bool all_said = late_.empty() && unlogged_ == 0;
  const bool misses = std::any_of(image.missed.begin(), image.missed.end(),
                                  [&](File file) { return !removed_unseen_.contains(file); });
  if (misses && all_said) return "a file is missed that was removed";
  const auto begin = states_.begin() + static_cast<std::ptrdiff_t>(promised_);
  for (Name name = 0; name < kProgramNames; ++name) {
    const bool was = std::any_of(begin, states_.end(), [&](const State& state) {
      return state[Index(name)] == image.At(name);
    });
    if (!was) return TextOf(name) + " is as it never was, or was before";
  }
  for (File file = 1; file <= fs_.newest(); ++file) {
    if (Stays(file) && !image.Has(file)) return "file " + std::to_string(file) + " is lost";
  }
  return "";
}

// As each name was, unless a stranger has had to do with it. No file is lost that nobody removed,
// and what a stranger has made stays where it is.
std::string Run::CheckBesideStrangers(const Image& image) const {
  for (File file = 1; file <= fs_.newest(); ++file) {
    if (!Stays(file) || image.Has(file)) continue;
    if (image.Left(file)) return "recovery has lost file " + std::to_string(file);
    const bool strange = touched_files_.contains(file) || strangers_files_.contains(file);
    if (!strange && !image.unresolved.contains(file)) {
      return "file " + std::to_string(file) + " is not found again";
    }
  }
  for (const auto& [file, when] : touched_files_) {
    if (file != kNoFile && StaysWhereItWasMoved(image, file)) continue;
    if (file != kNoFile) return "file " + std::to_string(file) + " was moved by a stranger";
  }
  for (Name name = 0; name < kProgramNames; ++name) {
    if (std::string failure = CheckName(image, name); !failure.empty()) return failure;
  }
  return "";
}

// If the file system has kept it, and the file has no other name that a call has to do with.
bool Run::StaysWhereItWasMoved(const Image& image, File file) const {
  const std::vector<Name> names = fs_.NamesOf(file);
  if (names.size() != 1 || image.left[Index(names[0])] != file) return true;
  if (std::count(image.left.begin(), image.left.end(), file) != 1) return true;
  for (const Record& record : pool_.records) {
    if (record.other == file) return true;
    if (record.file != file || !IsOfNames(record)) continue;
    const bool tells = record.name == names[0] || record.from == names[0] || record.others;
    if (tells || IsIntent(record)) return true;
  }
  for (Name name = 0; name < kProgramNames; ++name) {
    if ((image.At(name) == file) != (name == names[0])) return false;
  }
  return true;
}

std::string Run::CheckName(const Image& image, Name name) const {
  const File left = image.left[Index(name)];
  const bool stays =
      std::all_of(states_.begin() + static_cast<std::ptrdiff_t>(promised_), states_.end(),
                  [&](const State& state) { return state[Index(name)] == left; });
  const bool in_log = std::any_of(pool_.records.begin(), pool_.records.end(), [&](const Record& r) {
    return r.file == left || r.other == left;
  });
  if (strangers_files_.contains(left) && !in_log && stays && image.At(name) != left) {
    return TextOf(name) + " was a stranger's";
  }
  const bool strange = touched_names_.contains(name) || touched_files_.contains(left);
  if (strange && !replaced_.contains({name, left})) return "";
  // A call that has begun, and will fail, looks done if the file system has lost what it replaces.
  const auto last = std::find_if(pool_.records.rbegin(), pool_.records.rend(), IsOfNames);
  if (last != pool_.records.rend() && last->kind == Kind::kRenames &&
      touched_files_.contains(last->other) && (last->name == name || last->from == name)) {
    return "";
  }
  for (size_t i = promised_; i < states_.size(); ++i) {
    const File file = states_[i][Index(name)];
    if (file == image.At(name) || touched_files_.contains(file)) return "";
  }
  return TextOf(name) + " is as it never was, or was before";
}

}  // namespace nvcache::names
