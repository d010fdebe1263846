// SPDX-License-Identifier: BSD-3-Clause
//
// The calls by their numbers: what syscall() is, and what every call of musl comes to.
#ifndef NVCACHE_LIBC_SHIM_CALLS_BY_NUMBER_H_
#define NVCACHE_LIBC_SHIM_CALLS_BY_NUMBER_H_

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "libc-shim/calls/front_end.h"

namespace nvcache::calls {

// A system call: its number, its six registers, and how to make it.
struct Call {
  long number;
  const long* registers;
  bool cancellable;  // making it is a cancellation point

  // Register `i` as what it is meant to be.
  template <typename Type>
  Type As(int i) const {
    if constexpr (std::is_pointer_v<Type>) {
      return reinterpret_cast<Type>(registers[i]);
    } else {
      return static_cast<Type>(registers[i]);
    }
  }
  int Int(int i) const { return As<int>(i); }
  long Long(int i) const { return registers[i]; }
  size_t Size(int i) const { return As<size_t>(i); }
  uint32_t Id(int i) const { return As<uint32_t>(i); }
  bool IsNull(int i) const { return registers[i] == 0; }
  void* Buffer(int i) const { return As<void*>(i); }
  const char* Path(int i) const { return As<const char*>(i); }
  const iovec* Iov(int i) const { return As<const iovec*>(i); }

  // Makes the call: the result, or -1 and errno. Whatever a bracket hands to the real call is in
  // the registers already.
  template <typename... Ignored>
  long operator()(Ignored...) const {
    return MakeCall(*this);
  }

  Call Uncancelled() const {
    Call call = *this;
    call.cancellable = false;
    return call;
  }
};

// Makes the call, and does what is done around it. The result, or -1 and errno.
using Handler = long (*)(const Call&);

constexpr size_t kNumbers = 512;
extern const std::array<Handler, kNumbers> kHandlers;

// nullptr: the call of this number is the kernel's alone.
inline Handler HandlerOf(long number) {
  const auto index = static_cast<size_t>(number);
  return index < kNumbers ? kHandlers[index] : nullptr;
}

}  // namespace nvcache::calls

#endif  // NVCACHE_LIBC_SHIM_CALLS_BY_NUMBER_H_
