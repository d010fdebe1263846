// SPDX-License-Identifier: BSD-3-Clause
//
// A process that changes a file whose bytes are the kernel's says so in its slot (file_table.h,
// Passing), and looks then for the file's entry. Nearly always there is none: this is the short way
// for that, of some twenty instructions.
#ifndef NVCACHE_LEASE_PASS_H_
#define NVCACHE_LEASE_PASS_H_

#include <atomic>
#include <cstdint>

#include "src/lease/leases.h"

namespace nvcache::lease {

class Pass {
 public:
  // As FileTable::BeginInFlight(). False: the process has no slot with a page, or has lost it.
  [[gnu::always_inline]] bool Begin(const Leases& leases, uint64_t tag) {
    const OwnSlot& own = leases.own();
    if (own.IsLost()) return false;
    count_ = &own.counts->count[ClassOf(tag)];
    count_->fetch_add(1);  // no later load comes before it
    return true;
  }
  // As FileTable::Find(), after Begin(). False: it has none for sure.
  [[gnu::always_inline]] static bool MayHaveEntry(const Leases& leases, uint64_t tag) {
    return IsTagged(leases.TaggedAt(tag).load(), tag);
  }
  // The slot may have been lost.
  [[gnu::always_inline]] void End(const Leases& leases) const {
    if (!leases.own().IsLost()) count_->fetch_sub(1);
  }

 private:
  std::atomic<uint16_t>* count_ = nullptr;
};

}  // namespace nvcache::lease

#endif  // NVCACHE_LEASE_PASS_H_
