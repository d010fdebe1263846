// SPDX-License-Identifier: BSD-3-Clause
//
// What was recorded: everything that the engine did to the pool and to its files, in one order, and
// what the program had asked for.
#ifndef NVCACHE_TESTS_CRASH_TRACE_H_
#define NVCACHE_TESTS_CRASH_TRACE_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "src/pmem/step.h"
#include "tests/crash/file.h"

namespace nvcache::crash {

using pmem::Step;

constexpr uint32_t kLine = 64;

// One thing that happened. `bytes` of stores and writes lie in Trace::bytes, at `data`.
struct Event {
  enum Type : uint8_t {
    // The pool's memory
    kStore,  // `length` bytes at `at`, within one line
    kPwb,    // of the line at `at`
    kFence,
    // The files
    kWrite,       // of `file`: `length` bytes at `at`
    kTruncate,    // of `file`, to `at` bytes
    kErase,       // of `file`: `length` bytes at `at` become zero
    kSyncBegin,   // fsync or fdatasync of `file`, and whether ...
    kSyncEnd,     // ... it succeeded ...
    kSyncFailed,  // ... or not: the kernel has dropped what it had
    kNamed,       // `file` got its name
    // The program
    kBegin,  // of the operation `file`
    kEnd,
    // Of the pool's memory, `length` bytes at `at` that are never written back.
    kVolatile,
    // Where the files are in folders (Trace::root)
    kEntry,  // a name in a folder leads to `file` from now on, or to nothing (kNobody): EntryOf
    kAttributes,  // of `file`: as AttributesOf says
    kNamesBegin,  // all names are synced ...
    kNamesEnd,    // ... and durable, as far as they were there then
  };
  Type type;
  Step step;  // of kPwb and kFence
  uint16_t thread;
  uint32_t file;
  uint64_t at;
  uint32_t length;
  uint32_t data;
};

// A process's threads are numbered from this times its own number on.
constexpr uint16_t kThreadsOfProcess = 4096;
inline uint32_t ProcessOf(const Event& event) { return event.thread / kThreadsOfProcess; }

// What the program asked for.
struct Operation {
  enum Kind : uint8_t {
    kWrite,     // one write call
    kThrough,   // one write call that the kernel is told of at once, whether it is logged or not
    kTruncate,  // to `offset`
    kErase,     // `length` bytes at `offset` become zero; of no data
    kSync,      // fsync: what was done to the file is durable when it returns
    kSyncAll,   // sync: the same of all files
    kHandOver,  // the file is given to the kernel, with what is pending; of no byte
    kClose,     // of the pool, which is clean when it returns
    kNames,     // one call that changes names or attributes: they are durable when it returns
    kRename,    // the same, and all bytes of `file` are
    kPast,      // the same of names alone, but in no log: while it runs, a rename may be half done
    kStranger,  // the same by somebody without NVCache, who then syncs
    kOther,     // anything that must not change a byte
  };
  Kind kind;
  uint32_t file;
  uint64_t offset;
  uint32_t length;
  uint32_t data;
};

// One group that an operation brought to the log, in the order of the log; of write-through, a
// piece of it. What the kernel alone was told of lies between the groups before and after it.
struct Item {
  // kPiece: what the kernel was told of at once. Of those of one call it may have any.
  enum Kind : uint8_t { kData, kTruncate, kErase, kPiece };
  Kind kind;
  bool logged;
  uint32_t operation;
  uint64_t order;
  uint64_t offset;
  uint64_t length;
  uint32_t data = 0;  // of kPiece: that of the kernel's call
};

struct Trace {
  std::string scenario;
  uint64_t seed = 0;
  bool creation = false;  // of a pool, on memory that holds something else
  std::string pool;       // its bytes at the start
  std::vector<FileInfo> files;
  // The folder that all files are in, or kNobody: then each has the path that is its identity's,
  // and no other name. The names at the start.
  uint32_t root = kNobody;
  Entries names;
  std::vector<Operation> operations;
  std::vector<Event> events;
  std::vector<Item> items;
  std::string bytes;

  // Finds the groups in the events of an engine that is as it should be. Throws if the logs have
  // two operations on a file in another order than the program, which waited for the first (I3).
  void FindItems();

  uint32_t Keep(const void* data, size_t n) {
    const auto at = static_cast<uint32_t>(bytes.size());
    bytes.append(static_cast<const char*>(data), n);
    return at;
  }
  const uint8_t* Data(uint32_t data) const {
    return reinterpret_cast<const uint8_t*>(bytes.data()) + data;
  }

  // Of kEntry. `more`: the same call changes another name, next.
  struct Entry {
    uint32_t folder;
    std::string name;
    bool more;
  };
  Event EntryEvent(uint16_t thread, const Entry& entry, uint32_t file) {
    return {Event::kEntry,
            {},
            thread,
            file,
            uint64_t{entry.folder} * 2 + (entry.more ? 1 : 0),
            static_cast<uint32_t>(entry.name.size()),
            Keep(entry.name.data(), entry.name.size())};
  }
  Entry EntryOf(const Event& event) const {
    return {static_cast<uint32_t>(event.at / 2), bytes.substr(event.data, event.length),
            event.at % 2 != 0};
  }

  // Of kAttributes.
  Event AttributesEvent(uint16_t thread, uint32_t file, const AttributeChange& change) {
    return {Event::kAttributes, {}, thread, file, 0, sizeof(change), Keep(&change, sizeof(change))};
  }
  AttributeChange AttributesOf(const Event& event) const {
    AttributeChange change;
    std::memcpy(&change, Data(event.data), sizeof(change));
    return change;
  }

  // What a kWrite, kTruncate or kErase does to the file's bytes.
  void Do(const Event& event, std::string* content) const;

  std::string ToBytes() const;
  static Trace FromBytes(const std::string& bytes);
};

const char* NameOf(Step step);

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_TRACE_H_
