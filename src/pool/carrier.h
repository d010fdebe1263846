// SPDX-License-Identifier: BSD-3-Clause
//
// Whether a file can be a journal where it lies (docs/disk.md): a block that is written again stays
// where it is, and is durable when the write has returned.
#ifndef NVCACHE_POOL_CARRIER_H_
#define NVCACHE_POOL_CARRIER_H_

namespace nvcache::pool {

// nullptr, or why none can lie on the file system of `fd`, of which it asks for the kind.
const char* WhyNoJournalOn(int fd);
// The same of a journal that was made elsewhere, and copied there. It needs no /proc.
const char* WhyNoLongerOn(int fd);
// The same of a file that is full of zeros, which it asks for its blocks. `fd` is from
// journal::Open().
const char* WhyNoJournalIn(int fd);

}  // namespace nvcache::pool

#endif  // NVCACHE_POOL_CARRIER_H_
