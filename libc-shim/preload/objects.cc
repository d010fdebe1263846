// SPDX-License-Identifier: BSD-3-Clause
#include "libc-shim/preload/objects.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "src/sys/scratch.h"
#include "src/sys/user_copy.h"

// musl has neither, and loads the library to say that it is glibc's.
#pragma weak dladdr1
#pragma weak dlvsym

namespace nvcache::preload {

namespace {

constexpr size_t kMostHeaders = 256;

struct Code {
  uintptr_t begin = 0, end = 0;
  bool Holds(uintptr_t address) const { return address >= begin && address < end; }
};

// Calls look(code) for each executable segment, until it says no.
template <typename Function>
void ForEachCode(const LoadedObject& object, Function look) {
  for (size_t i = 0; i < object.header_count; ++i) {
    const Elf64_Phdr& header = object.headers[i];
    const uintptr_t begin = object.base + header.p_vaddr;
    const bool executable = header.p_type == PT_LOAD && (header.p_flags & PF_X) != 0;
    if (executable && !look(Code{begin, begin + header.p_memsz})) return;
  }
}

// libc's names come here; what the kernel gives has no calls that touch a file.
bool IsCaught(const LoadedObject& object) {
  const char* const slash = std::strrchr(object.path, '/');
  const char* const name = slash != nullptr ? slash + 1 : object.path;
  for (const char* const caught :
       {"libc.so.6", "ld-linux-x86-64.so.2", "linux-vdso.so.1", "linux-gate.so.1"}) {
    if (std::strcmp(name, caught) == 0) return true;
  }
  bool ours = false;
  ForEachCode(object, [&](const Code& code) {
    ours = code.Holds(reinterpret_cast<uintptr_t>(&ForEachObject));
    return !ours;
  });
  return ours;
}

struct Looking {
  bool (*look)(void* context, const LoadedObject& object);
  void* context;
  bool goes_on = true, all_seen = true;
};

// Calls look(object). The headers lie in the object's file, and can be gone with a part of it: so
// they are copied. False: it cannot be looked at.
template <typename Function>
bool WithHeaders(const dl_phdr_info& info, Function look) {
  sys::Scratch<Elf64_Phdr[kMostHeaders]> headers;
  const size_t bytes = info.dlpi_phnum * sizeof(Elf64_Phdr);
  if (info.dlpi_phnum > headers.size() ||
      sys::CopyFromUser(headers.get(), info.dlpi_phdr, bytes) != bytes) {
    return false;
  }
  look(LoadedObject{info.dlpi_name, info.dlpi_addr, headers.get(), info.dlpi_phnum, false});
  return true;
}

struct Caller {
  uintptr_t address;
  Code code;  // from there on
};

std::atomic<bool> g_lock_is_lost = false;
const uint64_t* g_count = nullptr;  // the dynamic linker's own

uint64_t CountWithLock() {
  uint64_t count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        *static_cast<uint64_t*>(data) = info->dlpi_adds;
        return 1;
      },
      &count);
  return count;
}

// glibc 2.34 to 2.41: in _rtld_global, right behind its three locks, which a thread may take again.
bool IsBehindLocks(const char* begin, const char* at) {
  constexpr ptrdiff_t kLocks = 3;
  if (at - begin < kLocks * static_cast<ptrdiff_t>(sizeof(pthread_mutex_t))) return false;
  const auto* const locks = reinterpret_cast<const pthread_mutex_t*>(at) - kLocks;
  return std::all_of(locks, locks + kLocks, [](const pthread_mutex_t& lock) {
    return lock.__data.__kind == PTHREAD_MUTEX_RECURSIVE;
  });
}

}  // namespace

// Where there is none, or two, each count takes the lock.
void FindLoadCount() {
  const uint64_t count = CountWithLock();
  void* const globals = dlvsym(RTLD_DEFAULT, "_rtld_global", "GLIBC_PRIVATE");
  Dl_info info;
  void* symbol = nullptr;
  if (globals == nullptr || dladdr1(globals, &info, &symbol, RTLD_DL_SYMENT) == 0 || !symbol)
    return;
  const size_t size = static_cast<const Elf64_Sym*>(symbol)->st_size;
  const auto* const begin = static_cast<const char*>(globals);
  const uint64_t* found = nullptr;
  for (size_t at = 0; at + sizeof(count) <= size; at += sizeof(count)) {
    const auto* const word = reinterpret_cast<const uint64_t*>(begin + at);
    if (*word != count || !IsBehindLocks(begin, begin + at)) continue;
    if (found != nullptr) return;
    found = word;
  }
  g_count = found;
}

void LoseLock() { g_lock_is_lost.store(true, std::memory_order_relaxed); }

bool ForEachObject(bool (*look)(void* context, const LoadedObject& object), void* context) {
  if (g_lock_is_lost.load(std::memory_order_relaxed)) return false;
  Looking looking = {look, context};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* const wanted = static_cast<Looking*>(data);
        wanted->all_seen = WithHeaders(*info, [wanted](LoadedObject object) {
          object.is_caught = IsCaught(object);
          wanted->goes_on = wanted->look(wanted->context, object);
        });
        return wanted->all_seen && wanted->goes_on ? 0 : 1;
      },
      &looking);
  return looking.all_seen;
}

uint64_t CountLoads() {
  if (g_count != nullptr) return __atomic_load_n(g_count, __ATOMIC_ACQUIRE);
  constexpr uint64_t kNobodyCanTell = ~uint64_t{0};  // that is news
  return g_lock_is_lost.load(std::memory_order_relaxed) ? kNobodyCanTell : CountWithLock();
}

namespace {

// The code from the caller on, or else the program's, which is the first object.
Code CodeFrom(const void* address) {
  Caller wanted = {reinterpret_cast<uintptr_t>(address), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* const asked = static_cast<Caller*>(data);
        bool found = false;
        WithHeaders(*info, [&](const LoadedObject& object) {
          ForEachCode(object, [&](const Code& code) {
            found = code.Holds(asked->address);
            if (found) asked->code = {asked->address, code.end};
            if (asked->code.end == 0) asked->code = code;
            return !found;
          });
        });
        return found ? 1 : 0;
      },
      &wanted);
  return wanted.code;
}

}  // namespace

const void* FindReturn(const void* caller) {
  Code code = CodeFrom(caller);
  g_lock_is_lost.store(false, std::memory_order_relaxed);
  constexpr uint8_t kReturn = 0xc3;
  constexpr uintptr_t kNear = 64 << 10;
  code.end = std::min(code.end, code.begin + kNear);
  sys::Scratch<uint8_t[sys::kScratchSize]> bytes;
  while (code.begin < code.end) {
    const auto* const from = reinterpret_cast<const uint8_t*>(code.begin);
    const size_t n =
        sys::CopyFromUser(bytes.get(), from, std::min(bytes.size(), code.end - code.begin));
    const uint8_t* const found = std::find(bytes.get(), bytes.get() + n, kReturn);
    if (found != bytes.get() + n) return from + (found - bytes.get());
    if (n == 0) break;
    code.begin += n;
  }
  return nullptr;
}

}  // namespace nvcache::preload
