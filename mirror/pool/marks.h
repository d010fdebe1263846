// SPDX-License-Identifier: BSD-3-Clause
//
// Groups whose words change when they were committed long ago: kept ones become void one by one,
// and so do those of a dead process whose seat is unresolved.
//
// The set of those that are void has to be that of one instant: the oldest become void first, and
// one that newer ones hide only when these were committed. A word never changes back. So the words
// are read twice, with a look for new groups in between, in segments that are new as well: if both
// readings agree and there is no new group, it was like this in between.
#ifndef NVCACHE_MIRROR_POOL_MARKS_H_
#define NVCACHE_MIRROR_POOL_MARKS_H_

#include <cstdint>
#include <vector>

#include "mirror/pool/lives.h"

namespace nvcache::mirror {

// A group.
struct Mark {
  Lsn lsn;
  uint32_t unit;  // its first header's
  bool is_void;   // its word said so when it was read last
  bool sent;      // that it is void lies in a batch
};

class Marks {
 public:
  Marks(const pool::Pool& pool, Lives* lives)
      : view_(pool.view()), seats_(pool.seats()), lives_(*lives) {}

  // There are such groups.
  bool HasAny() const { return !lives_.kept().empty() || seats_.HasUnresolved(); }
  // Walks over all kept groups, and reads all words. Checkpoints have been read before: what they
  // pass lies in a kept segment that is known, and what was void before they passed later groups is
  // seen to be void. False: there is a group that is not below `bound`, or a segment is gone.
  // `taken`: the pool's count when all segments were looked at.
  bool Look(Lsn bound, uint64_t taken);
  // Gives the groups in units [`from`, `end`) of a segment, whose copy begins at `bytes`, the words
  // that Look() has read.
  void SetWords(uint32_t number, uint32_t from, uint32_t end, uint8_t* bytes) const;
  // So does the image have them.
  void Sent(uint32_t number, uint32_t from, uint32_t end);
  // The last unit in (`from`, `end`] where a group ends, so that units before it are at most
  // `units`, but at least one group.
  uint32_t CutAt(uint32_t number, uint32_t from, uint32_t end, uint64_t units) const;

  // Groups that batches have, and that have become void since.
  struct Change {
    Lsn lsn;
    uint32_t number;
    uint32_t unit;
  };
  std::vector<Change> Changes() const;  // the oldest first
  void Sent(const Change& change) { Sent(change.number, change.unit, change.unit + 1); }

 private:
  struct Watched {
    uint32_t number = 0;
    Lsn generation = 0;
    std::vector<Mark> marks;  // in the order of their places
  };

  bool LookForSegments(uint64_t* taken);
  void Choose();
  void WatchLog(Watched* watched);
  bool Extend(Lsn bound, bool* grew);
  bool ReadWords(bool* changed);
  const Watched* Find(uint32_t number) const;

  const pool::View view_;
  const pool::Seats& seats_;
  Lives& lives_;
  std::vector<Watched> watched_;  // in the order of their numbers
  std::vector<Lives::Move> moves_;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_POOL_MARKS_H_
