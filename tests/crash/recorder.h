// SPDX-License-Identifier: BSD-3-Clause
//
// Where the recorded engine's stores, PWBs, fences and system calls go (src/pmem/record.h,
// src/sys/kernel.h). While nobody listens they just happen.
#ifndef NVCACHE_TESTS_CRASH_RECORDER_H_
#define NVCACHE_TESTS_CRASH_RECORDER_H_

#include <cstddef>
#include <cstdint>

#include "tests/crash/trace.h"

namespace nvcache::crash {

class Listener {
 public:
  virtual ~Listener() = default;
  virtual void Store(uint8_t* to, const uint8_t* from, size_t n) = 0;  // has to do it
  virtual void Pwb(const uint8_t* address, size_t n, Step step) = 0;
  virtual void Fence(Step step) = 0;
  // Has to make the call.
  virtual long Call(long number, long a, long b, long c, long d, long e, long f) = 0;
};

// One that notes what happens, in one order.
class Recording : public Listener {
 protected:
  virtual void Add(const Event& event) { trace_.events.push_back(event); }
  virtual uint16_t Who() const { return 0; }  // the thread
  // Why the file cannot be synced, or 0.
  virtual int SyncError(uint32_t /*file*/) { return 0; }

  void Note(Event::Type type, uint32_t file, uint64_t at = 0, uint32_t length = 0,
            uint32_t data = 0, Step step = {}) {
    Add({type, step, Who(), file, at, length, data});
  }
  // Of the pool's memory, line by line.
  void NoteStore(uint64_t at, const uint8_t* from, size_t n);
  void NotePwb(uint64_t at, size_t n, Step step);
  void NoteWrite(uint32_t file, uint64_t at, const void* bytes, size_t n) {
    Note(Event::kWrite, file, at, static_cast<uint32_t>(n), trace_.Keep(bytes, n));
  }
  // Of all files and names. 0, or what one of them says, negative.
  long NoteSyncAll();

  Trace trace_;
};

// pmem::Copy is sys::StreamUser, as it is where the processor has what that is made of. False: it
// has not.
bool UseStreams();

// One at a time; null: nobody.
void Listen(Listener* listener);

}  // namespace nvcache::crash

#endif  // NVCACHE_TESTS_CRASH_RECORDER_H_
