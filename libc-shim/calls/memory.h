// SPDX-License-Identifier: BSD-3-Clause
//
// The brackets around calls that map a file, change a mapping, or lock all of a program's memory.
#ifndef NVCACHE_LIBC_SHIM_CALLS_MEMORY_H_
#define NVCACHE_LIBC_SHIM_CALLS_MEMORY_H_

#include <sys/mman.h>

#include <type_traits>

#include "libc-shim/calls/calls.h"
#include "src/sys/kernel.h"

namespace nvcache::calls {

// The engine's answer as the address of a mapping, or -1: a pointer, or what a call by number
// returns.
template <typename Result>
inline Result AsMapping(long answer) {
  if constexpr (std::is_pointer_v<Result>) {
    return reinterpret_cast<Result>(FromAnswer(answer));
  } else {
    return FromAnswer(answer);
  }
}

// The other way round; a negated errno, or -1, is an error.
inline long AddressOf(const void* mapping) { return sys::Address(mapping); }
inline long AddressOf(long mapping) { return mapping; }

// A mapping is there that may be executed. New memory of nobody's is all zero.
template <typename Result>
inline Result AfterMap(Result result, size_t length, int protection, bool filled) {
  const long address = AddressOf(result);
  if ((protection & PROT_EXEC) != 0 && !sys::IsError(address)) {
    vfs::CodeMapped(reinterpret_cast<const void*>(address), length, filled);
  }
  return result;
}

template <typename RealCall>
inline auto Map(size_t length, int protection, int flags, int fd, RealCall real) {
  using Result = decltype(real());
  if ((flags & MAP_ANONYMOUS) != 0) return AfterMap(real(), length, protection, false);
  const bool shared = (flags & MAP_TYPE) != MAP_PRIVATE;
  if (shared && (protection & PROT_WRITE) != 0 && FromAnswer(vfs::HoldMapping(fd)) < 0) {
    return AsMapping<Result>(-errno);
  }
  const vfs::MapGuard guard(fd, shared, protection);
  if (guard.error() < 0) return AsMapping<Result>(guard.error());
  const Result result = real();
  if (const long address = AddressOf(result); !sys::IsError(address)) {
    guard.Mapped(reinterpret_cast<const void*>(address), length);
  }
  return AfterMap(result, length, protection, true);
}

template <typename RealCall>
inline auto Protect(const void* address, size_t length, int protection, RealCall real) {
  const long error = vfs::Protect(address, length, protection);
  const auto result = Answer(error < 0 ? error : vfs::kNotOurs, real);
  if ((protection & PROT_EXEC) != 0 && result == 0) vfs::CodeMapped(address, length, true);
  return result;
}

template <typename RealCall>
inline auto Unmap(void* address, size_t length, RealCall real) {
  return Answer(vfs::Unmap(address, length), real);
}

template <typename RealCall>
inline auto Remap(void* address, size_t length, size_t new_length, int flags, void* new_address,
                  RealCall real) {
  const long answer = vfs::Remap(address, length, new_length, flags, new_address);
  return answer == vfs::kNotOurs ? real() : AsMapping<decltype(real())>(answer);
}

// The kernel has all bytes of a file that is mapped.
template <typename RealCall>
inline auto SyncMapping(int flags, RealCall real) {
  const auto result = real();
  if ((flags & MS_SYNC) == 0) return result;
  return AwaitMirror(result, vfs::AwaitMirrorOfKernel);
}

template <typename RealCall>
inline auto LockAll(int flags, RealCall real) {
  return Answer(vfs::LockMemory(flags), real);
}

template <typename RealCall>
inline auto UnlockAll(RealCall real) {
  return Answer(vfs::UnlockMemory(), real);
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_MEMORY_H_
