// SPDX-License-Identifier: BSD-3-Clause
//
// What a pool looks like on the medium; docs/pool-format.md says it in prose. Little endian.
//
//   0        Superblock          written once, at creation
//   4096     CheckpointRecord 0  what is below it is in the file systems
//   4608     the same of write-through
//   8192     StateRecord         clean or in use, and by whom
//   8256     Statistics          counters for `nvcache status`; nothing depends on them
//   11776    LastWords           of a process that stopped itself; nothing depends on them
//   12288    CheckpointRecord 1
//   12352    Superblock          a copy, whole before the first one is
//   12800    CheckpointRecord 1 of write-through
//   16384    CheckpointRecord 0 of each seat
//   49152    CheckpointRecord 1 of each seat
//   81920    SharedState         while processes use the pool; recovery does not look at it
//   86016    Seat                kMaxSeats of them; the same
//   118784   owners              of each segment; the same
//   253952   Conduct             of each seat; for people
//   262144   segments            `segment_count` of them, `segment_size` bytes each
//
// A process that uses the pool has a seat, which no other has: a checkpoint and some logs.
//
// A segment belongs to one log at a time. It is a run of units of 64 bytes: a SegmentHeader,
// records (src/nvlog/record.h), and in its last unit a copy of the header.
//
// What recovery cannot do without is there twice, or can be told from the rest, and no 4 KiB of the
// medium hold all of it: each of these pages may be lost.
//
// Changing anything here means a new kVersion.
#ifndef NVCACHE_POOL_FORMAT_H_
#define NVCACHE_POOL_FORMAT_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace nvcache::pool {

inline constexpr char kMagic[8] = {'N', 'V', 'C', 'A', 'C', 'H', 'E', '\n'};
inline constexpr uint32_t kVersion = 11;

inline constexpr uint64_t kPageSize = 4096;  // bytes that one frame, one page of a file holds
inline constexpr uint64_t kUnitSize = 64;    // bytes; segments are counted in units

inline constexpr uint64_t kCheckpointOffset = 4096;         // of record 0
inline constexpr uint64_t kCheckpointDistance = 8192;       // from there to record 1
inline constexpr uint64_t kThroughCheckpointOffset = 4608;  // the same
inline constexpr uint64_t kStateOffset = 8192;
inline constexpr uint64_t kStatisticsOffset = 8256;
inline constexpr uint64_t kLastWordsOffset = 11776;
inline constexpr uint64_t kSuperblockCopyOffset = 12352;
inline constexpr uint64_t kSeatCheckpointsOffset = 16384;    // of the seats' records 0
inline constexpr uint64_t kSeatCheckpointsDistance = 32768;  // from there to their records 1
inline constexpr uint64_t kSharedOffset = 81920;
inline constexpr uint64_t kSeatsOffset = 86016;
inline constexpr uint64_t kOwnersOffset = 118784;
inline constexpr uint64_t kThroughSinceOffset = 249856;
inline constexpr uint64_t kConductOffset = 253952;
inline constexpr uint64_t kSegmentsOffset = 262144;

inline constexpr uint64_t kMinPoolSize = 1u << 20;
inline constexpr uint64_t kMaxPoolSize = uint64_t{1} << 46;  // 64 TiB
// A pool has about kSegmentsWanted segments, if they are neither smaller nor larger than this; a
// very large pool has larger ones, so that there are never more than kMaxSegments.
inline constexpr uint64_t kSegmentsWanted = 1024;
inline constexpr uint64_t kMinSegmentSize = 64u << 10;
inline constexpr uint64_t kMaxSegmentSize = 1u << 20;
inline constexpr uint64_t kMaxSegments = 1u << 16;
// Processes that use a pool at a time: one for kSegmentsPerSeat segments, so that each finds some.
inline constexpr uint32_t kMaxSeats = 512;
inline constexpr uint32_t kSegmentsPerSeat = 2;
// A seat's logs are numbered from this times its own number on. Of these, the ones from kThroughLog
// on are of write-through: they have one checkpoint for all seats.
inline constexpr uint32_t kLogsOfSeat = 32;
inline constexpr uint32_t kThroughLog = 24;
constexpr bool IsThroughLog(uint32_t log) { return log % kLogsOfSeat >= kThroughLog; }

