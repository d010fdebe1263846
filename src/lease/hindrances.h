// SPDX-License-Identifier: BSD-3-Clause
//
// Each process says what keeps it from having its files, or some of them, in the log. The table is
// in the leases' file, and `nvcache status` reads it. Nothing depends on it.
#ifndef NVCACHE_LEASE_HINDRANCES_H_
#define NVCACHE_LEASE_HINDRANCES_H_

#include <cstdint>

#include "src/lease/hindrance.h"

namespace nvcache::lease {

// "chroot", and one line that says what follows and what can be done.
const char* NameOf(Hindrance hindrance);
const char* MeaningOf(Hindrance hindrance);

// For a reader that has no slot (`nvcache status`). `fd`: a file of leases, open for reading; it is
// not mapped, for that would give memory to its holes. So many of its slots may be in use; 0 if it
// is no such file, or of another version.
uint32_t CountSlots(int fd);
// The slot's owner lives, and has said something.
bool ReadHindrances(int fd, uint32_t slot, Hindrances* found);

}  // namespace nvcache::lease

#endif  // NVCACHE_LEASE_HINDRANCES_H_
