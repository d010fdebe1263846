// SPDX-License-Identifier: BSD-3-Clause
//
// replace:  a new file, written, renamed over the old one, the folder synced, as editors, git and
//           LevelDB do. The name always has the whole content of one generation.
// recreate: a file is removed, made again under its name and written in several pieces, with a sync
//           now and then. The content is never another generation's.
// rotate:   a log is renamed over the last one, as logrotate does; its writer goes on for a little,
//           and then makes a new one.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/power/workload.h"

namespace nvcache::power_test {
namespace {

constexpr char kName[] = "name";
constexpr char kTemporary[] = "name.new";

unsigned long long Long(uint64_t n) { return n; }

// ---------------------------------------------------------------------------------------------

class Replace : public Workload {
 public:
  using Workload::Workload;

  void Run(uint64_t done) override {
    for (uint64_t generation = done + 1;; ++generation) {
      Write(generation);
      if (::rename(Path(kTemporary).c_str(), Path(kName).c_str()) != 0) Die("rename");
      if (promise() != Promise::kNothing) SyncFolder();
      Acknowledge(generation);
    }
  }

  // An operation is a generation; its number stands in front.
  Verdict Check(uint64_t acknowledged, uint64_t) override {
    bool exists;
    const std::vector<uint8_t> found = ReadFile(Path(kName), &exists);
    if (!exists) {
      return acknowledged == 0 ? Good(0)
                               : Bad("the file of generation %llu, or of a later one, is "
                                     "not there",
                                     Long(acknowledged));
    }
    uint64_t generation = 0;
    std::memcpy(&generation, found.data(), std::min(found.size(), sizeof(generation)));
    if (generation == 0 || generation > acknowledged + kUnacknowledged) {
      return Bad("the file of %zu bytes is of no generation: torn", found.size());
    }
    if (found != Bytes(generation)) {
      return Bad("the file of %zu bytes is not all of generation %llu: torn", found.size(),
                 Long(generation));
    }
    if (generation < acknowledged) {
      return Bad("generation %llu is acknowledged and missing, %llu is there", Long(acknowledged),
                 Long(generation));
    }
    return Good(generation);
  }

 private:
  std::vector<uint8_t> Bytes(uint64_t generation) const {
    Random random(seed() ^ generation);
    std::vector<uint8_t> bytes =
        Content(seed() ^ generation << 20, sizeof(generation) + random.Length(20000));
    std::memcpy(bytes.data(), &generation, sizeof(generation));
    return bytes;
  }

  void Write(uint64_t generation) {
    Random random(seed() ^ generation ^ uint64_t{1} << 60);
    const int fd = ::open(Path(kTemporary).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) Die("open");
    const std::vector<uint8_t> bytes = Bytes(generation);
    for (size_t done = 0; done < bytes.size();) {
      const size_t n = std::min(bytes.size() - done, 1 + random.Below(8000));
      if (::write(fd, bytes.data() + done, n) != static_cast<ssize_t>(n)) Die("write");
      done += n;
    }
    if (MustSync(random) && ::fsync(fd) != 0) Die("fsync");
    ::close(fd);
  }
};

// ---------------------------------------------------------------------------------------------

struct Step {
  enum Kind { kUnlink, kCreate, kWrite, kSync, kSyncFolder } kind;
  uint64_t generation;
  uint64_t offset;  // kWrite
  uint64_t length;
};

// The steps of all generations, one after the other.
class Steps {
 public:
  explicit Steps(uint64_t seed) : seed_(seed) {}

  Step Next() {
    if (at_ == steps_.size()) NextGeneration();
    ++number_;
    return steps_[at_++];
  }
  uint64_t number() const { return number_; }

 private:
  void NextGeneration() {
    Random random(seed_ ^ ++generation_);
    steps_.clear();
    at_ = 0;
    if (generation_ > 1) steps_.push_back({Step::kUnlink, generation_, 0, 0});
    steps_.push_back({Step::kCreate, generation_, 0, 0});
    uint64_t offset = 0;
    for (uint64_t left = 1 + random.Below(5); left > 0; --left) {
      const uint64_t length = random.Length(9000);
      steps_.push_back({Step::kWrite, generation_, offset, length});
      offset += length;
    }
    if (random.OneIn(3)) steps_.push_back({Step::kSync, generation_, 0, 0});
    if (random.OneIn(3)) steps_.push_back({Step::kSyncFolder, generation_, 0, 0});
  }