// Geometry and identity. Never changes after creation.
struct Superblock {
  char magic[8];
  uint32_t version;
  uint32_t superblock_size;  // sizeof(Superblock)
  uint64_t pool_size;        // bytes, all of it
  uint64_t salt;             // random, high bit set: makes this pool's commit words its own
  uint8_t uuid[16];          // random
  uint64_t created;          // ns since 1970
  uint64_t segment_size;     // bytes, a power of two
  uint32_t segment_count;
  uint32_t page_size;  // kPageSize
  uint32_t unit_size;  // kUnitSize
  uint32_t crc;        // CRC-32C of the bytes before it
};
static_assert(offsetof(Superblock, magic) == 0);
static_assert(offsetof(Superblock, version) == 8);
static_assert(offsetof(Superblock, superblock_size) == 12);
static_assert(offsetof(Superblock, pool_size) == 16);
static_assert(offsetof(Superblock, salt) == 24);
static_assert(offsetof(Superblock, uuid) == 32);
static_assert(offsetof(Superblock, created) == 48);
static_assert(offsetof(Superblock, segment_size) == 56);
static_assert(offsetof(Superblock, segment_count) == 64);
static_assert(offsetof(Superblock, page_size) == 68);
static_assert(offsetof(Superblock, unit_size) == 72);
static_assert(offsetof(Superblock, crc) == 76);
static_assert(sizeof(Superblock) == 80 && sizeof(Superblock) <= kCheckpointOffset);
static_assert(kSuperblockCopyOffset % 64 == 0 &&
              kSuperblockCopyOffset + sizeof(Superblock) <= kSegmentsOffset);

// The number of a group of records in the one order of all logs of the pool (I3). Never 0, below
// 2^62, and never drawn twice.
using Lsn = uint64_t;
inline constexpr unsigned kLsnBits = 62;
// Where the next use of a pool begins, beyond the highest LSN that recovery has seen: a group that
// was cut off by a power failure may have left nothing, and its number must not come back.
inline constexpr uint64_t kLsnMargin = uint64_t{1} << 32;

// A checkpoint: every group below it is in the file systems for good, or void; but for kept
// segments. The pool's is for all logs, and moves when nobody else uses the pool; a seat's is for
// the logs of that seat, that of write-through for such logs of all seats. Of a log the highest
// counts that is whole: in a record of the pool, of its seat or of write-through, or in the header
// of a segment of that seat, or of any write-through log. Both records are written, one after the
// other, before anything is done that relies on them. So one that is torn or damaged never brings
// old groups back. One that is all zero, but for the pool's, was never written, and says 0.
struct alignas(64) CheckpointRecord {
  Lsn checkpoint;
  uint32_t zero;
  uint32_t crc;  // CRC-32C of the bytes before it, seeded with the salt's low half
};
static_assert(offsetof(CheckpointRecord, checkpoint) == 0);
static_assert(offsetof(CheckpointRecord, crc) == 12);
static_assert(sizeof(CheckpointRecord) == 64);
static_assert(kCheckpointOffset + sizeof(CheckpointRecord) <= kStateOffset);
static_assert(kCheckpointOffset + sizeof(CheckpointRecord) <= kThroughCheckpointOffset);
static_assert(kThroughCheckpointOffset + sizeof(CheckpointRecord) <= kStateOffset);
static_assert(kCheckpointDistance % kPageSize == 0);
static_assert(kCheckpointOffset + kCheckpointDistance + sizeof(CheckpointRecord) <=
              kSuperblockCopyOffset);
