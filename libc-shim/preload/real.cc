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
  const uint32_t* hash = nullptr;      // a DT_GNU_HASH
  const uint32_t* old_hash = nullptr;  // a DT_HASH
  const ElfW(Sym) * symbols = nullptr;
  const ElfW(Half) * versions = nullptr;
  const char* text = nullptr;
  ElfW(Addr) soname = 0;  // in `text`

  bool AreThere() const {
    return (hash != nullptr || old_hash != nullptr) && symbols != nullptr && text != nullptr;
  }
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
      case DT_HASH:
        names.old_hash = reinterpret_cast<const uint32_t*>(address);
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

// The symbol of that index is the definition of that name that others are bound to.
bool Defines(const Names& names, uint32_t i, const char* name) {
  const ElfW(Sym)& symbol = names.symbols[i];
  return symbol.st_shndx != SHN_UNDEF && IsDefault(names, i) &&
         std::strcmp(names.text + symbol.st_name, name) == 0;
}

// DT_HASH: two numbers, the first symbol of each bucket, and for each symbol the next one of its
// bucket.
const ElfW(Sym) * FindByOldHash(const Names& names, const char* name) {
  uint32_t hash = 0;
  for (const char* p = name; *p != '\0'; ++p) {
    hash = (hash << 4) + static_cast<uint8_t>(*p);
    hash = (hash ^ (hash >> 28 << 4)) & 0x0fffffff;
  }
  const uint32_t buckets = names.old_hash[0];
  const uint32_t* const firsts = names.old_hash + 2;
  for (uint32_t i = buckets != 0 ? firsts[hash % buckets] : 0; i != 0; i = firsts[buckets + i]) {
    if (Defines(names, i, name)) return &names.symbols[i];
  }
  return nullptr;
}

// DT_GNU_HASH: four numbers, a filter that says no to most names, the first symbol of each bucket,
// and for each symbol its hash, whose lowest bit ends the bucket.
struct Filter {
  const uint64_t* words;  // as many as a power of two
  uint32_t mask, shift;

  static constexpr uint32_t kBits = 64;
  explicit Filter(const uint32_t* hash)
      : words(reinterpret_cast<const uint64_t*>(hash + 4)), mask(hash[2] - 1), shift(hash[3]) {}
  bool MayHave(uint32_t hash) const {
    const uint64_t word = words[hash / kBits & mask];
    return (word >> hash % kBits & word >> (hash >> shift) % kBits & 1) != 0;
  }
};

