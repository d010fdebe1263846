// SPDX-License-Identifier: BSD-3-Clause
//
// The checksum is computed by folding (V. Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ Instruction", Intel, 2009). The message is a polynomial; what was
// read of it is kept as 16 bytes that leave the same remainder, four times four of them side by
// side. To go on by D bits, the earlier 8 bytes of each are multiplied by x^(D+32) mod P, the later
// ones by x^(D-32) mod P, and the next bytes are added. Where the 32 come from: bits are reflected,
// so the product of 64 and 33 bits lies one bit too low, which the constants (shifted left by one)
// make up for; and a constant of 32 bits in the low half of a word stands for itself times x^31. In
// the end the crc32 instruction reduces 16 bytes to 4.
#include "src/sys/user_stream.h"

#include "src/sys/cpu.h"
#include "src/sys/crc32c.h"

namespace nvcache::sys {

namespace {

// The factors that move 8 bytes `bits` ahead: x^(bits+32) and x^(bits-32) mod P, reflected.
struct Fold {
  uint64_t early;
  uint64_t late;
};

constexpr uint64_t PowerOfX(unsigned exponent) {
  uint32_t value = 0x80000000;  // x^0
  while (exponent-- > 0) value = (value >> 1) ^ ((value & 1) != 0 ? kCrc32cPolynomial : 0);
  return uint64_t{value} << 1;
}
constexpr Fold FoldBy(unsigned bits) { return {PowerOfX(bits + 32), PowerOfX(bits - 32)}; }

struct alignas(64) Constants {
  Fold by_2048, by_1536, by_1024, by_512;
  Fold to_last[4];  // the 16-byte lanes of a register, each onto the last one
};

}  // namespace

extern "C" {
[[gnu::visibility("hidden")]] extern const Constants nvcache_user_stream_folds;
constinit const Constants nvcache_user_stream_folds = {
    FoldBy(2048),
    FoldBy(1536),
    FoldBy(1024),
    FoldBy(512),
    {FoldBy(384), FoldBy(256), FoldBy(128), {0, 0}}};
}

// Loads and stores stand apart, because only a load may fault: between the labels _loads and
// _loaded of each of the three places. First for AVX-512.
//
// rdi: lines, rsi: from, rdx: n, rcx: copy, r8d: the CRC register. rax: the CRC register, or -1.
// zmm0-3: the folded bytes, zmm4-7: the bytes just read, zmm8-11: products, zmm12-13: constants.
asm(R"(
        .text
        .p2align 6
        .globl  nvcache_user_stream, nvcache_user_stream_failed
        .globl  nvcache_user_stream_loads_4, nvcache_user_stream_loaded_4
        .globl  nvcache_user_stream_loads_1, nvcache_user_stream_loaded_1
        .globl  nvcache_user_stream_loads_0, nvcache_user_stream_loaded_0
        .hidden nvcache_user_stream, nvcache_user_stream_failed
        .hidden nvcache_user_stream_loads_4, nvcache_user_stream_loaded_4
        .hidden nvcache_user_stream_loads_1, nvcache_user_stream_loaded_1
        .hidden nvcache_user_stream_loads_0, nvcache_user_stream_loaded_0
        .type   nvcache_user_stream, @function

nvcache_user_stream:
        lea     nvcache_user_stream_folds(%rip), %r9
        vmovd   %r8d, %xmm0             # added to the first bytes of all, clears the rest
        cmp     $64, %rdx
        jb      6f
        cmp     $256, %rdx
        jb      3f

# 256 bytes at a time. The first ones are folded onto nothing: xmm0 is the CRC, the rest is zero
        vpxor   %xmm1, %xmm1, %xmm1
        vpxor   %xmm2, %xmm2, %xmm2
        vpxor   %xmm3, %xmm3, %xmm3
        vbroadcasti32x4 0(%r9), %zmm12
        jmp     nvcache_user_stream_loads_4
        .p2align 5
1:      vpclmulqdq $0x11, %zmm12, %zmm0, %zmm8
        vpclmulqdq $0x11, %zmm12, %zmm1, %zmm9
        vpclmulqdq $0x11, %zmm12, %zmm2, %zmm10
        vpclmulqdq $0x11, %zmm12, %zmm3, %zmm11
        vpclmulqdq $0x00, %zmm12, %zmm0, %zmm0
        vpclmulqdq $0x00, %zmm12, %zmm1, %zmm1
        vpclmulqdq $0x00, %zmm12, %zmm2, %zmm2
        vpclmulqdq $0x00, %zmm12, %zmm3, %zmm3
        vpxorq  %zmm8, %zmm0, %zmm0
        vpxorq  %zmm9, %zmm1, %zmm1
        vpxorq  %zmm10, %zmm2, %zmm2
        vpxorq  %zmm11, %zmm3, %zmm3
nvcache_user_stream_loads_4:
        vmovdqu64 (%rsi), %zmm4
        vmovdqu64 64(%rsi), %zmm5
        vmovdqu64 128(%rsi), %zmm6
        vmovdqu64 192(%rsi), %zmm7
nvcache_user_stream_loaded_4:
        vmovntdq %zmm4, (%rdi)
        vmovntdq %zmm5, 64(%rdi)
        vmovntdq %zmm6, 128(%rdi)
        vmovntdq %zmm7, 192(%rdi)
        vpxorq  %zmm4, %zmm0, %zmm0
        vpxorq  %zmm5, %zmm1, %zmm1
        vpxorq  %zmm6, %zmm2, %zmm2
        vpxorq  %zmm7, %zmm3, %zmm3
        test    %rcx, %rcx
        je      2f
        vmovdqu64 %zmm4, (%rcx)
        vmovdqu64 %zmm5, 64(%rcx)
        vmovdqu64 %zmm6, 128(%rcx)
        vmovdqu64 %zmm7, 192(%rcx)
        add     $256, %rcx
2:      add     $256, %rsi
        add     $256, %rdi
        sub     $256, %rdx
        cmp     $256, %rdx
        jae     1b

# The first three onto the last
        vbroadcasti32x4 16(%r9), %zmm12
        vpclmulqdq $0x11, %zmm12, %zmm0, %zmm8
        vpclmulqdq $0x00, %zmm12, %zmm0, %zmm0
        vbroadcasti32x4 32(%r9), %zmm12
        vpclmulqdq $0x11, %zmm12, %zmm1, %zmm9
        vpclmulqdq $0x00, %zmm12, %zmm1, %zmm1
        vbroadcasti32x4 48(%r9), %zmm12
        vpclmulqdq $0x11, %zmm12, %zmm2, %zmm10
        vpclmulqdq $0x00, %zmm12, %zmm2, %zmm2
        vpternlogq $0x96, %zmm8, %zmm9, %zmm0
        vpternlogq $0x96, %zmm10, %zmm1, %zmm0
        vpternlogq $0x96, %zmm2, %zmm3, %zmm0
        cmp     $64, %rdx
        jb      5f
        jmp     4f

# 64 bytes at a time
3:      vbroadcasti32x4 48(%r9), %zmm12
        jmp     nvcache_user_stream_loads_1
        .p2align 5
4:      vpclmulqdq $0x11, %zmm12, %zmm0, %zmm8
        vpclmulqdq $0x00, %zmm12, %zmm0, %zmm0
        vpxorq  %zmm8, %zmm0, %zmm0
nvcache_user_stream_loads_1:
        vmovdqu64 (%rsi), %zmm4
nvcache_user_stream_loaded_1:
        vmovntdq %zmm4, (%rdi)
        vpxorq  %zmm4, %zmm0, %zmm0
        test    %rcx, %rcx
        je      2f
        vmovdqu64 %zmm4, (%rcx)
        add     $64, %rcx
2:      add     $64, %rsi
        add     $64, %rdi
        sub     $64, %rdx
        cmp     $64, %rdx
        jae     4b

# 64 bytes to 16 to 4
5:      vmovdqa64 64(%r9), %zmm13
        vpclmulqdq $0x11, %zmm13, %zmm0, %zmm8
        vpclmulqdq $0x00, %zmm13, %zmm0, %zmm9
        vextracti32x4 $3, %zmm0, %xmm1
        vpxorq  %zmm8, %zmm9, %zmm8
        vextracti64x4 $1, %zmm8, %ymm9
        vpxor   %ymm8, %ymm9, %ymm8
        vextracti128 $1, %ymm8, %xmm9
        vpternlogq $0x96, %xmm9, %xmm8, %xmm1
        vmovq   %xmm1, %r9
        vpextrq $1, %xmm1, %r10
        xor     %r8d, %r8d
        crc32q  %r9, %r8
        crc32q  %r10, %r8

# What does not fill a line
6:      test    %rdx, %rdx
        je      9f
        mov     $-1, %rax
        bzhi    %rdx, %rax, %rax
        kmovq   %rax, %k1
nvcache_user_stream_loads_0:
        vmovdqu8 (%rsi), %zmm4{%k1}{z}
nvcache_user_stream_loaded_0:
        vmovntdq %zmm4, (%rdi)
        test    %rcx, %rcx
        je      2f
        vmovdqu8 %zmm4, (%rcx){%k1}
2:      vmovdqu64 %zmm4, -64(%rsp)      # nobody uses the 128 bytes below the stack
        lea     -64(%rsp), %rsi
        jmp     8f
7:      crc32q  (%rsi), %r8
        add     $8, %rsi
8:      sub     $8, %rdx
        jae     7b
        add     $8, %rdx
        je      9f
        mov     (%rsi), %rax
8:      crc32b  %al, %r8d
        shr     $8, %rax
        dec     %rdx
        jne     8b
9:      vzeroupper
        mov     %r8d, %eax
        ret
nvcache_user_stream_failed:
        vzeroupper
        mov     $-1, %rax
        ret
        .size   nvcache_user_stream, . - nvcache_user_stream
)");

// The same with 16 bytes in a register, four registers side by side. What does not fill a line is
// put together below the stack.
//
// xmm0-3: the folded bytes, xmm4-7: the bytes just read, xmm8-11: products, xmm12: constants.
asm(R"(
        .text
        .p2align 6
        .globl  nvcache_user_stream_avx
        .globl  nvcache_user_stream_avx_loads_64, nvcache_user_stream_avx_loaded_64
        .globl  nvcache_user_stream_avx_loads_8, nvcache_user_stream_avx_loaded_8
        .globl  nvcache_user_stream_avx_loads_1, nvcache_user_stream_avx_loaded_1
        .hidden nvcache_user_stream_avx
        .hidden nvcache_user_stream_avx_loads_64, nvcache_user_stream_avx_loaded_64
        .hidden nvcache_user_stream_avx_loads_8, nvcache_user_stream_avx_loaded_8
        .hidden nvcache_user_stream_avx_loads_1, nvcache_user_stream_avx_loaded_1
        .type   nvcache_user_stream_avx, @function

nvcache_user_stream_avx:
        cmp     $64, %rdx
        jb      3f

# 64 bytes at a time. The first ones are folded onto nothing, as above
        lea     nvcache_user_stream_folds(%rip), %r9
        vmovd   %r8d, %xmm0
        vpxor   %xmm1, %xmm1, %xmm1
        vpxor   %xmm2, %xmm2, %xmm2
        vpxor   %xmm3, %xmm3, %xmm3
        vmovdqa 48(%r9), %xmm12
        jmp     nvcache_user_stream_avx_loads_64
        .p2align 5
1:      vpclmulqdq $0x11, %xmm12, %xmm0, %xmm8
        vpclmulqdq $0x11, %xmm12, %xmm1, %xmm9
        vpclmulqdq $0x11, %xmm12, %xmm2, %xmm10
        vpclmulqdq $0x11, %xmm12, %xmm3, %xmm11
        vpclmulqdq $0x00, %xmm12, %xmm0, %xmm0
        vpclmulqdq $0x00, %xmm12, %xmm1, %xmm1
        vpclmulqdq $0x00, %xmm12, %xmm2, %xmm2
        vpclmulqdq $0x00, %xmm12, %xmm3, %xmm3
        vpxor   %xmm8, %xmm0, %xmm0
        vpxor   %xmm9, %xmm1, %xmm1
        vpxor   %xmm10, %xmm2, %xmm2
        vpxor   %xmm11, %xmm3, %xmm3
nvcache_user_stream_avx_loads_64:
        vmovdqu (%rsi), %xmm4
        vmovdqu 16(%rsi), %xmm5
        vmovdqu 32(%rsi), %xmm6
        vmovdqu 48(%rsi), %xmm7
nvcache_user_stream_avx_loaded_64:
        vmovntdq %xmm4, (%rdi)
        vmovntdq %xmm5, 16(%rdi)
        vmovntdq %xmm6, 32(%rdi)
        vmovntdq %xmm7, 48(%rdi)
        vpxor   %xmm4, %xmm0, %xmm0
        vpxor   %xmm5, %xmm1, %xmm1
        vpxor   %xmm6, %xmm2, %xmm2
        vpxor   %xmm7, %xmm3, %xmm3
        test    %rcx, %rcx
        je      2f
        vmovdqu %xmm4, (%rcx)
        vmovdqu %xmm5, 16(%rcx)
        vmovdqu %xmm6, 32(%rcx)
        vmovdqu %xmm7, 48(%rcx)
        add     $64, %rcx
2:      add     $64, %rsi
        add     $64, %rdi
        sub     $64, %rdx
        cmp     $64, %rdx
        jae     1b

# The first three onto the last; 16 bytes to 4
        vmovdqa 64(%r9), %xmm12
        vpclmulqdq $0x11, %xmm12, %xmm0, %xmm8
        vpclmulqdq $0x00, %xmm12, %xmm0, %xmm0
        vmovdqa 80(%r9), %xmm12
        vpclmulqdq $0x11, %xmm12, %xmm1, %xmm9
        vpclmulqdq $0x00, %xmm12, %xmm1, %xmm1
        vmovdqa 96(%r9), %xmm12
        vpclmulqdq $0x11, %xmm12, %xmm2, %xmm10
        vpclmulqdq $0x00, %xmm12, %xmm2, %xmm2
        vpxor   %xmm8, %xmm0, %xmm0
        vpxor   %xmm9, %xmm1, %xmm1
        vpxor   %xmm10, %xmm2, %xmm2
        vpxor   %xmm0, %xmm3, %xmm3
        vpxor   %xmm1, %xmm2, %xmm2
        vpxor   %xmm2, %xmm3, %xmm3
        vmovq   %xmm3, %r9
        vpextrq $1, %xmm3, %r10
        xor     %r8d, %r8d
        crc32q  %r9, %r8
        crc32q  %r10, %r8

# What does not fill a line, by 8 bytes and by single ones
3:      test    %rdx, %rdx
        je      9f
        vpxor   %xmm4, %xmm4, %xmm4
        vmovdqu %xmm4, -64(%rsp)        # nobody uses the 128 bytes below the stack
        vmovdqu %xmm4, -48(%rsp)
        vmovdqu %xmm4, -32(%rsp)
        vmovdqu %xmm4, -16(%rsp)
        lea     -64(%rsp), %r10
        sub     $8, %rdx
        jb      6f
nvcache_user_stream_avx_loads_8:
        mov     (%rsi), %rax
nvcache_user_stream_avx_loaded_8:
        mov     %rax, (%r10)
        crc32q  %rax, %r8
        test    %rcx, %rcx
        je      5f
        mov     %rax, (%rcx)
        add     $8, %rcx
5:      add     $8, %rsi
        add     $8, %r10
        sub     $8, %rdx
        jae     nvcache_user_stream_avx_loads_8
6:      add     $8, %rdx
        je      8f
nvcache_user_stream_avx_loads_1:
        movzbl  (%rsi), %eax
nvcache_user_stream_avx_loaded_1:
        mov     %al, (%r10)
        crc32b  %al, %r8d
        test    %rcx, %rcx
        je      7f
        mov     %al, (%rcx)
        inc     %rcx
7:      inc     %rsi
        inc     %r10
        dec     %rdx
        jne     nvcache_user_stream_avx_loads_1
8:      vmovdqu -64(%rsp), %xmm4
        vmovdqu -48(%rsp), %xmm5
        vmovdqu -32(%rsp), %xmm6
        vmovdqu -16(%rsp), %xmm7
        vmovntdq %xmm4, (%rdi)
        vmovntdq %xmm5, 16(%rdi)
        vmovntdq %xmm6, 32(%rdi)
        vmovntdq %xmm7, 48(%rdi)
9:      mov     %r8d, %eax
        ret
        .size   nvcache_user_stream_avx, . - nvcache_user_stream_avx
)");

extern "C" {
uint64_t nvcache_user_stream(void* lines, const void* from, size_t n, void* copy, uint32_t crc);
uint64_t nvcache_user_stream_avx(void* lines, const void* from, size_t n, void* copy, uint32_t crc);
// Places in them, not functions.
extern const char nvcache_user_stream_loads_4[], nvcache_user_stream_loaded_4[];
extern const char nvcache_user_stream_loads_1[], nvcache_user_stream_loaded_1[];
extern const char nvcache_user_stream_loads_0[], nvcache_user_stream_loaded_0[];
extern const char nvcache_user_stream_avx_loads_64[], nvcache_user_stream_avx_loaded_64[];
extern const char nvcache_user_stream_avx_loads_8[], nvcache_user_stream_avx_loaded_8[];
extern const char nvcache_user_stream_avx_loads_1[], nvcache_user_stream_avx_loaded_1[];
extern const char nvcache_user_stream_failed[];
}

namespace {

constexpr uint64_t kFailed = ~uint64_t{0};

bool IsIn(uintptr_t pc, const char* begin, const char* end) {
  return pc >= reinterpret_cast<uintptr_t>(begin) && pc < reinterpret_cast<uintptr_t>(end);
}

bool IsLoad(uintptr_t pc) {
  return IsIn(pc, nvcache_user_stream_loads_4, nvcache_user_stream_loaded_4) ||
         IsIn(pc, nvcache_user_stream_loads_1, nvcache_user_stream_loaded_1) ||
         IsIn(pc, nvcache_user_stream_loads_0, nvcache_user_stream_loaded_0) ||
         IsIn(pc, nvcache_user_stream_avx_loads_64, nvcache_user_stream_avx_loaded_64) ||
         IsIn(pc, nvcache_user_stream_avx_loads_8, nvcache_user_stream_avx_loaded_8) ||
         IsIn(pc, nvcache_user_stream_avx_loads_1, nvcache_user_stream_avx_loaded_1);
}

}  // namespace

bool CanStreamUser() { return CpuHas(kAvxCrc) || CpuHas(kAvx512Crc); }

bool StreamUser(void* lines, const void* from, size_t n, void* copy, uint32_t* crc) {
  const uint64_t result = CpuHas(kAvx512Crc) ? nvcache_user_stream(lines, from, n, copy, ~*crc)
                                             : nvcache_user_stream_avx(lines, from, n, copy, ~*crc);
  if (result == kFailed) return false;
  *crc = ~static_cast<uint32_t>(result);
  return true;
}

uintptr_t StreamFaultLanding(uintptr_t pc) {
  return IsLoad(pc) ? reinterpret_cast<uintptr_t>(nvcache_user_stream_failed) : 0;
}

}  // namespace nvcache::sys