static_assert(kSuperblockCopyOffset + sizeof(Superblock) <=
              kThroughCheckpointOffset + kCheckpointDistance);
static_assert(kThroughCheckpointOffset + kCheckpointDistance + sizeof(CheckpointRecord) <=
              kSeatCheckpointsOffset);
static_assert(kMaxSeats * sizeof(CheckpointRecord) <= kSeatCheckpointsDistance);
static_assert(kSeatCheckpointsOffset + 2 * kSeatCheckpointsDistance <= kSharedOffset);

// What a segment holds.
enum class SegmentKind : uint32_t {
  kLog = 1,   // groups of one log, in the order of their LSNs; those below the checkpoint are void
  kKept = 2,  // copies of groups of files that a disk refuses: they count whatever the checkpoint
              // says, until they carry the void word
  kFrames = 3,  // page frames of the process that uses the pool: no records, whatever lies there
};

// In a segment's first unit, and once more in its last. Written when a log takes the segment: the
// copy, the first, one PSYNC; then records. A segment is free when all of it is below the
// checkpoint, or void; its header stays as it is.
struct alignas(64) SegmentHeader {
  uint64_t word;             // SegmentWord of the generation, written last; 0: being taken
  Lsn generation;            // drawn when the segment was taken: older records in it are nothing
  Lsn checkpoint;            // of its log, as it was then
  Lsn previous_generation;   // of the segment that the log filled before this one; 0: none
  Lsn previous_last;         // of the newest group that the log had committed by then
  uint32_t previous_number;  // of that segment
  uint32_t number;           // its own
  uint32_t log;              // which of the pool's logs: of seat log / kLogsOfSeat
  SegmentKind kind;
  uint32_t zero;
  uint32_t crc;  // CRC-32C of the bytes from `generation` to here, seeded with the salt's low half
};
static_assert(offsetof(SegmentHeader, word) == 0);
static_assert(offsetof(SegmentHeader, generation) == 8);
static_assert(offsetof(SegmentHeader, checkpoint) == 16);
static_assert(offsetof(SegmentHeader, previous_generation) == 24);
static_assert(offsetof(SegmentHeader, previous_last) == 32);
static_assert(offsetof(SegmentHeader, previous_number) == 40);
static_assert(offsetof(SegmentHeader, number) == 44);
static_assert(offsetof(SegmentHeader, log) == 48);
static_assert(offsetof(SegmentHeader, kind) == 52);
static_assert(offsetof(SegmentHeader, zero) == 56);
static_assert(offsetof(SegmentHeader, crc) == 60);
static_assert(sizeof(SegmentHeader) == kUnitSize);

// The salt's high bit is set and LSNs stay below 2^62: never 0, and no commit word.
constexpr uint64_t SegmentWord(Lsn generation, uint64_t salt) {
  return generation ^ salt ^ (uint64_t{1} << kLsnBits);
}

inline constexpr uint64_t kStateClean = 0x6e61656c63766e00;  // the log holds nothing pending
inline constexpr uint64_t kStateInUse = 0x657375206e690000;  // a process uses it, or died using it

struct alignas(64) StateRecord {
  uint64_t state;
  uint32_t owner_pid;    // who set kStateInUse last; for people
  uint32_t published;    // 1: since then a log may have got an nvlog::Kind::kPublished
  uint64_t owner_since;  // ns since 1970
  uint8_t boot[16];      // of the kernel's run in which kStateInUse was set; all zero: not known
};
static_assert(offsetof(StateRecord, state) == 0);
static_assert(offsetof(StateRecord, owner_pid) == 8);
static_assert(offsetof(StateRecord, published) == 12);
static_assert(offsetof(StateRecord, owner_since) == 16);
static_assert(offsetof(StateRecord, boot) == 24);
static_assert(sizeof(StateRecord) == 64);
static_assert(kStateOffset % 64 == 0 && kStateOffset + sizeof(StateRecord) <= kStatisticsOffset);

