// SPDX-License-Identifier: BSD-3-Clause
//
// One reading of a pool that is in use (docs/mirror.md: How a pool is read).
//
// A round takes all groups that were committed with an LSN below `bound_`, which is the LSN that
// was drawn next when the round began. It looks in this order, and each step relies on it:
//
//   bound         A group that others rely on was committed before these drew their LSNs. So what
//                 lies below the bound is closed under that, if all below it is found after.
//   segments      They are counted before an LSN of a group there is drawn. What is freed and taken
//                 again before it is looked at was below a checkpoint by then.
//   checkpoints   So they are read after. They reach the image before the headers of segments that
//                 they have let be taken again, and after the kept groups that let them pass.
//   kept groups   So these are read after the checkpoints: what these have passed is there as a
//                 copy, or void.
//   groups        From all logs in the order of their LSNs, so that each batch is closed, and each
//                 LSN not above the next group's is a position. A segment that is taken again
//                 meanwhile takes the round along: it begins anew, above what was lost.
//
// Kept groups that are new go before the checkpoints, whatever their LSNs: a void word that comes
// with them relies on them. So where one round takes several batches, an image between these may
// have a kept group without an older group that is no part of the position either.
#ifndef NVCACHE_MIRROR_POOL_CURSOR_H_
#define NVCACHE_MIRROR_POOL_CURSOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mirror/core/source.h"
#include "mirror/pool/checkpoints.h"
#include "mirror/pool/lives.h"
#include "mirror/pool/marks.h"
#include "src/pool/pool.h"

namespace nvcache::mirror {

class PoolCursor final : public Cursor {
 public:
  explicit PoolCursor(const pool::Pool& pool)
      : view_(pool.view()),
        seats_(pool.seats()),
        checkpoints_(pool),
        lives_(pool),
        marks_(pool, &lives_) {}

  bool Read(Batch* batch) override;

 private:
  enum class Begun { kNothing, kRound, kAgain };
  // The stages of a round, in this order: before the groups of logs it has other things to say.
  enum Stage : uint8_t { kStart, kKept, kAtOnce, kGroups };
  enum class Taken { kDone, kFull, kLost };
  struct Head {  // the next group in a segment
    Lsn lsn;
    uint32_t number;
  };
  struct Saved {  // a life as it was before the batch
    uint32_t number;
    Life life;
  };

  Begun Begin();
  bool Look(bool* is_new);
  bool PushAll();
  bool Push(uint32_t number);
  bool Fill(Batch* batch);
  bool AddBefore(Pieces* pieces);
  void AddStart(Pieces* pieces) const;
  bool AddKept(const std::vector<uint32_t>& list, size_t* at, bool all, Pieces* pieces);
  bool AddAtOnce(Pieces* pieces);
  bool AddChanges(bool all, Pieces* pieces);
  bool AddGone(bool all, Pieces* pieces);
  bool AddGroups(Pieces* pieces);
  Taken Take(size_t* bytes, bool is_first);
  Taken Miss(const Head& head);
  static bool IsLater(const Head& a, const Head& b);
  bool CopyTouched(Pieces* pieces);
  void Touch(uint32_t number);
  void Commit(Batch* batch);
  void GiveUp();

  const pool::View view_;
  const pool::Seats& seats_;
  Checkpoints checkpoints_;
  Lives lives_;
  Marks marks_;

  bool started_ = false;  // the first batch was made
  bool again_ = true;     // all has to be looked at, whatever has changed
  uint64_t taken_ = 0;    // the pool's count when all segments were looked at last
  Lsn position_ = 0;      // the last batch's

  // The round.
  bool open_ = false;
  Lsn bound_ = 0;
  Stage stage_ = kStart;
  std::vector<Head> heap_;  // the lowest LSN first
  // Kept segments that the image has, and such as it has not.
  std::vector<uint32_t> kept_, kept_fresh_;
  size_t kept_at_ = 0, kept_fresh_at_ = 0;
  std::vector<Marks::Change> changes_;
  size_t change_at_ = 0;
  size_t gone_at_ = 0;  // in lives_.gone()

  // The batch.
  std::vector<Saved> touched_;
  size_t first_change_ = 0;
  std::vector<Lives::Move> moves_;
};

}  // namespace nvcache::mirror

#endif  // NVCACHE_MIRROR_POOL_CURSOR_H_
