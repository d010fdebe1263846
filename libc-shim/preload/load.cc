// SPDX-License-Identifier: BSD-3-Clause
//
// dlopen: the dynamic linker reads and maps the file by itself, and it may have been written a
// moment ago. What is loaded may make system calls past libc: once the pool is attached, it is
// looked at before the program has it.
#include <dlfcn.h>
#include <fcntl.h>

#include <cstring>

#include "libc-shim/preload/objects.h"
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

// The function to go on with; and where it is to return to, or nullptr: to its caller.
struct Next {
  void* function;
  const void* return_to;
};

namespace {

// A stack of return addresses of the processor's own refuses to be led elsewhere.
bool HasShadowStack() {
  uint64_t pointer = 0;
  __asm__ volatile("rdsspq %0" : "+r"(pointer));  // without one, it does nothing
  return pointer != 0;
}

const void* ReturnFor(const void* caller) {
  if (!vfs::LooksAtLoaded()) return nullptr;
  const void* const found = HasShadowStack() ? nullptr : FindReturn(caller);
  // It cannot be looked at when it is there, so nothing is cached that it might change.
  if (found == nullptr) vfs::CodeUnseen("a library that is loaded unseen");
  return found;
}

}  // namespace

extern "C" __attribute__((visibility("hidden"), used)) Next nvcache_before_dlopen(
    const char* path, int /*mode*/, const void* caller) {
  if (!BeforeLoading(path)) return {AddressOf(Refuse), nullptr};
  return {AddressOf(NVCACHE_REAL(dlopen)), path != nullptr ? ReturnFor(caller) : nullptr};
}

// Another name space has a libc of its own, whose names do not come here.
extern "C" __attribute__((visibility("hidden"), used)) Next nvcache_before_dlmopen(
    long name_space, const char* path, const void* caller) {
  if (!BeforeLoading(path)) return {AddressOf(Refuse), nullptr};
  if (name_space != LM_ID_BASE) vfs::CodeUnseen("a library in a name space of its own");
  return {AddressOf(NVCACHE_REAL(dlmopen)), path != nullptr ? ReturnFor(caller) : nullptr};
}

extern "C" __attribute__((visibility("hidden"), used)) void nvcache_after_dlopen() {
  vfs::CodeLoaded();
}

// The real functions look at who calls them: its search path and its name space count. So they are
// jumped to, with the caller's return address and registers in place. Or they find a return address
// in the caller's object: that of a `ret`, which leads to nvcache_loaded, and from there to the
// caller.
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
      "  mov 24(%rsp), %rdx\n"              \
      "  call nvcache_before_" #name "\n"   \
      "  mov %rdx, %r11\n"                  \
      "  pop %rdx\n"                        \
      "  .cfi_adjust_cfa_offset -8\n"       \
      "  pop %rsi\n"                        \
      "  .cfi_adjust_cfa_offset -8\n"       \
      "  pop %rdi\n"                        \
      "  .cfi_adjust_cfa_offset -8\n"       \
      "  test %r11, %r11\n"                 \
      "  jz 1f\n"                           \
      "  lea nvcache_loaded(%rip), %r10\n"  \
      "  push %r10\n"                       \
      "  .cfi_adjust_cfa_offset 8\n"        \
      "  push %r11\n"                       \
      "  .cfi_adjust_cfa_offset 8\n"        \
      "  jmp *%rax\n"                       \
      "  .cfi_adjust_cfa_offset -16\n"      \
      "1: jmp *%rax\n"                      \
      "  .cfi_endproc\n"                    \
      ".size " #name ", .-" #name "\n")

__asm__(
    ".text\n"
    ".type nvcache_loaded, @function\n"
    "nvcache_loaded:\n"
    "  .cfi_startproc\n"
    "  push %rax\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  call nvcache_after_dlopen\n"
    "  pop %rax\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  ret\n"
    "  .cfi_endproc\n"
    ".size nvcache_loaded, .-nvcache_loaded\n");
// clang-format on

NVCACHE_DEFINE_JUMP(dlopen);
NVCACHE_DEFINE_JUMP(dlmopen);