  const uint64_t seed_;
  uint64_t number_ = 0;
  uint64_t generation_ = 0;
  std::vector<Step> steps_;
  size_t at_ = 0;
};

class Recreate : public Workload {
 public:
  using Workload::Workload;

  void Run(uint64_t done) override {
    Steps steps(seed());
    while (steps.number() < done) steps.Next();
    int fd = ::open(Path(kName).c_str(), O_WRONLY | O_CLOEXEC);
    for (;;) {
      const Step step = steps.Next();
      // That nothing has the name is right only after that.
      if (step.kind == Step::kUnlink) Announce(steps.number());
      Do(step, &fd);
      if (promise() == Promise::kFsync) {
        if (fd >= 0 && ::fsync(fd) != 0) Die("fsync");
        SyncFolder();
      }
      // That a name is there or not is durable when something was written or synced.
      const bool each = promise() == Promise::kFsync || promise() == Promise::kMirrored;
      if (step.kind >= Step::kWrite || each) Acknowledge(steps.number());
    }
  }

  Verdict Check(uint64_t acknowledged, uint64_t announced) override {
    bool exists;
    const std::vector<uint8_t> found = ReadFile(Path(kName), &exists);
    Steps steps(seed());
    State state;
    for (;;) {
      if (steps.number() >= acknowledged && state.exists == exists &&
          state.Bytes(seed()) == found) {
        return Good(steps.number());
      }
      const Step step = steps.Next();
      if (step.kind == Step::kUnlink && steps.number() > std::max(acknowledged, announced)) break;
      state.Take(step);
    }
    Steps again(seed());
    State expected;
    while (again.number() < acknowledged) expected.Take(again.Next());
    return Bad(
        "generation %llu had %llu bytes after the last acknowledged step, %llu; a file of %zu "
        "bytes is there (%s) that is of generation %llu (0: of none)",
        Long(expected.generation), Long(expected.size), Long(acknowledged), found.size(),
        exists ? "it exists" : "it does not exist", Long(GenerationOf(found, acknowledged)));
  }

 private:
  struct State {
    bool exists = false;
    uint64_t generation = 0;
    uint64_t size = 0;

    void Take(const Step& step) {
      generation = step.generation;
      if (step.kind == Step::kUnlink || step.kind == Step::kCreate) {
        exists = step.kind == Step::kCreate;
        size = 0;
      } else if (step.kind == Step::kWrite) {
        size = step.offset + step.length;
      }
    }
    std::vector<uint8_t> Bytes(uint64_t seed) const {
      return Content(seed ^ generation << 20, size);
    }
  };

  uint64_t GenerationOf(const std::vector<uint8_t>& found, uint64_t acknowledged) const {
    if (found.empty()) return 0;
    for (uint64_t generation = 1; generation < acknowledged + kUnacknowledged; ++generation) {
      const size_t n = std::min<size_t>(found.size(), 16);
      const std::vector<uint8_t> begin = Content(seed() ^ generation << 20, n);
      if (std::equal(begin.begin(), begin.end(), found.begin())) return generation;
    }
    return 0;
  }

  void Do(const Step& step, int* fd) {
    switch (step.kind) {
      case Step::kUnlink:
        if (*fd >= 0) ::close(*fd);
        *fd = -1;
        if (::unlink(Path(kName).c_str()) != 0) Die("unlink");
        break;
      case Step::kCreate:
        *fd = ::open(Path(kName).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (*fd < 0) Die("open");
        break;
      case Step::kWrite: {
        const std::vector<uint8_t> bytes =
            Content(seed() ^ step.generation << 20, step.offset + step.length);
        if (::pwrite(*fd, bytes.data() + step.offset, step.length,
                     static_cast<off_t>(step.offset)) != static_cast<ssize_t>(step.length)) {
          Die("pwrite");
        }
        break;
      }
      case Step::kSync:
        if (promise() != Promise::kNothing && ::fsync(*fd) != 0) Die("fsync");
        break;
      case Step::kSyncFolder:
        if (promise() != Promise::kNothing) SyncFolder();
        break;
    }
  }
};

// ---------------------------------------------------------------------------------------------

class Rotate : public Workload {
 public:
  using Workload::Workload;

