// SPDX-License-Identifier: BSD-3-Clause
//
// The file that processes share: a header, a line for each slot, the cells of each slot. All zero
// behind the header is a file in which nobody is.
//
// What any process reads through its mapping has memory behind it since its slot was taken, so that
// a full /dev/shm refuses newcomers instead of killing those who are there.
#ifndef NVCACHE_LEASE_FORMAT_H_
#define NVCACHE_LEASE_FORMAT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/lease/leases.h"
#include "src/lease/tally.h"

namespace nvcache::lease {

// "NVLEASE", and the version of the layout and of the hash; or that it is not the one file
// (election.h).
inline constexpr unsigned kVersionBits = 8;
inline constexpr uint64_t kFormat = (uint64_t{0x4e564c45415345} << kVersionBits) + 4;
inline constexpr uint64_t kCandidate = kFormat | ((1u << kVersionBits) - 1);

// A cell: how many files with this hash its process uses, how many of them exclusively, and whether
// one was handed on (Leases::HandOn), which any process may set. The count of users stays at its
// maximum once it was there; exclusion is refused before its own is.
using Cell = std::atomic<uint8_t>;
inline constexpr uint8_t kUser = 0x01;
inline constexpr uint8_t kUsers = 0x0f;
inline constexpr uint8_t kExclusive = 0x10;
inline constexpr uint8_t kExclusives = 0x70;
inline constexpr uint8_t kAnyUse = kUsers | kExclusives;
inline constexpr uint8_t kHandedOn = 0x80;

struct alignas(64) Slot {
  // Odd: in use, by a process that lives or has died. Grows with each taking and freeing.
  sys::Word life;
  // The keeper sleeps on it; whoever asks changes it.
  sys::Word requests;
  // A ticket for each who asks for release, and the last one that was served: by then the file is
  // free, or refused.
  sys::Word release_wanted;
  sys::Word released;
  // A ticket for each who asks for publication, and the last one that was served.
  sys::Word publish_wanted;
  sys::Word published;
  // What to publish since the keeper looked last: kNoCell, a cell + 1, or kEveryCell.
  sys::Word publish_cell;
  // Askers sleep on it. Odd: one may; who lets go of something makes it even, and wakes them.
  sys::Word answers;
  // Files that the process has for itself; at least that many. Its death counts if there are any.
  sys::Word exclusives;
  // 1: the keeper is to look after its own process's affairs.
  sys::Word nudged;
  // So many of its cells are marked with kHandedOn; 0 only if none is.
  sys::Word handed_on;
  // A bit for each page of the slot's cells that may not be all zero: the next owner clears these.
  sys::Word touched;
};
inline constexpr uint32_t kNoCell = 0;
inline constexpr uint32_t kEveryCell = ~uint32_t{0};

// Files that can have a tally at a time.
inline constexpr uint32_t kTallies = 2048;

inline constexpr size_t kPage = 4096;  // of the kernel

struct Shared {
  std::atomic<uint64_t> format;
  // Below: all slots in use (kMarkBits). Above: how often it was written, so that who lowers it
  // notices who has come meanwhile.
  std::atomic<uint64_t> mark;
  sys::Word deaths;
  sys::Word sweep;                   // the next slot to be looked after
  sys::Word backed;                  // 1: the tallies have memory behind them
  sys::Word hand_ons_begun;          // calls of Leases::HandOn
  sys::Word hand_ons;                // those that are over
  std::atomic<uint64_t> pool;        // of the tallies; 0: none
  std::atomic<uint64_t> checkpoint;  // of write-through in that pool
  std::atomic<uint64_t> wanted;      // somebody waits until that is above it

  alignas(kPage) Tally tallies[kTallies];
  alignas(kPage) Slot slots[kMaxProcesses];
  alignas(kPage) PassingCounts passing[kMaxProcesses];
  Cell cells[kMaxProcesses][kCells];
};
inline constexpr uint32_t kMarkBits = 16;

inline constexpr size_t kCellsOffset = offsetof(Shared, cells);
inline constexpr size_t kFileSize = sizeof(Shared);

// Whoever uses the tallies has a lock on it for reading (Tallies::Join).
inline constexpr uint32_t kTableByte = kMaxProcesses;

static_assert(sys::Word::is_always_lock_free && Cell::is_always_lock_free &&
              std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(sys::Word) == 4 && sizeof(Cell) == 1 && sizeof(Slot) == 64);
static_assert(kCells % kPage == 0 && kCellsOffset % kPage == 0 && kPage % sizeof(Slot) == 0 &&
                  kPage % sizeof(PassingCounts) == 0,
              "fallocate works by pages");
static_assert(kCells / kPage <= 32, "Slot::touched has a bit for each");
static_assert((kCells & (kCells - 1)) == 0, "CellOf takes bits");
static_assert(kMaxProcesses < (1u << kMarkBits));
static_assert(kMaxProcesses < kFileSize, "a byte to lock for each slot, and for the tallies");

}  // namespace nvcache::lease

#endif  // NVCACHE_LEASE_FORMAT_H_
