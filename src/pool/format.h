// SPDX-License-Identifier: BSD-3-Clause
//
// What a pool looks like on the medium; docs/pool-format.md says it in prose. Little endian.
//
//   0        Superblock     written once, at creation
//   4096     TailRecord 0   the log's tail; the two records are written alternately
//   8192     StateRecord    clean or in use, and by whom
//   8256     Statistics     counters for `nvcache status`; nothing depends on them
//   11776    LastWords      of a process that stopped itself; nothing depends on them
//   12288    TailRecord 1
//   12352    Superblock     a copy, whole before the first one is
//   16384    FileRecord[file_slots]
//   ...      the log, to the end: `log_units` units of 64 bytes (src/nvlog/entry.h)
//
// What recovery cannot do without is there twice, or can be told from the rest, and no 4 KiB of the
// medium hold all of it: each of these pages may be lost.
//
// Changing anything here means a new kVersion.
#ifndef NVCACHE_POOL_FORMAT_H_
#define NVCACHE_POOL_FORMAT_H_

#include <cstddef>
#include <cstdint>

namespace nvcache::pool {

inline constexpr char kMagic[8] = {'N', 'V', 'C', 'A', 'C', 'H', 'E', '\n'};
inline constexpr uint32_t kVersion = 4;

inline constexpr uint64_t kPageSize = 4096;  // bytes that one entry, one frame, one page holds
inline constexpr uint64_t kUnitSize = 64;    // bytes; the log is counted in units

inline constexpr uint64_t kTailOffset = 4096;    // of record 0
inline constexpr uint64_t kTailDistance = 8192;  // from there to record 1
inline constexpr uint64_t kStateOffset = 8192;
inline constexpr uint64_t kStatisticsOffset = 8256;
inline constexpr uint64_t kLastWordsOffset = 11776;
inline constexpr uint64_t kSuperblockCopyOffset = 12352;
inline constexpr uint64_t kFileTableOffset = 16384;

inline constexpr uint64_t kMinPoolSize = 1u << 20;
inline constexpr uint64_t kMaxPoolSize = uint64_t{1} << 46;  // 64 TiB
inline constexpr uint32_t kMinFileSlots = 16;
inline constexpr uint32_t kMaxFileSlots = 4096;
inline constexpr uint64_t kPoolBytesPerFileSlot = 256u << 10;  // 1 slot per so many bytes of pool

// Geometry and identity. Never changes after creation.
struct Superblock {
  char magic[8];
  uint32_t version;
  uint32_t superblock_size;  // sizeof(Superblock)
  uint64_t pool_size;        // bytes, all of it
  uint64_t salt;             // random, high bit set: makes this pool's commit words its own
  uint8_t uuid[16];          // random
  uint64_t created;          // ns since 1970
  uint64_t log_offset;       // bytes
  uint64_t log_units;        // units of kUnitSize
  uint32_t file_slots;
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
static_assert(offsetof(Superblock, log_offset) == 56);
static_assert(offsetof(Superblock, log_units) == 64);
static_assert(offsetof(Superblock, file_slots) == 72);
static_assert(offsetof(Superblock, page_size) == 76);
static_assert(offsetof(Superblock, unit_size) == 80);
static_assert(offsetof(Superblock, crc) == 84);
static_assert(sizeof(Superblock) == 88 && sizeof(Superblock) <= kTailOffset);
static_assert(kSuperblockCopyOffset % 64 == 0 &&
              kSuperblockCopyOffset + sizeof(Superblock) <= kFileTableOffset);

// The tail: the position of the oldest entry that is not known to be on disk. Two records, the
// older one is overwritten, the valid one with the higher sequence counts: a record torn or
// damaged costs one step back, and replaying what is already on disk is harmless (I6).
struct alignas(64) TailRecord {
  uint64_t tail;      // position (src/nvlog/entry.h)
  uint64_t sequence;  // odd in record 1, even in record 0
  uint32_t zero;
  uint32_t crc;  // CRC-32C of the bytes before it, seeded with the salt's low half
};
static_assert(offsetof(TailRecord, tail) == 0);
static_assert(offsetof(TailRecord, sequence) == 8);
static_assert(offsetof(TailRecord, zero) == 16);
static_assert(offsetof(TailRecord, crc) == 20);
static_assert(sizeof(TailRecord) == 64);
static_assert(kTailOffset + sizeof(TailRecord) <= kStateOffset);
static_assert(kTailDistance % kPageSize == 0);
static_assert(kTailOffset + kTailDistance + sizeof(TailRecord) <= kSuperblockCopyOffset);

inline constexpr uint64_t kStateClean = 0x6e61656c63766e00;  // the log holds nothing pending
inline constexpr uint64_t kStateInUse = 0x657375206e690000;  // a process uses it, or died using it

struct alignas(64) StateRecord {
  uint64_t state;
  uint32_t owner_pid;  // who set kStateInUse last; for people
  uint32_t zero;
  uint64_t owner_since;  // ns since 1970
};
static_assert(offsetof(StateRecord, state) == 0);
static_assert(offsetof(StateRecord, owner_pid) == 8);
static_assert(offsetof(StateRecord, owner_since) == 16);
static_assert(sizeof(StateRecord) == 64);
static_assert(kStateOffset % 64 == 0 && kStateOffset + sizeof(StateRecord) <= kStatisticsOffset);

// Of the files whose write-back fails, so many are named.
inline constexpr uint32_t kMaxFailingShown = 16;

// Counters since the pool was last opened for use. Shared memory, never flushed; every field is
// accessed as a relaxed atomic.
struct Statistics {
  uint64_t head;             // position; as of the last time the cleanup thread looked
  uint64_t oldest_pending;   // ns since 1970 when the entry at the tail was first seen; 0: none
  uint64_t entries_cleaned;  // entries that reached the disk
  uint64_t bytes_cleaned;    // their payload
  uint64_t batches;
  uint64_t syncs;            // fdatasync and syncfs calls of the cleanup thread
  uint64_t pages_written;    // write-backs to the kernel
  uint64_t wraps;            // times the head passed the log's end
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
  uint64_t entries_moved;       // to the head, because the disk refuses their file
  // Files whose write-back fails: slot << 32 | incarnation, 0: none; errno; ns since 1970.
  uint64_t failing_file[kMaxFailingShown];
  uint64_t failing_error[kMaxFailingShown];
  uint64_t failing_since[kMaxFailingShown];
};
static_assert(offsetof(Statistics, head) == 0);
static_assert(offsetof(Statistics, oldest_pending) == 8);
static_assert(offsetof(Statistics, entries_cleaned) == 16);
static_assert(offsetof(Statistics, bytes_cleaned) == 24);
static_assert(offsetof(Statistics, batches) == 32);
static_assert(offsetof(Statistics, syncs) == 40);
static_assert(offsetof(Statistics, pages_written) == 48);
static_assert(offsetof(Statistics, wraps) == 56);
static_assert(offsetof(Statistics, full_waits) == 64);
static_assert(offsetof(Statistics, misses) == 72);
static_assert(offsetof(Statistics, dirty_misses) == 80);
static_assert(offsetof(Statistics, evictions) == 88);
static_assert(offsetof(Statistics, dirty_evictions) == 96);
static_assert(offsetof(Statistics, write_back_errors) == 104);
static_assert(offsetof(Statistics, last_error) == 112);
static_assert(offsetof(Statistics, last_error_time) == 120);
static_assert(offsetof(Statistics, pass_through_files) == 128);
static_assert(offsetof(Statistics, table_full) == 136);
static_assert(offsetof(Statistics, entries_moved) == 144);
static_assert(offsetof(Statistics, failing_file) == 152);
static_assert(offsetof(Statistics, failing_error) == 280);
static_assert(offsetof(Statistics, failing_since) == 408);
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
              kLastWordsOffset + sizeof(LastWords) <= kTailOffset + kTailDistance);

inline constexpr size_t kMaxHandle = 128;  // MAX_HANDLE_SZ of <fcntl.h>
inline constexpr size_t kMaxPath = 3872;   // with the final zero

inline constexpr uint32_t kNameSettled = 0;  // a missing file was removed, or has another name now
inline constexpr uint32_t kNameNew = 0x3f77656e;  // the file system may still lose the file

// A file that entries refer to. A record is written before the first entry that names it commits,
// and not again until the tail has passed the last one; but for `name`, `successor` and `cut`,
// which are not in the crc: each changes alone, by one store.
//
// While `name` is kNameNew, the log has every byte that the file should have: it was empty when the
// record was written, and no entry of it is freed but for newer ones. So it can be created again.
struct FileRecord {
  uint32_t incarnation;  // counts the uses of this slot; entries repeat it. 0: never used
  uint32_t crc;     // CRC-32C of the record to the path's end, without itself, name, successor, cut
  uint64_t device;  // st_dev; not stable across boots
  uint64_t inode;
  int64_t birth_seconds;  // statx btime: with the inode it names the file, not its successor
  uint32_t birth_nanoseconds;
  uint32_t mode;  // st_mode, for a file that has to be created again
  uint32_t uid;
  uint32_t gid;
  uint64_t file_system;  // statfs f_fsid
  int32_t handle_type;   // of name_to_handle_at
  uint32_t handle_size;  // bytes; 0: the file system has no handles
  uint8_t handle[kMaxHandle];
  uint32_t name;         // kNameNew until a sync of the file has succeeded, then kNameSettled
  uint32_t path_length;  // bytes, without the final zero
  uint64_t successor;    // fingerprint of the file that recovery created in its place; 0: none
  // Fingerprint of the file that the program removed before it gave its name to this one; 0: none.
  // The file system may bring it back, when it has lost both.
  uint64_t predecessor;
  // CutWord of a position: the file was empty when the log's head was there. Counts
  // while the tail is not beyond it: then the file is cut, and entries before it are nothing. 0:
  // none.
  uint64_t cut;
  char path[kMaxPath];  // absolute, when the record was written
};
static_assert(offsetof(FileRecord, incarnation) == 0);
static_assert(offsetof(FileRecord, crc) == 4);
static_assert(offsetof(FileRecord, device) == 8);
static_assert(offsetof(FileRecord, inode) == 16);
static_assert(offsetof(FileRecord, birth_seconds) == 24);
static_assert(offsetof(FileRecord, birth_nanoseconds) == 32);
static_assert(offsetof(FileRecord, mode) == 36);
static_assert(offsetof(FileRecord, uid) == 40);
static_assert(offsetof(FileRecord, gid) == 44);
static_assert(offsetof(FileRecord, file_system) == 48);
static_assert(offsetof(FileRecord, handle_type) == 56);
static_assert(offsetof(FileRecord, handle_size) == 60);
static_assert(offsetof(FileRecord, handle) == 64);
static_assert(offsetof(FileRecord, name) == 192);
static_assert(offsetof(FileRecord, path_length) == 196);
static_assert(offsetof(FileRecord, successor) == 200);
static_assert(offsetof(FileRecord, predecessor) == 208);
static_assert(offsetof(FileRecord, cut) == 216);
static_assert(offsetof(FileRecord, path) == 224);
static_assert(sizeof(FileRecord) == 4096);

// A cut is one store and checks itself: the position's check is in the bits above it.
inline constexpr uint64_t kCutBits = 48;
constexpr uint64_t CutPosition(uint64_t word) { return word & ((uint64_t{1} << kCutBits) - 1); }

struct Geometry {
  uint64_t pool_size;
  uint32_t file_slots;
  uint64_t log_offset;
  uint64_t log_units;
};

// The one geometry of a pool of `size` bytes; kMinPoolSize <= size <= kMaxPoolSize.
constexpr Geometry GeometryOf(uint64_t size) {
  const uint64_t wanted = size / kPoolBytesPerFileSlot;
  const uint32_t slots = wanted < kMinFileSlots   ? kMinFileSlots
                         : wanted > kMaxFileSlots ? kMaxFileSlots
                                                  : static_cast<uint32_t>(wanted);
  const uint64_t log_offset = kFileTableOffset + slots * sizeof(FileRecord);
  return {size, slots, log_offset, (size - log_offset) / kUnitSize};
}
static_assert(GeometryOf(kMinPoolSize).log_units * kUnitSize > kMinPoolSize / 2);

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_FORMAT_H_
