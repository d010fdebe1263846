// SPDX-License-Identifier: BSD-3-Clause
//
// Run-time settings: one per environment variable NVCACHE_<NAME>; docs/settings.md is the table.
// Freestanding, for the library; the `nvcache` command uses the same parser.
#ifndef NVCACHE_SETTINGS_SETTINGS_H_
#define NVCACHE_SETTINGS_SETTINGS_H_

#include <cstdint>

#include "src/sys/text.h"

namespace nvcache::settings {

inline constexpr uint64_t kMinDram = 64u << 10;
inline constexpr uint64_t kMaxDram = uint64_t{1} << 42;
inline constexpr uint64_t kMaxFrameDelay = 100000;
inline constexpr uint64_t kMaxBatch = 1u << 20;
inline constexpr uint64_t kMaxAhead = 60000;
inline constexpr uint64_t kAllHuge = ~uint64_t{0};

// Files that are in the log: those that have proved hot, write-through, or write-back where their
// names are exclusive; or each, write-back, from its first open for writing; or none.
enum class WriteBack : uint8_t { kAuto, kAlways, kNever };

// The fate of a process that makes system calls past libc: it runs without the cache; or not at
// all, where the cache is required; or nobody looks whether it is one.
enum class Raw : uint8_t { kOff, kRefuse, kTrust };

struct Settings {
  sys::Text<512> pool;          // NVCACHE_POOL; empty: the cache is off
  uint64_t size = 0;            // NVCACHE_SIZE, bytes: create a missing pool; 0: do not
  bool emulate = false;         // NVCACHE_EMULATE
  uint64_t dram = 256u << 20;   // NVCACHE_DRAM, bytes of page frames
  uint64_t frames = 0;          // NVCACHE_FRAMES, the same, before NVCACHE_DRAM; 0: not given
  bool frames_in_pool = false;  // NVCACHE_FRAMES=pool:..., not dram:...
  uint64_t frame_delay_ns = 0;  // NVCACHE_FRAME_DELAY, for measurements
  WriteBack write_back = WriteBack::kAuto;  // NVCACHE_WRITE_BACK
  Raw raw = Raw::kOff;                      // NVCACHE_RAW
  bool required = false;                    // NVCACHE_REQUIRED
  bool drain_at_exit = true;                // NVCACHE_DRAIN_AT_EXIT
  bool notice = true;          // NVCACHE_NOTICE: say that the pool is emulated, or in use
  bool notice_all = false;     // the same: and what hinders each process
  bool stdio = true;           // NVCACHE_STDIO
  bool names = true;           // folders that are synced have their names in the log: NVCACHE_NAMES
  bool checkpointer = true;    // `nvcache run` leaves one behind: NVCACHE_CHECKPOINTER
  uint64_t huge = kAllHuge;    // bytes of an emulated pool that may be huge: NVCACHE_HUGE
  uint64_t ahead_ms = 10;      // NVCACHE_AHEAD: what was told may be ahead of a journal for so long
  uint64_t batch_min = 1000;   // NVCACHE_BATCH_MIN, pages, about, that start a batch
  uint64_t batch_max = 10000;  // NVCACHE_BATCH_MAX, pages of a batch
  uint64_t batch_delay_ms = 50;  // NVCACHE_BATCH_DELAY, ms after which fewer start one, too
  // Long and rare: no program's start writes to these, unless they are given.
  sys::Text<1024> include;    // NVCACHE_INCLUDE, globs with ':' between; empty: all
  sys::Text<1024> exclude;    // NVCACHE_EXCLUDE
  sys::Text<1024> exclusive;  // NVCACHE_EXCLUSIVE: no program without NVCache looks at these

  // Files may be cached: from their first open, or some when they are hot.
  bool caches() const { return write_back == WriteBack::kAlways || exclusive.size() > 0; }
  // Bytes of page frames, wherever they are.
  uint64_t frame_bytes() const { return frames != 0 ? frames : dram; }
};

// Takes one setting by its name without prefix ("POOL", "DRAM", ...). On false, *wrong is one line
// that names the setting, the error and the remedy. Unknown names are wrong.
bool Apply(Settings* settings, const char* name, const char* value, sys::Text<480>* wrong);

// Takes every NVCACHE_* of an environment, then checks that they agree with one another.
bool FromEnvironment(Settings* settings, char* const* environment, sys::Text<480>* wrong);

// "4096", "64k", "1.5G", "1GiB" as fio reads them (powers of 1024, any case). False if unreadable
// or beyond 2^63.
bool ParseSize(const char* text, uint64_t* bytes);

// Shell pattern: * ? [a-z] [!a-z] \x, '*' matches '/' as well. IsGlob: can be read at all.
bool IsGlob(const char* pattern);
bool GlobMatches(const char* pattern, const char* text);
// One of the patterns in `list` ("a:b:c") matches.
bool AnyGlobMatches(const char* list, const char* text);

}  // namespace nvcache::settings

#endif  // NVCACHE_SETTINGS_SETTINGS_H_
