// SPDX-License-Identifier: BSD-3-Clause
#include "src/sys/user_copy.h"

#include "src/sys/cpu.h"
#include "src/sys/user_stream.h"

// Not memcpy: the fault would lie in libc, and the handler could not tell how many bytes were
// copied by then.
//
// An instruction that faults between _user_copy and _user_copy_again has left the arguments where
// they were, and the copy starts again there, byte by byte: it ends at the byte that cannot be had,
// and at `rep movsb` the registers say which. Each block is loaded before it is stored, so a source
// that ends within a block spoils nothing of the destination beyond.
//
// r10 says where the program's side begins, and rdx how long it is, until the end: a fault
// elsewhere is not the program's.
//
// Up to 128 bytes: two halves, which may overlap. More: blocks of 128, and one more at the end.
// It is as fast as libc's up to a page, which is all that anybody copies here. Without AVX, `rep
// movsb` copies more than 128 bytes.
asm(R"(
        .text
        .p2align 6
        .globl  nvcache_copy_from_user, nvcache_copy_to_user
        .globl  nvcache_user_copy, nvcache_user_copy_again, nvcache_user_copy_bytes
        .globl  nvcache_user_copy_done, nvcache_user_touch, nvcache_user_touch_load
        .globl  nvcache_user_touch_done
        .hidden nvcache_copy_from_user, nvcache_copy_to_user
        .hidden nvcache_user_copy, nvcache_user_copy_again, nvcache_user_copy_bytes
        .hidden nvcache_user_copy_done, nvcache_user_touch, nvcache_user_touch_load
        .hidden nvcache_user_touch_done
        .type   nvcache_copy_from_user, @function
        .type   nvcache_copy_to_user, @function
        .type   nvcache_user_touch, @function

# rdi: to, rsi: from, rdx: n, all kept. rax: copied
nvcache_copy_from_user:
        mov     %rsi, %r10
        jmp     nvcache_user_copy
        .size   nvcache_copy_from_user, . - nvcache_copy_from_user
nvcache_copy_to_user:
        mov     %rdi, %r10
nvcache_user_copy:
        mov     %rdx, %rax
        cmp     $64, %rdx
        ja      5f
        cmp     $32, %rdx
        jae     4f
        cmp     $16, %rdx
        jae     3f
        cmp     $8, %rdx
        jae     2f
        cmp     $4, %rdx
        jae     1f
        test    %rdx, %rdx
        je      0f
        movzbl  (%rsi), %ecx
        movzbl  -1(%rsi,%rdx), %r8d
        shr     %rax
        movzbl  (%rsi,%rax), %r9d
        mov     %cl, (%rdi)
        mov     %r9b, (%rdi,%rax)
        mov     %r8b, -1(%rdi,%rdx)
        mov     %rdx, %rax
0:      ret
1:      mov     (%rsi), %ecx
        mov     -4(%rsi,%rdx), %r8d
        mov     %ecx, (%rdi)
        mov     %r8d, -4(%rdi,%rdx)
        ret
2:      mov     (%rsi), %rcx
        mov     -8(%rsi,%rdx), %r8
        mov     %rcx, (%rdi)
        mov     %r8, -8(%rdi,%rdx)
        ret
3:      movups  (%rsi), %xmm0
        movups  -16(%rsi,%rdx), %xmm1
        movups  %xmm0, (%rdi)
        movups  %xmm1, -16(%rdi,%rdx)
        ret
4:      movups  (%rsi), %xmm0
        movups  16(%rsi), %xmm1
        movups  -32(%rsi,%rdx), %xmm2
        movups  -16(%rsi,%rdx), %xmm3
        movups  %xmm0, (%rdi)
        movups  %xmm1, 16(%rdi)
        movups  %xmm2, -32(%rdi,%rdx)
        movups  %xmm3, -16(%rdi,%rdx)
        ret
5:      cmp     $128, %rdx
        ja      6f
        movups  (%rsi), %xmm0
        movups  16(%rsi), %xmm1
        movups  32(%rsi), %xmm2
        movups  48(%rsi), %xmm3
        movups  -64(%rsi,%rdx), %xmm4
        movups  -48(%rsi,%rdx), %xmm5
        movups  -32(%rsi,%rdx), %xmm6
        movups  -16(%rsi,%rdx), %xmm7
        movups  %xmm0, (%rdi)
        movups  %xmm1, 16(%rdi)
        movups  %xmm2, 32(%rdi)
        movups  %xmm3, 48(%rdi)
        movups  %xmm4, -64(%rdi,%rdx)
        movups  %xmm5, -48(%rdi,%rdx)
        movups  %xmm6, -32(%rdi,%rdx)
        movups  %xmm7, -16(%rdi,%rdx)
        ret
6:      cmpl    $0, nvcache_user_copy_avx(%rip)
        je      nvcache_user_copy_again
        lea     -128(%rdx), %rax
        xor     %ecx, %ecx
        .p2align 5
7:      vmovdqu (%rsi,%rcx), %ymm0
        vmovdqu 32(%rsi,%rcx), %ymm1
        vmovdqu 64(%rsi,%rcx), %ymm2
        vmovdqu 96(%rsi,%rcx), %ymm3
        vmovdqu %ymm0, (%rdi,%rcx)
        vmovdqu %ymm1, 32(%rdi,%rcx)
        vmovdqu %ymm2, 64(%rdi,%rcx)
        vmovdqu %ymm3, 96(%rdi,%rcx)
        sub     $-128, %rcx
        cmp     %rax, %rcx
        jb      7b
        vmovdqu (%rsi,%rax), %ymm0
        vmovdqu 32(%rsi,%rax), %ymm1
        vmovdqu 64(%rsi,%rax), %ymm2
        vmovdqu 96(%rsi,%rax), %ymm3
        vmovdqu %ymm0, (%rdi,%rax)
        vmovdqu %ymm1, 32(%rdi,%rax)
        vmovdqu %ymm2, 64(%rdi,%rax)
        vmovdqu %ymm3, 96(%rdi,%rax)
        vzeroupper
        mov     %rdx, %rax
        ret
nvcache_user_copy_again:
        mov     %rdx, %rcx
nvcache_user_copy_bytes:
        rep movsb
nvcache_user_copy_done:
        mov     %rdx, %rax
        sub     %rcx, %rax
        ret
        .size   nvcache_copy_to_user, . - nvcache_copy_to_user

# rdi: address. rax: 1 if it can be read, else 0
nvcache_user_touch:
        xor     %eax, %eax
nvcache_user_touch_load:
        movzbl  (%rdi), %ecx
        inc     %eax
nvcache_user_touch_done:
        ret
        .size   nvcache_user_touch, . - nvcache_user_touch
)");

