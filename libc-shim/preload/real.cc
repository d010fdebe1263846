// SPDX-License-Identifier: BSD-3-Clause
#include "libc-shim/preload/real.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <iterator>

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

constexpr uint32_t HashOf(const char* name) {
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

const link_map* FindOurs() {
  const link_map* object = &_r_debug != nullptr ? _r_debug.r_map : nullptr;
  while (object != nullptr && object->l_ld != _DYNAMIC) object = object->l_next;
  return object;
}

bool IsLibc(const Names& names) { return std::strcmp(names.text + names.soname, "libc.so.6") == 0; }

// In the objects that come after ours, up to libc: none of these is ever unloaded, so this takes no
// lock. nullptr: ask the dynamic linker.
void* FindUpToLibc(const char* name) {
  const link_map* object = FindOurs();
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
    if (IsLibc(names)) break;
  }
  return nullptr;
}

// The functions by which programs give paths to be opened or changed. Of those that look alone, the
// engine looks at what they answer.
constexpr char kOfPaths[][13] = {
    "chmod",      "chown",        "creat",      "creat64",      "fchmodat",    "fchownat",
    "fopen",      "fopen64",      "freopen",    "freopen64",    "futimesat",   "lchmod",
    "lchown",     "link",         "linkat",     "lremovexattr", "lsetxattr",   "lutimes",
    "mkdir",      "mkdirat",      "mkdtemp",    "mkfifo",       "mkfifoat",    "mknod",
    "mknodat",    "mkostemp",     "mkostemp64", "mkstemp",      "mkstemp64",   "mkstemps",
    "mkstemps64", "open",         "open64",     "__open64_2",   "__open_2",    "openat",
    "openat64",   "__openat64_2", "__openat_2", "remove",       "removexattr", "rename",
    "renameat",   "renameat2",    "rmdir",      "setxattr",     "symlink",     "symlinkat",
    "syscall",    "truncate",     "truncate64", "unlink",       "unlinkat",    "utime",
    "utimensat",  "utimes"};

struct Hashes {
  uint32_t of[std::size(kOfPaths)] = {};
};
constexpr Hashes kHashes = [] {
  Hashes hashes;
  for (size_t i = 0; i < std::size(kOfPaths); ++i) hashes.of[i] = HashOf(kOfPaths[i]);
  return hashes;
}();

struct Libc {
  Names names;
  uintptr_t begin = 0, end = 0;
};
NVCACHE_EARLY constinit Libc g_libc = {};

// The dynamic linker has mapped its headers at its beginning.
Libc LibcFrom(const link_map& object, const Names& names) {
  const auto* const header = reinterpret_cast<const ElfW(Ehdr)*>(object.l_addr);
  const auto* const headers = reinterpret_cast<const ElfW(Phdr)*>(object.l_addr + header->e_phoff);
  uintptr_t end = 0;
  for (int i = 0; i < header->e_phnum; ++i) {
    if (headers[i].p_type == PT_LOAD) end = headers[i].p_vaddr + headers[i].p_memsz;
  }
  return {names, object.l_addr, object.l_addr + end};
}

bool HasAnyOfPaths(const Names& names) {
  for (size_t i = 0; i < std::size(kOfPaths); ++i) {
    if (Find(names, kOfPaths[i], kHashes.of[i]) != nullptr) return true;
  }
  return false;
}

}  // namespace

const char* FindInterposer() {
  const link_map* object = FindOurs();
  const char* found = nullptr;
  while (object != nullptr && (object = object->l_next) != nullptr) {
    const Names names = NamesOf(*object);
    if (names.hash == nullptr || names.symbols == nullptr || names.text == nullptr) continue;
    if (IsLibc(names)) {
      g_libc = LibcFrom(*object, names);
      break;
    }
    if (found != nullptr || !HasAnyOfPaths(names)) continue;
    const char* const slash = std::strrchr(object->l_name, '/');
    found = slash != nullptr ? slash + 1 : object->l_name;
  }
  return found;
}

void* FindInLibc(const char* name) {
  const ElfW(Sym)* const symbol =
      g_libc.begin != 0 ? Find(g_libc.names, name, HashOf(name)) : nullptr;
  return symbol != nullptr ? reinterpret_cast<void*>(g_libc.begin + symbol->st_value) : nullptr;
}

bool IsInLibc(const void* function) {
  const auto address = reinterpret_cast<uintptr_t>(function);
  return address >= g_libc.begin && address < g_libc.end;
}

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
