// SPDX-License-Identifier: BSD-3-Clause
//
// A pool's mirror and the programs tell each other by these words (docs/mirror.md). They lie in the
// shared state, so each side sees them for as long as it has the pool mapped.
//
//   mirror_state, mirrored, mirror_turn   the mirror's. The turn changes after the others have
//   mirror_bell                           the programs'. It changes when one begins to wait
//   mirror_failed, _waited, _waits        the programs', for people
//   told, told_since                      the programs': syncs that did not wait, with commit at
//                                         output
#ifndef NVCACHE_POOL_MIRROR_WORDS_H_
#define NVCACHE_POOL_MIRROR_WORDS_H_

#include <atomic>
#include <bit>
#include <cstdint>

#include "src/pool/shared_state.h"
#include "src/pool/view.h"

namespace nvcache::pool {

// The bucket of SharedState::mirror_waits that counts a wait of so many microseconds.
constexpr uint32_t MirrorBucket(uint64_t us) {
  const auto bucket = us <= 1 ? 0u : static_cast<uint32_t>(std::bit_width(us - 1));
  return bucket < kMirrorBuckets ? bucket : kMirrorBuckets - 1;
}
// The longest wait that the bucket counts, in microseconds; the last one has none.
constexpr uint64_t MirrorBucketEnd(uint32_t bucket) { return uint64_t{1} << bucket; }

// How long calls have waited, as it was at one moment.
struct MirrorWaits {
  uint64_t failed;
  uint64_t waited;  // sum, microseconds
  uint64_t counts[kMirrorBuckets];
};

// The same of commit at output.
struct OutputWaits {
  uint64_t told;     // syncs
  uint64_t longest;  // microseconds that one was ahead
  uint64_t counts[kOutputs];
  uint64_t waited[kOutputs];  // microseconds
};

class MirrorWords {
 public:
  // The view outlives it.
  explicit MirrorWords(const View& view)
      : shared_(*reinterpret_cast<SharedState*>(view.base + kSharedOffset)) {}

  uint32_t state() const { return Of(shared_.mirror_state).load(); }
  Lsn mirrored() const { return Of(shared_.mirrored).load(); }
  Lsn next() const { return Of(shared_.next).load(); }
  Lsn Draw() const { return Of(shared_.next).fetch_add(1); }

  // Programs sleep until the turn is another one than `seen`, which they have read before the state
  // and the position. Not longer than `timeout_ns`, and not beyond a signal.
  uint32_t turn() const { return Of(shared_.mirror_turn).load(); }
  void AwaitTurn(uint32_t seen, uint64_t timeout_ns) const;
  void RingBell() const;
  // A call has waited for so long, and may return, or `failed`.
  void CountWait(uint64_t ns, bool failed) const;

  // Commit at output. A sync whose groups are committed is told that it has succeeded: false, if
  // it has to wait, for something that was told has been ahead of the images for `ahead_ns`.
  bool Tell(uint64_t now, uint64_t ahead_ns) const;
  // The images lack some of what was told. What they have to reach: told().
  bool IsTold() const {
    return Of(shared_.told).load(std::memory_order_acquire) >
           Of(shared_.mirrored).load(std::memory_order_acquire);
  }
  Lsn told() const { return Of(shared_.told).load(); }
  uint64_t told_since() const { return Of(shared_.told_since).load(); }
  // The checkpointer: the next sync that is told wakes it, by the bell of the seats.
  void SleepUntilTold() const { Of(shared_.told_asleep).store(1); }
  // An output of that kind has waited for so long.
  void CountOutput(Output output, uint64_t now, uint64_t ns) const;

  // The mirror's side. The position never goes down.
  void SetState(uint32_t state) const;
  void SetMirrored(Lsn position) const;
  // The two halves of that: nobody is woken before TakeTurn().
  bool RaiseMirrored(Lsn position) const;
  void TakeTurn() const;
  // Instead of `from`, if it is still that.
  void ChangeState(uint32_t from, uint32_t to) const;
  uint32_t bell() const { return Of(shared_.mirror_bell).load(); }
  void AwaitBell(uint32_t seen, uint64_t timeout_ns) const;

  // For people.
  MirrorWaits waits() const;
  OutputWaits outputs() const;
  uint64_t taken() const { return Of(shared_.taken).load(std::memory_order_relaxed); }

 private:
  void NoteAhead(uint64_t now) const;

  template <typename Integer>
  static std::atomic_ref<Integer> Of(Integer& field) {
    return std::atomic_ref(field);
  }

  SharedState& shared_;
};

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_MIRROR_WORDS_H_
