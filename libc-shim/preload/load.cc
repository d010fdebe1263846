// SPDX-License-Identifier: BSD-3-Clause
//
// dlopen: the dynamic linker reads and maps the file by itself, and it may have been written a
// moment ago.
#include <dlfcn.h>
#include <fcntl.h>

#include <cstring>

#include "libc-shim/preload/wrapper.h"

using namespace nvcache::calls;
using namespace nvcache::preload;
namespace vfs = nvcache::vfs;

namespace {

// A name without a slash is looked for in many places.
bool BeforeLoading(const char* path) {
  if (path == nullptr) return true;
  if (std::strchr(path, '/') != nullptr)
    return FromAnswer(vfs::LendPath(AT_FDCWD, path, true)) == 0;
  vfs::PublishAll();
  return true;
}

void* Refuse() { return nullptr; }

template <typename Function>
void* AddressOf(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

// Give the function to go on with.

extern "C" __attribute__((visibility("hidden"), used)) void* nvcache_before_dlopen(
    const char* path) {
  return BeforeLoading(path) ? AddressOf(NVCACHE_REAL(dlopen)) : AddressOf(Refuse);
}

extern "C" __attribute__((visibility("hidden"), used)) void* nvcache_before_dlmopen(
    long /*name_space*/, const char* path) {
  return BeforeLoading(path) ? AddressOf(NVCACHE_REAL(dlmopen)) : AddressOf(Refuse);
}

// The real functions look at who calls them: its search path and its name space count. So they are
// jumped to, with the caller's return address and registers in place.
// clang-format off
#define NVCACHE_DEFINE_JUMP(name)           \
  __asm__(                                  \
      ".text\n"                             \
      ".globl " #name "\n"                  \
      ".type " #name ", @function\n"        \
      #name ":\n"                           \
      "  .cfi_startproc\n"                  \
      "  endbr64\n"                         \
      "  push %rdi\n"                       \
      "  .cfi_adjust_cfa_offset 8\n"        \
      "  push %rsi\n"                       \
      "  .cfi_adjust_cfa_offset 8\n"        \
      "  push %rdx\n"                       \
      "  .cfi_adjust_cfa_offset 8\n"        \
      "  call nvcache_before_" #name "\n"   \
      "  pop %rdx\n"                        \
      "  .cfi_adjust_cfa_offset -8\n"       \
      "  pop %rsi\n"                        \
      "  .cfi_adjust_cfa_offset -8\n"       \
      "  pop %rdi\n"                        \
      "  .cfi_adjust_cfa_offset -8\n"       \
      "  jmp *%rax\n"                       \
      "  .cfi_endproc\n"                    \
      ".size " #name ", .-" #name "\n")
// clang-format on

NVCACHE_DEFINE_JUMP(dlopen);
NVCACHE_DEFINE_JUMP(dlmopen);
