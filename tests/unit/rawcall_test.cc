// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cstring>
#include <random>
#include <vector>

#include "src/rawcall/code.h"
#include "src/rawcall/instruction.h"
#include "src/rawcall/number.h"
#include "src/rawcall/search.h"
#include "src/rawcall/unwind.h"
#include "src/rawcall/verdicts.h"

namespace nvcache::rawcall {
namespace {

using Bytes = std::vector<uint8_t>;

int LengthOf(const Bytes& bytes) {
  Instruction i;
  return Decode(bytes.data(), bytes.size(), &i) ? i.length : 0;
}

TEST(RawcallTest, Lengths) {
  const std::pair<Bytes, int> kCases[] = {
      {{0x0f, 0x05}, 2},                                    // syscall
      {{0x48, 0x89, 0xf8}, 3},                              // mov %rdi,%rax
      {{0xb8, 1, 2, 3, 4}, 5},                              // mov $,%eax
      {{0x66, 0xb8, 1, 2}, 4},                              // mov $,%ax
      {{0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8}, 10},           // movabs
      {{0x48, 0xc7, 0xc0, 1, 0, 0, 0}, 7},                  // mov $,%rax
      {{0x4c, 0x8b, 0x4c, 0x24, 0x08}, 5},                  // mov 8(%rsp),%r9
      {{0x8b, 0x04, 0x25, 1, 2, 3, 4}, 7},                  // mov 0x...,%eax
      {{0xf6, 0x05, 1, 2, 3, 4, 5}, 7},                     // testb $,x(%rip)
      {{0xf6, 0xd8}, 2},                                    // neg %al
      {{0x66, 0xf7, 0xc1, 1, 2}, 5},                        // test $,%cx
      {{0xc8, 1, 2, 3}, 4},                                 // enter
      {{0x0f, 0x84, 1, 2, 3, 4}, 6},                        // je
      {{0x66, 0x0f, 0x3a, 0x0f, 0xc1, 8}, 6},               // palignr
      {{0xc5, 0xf8, 0x77}, 3},                              // vzeroupper
      {{0xc4, 0xe3, 0x7d, 0x39, 0xc1, 1}, 6},               // vextracti128
      {{0x62, 0xf1, 0x7c, 0x48, 0x10, 0x00}, 6},            // vmovups (%rax),%zmm0
      {{0x2e, 0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0}, 10},  // nopw
      {{0xa1, 1, 2, 3, 4, 5, 6, 7, 8}, 9},                  // movabs x,%eax
      {{0x06}, 0},                                          // none in 64 bits
      {{0x48}, 0},                                          // ends too soon
      {{0xb8, 1, 2}, 0},
  };
  for (const auto& [bytes, length] : kCases) {
    EXPECT_EQ(LengthOf(bytes), length) << std::hex << int{bytes[0]} << " " << bytes.size();
  }
}

TEST(RawcallTest, NoByteIsReadBeyondTheEnd) {
  std::mt19937 random(1);
  constexpr size_t page = 4096;
  auto* two = static_cast<uint8_t*>(
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(mprotect(two + page, page, PROT_NONE), 0);
  for (int i = 0; i < 200000; ++i) {
    const size_t n = random() % 18;
    uint8_t* const code = two + page - n;
    for (size_t k = 0; k < n; ++k) code[k] = static_cast<uint8_t>(random());
    Instruction instruction;
    if (Decode(code, n, &instruction)) {
      EXPECT_LE(instruction.length, std::min(n, kLongestInstruction));
      EXPECT_GT(instruction.length, 0);
    }
  }
  munmap(two, 2 * page);
}

int64_t NumberAfter(const Bytes& bytes) {
  Accumulator eax;
  Instruction i;
  for (size_t at = 0; at < bytes.size(); at += i.length) {
    if (!Decode(bytes.data() + at, bytes.size() - at, &i)) return -2;
    eax.Step(i);
  }
  return eax.value();
}

// What a function that is so long has in R14, if anything.
int64_t KeptIn(const Bytes& bytes, unsigned number = 14) {
  KeptConstant kept(number);
  Instruction i;
  for (size_t at = 0; at < bytes.size(); at += i.length) {
    if (!Decode(bytes.data() + at, bytes.size() - at, &i) || !kept.Step(i)) return kUnknownNumber;
  }
  return kept.value();
}

Bytes With(const Bytes& before, const Bytes& after) {
  Bytes all = before;
  all.insert(all.end(), after.begin(), after.end());
  return all;
}

TEST(RawcallTest, NumbersInKeptRegisters) {
  const Bytes set = {0x41, 0xbe, 0xaa, 0x01, 0, 0};  // mov $426,%r14d
  EXPECT_EQ(KeptIn(set), 426);
  for (const Bytes& read :
       {Bytes{0x44, 0x89, 0xf0}, Bytes{0x41, 0x8b, 0xc6}, Bytes{0x45, 0x85, 0xf6},
        Bytes{0x41, 0x83, 0xfe, 1}, Bytes{0x41, 0x56}, Bytes{0x41, 0x5e}, Bytes{0xbe, 1, 0, 0, 0},
        Bytes{0x0f, 0xb6, 0xf0}, Bytes{0xe8, 0, 0, 0, 0}, Bytes{0x41, 0x8b, 0x06},
        Bytes{0x0f, 0x05}, set}) {
    EXPECT_EQ(KeptIn(With(set, read)), 426) << testing::PrintToString(read);
  }
  for (const Bytes& change :
       {Bytes{0x41, 0xbe, 1, 0, 0, 0}, Bytes{0x41, 0x89, 0xc6}, Bytes{0x44, 0x8b, 0xf0},
        Bytes{0x45, 0x31, 0xf6}, Bytes{0x41, 0x83, 0xc6, 1}, Bytes{0x41, 0xff, 0xc6},
        Bytes{0x44, 0x0f, 0xb6, 0xf0}, Bytes{0x44, 0x0f, 0x44, 0xf0}, Bytes{0x4c, 0x8d, 0x37},
        Bytes{0x41, 0x96}, Bytes{0x41, 0xb6, 1}, Bytes{0x41, 0x0f, 0x94, 0xc6},
        Bytes{0x41, 0x0f, 0xce}, Bytes{0x41, 0xd3, 0xe6}}) {
    EXPECT_EQ(KeptIn(With(set, change)), kUnknownNumber) << testing::PrintToString(change);
  }
  const Bytes rbx = {0xbb, 202, 0, 0, 0};
  EXPECT_EQ(KeptIn(rbx, 3), 202);
  EXPECT_EQ(KeptIn(With(rbx, {0xb7, 1}), 3), kUnknownNumber);           // mov $1,%bh
  EXPECT_EQ(KeptIn(With(rbx, {0x0f, 0x94, 0xc7}), 3), kUnknownNumber);  // sete %bh
  EXPECT_EQ(KeptIn(With(rbx, {0x0f, 0xa2}), 3), kUnknownNumber);        // cpuid
  EXPECT_EQ(KeptIn(With(rbx, {0x89, 0xc7}), 3), 202);                   // mov %eax,%edi
}

TEST(RawcallTest, Numbers) {
  EXPECT_EQ(NumberAfter({0xb8, 202, 0, 0, 0}), 202);
  EXPECT_EQ(NumberAfter({0xb8, 202, 0, 0, 0, 0x48, 0x89, 0xf7}), 202);  // mov %rsi,%rdi
  EXPECT_EQ(NumberAfter({0x48, 0xc7, 0xc0, 15, 0, 0, 0}), 15);
  EXPECT_EQ(NumberAfter({0x31, 0xc0}), 0);
  EXPECT_EQ(NumberAfter({0x6a, 39, 0x58}), 39);                                  // push, pop
  EXPECT_EQ(NumberAfter({0xb8, 1, 0, 0, 0, 0x89, 0xf8}), kUnknownNumber);        // mov %edi,%eax
  EXPECT_EQ(NumberAfter({0xb8, 1, 0, 0, 0, 0xe8, 0, 0, 0, 0}), kUnknownNumber);  // call
  EXPECT_EQ(NumberAfter({0xb8, 1, 0, 0, 0, 0x0f, 0x05}), kUnknownNumber);        // its result
  EXPECT_EQ(NumberAfter({0xb8, 1, 0, 0, 0, 0xb0, 2}), kUnknownNumber);           // mov $2,%al
  EXPECT_EQ(NumberAfter({0x41, 0xb8, 1, 0, 0, 0}), kUnknownNumber);              // %r8d
  EXPECT_EQ(NumberAfter({0xb8, 1, 0, 0, 0, 0xeb, 0}), kUnknownNumber);           // jmp
  EXPECT_EQ(NumberAfter({0x8b, 0x47, 4}), kUnknownNumber);
  EXPECT_TRUE(IsHarmless(SYS_futex));
  EXPECT_TRUE(IsHarmless(426));
  EXPECT_FALSE(IsHarmless(425));
  EXPECT_FALSE(IsHarmless(SYS_read));
  EXPECT_FALSE(IsHarmless(SYS_mmap));
  EXPECT_FALSE(IsHarmless(kUnknownNumber));
}

Verdict VerdictOf(const Bytes& bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  return SearchMemory({begin, begin + bytes.size()});
}

TEST(RawcallTest, AStubInMemoryIsFound) {
  const Bytes stub = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d,
                      0x89, 0xc2, 0x4d, 0x89, 0xc8, 0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05, 0xc3};
  for (const size_t before :
       std::initializer_list<size_t>{0, 1, 16, 100, 4000, 16381, 16383, 16384}) {
    for (const uint8_t filler : Bytes{0x00, 0x90, 0xcc}) {
      Bytes memory(before, filler);
      memory.insert(memory.end(), stub.begin(), stub.end());
      memory.resize(memory.size() + 4096);
      EXPECT_EQ(VerdictOf(memory), Verdict::kRaw) << before << " " << int{filler};
    }
  }
  EXPECT_EQ(VerdictOf({0xb8, 1, 0, 0, 0, 0x0f, 0x05, 0xc3}), Verdict::kRaw);
  EXPECT_EQ(VerdictOf({0xb8, 4, 0, 0, 0, 0xcd, 0x80, 0xc3}), Verdict::kRaw);
  EXPECT_EQ(VerdictOf({}), Verdict::kHarmless);
  EXPECT_EQ(VerdictOf({0x0f}), Verdict::kHarmless);
}

// As a compiler puts them into code: constants, distances and offsets that have these bytes.
TEST(RawcallTest, TheSameBytesWithinInstructionsAreNoCall) {
  const Bytes kWithin[] = {
      {0xb8, 0x0f, 0x05, 0xc3, 0x00},                 // mov $,%eax
      {0x48, 0x8b, 0x80, 0x0f, 0x05, 0x00, 0x00},     // mov x(%rax),%rax
      {0xe8, 0x00, 0x0f, 0x05, 0xc3},                 // call
      {0x48, 0xb9, 1, 2, 0x0f, 0x05, 0xc3, 6, 7, 8},  // movabs
      {0x41, 0x81, 0xfd, 0xcd, 0x80, 0xc3, 0x00},     // cmp $,%r13d
  };
  // What a compiler puts around it.
  const Bytes around = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0x48, 0x89, 0x7d, 0xf8,
                        0x48, 0x8b, 0x45, 0xf8, 0x8b, 0x40, 0x10, 0x85, 0xc0, 0x74, 0x05, 0xff,
                        0xd0, 0x48, 0x01, 0xd8, 0x48, 0x83, 0xc4, 0x20, 0x5d, 0x31, 0xc9};
  for (const Bytes& within : kWithin) {
    Bytes code = around;
    code.insert(code.end(), around.begin(), around.end());
    code.insert(code.end(), within.begin(), within.end());
    code.insert(code.end(), around.begin(), around.end());
    EXPECT_EQ(VerdictOf(code), Verdict::kHarmless) << int{within[0]};
  }
}

// ------------------------------------------------------------------------------------- An object

// Those that this program has loaded.
std::vector<LoadedObject> Loaded() {
  std::vector<LoadedObject> objects;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        static_cast<std::vector<LoadedObject>*>(data)->push_back(
            {info->dlpi_name, info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum, false});
        return 0;
      },
      &objects);
  return objects;
}

