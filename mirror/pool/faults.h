// SPDX-License-Identifier: BSD-3-Clause
//
// Where tests come in between two readings of a cursor, and what they have it do wrong. Nothing of
// it is in a program: only tests/mirror/pool is compiled with NVCACHE_MIRROR_FAULTS.
#ifndef NVCACHE_MIRROR_POOL_FAULTS_H_
#define NVCACHE_MIRROR_POOL_FAULTS_H_

#include <cstddef>
#ifdef NVCACHE_MIRROR_FAULTS
#include <functional>
#endif

namespace nvcache::mirror {

// A cursor has just done this.
enum class Point {
  kNext,         // read the bound of its round
  kScanned,      // looked for segments
  kCheckpoints,  // read the checkpoints
  kMark,         // read the word of one group
  kWords,        // read the words of all once
  kHeader,       // walked over a group
  kCopied,       // copied a part of a segment
};

enum class Mutant {
  kNone,
  kNextLast,         // the bound is read when all groups were found
  kCheckpointsLast,  // checkpoints are read after kept segments
  kAnyGeneration,    // a copy is not compared with the segment's life
  kNoContinuation,   // a group is the part of it in its first segment
  kAnyOrder,         // batches follow the segments, not the LSNs
  kOneReading,       // words are read once, the oldest first
  kNoVoids,          // words are not read at all
  kKeptStays,        // a kept segment that was taken again stays in the image
  kTakenOnce,        // segments that are taken later are not looked for
};

#ifdef NVCACHE_MIRROR_FAULTS
struct Faults {
  std::function<void(Point)> at;
  Mutant mutant = Mutant::kNone;
  size_t soft_bytes = size_t{1} << 20;
};
extern Faults g_faults;
inline void Pass(Point point) {
  if (g_faults.at) g_faults.at(point);
}
inline bool Is(Mutant mutant) { return g_faults.mutant == mutant; }
inline size_t SoftBytes() { return g_faults.soft_bytes; }
#else
inline void Pass(Point) {}
constexpr bool Is(Mutant) { return false; }
// A batch that is not made of one long group stays below it.
constexpr size_t SoftBytes() { return size_t{1} << 20; }
#endif

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_POOL_FAULTS_H_