const ElfW(Sym) * Find(const Names& names, const char* name, uint32_t hash) {
  if (names.hash == nullptr) return FindByOldHash(names, name);
  const Filter filter(names.hash);
  if (!filter.MayHave(hash)) return nullptr;
  const uint32_t buckets = names.hash[0], first = names.hash[1];
  const auto* firsts = reinterpret_cast<const uint32_t*>(filter.words + filter.mask + 1);
  for (uint32_t i = buckets != 0 ? firsts[hash % buckets] : 0; i >= first; ++i) {
    const uint32_t found = firsts[buckets + i - first];
    if ((found | 1) == (hash | 1) && Defines(names, i, name)) return &names.symbols[i];
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

// Not one that stands for one of several functions.
bool IsPlain(const ElfW(Sym) & symbol) {
  const auto type = ELF64_ST_TYPE(symbol.st_info);
  return type == STT_FUNC || type == STT_OBJECT;
}

void* AddressOf(const link_map& object, const ElfW(Sym) & symbol) {
  return reinterpret_cast<void*>(object.l_addr + symbol.st_value);
}

// In the objects that come after ours, up to libc: none of these is ever unloaded, so this takes no
// lock. nullptr: ask the dynamic linker.
void* FindUpToLibc(const char* name) {
  const link_map* object = FindOurs();
  const uint32_t hash = HashOf(name);
  while (object != nullptr && (object = object->l_next) != nullptr) {
    const Names names = NamesOf(*object);
    if (!names.AreThere()) break;
    if (const ElfW(Sym)* symbol = Find(names, name, hash); symbol != nullptr) {
      return IsPlain(*symbol) ? AddressOf(*object, *symbol) : nullptr;
    }
    if (IsLibc(names)) break;
  }
  return nullptr;
}

// All wrapped names, one after the other.
constexpr char kWrapped[] =
#define NVCACHE_WRAP(name) #name "\0"
#define NVCACHE_OPTIONAL(name) #name "\0"
#define NVCACHE_ALIAS(name, target)
#include "libc-shim/preload/wrapped.def"
#undef NVCACHE_WRAP
#undef NVCACHE_OPTIONAL
#undef NVCACHE_ALIAS
    ;
constexpr size_t kSlots = sizeof(RealTable) / sizeof(void*);

// The functions by which programs give paths to be opened or changed. Of those that look alone, the
// engine looks at what they answer.
constexpr const char* kOfPaths[] = {
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

constexpr bool IsOfPaths(const char* name) {
  for (const char* const each : kOfPaths) {
    const char *a = each, *b = name;
    while (*a != '\0' && *a == *b) ++a, ++b;
    if (*a == *b) return true;
  }
  return false;
}

// A name of kWrapped, which has the slot of the same index.
struct Wrapped {
  uint32_t hash = 0;
  uint16_t at = 0;
  bool of_paths = false;
};
struct AllWrapped {
  Wrapped of[kSlots] = {};
};
constexpr AllWrapped kAll = [] {
  AllWrapped all;
  size_t at = 0, of_paths = 0;
  for (Wrapped& each : all.of) {
    const char* const name = kWrapped + at;
    each = {HashOf(name), static_cast<uint16_t>(at), IsOfPaths(name)};
    of_paths += each.of_paths ? 1 : 0;
    while (kWrapped[at] != '\0') ++at;
    ++at;
  }
  // Each is a wrapped one, and no name is left.
  if (of_paths != std::size(kOfPaths) || at + 1 != sizeof(kWrapped)) __builtin_trap();
  return all;
}();

struct Libc {
  Names names;
  uintptr_t begin = 0, end = 0;
};
NVCACHE_EARLY constinit Libc g_libc = {};
NVCACHE_EARLY constinit const char* g_interposer = nullptr;

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

// The object's definition for the slot, unless one before it has had one.
void Take(const link_map& object, const ElfW(Sym) & symbol, size_t slot) {
  void** const place = reinterpret_cast<void**>(&g_real) + slot;
  if (*place != nullptr) return;
  void* const function =
      IsPlain(symbol) ? AddressOf(object, symbol) : dlsym(RTLD_NEXT, kWrapped + kAll.of[slot].at);
  __atomic_store_n(place, function, __ATOMIC_RELAXED);
}

// Takes what the object has of our names. True: one of them is of paths.
bool TakeWrapped(const link_map& object, const Names& names) {
  alignas(uint64_t) constexpr uint32_t kAllPass[] = {1, 0, 1, 0, ~uint32_t{0}, ~uint32_t{0}};
  const Filter filter(names.hash != nullptr ? names.hash : kAllPass);
  bool of_paths = false;
  for (size_t i = 0; i < kSlots; ++i) {
    const Wrapped& each = kAll.of[i];
    if (!filter.MayHave(each.hash)) [[likely]]
      continue;
    const ElfW(Sym)* const symbol = Find(names, kWrapped + each.at, each.hash);
    if (symbol == nullptr) continue;
    of_paths = of_paths || each.of_paths;
    Take(object, *symbol, i);
  }
  return of_paths;
}

}  // namespace

void FindBehind() {
  const link_map* object = FindOurs();
  while (object != nullptr && (object = object->l_next) != nullptr) {
    const Names names = NamesOf(*object);
    if (!names.AreThere()) continue;
    if (IsLibc(names)) {
      g_libc = LibcFrom(*object, names);
      return;
    }
    if (!TakeWrapped(*object, names) || g_interposer != nullptr) continue;
    const char* const slash = std::strrchr(object->l_name, '/');
    g_interposer = slash != nullptr ? slash + 1 : object->l_name;
  }
}

const char* FindInterposer() { return g_interposer; }

void* FindInLibc(const char* name) {
  const ElfW(Sym)* const symbol =
      g_libc.begin != 0 ? Find(g_libc.names, name, HashOf(name)) : nullptr;
  if (symbol == nullptr || !IsPlain(*symbol)) return nullptr;
  return reinterpret_cast<void*>(g_libc.begin + symbol->st_value);
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
  void* function = g_libc.begin != 0 ? FindInLibc(name) : FindUpToLibc(name);
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
