// SPDX-License-Identifier: BSD-3-Clause
#include "libc-shim/musl/host.h"

#include "src/sys/thread.h"

namespace nvcache {
namespace {

// What libpmem would do, src/pmem does by hand.
const pmem::Libpmem* LoadLibpmem() { return nullptr; }

constexpr Host kHost = {sys::StartThread, sys::JoinThread, LoadLibpmem};

}  // namespace

const Host& MuslHost() { return kHost; }

}  // namespace nvcache
