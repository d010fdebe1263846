// SPDX-License-Identifier: BSD-3-Clause
//
// vfork: the child runs on its parent's memory and stack, and returns first.
#include <unistd.h>

#include <cstdint>

#include "libc-shim/preload/wrapper.h"
#include "src/sys/deferral.h"

namespace nvcache::preload {
namespace {

// vfork begins with this. `go_on`: a function to go on with in its place; or how deep it is, which
// no function's address is as low as. Two registers, for the child writes over the stack.
struct Begun {
  uintptr_t go_on;
  uint64_t mask;
};

// The parent's handlers run when the child is gone; the child's, with the mask that it inherits.
extern "C" __attribute__((visibility("hidden"), used)) Begun nvcache_begin_vfork() {
  const bool concerns_us = vfs::IsActive() || vfs::IsSharing();
  if (!concerns_us) return {reinterpret_cast<uintptr_t>(NVCACHE_REAL(vfork)), 0};
  const uint64_t mask = sys::SignalsBlocked::SetMask(~uint64_t{0});
  uint32_t depth;
  if (vfs::BeginSharing(&depth)) return {depth, mask};
  sys::SignalsBlocked::SetMask(mask);
  return {reinterpret_cast<uintptr_t>(fork), 0};
}

// In the child, and then in the parent: what vfork returns. `result` is the system call's.
extern "C" __attribute__((visibility("hidden"), used)) int nvcache_end_vfork(long result,
                                                                             uint64_t mask,
                                                                             uint32_t depth) {
  if (result != 0) vfs::EndSharing(depth);
  sys::SignalsBlocked::SetMask(mask);
  return static_cast<int>(calls::FromAnswer(result));
}

}  // namespace
}  // namespace nvcache::preload

// Registers, which the kernel keeps, have what the parent needs after the call: the stack is the
// child's by then, from the return address on. So is a shadow stack, if there is one: the parent
// takes its last entry away unseen.
// clang-format off
__asm__(
    ".text\n"
    ".globl vfork\n"
    ".globl __vfork\n"
    ".type vfork, @function\n"
    ".set __vfork, vfork\n"
    "vfork:\n"
    "  .cfi_startproc\n"
    "  endbr64\n"
    "  sub $8, %rsp\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  call nvcache_begin_vfork\n"
    "  add $8, %rsp\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  cmp $4096, %rax\n"
    "  jae 1f\n"
    "  pop %rdi\n"  // the return address
    "  .cfi_adjust_cfa_offset -8\n"
    "  .cfi_register %rip, %rdi\n"
    "  mov %rdx, %rsi\n"  // the mask
    "  mov %rax, %rdx\n"  // the depth
    "  mov $58, %eax\n"   // SYS_vfork
    "  syscall\n"
    "  push %rdi\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  .cfi_rel_offset %rip, 0\n"
    "  sub $8, %rsp\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  mov %rax, %rdi\n"
    "  call nvcache_end_vfork\n"
    "  add $8, %rsp\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  xor %ecx, %ecx\n"
    "  rdsspq %rcx\n"  // does nothing where there is no shadow stack
    "  test %rcx, %rcx\n"
    "  jz 2f\n"
    "  test %eax, %eax\n"
    "  jz 2f\n"
    "  .cfi_remember_state\n"
    "  pop %rcx\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  .cfi_register %rip, %rcx\n"
    "  mov $1, %edx\n"
    "  incsspq %rdx\n"
    "  jmp *%rcx\n"
    "  .cfi_restore_state\n"
    "2:\n"
    "  ret\n"
    "1:\n"
    "  jmp *%rax\n"
    "  .cfi_endproc\n"
    ".size vfork, .-vfork\n");
// clang-format on
