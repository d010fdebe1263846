// SPDX-License-Identifier: BSD-3-Clause
//
// What may be left of a pool's memory and of its files, at one moment of a trace.
//
// Memory, as x86-64 has it. A line's stores become durable in program order, so what is left of it
// is any prefix of them. A store is durable for certain once a PWB of its line came after it, and
// after that a fence of the PWB's own thread. A store of more than one word (memcpy) may be torn:
// its words become durable in any order.
//
// Files. What was written before a sync began is durable when the sync has succeeded. Of the rest
// each call may have reached the disk, or not; and so for good, if a sync has failed. A file that
// was never synced may be lost as a whole. Where files are in folders, their names are those of
// name_medium.h instead.
#ifndef NVCACHE_TESTS_CRASH_MEDIUM_H_
#define NVCACHE_TESTS_CRASH_MEDIUM_H_

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "src/pool/format.h"
#include "tests/crash/name_medium.h"
#include "tests/crash/trace.h"

namespace nvcache::crash {

// What processes share while they use a pool ends here, in the pools of these tests.
constexpr uint64_t kVolatileEnd = pool::kOwnersOffset + 1024;

// One line that is not as it is certain to be: its first `stores` uncertain stores are there, and
// of the next one the words in `torn`.
struct LineChoice {
  uint32_t line;
  uint32_t stores;
  uint32_t torn;
  bool operator==(const LineChoice&) const = default;
};

struct FileChoice {
  uint32_t file;
  bool exists;                // the name, where it is not durable
  bool removed;               // by somebody else, before recovery
  std::vector<bool> reached;  // the disk: each uncertain call
  bool operator==(const FileChoice&) const = default;
};

struct Choice {
  std::vector<LineChoice> lines;  // those not mentioned: nothing of them
  std::vector<FileChoice> files;  // all
  NameChoice names;
  bool operator==(const Choice&) const = default;
};

class Memory {
 public:
  explicit Memory(const std::string& initial) : certain_(initial) {}

  void Apply(const Event& event, const Trace& trace);

  struct Store {
    uint8_t at;  // in the line
    uint8_t length;
    uint32_t data;
  };
  struct Line {
    uint64_t first = 0;  // stores of this line that are certain
    std::vector<Store> stores;
  };

  const std::string& certain() const { return certain_; }
  const std::map<uint32_t, Line>& uncertain() const { return uncertain_; }
  // The lines whose certain bytes have changed since the last call.
  std::vector<uint32_t> TakeChanged() { return std::move(changed_); }

  // One line as `choice` has it, 64 bytes.
  void Build(const LineChoice& choice, const Trace& trace, uint8_t* line) const;

 private:
  void Fence(uint16_t thread, const Trace& trace);

  struct WrittenBack {
    uint32_t line;
    uint64_t stores;
  };
  std::string certain_;
  std::map<uint32_t, Line> uncertain_;
  std::map<uint32_t, uint64_t> counts_;  // certain stores of lines that are not uncertain
  std::map<uint16_t, std::vector<WrittenBack>> written_back_;
  std::vector<uint32_t> changed_;
};

class Disk {
 public:
  explicit Disk(const std::vector<FileInfo>& files);
  void Add(const FileInfo& file);

  void Apply(const Event& event, const Trace& trace);

  struct Call {
    Event event;
    bool certain = false;  // a sync has covered it; what came before is not yet certain
    bool dropped = false;  // a sync has failed: no later one covers it
  };
  struct File {
    bool named = false;         // it has its name
    bool name_durable = false;  // and cannot lose it
    std::string content;        // certain
    uint64_t first = 0;         // calls that are certain
    std::vector<Call> calls;
  };
  const std::vector<File>& files() const { return files_; }

  // What the disk holds. False: nothing has the file's name.
  bool Build(const FileChoice& choice, const Trace& trace, std::string* content) const;

 private:
  std::vector<File> files_;
  std::map<std::pair<uint32_t, uint16_t>, uint64_t> syncs_;  // begun: calls by then
};

// ---------------------------------------------------------------------------------------------

struct Limits {
  uint64_t exhaustive = 64;  // as many combinations as this are all tried
  uint32_t alone = 24;       // else: of single lines alone, and of all but one
  uint32_t random = 16;
  bool removals = false;  // files are also removed by somebody else
};

// Which images to try. `complete`, if not null: whether these are all (but for torn stores).
// `names` may be null: there are none to lose.
std::vector<Choice> Choose(const Memory& memory, const Disk& disk, const Limits& limits,
                           std::mt19937_64* random, bool* complete = nullptr,
                           const NameMedium* names = nullptr);

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_MEDIUM_H_
