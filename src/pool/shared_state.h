// SPDX-License-Identifier: BSD-3-Clause
//
// The state that the processes share which use the pool (seats.h). A process that finds the pool
// unused clears it. It is never flushed, and every field is accessed as an atomic.
#ifndef NVCACHE_POOL_SHARED_STATE_H_
#define NVCACHE_POOL_SHARED_STATE_H_

#include <cstddef>
#include <cstdint>

#include "src/pool/layout.h"

namespace nvcache::pool {

// SharedState::mirror_waits has so many. Bucket i counts waits of at most 2^i microseconds that
// were longer than those of the one before; the last one counts all that were longer still.
inline constexpr uint32_t kMirrorBuckets = 30;

// SharedState::output_waits has one for each kind of output (docs/disk.md).
enum class Output : uint32_t { kSocket, kPipe, kFile, kName, kExit, kOther };
inline constexpr uint32_t kOutputs = 6;

struct alignas(64) SharedState {
  Lsn next;                 // the LSN that is drawn next
  uint8_t unused[56];       // a line for itself
  uint32_t seats_end;       // no seat from there on was ever taken
  uint32_t has_unresolved;  // some seat is kSeatUnresolved
  Lsn through;              // the checkpoint of write-through, as both records have it
  uint32_t through_failed;  // errno of a sync after which it moves no more; 0: none
  uint64_t through_device;  // st_dev of the file system of write-through files; 0: none
  // The checkpointer (seats.h) has three words: its seat plus one, 0 while it has none; one that
  // changes when a process wants it to have a descriptor of that file system; and whether it has.
  uint32_t checkpointer;
  uint32_t bell;
  uint32_t answer;
  uint64_t through_moved;      // ns since 1970 when `through` was stored; 0: not since; for people
  uint64_t through_failed_at;  // ns since 1970 when `through_failed` was set; 0: not since
  // The mirror's words (docs/mirror.md) are on a line for themselves.
  uint32_t mirror_state;  // kMirrorNone and its like
  uint32_t mirror_turn;   // changes after mirror_state or `mirrored` has; programs sleep on it
  Lsn mirrored;           // a majority of the images has every group below it
  uint32_t mirror_bell;   // changes when a program begins to wait; the mirror sleeps on it
  uint64_t taken;         // how many segments logs have taken: never goes back
  uint32_t segments_end;  // no log has ever taken a segment from there on
  // Commit at output (docs/output.md). 1: the checkpointer sleeps until a sync is
  // told.
  uint32_t told_asleep;
  Lsn told;             // `mirrored` has to reach it: a sync of what lies below was told without
                        // waiting
  uint64_t told_since;  // monotonic ns when the first one was told that `mirrored` has not reached
  uint8_t unused_of_mirror[8];  // so that counting does not touch the line above
  // How long calls waited for the mirror, a real sync included, since the pool was made: of those
  // that succeeded, their number by how long it was, and the sum of that in microseconds; and how
  // many failed. Each only goes up, by an addition of its own: a reader may see one of them before
  // another. For people. Nobody who waits in a pool that is not mirrored counts.
  uint64_t mirror_failed;
  uint64_t mirror_waited;
  uint64_t mirror_waits[kMirrorBuckets];
  // The same of commit at output: syncs that were told; the longest that one was ahead of the
  // images, as far as somebody looked, in microseconds; and by kind, how many outputs have waited,
  // and the sum of that in microseconds.
  uint64_t told_syncs;
  uint64_t told_longest;
  uint64_t output_waits[kOutputs];
  uint64_t output_waited[kOutputs];
};
static_assert(offsetof(SharedState, next) == 0);
static_assert(offsetof(SharedState, unused) == 8);
static_assert(offsetof(SharedState, seats_end) == 64);
static_assert(offsetof(SharedState, has_unresolved) == 68);
static_assert(offsetof(SharedState, through) == 72);
static_assert(offsetof(SharedState, through_failed) == 80);
static_assert(offsetof(SharedState, through_device) == 88);
static_assert(offsetof(SharedState, checkpointer) == 96);
static_assert(offsetof(SharedState, bell) == 100);
static_assert(offsetof(SharedState, answer) == 104);
static_assert(offsetof(SharedState, through_moved) == 112);
static_assert(offsetof(SharedState, through_failed_at) == 120);
static_assert(offsetof(SharedState, mirror_state) == 128);
static_assert(offsetof(SharedState, mirror_turn) == 132);
static_assert(offsetof(SharedState, mirrored) == 136);
static_assert(offsetof(SharedState, mirror_bell) == 144);
static_assert(offsetof(SharedState, taken) == 152);
static_assert(offsetof(SharedState, segments_end) == 160);
static_assert(offsetof(SharedState, told_asleep) == 164);
static_assert(offsetof(SharedState, told) == 168);
static_assert(offsetof(SharedState, told_since) == 176);
static_assert(offsetof(SharedState, unused_of_mirror) == 184);
static_assert(offsetof(SharedState, mirror_failed) == 192);
static_assert(offsetof(SharedState, mirror_waited) == 200);
static_assert(offsetof(SharedState, mirror_waits) == 208);
static_assert(offsetof(SharedState, told_syncs) == 448);
static_assert(offsetof(SharedState, told_longest) == 456);
static_assert(offsetof(SharedState, output_waits) == 464);
static_assert(offsetof(SharedState, output_waited) == 512);
static_assert(sizeof(SharedState) == 576 && kSharedOffset + sizeof(SharedState) <= kSeatsOffset);

// SharedState::answer.
inline constexpr uint32_t kNoAnswer = 0;
inline constexpr uint32_t kHasDescriptor = 1;
inline constexpr uint32_t kHasNone = 2;  // it cannot, or did not say so in time

// SharedState::mirror_state: what a call does that promises durability.
inline constexpr uint32_t kMirrorNone = 0;      // waits: no mirror has ever come
inline constexpr uint32_t kMirrorReal = 1;      // brings it to the disk
inline constexpr uint32_t kMirrorJoining = 2;   // both
inline constexpr uint32_t kMirrorMirrored = 3;  // waits for the images
inline constexpr uint32_t kMirrorLeaving = 4;   // waits until there is another state
inline constexpr uint32_t kMirrorFailing = 5;   // fails
inline constexpr uint32_t kMirrorFenced = 6;    // fails, until a mirror begins anew

// Seat::state.
inline constexpr uint32_t kSeatFree = 0;
inline constexpr uint32_t kSeatTaken = 1;
// Its process has died; another one, which has its life byte, brings its logs to the files.
inline constexpr uint32_t kSeatReplayed = 2;
// Its process has died, and left groups that could not be brought to the files.
inline constexpr uint32_t kSeatUnresolved = 3;
// Its process is gone, and the kernel has all that its logs hold; but some of it may not be on the
// disk: groups of write-through, and such as were handed over.
inline constexpr uint32_t kSeatLeft = 4;

struct alignas(64) Seat {
  uint32_t state;
  uint32_t pid;             // in its own name space
  uint64_t since;           // ns since 1970 when it was taken
  uint64_t oldest_pending;  // ns since 1970 when its oldest pending record was first seen; 0: none
  uint64_t lease;           // the process's life among the leases (src/lease/leases.h); 0: none
  uint32_t reserve;         // segments that stay free for copies of its logs' groups
  uint32_t kept_units;      // that its kept records take
  char program[16];         // its name, up to a zero; for people
  uint32_t files;           // that it has in its cache
  // Payload of its data records that reached the disk, in units, modulo 2^32; for people.
  uint32_t written;
};
static_assert(offsetof(Seat, state) == 0);
static_assert(offsetof(Seat, pid) == 4);
static_assert(offsetof(Seat, since) == 8);
static_assert(offsetof(Seat, oldest_pending) == 16);
static_assert(offsetof(Seat, lease) == 24);
static_assert(offsetof(Seat, reserve) == 32);
static_assert(offsetof(Seat, kept_units) == 36);
static_assert(offsetof(Seat, program) == 40);
static_assert(offsetof(Seat, files) == 56);
static_assert(offsetof(Seat, written) == 60);
static_assert(sizeof(Seat) == 64 && kSeatsOffset + kMaxSeats * sizeof(Seat) <= kOwnersOffset);

// A segment's word. 0: it is free; or the number of the seat that has it, plus one.
using Owner = uint16_t;
static_assert(kMaxSeats < 0xffff);
static_assert(kOwnersOffset + kMaxSegments * sizeof(Owner) <= kThroughSinceOffset);

// A seat's word: the LSN since which its process moves the checkpoint of write-through, or what it
// has in place of that (Seats::NoteThroughSince); 0: it has no descriptor of the file system. In a
// seat that is left, it is the LSN that was drawn next when it was.
static_assert(kThroughSinceOffset + kMaxSeats * sizeof(Lsn) <= kConductOffset);

// Conduct::rule: NVCACHE_WRITE_BACK.
inline constexpr uint32_t kRuleUnknown = 0;
inline constexpr uint32_t kRuleAuto = 1;
inline constexpr uint32_t kRuleAlways = 2;
inline constexpr uint32_t kRuleNever = 3;

// Each seat tells people the work of its process.
struct Conduct {
  // ns since 1970 when it had a group of write-through after it had none, as far as it knows.
  uint64_t through_since;
  uint32_t rule;
  uint32_t through_written;  // payload of its groups of write-through, in units, modulo 2^32
};
static_assert(offsetof(Conduct, through_since) == 0);
static_assert(offsetof(Conduct, rule) == 8);
static_assert(offsetof(Conduct, through_written) == 12);
static_assert(sizeof(Conduct) == 16 &&
              kConductOffset + kMaxSeats * sizeof(Conduct) <= kSegmentsOffset);

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_SHARED_STATE_H_
