// SPDX-License-Identifier: BSD-3-Clause
#include "src/replay/made.h"

#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"

namespace nvcache::replay {

namespace {

struct Value {
  uint64_t salt, fingerprint;
};

}  // namespace

void SayMade(int look, uint64_t salt, uint64_t fingerprint) {
  const Value value = {salt, fingerprint};
  sys::Call(SYS_setxattr, sys::Address(sys::LinkTo(look).c_str()), sys::Address(kMadeAttribute),
            sys::Address(&value), long{sizeof(value)}, 0);
}

uint64_t MadeFor(int look, uint64_t salt) {
  Value value = {};
  const long size =
      sys::Call(SYS_getxattr, sys::Address(sys::LinkTo(look).c_str()), sys::Address(kMadeAttribute),
                sys::Address(&value), long{sizeof(value)});
  return size == long{sizeof(value)} && value.salt == salt ? value.fingerprint : 0;
}

}  // namespace nvcache::replay
