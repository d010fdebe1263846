// SPDX-License-Identifier: BSD-3-Clause
//
// The file that processes share: a header, a line for each slot, the file_table; then pages, which
// are given out one after the other and are never given back. A slot has one of them from its first
// owner on, and more if an owner has had many files. All zero behind the header is a file in which
// nobody is.
//
// A process maps all that the file may become. Every part that a process reads has memory behind it
// by then, so that a full /dev/shm refuses newcomers instead of killing those who are there. The
// file never shrinks.
#ifndef NVCACHE_LEASE_FORMAT_H_
#define NVCACHE_LEASE_FORMAT_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/lease/file_entry.h"
#include "src/lease/hindrance.h"

namespace nvcache::lease {

// The file's name: this, and the user's number.
inline constexpr const char* kFilePrefix = "nvcache-leases-";

// "NVLEASE", and the version of the layout and of the hash.
inline constexpr unsigned kVersionBits = 8;
inline constexpr uint64_t kFormat = (uint64_t{0x4e564c45415345} << kVersionBits) + 15;

// A cell: part of a file's tag (NumberTagOf), how many files with it its process uses, how many of
// these exclusively, which are no more, and whether one was handed on (Leases::HandOn), which any
// process may set. 0: it is free. The count of users stays at its maximum once it was there.
using Cell = std::atomic<uint32_t>;
inline constexpr uint32_t kUser = 0x01;
inline constexpr uint32_t kUsers = 0x0f;
inline constexpr uint32_t kExclusive = 0x10;
inline constexpr uint32_t kExclusives = 0xf0;
inline constexpr uint32_t kAnyUse = kUsers | kExclusives;
inline constexpr uint32_t kHandedOn = 0x100;
inline constexpr unsigned kTagShift = 9;
constexpr uint32_t TagOfCell(uint64_t tag) { return static_cast<uint32_t>(tag) << kTagShift; }

// A file's cell is in one bucket of each level, and in any place there.
inline constexpr uint32_t kCells = 15;
struct alignas(64) Bucket {
  Cell cells[kCells];
  // 1: the process uses files of this bucket for which there was no cell. They are nobody's alone,
  // and count as handed on.
  sys::Word crowded;
};

inline constexpr size_t kPage = 4096;  // the kernel's
inline constexpr uint32_t kBucketsOfPage = kPage / sizeof(Bucket);

// The pages of each level of a slot. A process begins with the first one.
inline constexpr uint32_t kLevels = 3;
inline constexpr uint32_t kLevelPages[kLevels] = {1, 8, 64};

inline constexpr uint32_t kFirstBuckets = (kPage - sizeof(InFlightCounts)) / sizeof(Bucket);
struct FirstPage {
  InFlightCounts in_flight;
  Bucket buckets[kFirstBuckets];
};
union alignas(kPage) Page {
  FirstPage first;  // a slot's
  Bucket buckets[kBucketsOfPage];
};

struct alignas(64) Slot {
  // Odd: in use, by a process that lives or has died. Grows with each taking and freeing.
  sys::Word life;
  // The responder sleeps on it; a process that asks changes it.
  sys::Word requests;
  // A ticket for each who asks for release, and the last one that was served: by then the file is
  // free, or refused.
  sys::Word release_wanted;
  sys::Word released;
  // A ticket for each who asks for publication, and the last one that was served.
  sys::Word publish_wanted;
  sys::Word published;
  // To be published since the responder looked last: kNoFile, a hash of the file, or kEveryFile.
  sys::Word publish_file;
  // Askers sleep on it. Odd: one may; a process that lets go of something makes it even, and wakes
  // them.
  sys::Word answers;
  // Files that the process has for itself; at least that many. Its death counts if there are any.
  sys::Word exclusives;
  // 1: the responder is to look after its own process's affairs.
  sys::Word nudged;
  // A bit for each bucket of the first page that may have been used, or its like in a higher level:
  // the next owner clears these.
  std::atomic<uint64_t> touched;
  // The number of each level's first page, plus one; 0: none. They stay the slot's.
  std::atomic<uint16_t> pages[kLevels];
  // So many its owner uses; the other pages have marks of former owners. 0: there was no room
  // for a page, and all files whose bit in `touched` is set count as used.
  std::atomic<uint16_t> levels;
  std::atomic<uint16_t> in_flight;  // an owner's without a page; for all classes
  std::atomic<uint16_t> naming;     // its calls that change names, or may
  // So many of its cells are marked with kHandedOn, or buckets are crowded; 0 only if none is.
  sys::Word handed_on;
};
// The slot with that life is in use.
constexpr bool IsInUse(uint32_t life) { return life % 2 != 0; }

// Slot::publish_file.
inline constexpr uint32_t kNoFile = 0;
inline constexpr uint32_t kEveryFile = ~uint32_t{0};

// Processes of a user that have a slot at a time.
inline constexpr uint32_t kMaxProcesses = 4096;

// Files that can have an entry at a time.
inline constexpr uint32_t kFileEntries = 1u << 15;

// Objects of which something is known at a time.
inline constexpr uint32_t kVerdicts = 384;

// A first page for each slot, and as many for processes with many files.
inline constexpr uint32_t kMaxPages = 2 * kMaxProcesses;

struct Shared {
  std::atomic<uint64_t> format;
  // Below: all slots in use (kMarkBits). Above: how often it was written, so that a process that
  // lowers it notices who has come meanwhile.
  std::atomic<uint64_t> mark;
  sys::Word deaths;
  sys::Word sweep;                   // the next slot to be looked after
  sys::Word backed;                  // 1: the entries have memory behind them
  sys::Word lines;                   // so many slots' lines have, at least
  sys::Word pages_given;             // so many of `pages` have, too
  sys::Word hand_ons_begun;          // calls of Leases::HandOn
  sys::Word hand_ons;                // those that are over
  std::atomic<uint64_t> pool;        // the entries'; 0: none
  std::atomic<uint64_t> looked;      // at that pool (FileTable::NoteLook)
  std::atomic<uint64_t> checkpoint;  // write-through's in that pool
  std::atomic<uint64_t> wanted;      // somebody waits until that is above it
  std::atomic<uint64_t> folders;     // the device of those that have had an entry; 0: none has
  // Changes of names there that are in no log, counted; so many of them are on the disk; and the
  // seconds at which somebody had to sync for that last, above that the time before.
  std::atomic<uint64_t> unlogged;
  std::atomic<uint64_t> unlogged_synced;
  std::atomic<uint64_t> unlogged_awaited;
  // The LSN of the last record of a call that took a file of the logs its last name, and had not to
  // be in the journal before.
  std::atomic<uint64_t> removed;
  FileEntry names;  // its lock is that of names
  // The verdicts on objects that processes have loaded (src/rawcall/verdicts.h).
  std::atomic<uint64_t> verdicts[kVerdicts];