const LoadedObject* Named(const std::vector<LoadedObject>& objects, const char* name) {
  for (const LoadedObject& each : objects) {
    if (std::strcmp(NameOf(each.path), name) == 0) return &each;
  }
  return nullptr;
}

TEST(RawcallTest, LibcIsRawAndItsMathIsNot) {
  const auto objects = Loaded();
  const LoadedObject* libc = Named(objects, "libc.so.6");
  const LoadedObject* math = Named(objects, "libm.so.6");
  ASSERT_TRUE(libc != nullptr && math != nullptr);
  EXPECT_EQ(SearchObject(Image(*libc)), Verdict::kRaw);
  EXPECT_EQ(SearchObject(Image(*math)), Verdict::kHarmless);
  EXPECT_NE(Image(*libc).Key(), 0u);
  EXPECT_NE(Image(*libc).Key(), Image(*math).Key());
}

TEST(RawcallTest, MostNumbersOfLibcAreKnown) {
  struct Counted {
    int sites = 0, known = 0;
  } counted;
  const auto objects = Loaded();
  const Image image(*Named(objects, "libc.so.6"));
  const auto hear = [](void* context, const Site& site) {
    auto* const count = static_cast<Counted*>(context);
    ++count->sites;
    if (site.number != kUnknownNumber) ++count->known;
    return true;
  };
  SearchObject(image, {hear, &counted});
  EXPECT_GT(counted.sites, 300);
  EXPECT_GT(counted.known * 10, counted.sites * 7);
}