  void Run(uint64_t done) override {
    Script script(seed());
    while (script.number() < done) script.Next();
    const char* name = script.state().now.exists ? kName : kOld;
    int fd = ::open(Path(name).c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    for (;;) {
      const Kind kind = script.Next();
      if (kind == kCreate) {
        if (fd >= 0) ::close(fd);
        fd = ::open(Path(kName).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
        if (fd < 0) Die("open");
      } else if (kind == kRename) {
        if (::rename(Path(kName).c_str(), Path(kOld).c_str()) != 0) Die("rename");
      } else {
        const std::vector<uint8_t> bytes = script.LastWrite();
        if (::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
          Die("write");
        }
        if (promise() == Promise::kFsync && ::fsync(fd) != 0) Die("fsync");
        if (promise() == Promise::kFsync) SyncFolder();
        Acknowledge(script.number());
      }
    }
  }

  Verdict Check(uint64_t acknowledged, uint64_t) override {
    bool exists, old_exists;
    const std::vector<uint8_t> found = ReadFile(Path(kName), &exists);
    const std::vector<uint8_t> old = ReadFile(Path(kOld), &old_exists);
    Script script(seed());
    for (;;) {
      const State& state = script.state();
      if (script.number() >= acknowledged && state.now.exists == exists &&
          state.old.exists == old_exists && script.Bytes(state.now) == found &&
          script.Bytes(state.old) == old) {
        return Good(script.number());
      }
      if (script.number() == acknowledged + kUnacknowledged) break;
      script.Next();
    }
    Script again(seed());
    while (again.number() < acknowledged) again.Next();
    const State& state = again.state();
    return Bad(
        "after step %llu there are %llu bytes (generation %llu) and as the old file %llu "
        "(generation %llu); found are %zu and %zu",
        Long(acknowledged), Long(state.now.size), Long(state.now.generation), Long(state.old.size),
        Long(state.old.generation), found.size(), old.size());
  }

 private:
  static constexpr char kOld[] = "name.old";
  enum Kind { kCreate, kWrite, kRename };
  struct File {
    bool exists = false;
    uint64_t generation = 0;
    uint64_t size = 0;
  };
  struct State {
    File now;
    File old;
  };

  class Script {
   public:
    explicit Script(uint64_t seed) : seed_(seed) {}

    Kind Next() {
      if (at_ == kinds_.size()) NextGeneration();
      ++number_;
      const Kind kind = kinds_[at_++];
      File& file = state_.now.exists ? state_.now : state_.old;
      if (kind == kCreate) {
        state_.now = {true, generation_, 0};
      } else if (kind == kRename) {
        state_.old = state_.now;
        state_.now = {};
      } else {
        last_ = Random(seed_ ^ number_ << 20).Length(5000);
        file.size += last_;
      }
      return kind;
    }
    uint64_t number() const { return number_; }
    const State& state() const { return state_; }
    std::vector<uint8_t> Bytes(const File& file) const {
      return Content(seed_ ^ file.generation << 20, file.size);
    }
    std::vector<uint8_t> LastWrite() const {
      const std::vector<uint8_t> bytes = Bytes(state_.now.exists ? state_.now : state_.old);
      return {bytes.end() - static_cast<ptrdiff_t>(last_), bytes.end()};
    }

   private:
    // A write after the renaming makes it durable; without one, the new file might find its name
    // taken after a power failure.
    void NextGeneration() {
      Random random(seed_ ^ ++generation_);
      kinds_ = {kCreate};
      kinds_.insert(kinds_.end(), 1 + random.Below(6), kWrite);
      kinds_.push_back(kRename);
      kinds_.insert(kinds_.end(), 1 + random.Below(2), kWrite);
      at_ = 0;
    }

    const uint64_t seed_;
    uint64_t number_ = 0;
    uint64_t generation_ = 0;
    uint64_t last_ = 0;
    std::vector<Kind> kinds_;
    size_t at_ = 0;
    State state_;
  };
};

}  // namespace

std::unique_ptr<Workload> MakeReplace(const Settings& settings) {
  return std::make_unique<Replace>(settings);
}

std::unique_ptr<Workload> MakeRecreate(const Settings& settings) {
  return std::make_unique<Recreate>(settings);
}

std::unique_ptr<Workload> MakeRotate(const Settings& settings) {
  return std::make_unique<Rotate>(settings);
}

}  // namespace nvcache::power_test
