// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/recorder.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "src/pmem/persist.h"
#include "src/pmem/record.h"
#include "src/sys/kernel.h"
#include "src/sys/user_stream.h"

#ifndef NVCACHE_RECORD
#error "this needs the engine as it is recorded"
#endif

namespace nvcache {

namespace crash {
namespace {

std::atomic<Listener*> listener{nullptr};
bool streams = false;

}  // namespace

void Recording::NoteStore(uint64_t at, const uint8_t* from, size_t n) {
  for (size_t part; n > 0; at += part, from += part, n -= part) {
    part = std::min<size_t>(n, kLine - at % kLine);
    Note(Event::kStore, 0, at, static_cast<uint32_t>(part), trace_.Keep(from, part));
  }
}

void Recording::NotePwb(uint64_t at, size_t n, Step step) {
  for (uint64_t line = at / kLine * kLine; line < at + n; line += kLine) {
    Note(Event::kPwb, 0, line, 0, 0, step);
  }
}

long Recording::NoteSyncAll() {
  const auto files = static_cast<uint32_t>(trace_.files.size());
  for (uint32_t file = 0; file < files; ++file) Note(Event::kSyncBegin, file);
  if (trace_.root != kNobody) Note(Event::kNamesBegin, 0);
  long result = 0;
  for (uint32_t file = 0; file < files; ++file) {
    const int error = SyncError(file);
    if (error != 0) result = -error;
    Note(error != 0 ? Event::kSyncFailed : Event::kSyncEnd, file);
  }
  if (trace_.root != kNobody && result == 0) Note(Event::kNamesEnd, 0);
  return result;
}

void Listen(Listener* l) { listener.store(l); }

bool UseStreams() {
  streams = sys::CanStreamUser();
  return streams;
}

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

// What production's copy stores elsewhere is stored, and noted, line by line: it goes around the
// cache, in whole lines, so each is as if it were written back. It must have copied all bytes,
// filled the last line up with zeros, and stored nothing behind it.
bool Copy(void* destination, const void* source, size_t n, void* copy, uint32_t* crc, Step step) {
  constexpr uint8_t kUntouched = 0xa5;
  alignas(kLine) static thread_local uint8_t lines[kMaxCopy + kLine];
  std::memset(lines, kUntouched, sizeof(lines));
  const bool copied = crash::streams ? sys::StreamUser(lines, source, n, copy, crc)
                                     : CopyByParts(lines, source, n, copy, crc);
  if (!copied) return false;
  asm volatile("sfence" ::: "memory");
  const size_t end = (n + kLine - 1) / kLine * kLine;
  bool right = std::memcmp(lines, source, n) == 0;
  for (size_t i = n; i < sizeof(lines); ++i)
    right = right && lines[i] == (i < end ? 0 : kUntouched);
  if (!right) std::abort();
  record::Store(destination, lines, end);
  record::Pwb(destination, end, step);
  return true;
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
