// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/recorder.h"

#include <atomic>
#include <cstring>
#include <vector>

#include "src/pmem/record.h"
#include "src/sys/kernel.h"

#ifndef NVCACHE_RECORD
#error "this needs the engine as it is recorded"
#endif

namespace nvcache {

namespace crash {
namespace {

std::atomic<Listener*> listener{nullptr};

}  // namespace

void Listen(Listener* l) { listener.store(l); }

}  // namespace crash

namespace pmem::record {

void Store(void* destination, const void* source, size_t n) {
  auto* to = static_cast<uint8_t*>(destination);
  if (crash::Listener* l = crash::listener.load()) {
    l->Store(to, static_cast<const uint8_t*>(source), n);
  } else {
    std::memcpy(to, source, n);
  }
}

void Fill(void* destination, uint8_t byte, size_t n) {
  const std::vector<uint8_t> bytes(n, byte);
  Store(destination, bytes.data(), n);
}

void Add(uint64_t* counter, uint64_t n) {
  const uint64_t sum = *counter + n;
  Store(counter, &sum, sizeof(sum));
}

void Pwb(const void* address, size_t n, Step step) {
  if (crash::Listener* l = crash::listener.load()) {
    l->Pwb(static_cast<const uint8_t*>(address), n, step);
  }
}

void Fence(Step step) {
  if (crash::Listener* l = crash::listener.load()) l->Fence(step);
}

}  // namespace pmem::record

long sys::Call(long number, long a, long b, long c, long d, long e, long f) {
  crash::Listener* l = crash::listener.load();
  return l != nullptr ? l->Call(number, a, b, c, d, e, f)
                      : sys::CallKernel(number, a, b, c, d, e, f);
}

}  // namespace nvcache
