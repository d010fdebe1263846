// SPDX-License-Identifier: BSD-3-Clause
//
// Where the recorded engine's stores, PWBs, fences and system calls go (src/pmem/record.h,
// src/sys/kernel.h). While nobody listens they just happen.
#ifndef NVCACHE_TESTS_CRASH_RECORDER_H_
#define NVCACHE_TESTS_CRASH_RECORDER_H_

#include <cstddef>
#include <cstdint>

#include "src/pmem/step.h"

namespace nvcache::crash {

class Listener {
 public:
  virtual ~Listener() = default;
  virtual void Store(uint8_t* to, const uint8_t* from, size_t n) = 0;  // has to do it
  virtual void Pwb(const uint8_t* address, size_t n, pmem::Step step) = 0;
  virtual void Fence(pmem::Step step) = 0;
  // Has to make the call.
  virtual long Call(long number, long a, long b, long c, long d, long e, long f) = 0;
};

// pmem::Copy is sys::StreamUser, as it is where the processor has what that is made of. False: it
// has not.
bool UseStreams();

// One at a time; null: nobody.
void Listen(Listener* listener);

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_RECORDER_H_
