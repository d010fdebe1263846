// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/lock_rank.h"

#include "src/sys/check.h"
#include "src/sys/text.h"

namespace nvcache::sys {

namespace {

constexpr const char* kNames[] = {"table",  "offset",     "grow",     "file",         "space",
                                  "batch",  "write-back", "erase",    "sync",         "backing",
                                  "page",   "lane",       "segments", "descriptions", "erasures",
                                  "frames", "arena",      "reaping",  "saying"};
constexpr uint32_t kRanks = static_cast<uint32_t>(Rank::kCount);
static_assert(sizeof(kNames) / sizeof(kNames[0]) == kRanks);

}  // namespace

#ifdef NVCACHE_CHECK_LOCKS

namespace {

// Each thread has one. No handler of a signal changes it meanwhile: none runs while a lock is held.
struct Thread {
  uint32_t held[kRanks];  // locks of each rank
  bool may_sync;          // whatever it holds
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Thread thread = {};

uint32_t& Held(Rank rank) { return thread.held[static_cast<uint32_t>(rank)]; }

bool MayHoldSeveral(Rank rank) {
  return rank == Rank::kPage || (rank == Rank::kFile && Held(Rank::kTable) > 0);
}

[[noreturn]] void Refuse(const char* wanted, uint32_t held) {
  Text<128> text;
  text.Append("order of locks (").Append(wanted).Append(" is waited for, ");
  text.Append(kNames[held]).Append(" is held)");
  CheckFailed(text.c_str(), __FILE_NAME__, __LINE__);
}

// No lock is held of the ranks from `first` on.
void CheckNoneFrom(uint32_t first, const char* wanted) {
  for (uint32_t i = first; i < kRanks; ++i) {
    if (thread.held[i] > 0) Refuse(wanted, i);
  }
}

}  // namespace

void CheckOrder(Rank wanted) {
  const auto number = static_cast<uint32_t>(wanted);
  CheckNoneFrom(MayHoldSeveral(wanted) ? number + 1 : number, kNames[number]);
}

void NoteLocked(Rank rank) { ++Held(rank); }

void NoteUnlocked(Rank rank) {
  NVCACHE_CHECK(Held(rank) > 0);
  --Held(rank);
}

void CheckSync() {
  for (uint32_t i = 0; i < kRanks; ++i) {
    const auto rank = static_cast<Rank>(i);
    const bool allowed = thread.may_sync || rank == Rank::kSync || rank == Rank::kBatch;
    if (thread.held[i] > 0 && !allowed) Refuse("a sync", i);
  }
}

void CheckWait() { CheckNoneFrom(static_cast<uint32_t>(Rank::kBatch), "the cleanup thread"); }

void AllowSyncs(bool may) { thread.may_sync = may; }

#endif  // NVCACHE_CHECK_LOCKS

}  // namespace nvcache::sys