extern "C" {
// 1 if there is AVX.
[[gnu::visibility("hidden")]] constinit unsigned nvcache_user_copy_avx = 0;

int nvcache_user_touch(uintptr_t address);
// Places in these, not functions.
extern const char nvcache_user_copy[];
extern const char nvcache_user_copy_again[];
extern const char nvcache_user_copy_bytes[];
extern const char nvcache_user_copy_done[];
extern const char nvcache_user_touch_load[];
extern const char nvcache_user_touch_done[];
}

namespace nvcache::sys {

namespace {

constexpr uintptr_t kSmallestPage = 4096;

uintptr_t At(const char* place) { return reinterpret_cast<uintptr_t>(place); }

// The program has no less than whole pages. An address that no page can have is not reported, and
// ours all can.
bool IsUsers(const siginfo_t& fault, uintptr_t begin, size_t n) {
  if (fault.si_code == SI_KERNEL) return true;
  const uintptr_t before = begin % kSmallestPage;
  return reinterpret_cast<uintptr_t>(fault.si_addr) - (begin - before) < before + n;
}

}  // namespace

void InitializeUserCopy() { nvcache_user_copy_avx = CpuHas(kAvx) ? 1 : 0; }

size_t ReadableUser(const void* from, size_t n) {
  const auto begin = reinterpret_cast<uintptr_t>(from);
  for (size_t done = 0; done < n;) {
    const uintptr_t at = begin + done;
    if (nvcache_user_touch(at) == 0) return done;
    done += kSmallestPage - at % kSmallestPage;
  }
  return n;
}

uintptr_t UserFaultLanding(const siginfo_t& fault, const ucontext_t& context) {
  const auto in = [&](int i) { return static_cast<uintptr_t>(context.uc_mcontext.gregs[i]); };
  const uintptr_t pc = in(REG_RIP);
  if (pc >= At(nvcache_user_copy) && pc < At(nvcache_user_copy_done)) {
    if (!IsUsers(fault, in(REG_R10), in(REG_RDX))) return 0;
    return At(pc < At(nvcache_user_copy_again) ? nvcache_user_copy_again : nvcache_user_copy_done);
  }
  if (pc == At(nvcache_user_touch_load)) return At(nvcache_user_touch_done);
  return StreamFaultLanding(pc);
}

}  // namespace nvcache::sys