// A copy of libm's beginning, of which any byte may be another one: tables that lead anywhere.
TEST(RawcallTest, WhatAnObjectSaysIsNotBelieved) {
  const auto objects = Loaded();
  const LoadedObject* math = Named(objects, "libm.so.6");
  ASSERT_NE(math, nullptr);
  uintptr_t end = 0;
  std::vector<Elf64_Phdr> headers(math->headers, math->headers + math->header_count);
  for (const Elf64_Phdr& each : headers) {
    if (each.p_type == PT_LOAD) end = std::max(end, each.p_vaddr + each.p_memsz);
  }
  const size_t size = (end + 4095) / 4096 * 4096;
  auto* copy = static_cast<uint8_t*>(
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(copy, MAP_FAILED);
  for (const Elf64_Phdr& each : headers) {
    if (each.p_type == PT_LOAD) {
      std::memcpy(copy + each.p_vaddr, reinterpret_cast<void*>(math->base + each.p_vaddr),
                  each.p_memsz);
    }
  }
  constexpr unsigned kSeed = 7, kRounds = 60;
  std::mt19937 random(kSeed);
  for (unsigned round = 0; round < kRounds; ++round) {
    std::vector<Elf64_Phdr> lying = headers;
    const LoadedObject object = {"", reinterpret_cast<uintptr_t>(copy), lying.data(), lying.size(),
                                 false};
    for (Elf64_Phdr& each : lying) {
      if (each.p_type == PT_GNU_EH_FRAME || each.p_type == PT_DYNAMIC || each.p_type == PT_NOTE) {
        if (random() % 4 == 0) each.p_vaddr = random();
        if (random() % 4 == 0) each.p_memsz = uint64_t{random()} << random() % 32;
      }
    }
    const Range table = Image({object}).Segment(PT_GNU_EH_FRAME);
    for (int i = 0; i < 200; ++i) {
      copy[random() % size] = static_cast<uint8_t>(random());
      const size_t in_table = table.begin - object.base + random() % 64;
      if (in_table < size) copy[in_table] = static_cast<uint8_t>(random());
    }
    const Image image(object);
    image.Key();
    SearchObject(image);
  }
  munmap(copy, size);
}

TEST(RawcallTest, VerdictsAreKept) {
  KeptVerdict words[64] = {};
  Verdicts verdicts(words, 64);
  std::mt19937_64 random(3);
  const uint64_t first = random();
  EXPECT_EQ(verdicts.Find(first), Verdict::kUnknown);
  verdicts.Keep(first, Verdict::kRaw);
  EXPECT_EQ(verdicts.Find(first), Verdict::kRaw);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t key = random();
    verdicts.Keep(key, Verdict::kHarmless);
    EXPECT_EQ(verdicts.Find(key), Verdict::kHarmless);
  }
  EXPECT_NE(verdicts.Find(first), Verdict::kHarmless);
}

TEST(RawcallTest, TrustedByName) {
  EXPECT_TRUE(IsTrusted("/usr/lib/x86_64-linux-gnu/libgomp.so.1"));
  EXPECT_TRUE(IsTrusted("libasan.so.8"));
  EXPECT_TRUE(IsTrusted("/usr/lib/x86_64-linux-gnu/libnvcache-api.so.1"));
  EXPECT_FALSE(IsTrusted("/opt/libgomp.so/libdb.so"));
  EXPECT_FALSE(IsTrusted(""));
}

}  // namespace
}  // namespace nvcache::rawcall
