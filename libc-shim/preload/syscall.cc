// SPDX-License-Identifier: BSD-3-Clause
//
// syscall(): the same calls by number. It is no cancellation point, and so neither are these.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>

#include "libc-shim/calls/by_number.h"
#include "libc-shim/preload/wrapper.h"

namespace nvcache::calls {

long MakeCall(const Call& call) {
  const long* r = call.registers;
  return NVCACHE_REAL(syscall)(call.number, r[0], r[1], r[2], r[3], r[4], r[5]);
}

}  // namespace nvcache::calls

NVCACHE_EXPORT long syscall(long number, ...) noexcept {
  nvcache::calls::Call call = {number, {}, false};
  va_list arguments;
  va_start(arguments, number);
  for (long& value : call.registers) value = va_arg(arguments, long);
  va_end(arguments);

  const auto handler = nvcache::calls::HandlerOf(number);
  return handler != nullptr ? handler(call) : call();
}