// ---- What the processes share that use the pool (seats.h). It is cleared by whoever comes when
// nobody uses the pool, never flushed, and every field is accessed as an atomic.

struct alignas(64) SharedState {
  Lsn next;                 // the LSN that is drawn next
  uint8_t unused[56];       // a line for itself
  uint32_t seats_end;       // no seat from there on was ever taken
  uint32_t has_unresolved;  // some seat is kSeatUnresolved
  Lsn through;              // the checkpoint of write-through, as both records have it
  uint32_t through_failed;  // errno of a sync after which it moves no more; 0: none
  uint64_t through_device;  // st_dev of the file system of write-through files; 0: none
  // Of the checkpointer (seats.h): its seat plus one, 0 while it has none; changes when a process
  // wants it to have a descriptor of that file system; and whether it has.
  uint32_t checkpointer;
  uint32_t bell;
  uint32_t answer;
  uint64_t through_moved;      // ns since 1970 when `through` was stored; 0: not since; for people
  uint64_t through_failed_at;  // the same of `through_failed`
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
static_assert(sizeof(SharedState) == 128 && kSharedOffset + sizeof(SharedState) <= kSeatsOffset);

// SharedState::answer.
inline constexpr uint32_t kNoAnswer = 0;
inline constexpr uint32_t kHasDescriptor = 1;
inline constexpr uint32_t kHasNone = 2;  // it cannot, or did not say so in time

// Seat::state.
inline constexpr uint32_t kSeatFree = 0;
inline constexpr uint32_t kSeatTaken = 1;
// Its process has died; another one, which has its life byte, brings its logs to the files.
inline constexpr uint32_t kSeatReplayed = 2;
// Its process has died, and left what could not be brought to the files.
inline constexpr uint32_t kSeatUnresolved = 3;
// Its process is gone, and the kernel has all that its logs hold; but some of it may not be on the
// disk: groups of write-through, and such as were published.
inline constexpr uint32_t kSeatLeft = 4;

// Its process lives as long as it holds a lock on byte kLifeOffset plus the seat's number of the
// pool's file, which has nothing there. Locks on the bytes behind these are for whoever moves the
// checkpoint of write-through; for the moment in which it is stored; for the checkpointer; and for
// whoever wants it to keep off, or to hurry.
inline constexpr uint64_t kLifeOffset = uint64_t{1} << 62;
inline constexpr uint32_t kThroughByte = kMaxSeats;
inline constexpr uint32_t kThroughStoreByte = kMaxSeats + 1;
inline constexpr uint32_t kCheckpointerByte = kMaxSeats + 2;
inline constexpr uint32_t kKeepOffByte = kMaxSeats + 3;
inline constexpr uint32_t kHurryByte = kMaxSeats + 4;

struct alignas(64) Seat {
  uint32_t state;
  uint32_t pid;             // for people
  uint64_t since;           // ns since 1970 when it was taken
  uint64_t oldest_pending;  // ns since 1970 when its oldest pending record was first seen; 0: none
  uint64_t lease;           // the process's life among the leases (src/lease/leases.h); 0: none
  uint32_t reserve;         // segments that stay free for copies of what its logs hold
  uint32_t kept_units;      // that its kept records take
  char program[16];         // its name, up to a zero; for people
  uint32_t files;           // that it has in its cache; for people
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

// Of each segment: 0, it is free; or the number of the seat that has it, plus one.
using Owner = uint16_t;
static_assert(kMaxSeats < 0xffff);
static_assert(kOwnersOffset + kMaxSegments * sizeof(Owner) <= kThroughSinceOffset);

// Of each seat: the LSN that was drawn when its process had a descriptor of the file system of
// write-through files; 0: it has none. Who has had one for longer hears of errors that others do
// not. Of a seat that is left: the LSN that was drawn next when it was.
static_assert(kThroughSinceOffset + kMaxSeats * sizeof(Lsn) <= kConductOffset);

// Conduct::rule: NVCACHE_WRITE_BACK.
inline constexpr uint32_t kRuleUnknown = 0;
inline constexpr uint32_t kRuleAuto = 1;
inline constexpr uint32_t kRuleAlways = 2;
inline constexpr uint32_t kRuleNever = 3;

// Of each seat: what its process does, for people.
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

// Of the files whose write-back fails, so many are named.
inline constexpr uint32_t kMaxFailingShown = 16;

// Counters since the pool was last opened for use. Shared memory, never flushed; every field is
// accessed as a relaxed atomic.
struct Statistics {
  uint64_t newest;           // LSN; as of the last time the cleanup thread looked
  uint64_t entries_cleaned;  // data records that reached the disk
  uint64_t bytes_cleaned;    // their payload
  uint64_t batches;
  uint64_t syncs;            // fdatasync and syncfs calls of the cleanup thread
  uint64_t pages_written;    // write-backs to the kernel
  uint64_t segments_taken;   // times a log took a segment
  uint64_t full_waits;       // times a writer slept because the log was full
  uint64_t misses;           // reads that had to load a page
  uint64_t dirty_misses;     // misses on a page whose dirty counter was not zero
  uint64_t evictions;        // frames taken from a page
  uint64_t dirty_evictions;  // ... whose dirty counter was not zero
  uint64_t write_back_errors;
  uint64_t last_error;          // errno of the last one
  uint64_t last_error_time;     // ns since 1970
  uint64_t pass_through_files;  // files that were made pass-through
  uint64_t table_full;          // files not cached because a table was full
  uint64_t records_kept;        // copied to kept segments, because the disk refuses their file
  // Files whose write-back fails: their numbers plus one (0: none), and in the upper half the seat;
  // errno; ns since 1970.
  uint64_t failing_file[kMaxFailingShown];
  uint64_t failing_error[kMaxFailingShown];
  uint64_t failing_since[kMaxFailingShown];
};
static_assert(offsetof(Statistics, newest) == 0);
static_assert(offsetof(Statistics, entries_cleaned) == 8);
static_assert(offsetof(Statistics, bytes_cleaned) == 16);
static_assert(offsetof(Statistics, batches) == 24);
static_assert(offsetof(Statistics, syncs) == 32);
static_assert(offsetof(Statistics, pages_written) == 40);
static_assert(offsetof(Statistics, segments_taken) == 48);
static_assert(offsetof(Statistics, full_waits) == 56);
static_assert(offsetof(Statistics, misses) == 64);
static_assert(offsetof(Statistics, dirty_misses) == 72);
static_assert(offsetof(Statistics, evictions) == 80);
static_assert(offsetof(Statistics, dirty_evictions) == 88);
static_assert(offsetof(Statistics, write_back_errors) == 96);
static_assert(offsetof(Statistics, last_error) == 104);
static_assert(offsetof(Statistics, last_error_time) == 112);
static_assert(offsetof(Statistics, pass_through_files) == 120);
static_assert(offsetof(Statistics, table_full) == 128);
static_assert(offsetof(Statistics, records_kept) == 136);
static_assert(offsetof(Statistics, failing_file) == 144);
static_assert(offsetof(Statistics, failing_error) == 272);
static_assert(offsetof(Statistics, failing_since) == 400);
static_assert(kStatisticsOffset + sizeof(Statistics) <= kLastWordsOffset);

// What the last process said that used the pool and stopped, because an invariant was broken. Stays
// until another one does; never flushed.
struct LastWords {
  uint64_t time;  // ns since 1970; 0: nobody has said anything
  uint64_t pid;
  char text[496];  // with a final zero
};
static_assert(offsetof(LastWords, time) == 0);
static_assert(offsetof(LastWords, pid) == 8);
static_assert(offsetof(LastWords, text) == 16);
static_assert(sizeof(LastWords) == 512);
static_assert(kLastWordsOffset % 64 == 0 &&
              kLastWordsOffset + sizeof(LastWords) <= kCheckpointOffset + kCheckpointDistance);

inline constexpr size_t kMaxHandle = 128;  // MAX_HANDLE_SZ of <fcntl.h>
inline constexpr size_t kMaxPath = 3888;   // with the final zero

// FileRecord::flags.
// The file has lost its last name, or is about to. Counts in its newest record: then nothing is
// missing where the file is not found, and its groups are void.
inline constexpr uint32_t kFileRemoved = 1;

// What is needed to know a file again: the payload of a file record (src/nvlog/record.h), up to the
// zero that ends its path.
struct FileRecord {
  uint64_t device;  // st_dev; not stable across boots
  uint64_t inode;
  int64_t birth_seconds;  // statx btime: with the inode it names the file, not its successor
  uint32_t birth_nanoseconds;
  uint32_t mode;  // st_mode
  uint32_t uid;
  uint32_t gid;
  uint64_t file_system;  // statfs f_fsid
  int32_t handle_type;   // of name_to_handle_at
  uint32_t handle_size;  // bytes; 0: the file system has no handles
  uint8_t handle[kMaxHandle];
  uint32_t flags;        // kFileRemoved
  uint32_t path_length;  // bytes, without the final zero
  char path[kMaxPath];   // absolute, when the record was written
};
static_assert(offsetof(FileRecord, device) == 0);
static_assert(offsetof(FileRecord, inode) == 8);
static_assert(offsetof(FileRecord, birth_seconds) == 16);
static_assert(offsetof(FileRecord, birth_nanoseconds) == 24);
static_assert(offsetof(FileRecord, mode) == 28);
static_assert(offsetof(FileRecord, uid) == 32);
static_assert(offsetof(FileRecord, gid) == 36);
static_assert(offsetof(FileRecord, file_system) == 40);
static_assert(offsetof(FileRecord, handle_type) == 48);
static_assert(offsetof(FileRecord, handle_size) == 52);
static_assert(offsetof(FileRecord, handle) == 56);
static_assert(offsetof(FileRecord, flags) == 184);
static_assert(offsetof(FileRecord, path_length) == 188);
static_assert(offsetof(FileRecord, path) == 192);
static_assert(sizeof(FileRecord) == 4080);
// Of the record in a pool, whose path is `path_length` long.
constexpr size_t FileRecordSize(uint32_t path_length) {
  return offsetof(FileRecord, path) + path_length + 1;
}

struct Geometry {
  uint64_t segment_size;
  uint32_t segment_count;
  uint32_t seat_count;
};

// The one geometry of a pool of `size` bytes; kMinPoolSize <= size <= kMaxPoolSize.
constexpr Geometry GeometryOf(uint64_t size) {
  uint64_t segment = std::bit_floor(size / kSegmentsWanted);
  if (segment < kMinSegmentSize) segment = kMinSegmentSize;
  if (segment > kMaxSegmentSize) segment = kMaxSegmentSize;
  while (size / segment > kMaxSegments) segment *= 2;
  const uint64_t segments = (size - kSegmentsOffset) / segment;
  const uint64_t seats = segments / kSegmentsPerSeat;
  return {segment, static_cast<uint32_t>(segments),
          static_cast<uint32_t>(seats < kMaxSeats ? seats : kMaxSeats)};
}
static_assert(GeometryOf(kMinPoolSize).segment_count == 12);
static_assert(GeometryOf(uint64_t{1} << 30).segment_count == 1023);
static_assert(GeometryOf(uint64_t{1} << 30).seat_count >= 500);
static_assert(GeometryOf(kMaxPoolSize).segment_count < kMaxSegments);

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_FORMAT_H_