  // The first are mapped with the header, by one fault.
  alignas(kPage) Slot slots[kMaxProcesses];
  // Each entry has a bit for each eighth of all tags (FileTable::Find): a file of it may have had
  // the entry. Most files never had theirs, and it shall not cost a fault to see that.
  alignas(kPage) std::atomic<uint8_t> tagged[kFileEntries];
  alignas(kPage) FileEntry entries[kFileEntries];
  // A slot's has memory behind it only once its owner had something to say.
  alignas(kPage) Hindrances hindrances[kMaxProcesses];
  Page pages[kMaxPages];
};
inline constexpr uint32_t kMarkBits = 16;

// Parts that get memory behind them together: `backed`.
inline constexpr size_t kTables = offsetof(Shared, tagged);
inline constexpr size_t kTablesSize = offsetof(Shared, hindrances) - kTables;

// A new file begins with the one, and may grow to the other.
inline constexpr size_t kFirstSize = offsetof(Shared, pages);
inline constexpr size_t kMaxSize = sizeof(Shared);

// A process that uses the entries has a lock on it for reading (FileTable::Join).
inline constexpr uint32_t kTableByte = kMaxProcesses;

// And a process that says that it has a file open has one on a byte of that file's own
// (FileTable::SayOpen): far behind the file's end. Two files share one only if their tags are all
// but the same.
constexpr off_t ByteOfOpen(uint64_t tag) {
  constexpr uint64_t kFirst = uint64_t{1} << 62;
  return static_cast<off_t>(kFirst + (tag >> 2));
}

static_assert(sys::Word::is_always_lock_free && std::atomic<uint16_t>::is_always_lock_free &&
              std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(sys::Word) == 4 && sizeof(Cell) == 4 && sizeof(Slot) == 64 &&
              sizeof(Bucket) == 64 && sizeof(FirstPage) == kPage && sizeof(Page) == kPage);
static_assert(offsetof(Shared, slots) == kPage && kTables % kPage == 0 && kFirstSize % kPage == 0 &&
                  kPage % sizeof(Slot) == 0,
              "fallocate works by pages");
static_assert(offsetof(Shared, checkpoint) == 64, "tests/processes/checkpointer_test.py");
static_assert(kFirstBuckets <= 64, "Slot::touched has a bit for each");
static_assert(kMaxPages < (1u << 16), "Slot::pages");
static_assert(kMaxProcesses < (1u << kMarkBits));
static_assert(kMaxProcesses < kFirstSize, "a byte to lock for each slot, and for the entries");

}  // namespace nvcache::lease

#endif  // NVCACHE_LEASE_FORMAT_H_
