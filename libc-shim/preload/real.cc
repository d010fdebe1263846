// SPDX-License-Identifier: BSD-3-Clause
#include "libc-shim/preload/real.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <cstring>

#include "src/sys/early.h"
#include "src/sys/text.h"

#pragma weak _r_debug                                               // life.cc says why
extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));  // our own

namespace nvcache::preload {

NVCACHE_EARLY constinit RealTable g_real = {};

namespace {

// The dynamic section of a loaded object says this of the names that it defines.
struct Names {
  const uint32_t* hash = nullptr;  // a DT_GNU_HASH
  const ElfW(Sym) * symbols = nullptr;
  const ElfW(Half) * versions = nullptr;
  const char* text = nullptr;
  ElfW(Addr) soname = 0;  // in `text`
};

Names NamesOf(const link_map& object) {
  Names names;
  for (const ElfW(Dyn)* entry = object.l_ld; entry->d_tag != DT_NULL; ++entry) {
    // glibc has relocated the addresses in place, if it could.
    const ElfW(Addr) value = entry->d_un.d_ptr;
    const ElfW(Addr) address = value < object.l_addr ? object.l_addr + value : value;
    switch (entry->d_tag) {
      case DT_GNU_HASH:
        names.hash = reinterpret_cast<const uint32_t*>(address);
        break;
      case DT_SYMTAB:
        names.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
        break;
      case DT_VERSYM:
        names.versions = reinterpret_cast<const ElfW(Half)*>(address);
        break;
      case DT_STRTAB:
        names.text = reinterpret_cast<const char*>(address);
        break;
      case DT_SONAME:
        names.soname = value;
        break;
      default:
        break;
    }
  }
  return names;
}

// The default one of a name's versions is not hidden.
bool IsDefault(const Names& names, uint32_t index) {
  constexpr ElfW(Half) kHidden = 0x8000;
  return names.versions == nullptr || (names.versions[index] & kHidden) == 0;
}

uint32_t HashOf(const char* name) {
  uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<uint8_t>(*name);
  return hash;
}

// DT_GNU_HASH: four numbers, a filter that says no to most names, the first symbol of each bucket,
// and for each symbol its hash, whose lowest bit ends the bucket.
const ElfW(Sym) * Find(const Names& names, const char* name, uint32_t hash) {
  constexpr uint32_t kBits = 64;
  const uint32_t buckets = names.hash[0], first = names.hash[1], words = names.hash[2];
  const auto* filter = reinterpret_cast<const uint64_t*>(names.hash + 4);
  const auto* firsts = reinterpret_cast<const uint32_t*>(filter + words);
  const uint64_t word = filter[hash / kBits % words];
  if ((word >> hash % kBits & word >> (hash >> names.hash[3]) % kBits & 1) == 0) return nullptr;
  for (uint32_t i = firsts[hash % buckets]; i >= first; ++i) {
    const uint32_t found = firsts[buckets + i - first];
    const ElfW(Sym)& symbol = names.symbols[i];
    if ((found | 1) == (hash | 1) && symbol.st_shndx != SHN_UNDEF && IsDefault(names, i) &&
        std::strcmp(names.text + symbol.st_name, name) == 0) {
      return &symbol;
    }
    if ((found & 1) != 0) break;
  }
  return nullptr;
}

// In the objects that come after ours, up to libc: none of these is ever unloaded, so this takes no
// lock. nullptr: ask the dynamic linker.
void* FindUpToLibc(const char* name) {
  const link_map* object = &_r_debug != nullptr ? _r_debug.r_map : nullptr;
  while (object != nullptr && object->l_ld != _DYNAMIC) object = object->l_next;
  const uint32_t hash = HashOf(name);
  while (object != nullptr && (object = object->l_next) != nullptr) {
    const Names names = NamesOf(*object);
    if (names.hash == nullptr || names.symbols == nullptr || names.text == nullptr) break;
    if (const ElfW(Sym)* symbol = Find(names, name, hash); symbol != nullptr) {
      // Not what stands for one of several functions.
      const auto type = ELF64_ST_TYPE(symbol->st_info);
      const bool plain = type == STT_FUNC || type == STT_OBJECT;
      return plain ? reinterpret_cast<void*>(object->l_addr + symbol->st_value) : nullptr;
    }
    if (std::strcmp(names.text + names.soname, "libc.so.6") == 0) break;
  }
  return nullptr;
}

}  // namespace

// Where glibc has several versions of a name, this finds the default one: the one that a program
// built today is bound to.
//
// Another libc has one name where glibc has two.
void* FindNext(const char* name) {
  void* function = FindUpToLibc(name);
  if (function == nullptr) function = dlsym(RTLD_NEXT, name);
  const char* const number = std::strstr(name, "64");
  if (function != nullptr || number == nullptr) return function;
  sys::Text<64> plain;
  plain.Append(name, static_cast<size_t>(number - name)).Append(number + 2);
  return dlsym(RTLD_NEXT, plain.c_str());
}

void FindForChildren() {
  NVCACHE_REAL(_exit);
  NVCACHE_REAL(close);
  NVCACHE_REAL(dup2);
  NVCACHE_REAL(execv);
  NVCACHE_REAL(execve);
  NVCACHE_REAL(execvp);
  NVCACHE_REAL(fcntl64);
  NVCACHE_REAL(open64);
  NVCACHE_REAL(read);
  NVCACHE_REAL(sigaction);
  NVCACHE_REAL(write);
}

}  // namespace nvcache::preload
