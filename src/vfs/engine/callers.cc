// SPDX-License-Identifier: BSD-3-Clause
#include "src/vfs/engine/callers.h"

#include <initializer_list>

#include "src/lease/format.h"
#include "src/rawcall/search.h"
#include "src/rawcall/verdicts.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"
#include "src/vfs/engine/claim.h"
#include "src/vfs/engine/engine.h"

namespace nvcache::vfs {

namespace {

using rawcall::Range;
using rawcall::Verdict;
using Culprit = sys::Text<256>;

constexpr char kMade[] = "code that the program has made";
constexpr char kUnseen[] = "code that cannot be looked at";

Verdict SearchOnce(const LoadedObject& object) {
  const rawcall::Image image(object);
  const uint64_t key = engine.leases.is_open() ? image.Key() : 0;
  if (key == 0) return rawcall::SearchObject(image);
  rawcall::Verdicts verdicts(engine.leases.verdicts(), lease::kVerdicts);
  Verdict verdict = verdicts.Find(key);
  if (verdict != Verdict::kUnknown) return verdict;
  verdict = rawcall::SearchObject(image);
  verdicts.Keep(key, verdict);
  return verdict;
}

bool IsHarmless(const LoadedObject& object) {
  return object.is_caught || SearchOnce(object) == Verdict::kHarmless ||
         rawcall::IsTrusted(object.path);
}

// ------------------------------------------------------------------------------------- Mappings

// A line of /proc/PID/maps: begin-end rwxp offset device inode path.
struct Mapping {
  Range range;
  bool executable = false;
  const char* path = "";
};

bool TakeHex(const char** p, uintptr_t* value) {
  const char* const begin = *p;
  for (*value = 0;; ++*p) {
    const char c = **p;
    if (c >= '0' && c <= '9') {
      *value = *value << 4 | static_cast<uintptr_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      *value = *value << 4 | static_cast<uintptr_t>(c - 'a' + 10);
    } else {
      return *p != begin;
    }
  }
}

bool TakeMapping(const char* line, Mapping* mapping) {
  if (!TakeHex(&line, &mapping->range.begin) || *line++ != '-') return false;
  if (!TakeHex(&line, &mapping->range.end) || *line++ != ' ') return false;
  mapping->executable = line[0] != '\0' && line[1] != '\0' && line[2] == 'x';
  // Four fields more.
  for (int field = 0; field < 4; ++field) {
    while (*line != '\0' && *line != ' ') ++line;
    while (*line == ' ') ++line;
  }
  mapping->path = line;
  return true;
}

bool IsOfObject(const Range& range) {
  struct Asked {
    Range range;
    bool found = false;
  } asked = {range};
  const auto look = [](void* context, const LoadedObject& object) {
    auto* const wanted = static_cast<Asked*>(context);
    for (size_t i = 0; i < object.header_count; ++i) {
      const Elf64_Phdr& header = object.headers[i];
      const uintptr_t begin = object.base + header.p_vaddr;
      if (header.p_type == PT_LOAD && begin < wanted->range.end &&
          begin + header.p_memsz > wanted->range.begin) {
        wanted->found = true;
      }
    }
    return !wanted->found;
  };
  engine.host->for_each_object(look, &asked);
  return asked.found;
}

bool BeginsWithAny(const char* path, std::initializer_list<const char*> beginnings) {
  for (const char* const each : beginnings) {
    size_t n = 0;
    while (each[n] != '\0' && each[n] == path[n]) ++n;
    if (each[n] == '\0') return true;
  }
  return false;
}

// What is no file's may be a stub.
bool IsFile(const char* path) {
  return path[0] == '/' && !BeginsWithAny(path, {"/memfd:", "/dev/zero", "/SYSV"});
}

// The kernel has filled it. Other names in brackets are of the program's memory: its heap, its
// stack, what it has given a name.
bool IsOfKernel(const char* path) {
  return BeginsWithAny(path, {"[vdso]", "[vsyscall]", "[vvar", "[uprobes]"});
}

bool IsHarmless(const Mapping& mapping) {
  if (!mapping.executable || IsOfKernel(mapping.path) || IsOfObject(mapping.range)) return true;
  if (!IsFile(mapping.path) && mapping.range.size() > kLargestStub) return true;
  return rawcall::SearchMemory(mapping.range) == Verdict::kHarmless;
}

// Calls look(line) for each line of a file of the kernel's, until it says no. False: it cannot be
// read, or a line is too long.
template <typename Function>
bool ForEachLine(const char* path, Function look) {
  const long fd = sys::Openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  sys::Scratch<char[sys::kScratchSize]> block;
  char* const text = block.get();
  constexpr size_t kRoom = sys::kScratchSize - 1;
  size_t held = 0;
  bool goes_on = true, ok = true;
  while (goes_on && ok) {
    const long n = sys::Read(static_cast<int>(fd), text + held, kRoom - held);
    if (n <= 0) {
      ok = n == 0 && held == 0;
      break;
    }
    held += static_cast<size_t>(n);
    size_t begin = 0;
    for (size_t i = 0; goes_on && i < held; ++i) {
      if (text[i] != '\n') continue;
      text[i] = '\0';
      goes_on = look(text + begin);
      begin = i + 1;
    }
    held -= begin;
    ok = held < kRoom;
    __builtin_memmove(text, text + begin, held);
  }
  sys::Close(static_cast<int>(fd));
  return ok;
}

}  // namespace

bool Callers::LookAtObjects(Culprit* culprit) {
  const auto look = [](void* context, const LoadedObject& object) {
    if (IsHarmless(object)) return true;
    const char* const name = rawcall::NameOf(object.path);
    static_cast<Culprit*>(context)->Append(name[0] != '\0' ? name : "the program");
    return false;
  };
  // A child that was forked unseen may lack what the looking needs of its parent's threads.
  const bool looked = engine.standing.IsOurs() && engine.host->for_each_object(look, culprit);
  if (!looked) culprit->Append(kUnseen);
  return culprit->size() == 0;
}

bool Callers::LookAtMappings(Culprit* culprit) {
  const bool read = ForEachLine("/proc/thread-self/maps", [&](const char* line) {
    Mapping mapping;
    if (!TakeMapping(line, &mapping) || IsHarmless(mapping)) return true;
    culprit->Append(IsFile(mapping.path) ? rawcall::NameOf(mapping.path) : kMade);
    return false;
  });
  if (!read && culprit->size() == 0) culprit->Append(kUnseen);
  return culprit->size() == 0;
}

bool Callers::Look(Culprit* culprit) {
  const uint64_t loads = engine.host->count_loads();
  if (loads != loads_.load(std::memory_order_relaxed) && !LookAtObjects(culprit)) return false;
  loads_.store(loads, std::memory_order_relaxed);
  const uint64_t made = made_.load();
  if (made != looked_made_.load() && !LookAtMappings(culprit)) return false;
  looked_made_.store(made);
  return true;
}

bool Callers::looks() {
  return engine.host->for_each_object != nullptr && engine.settings.raw != settings::Raw::kTrust;
}

void Callers::SayInterposed() const {
  if (!see_paths()) engine.notice.Hinder(lease::Hindrance::kInterposer, interposer_);
}

void Callers::Begin() {
  if (engine.host->find_interposer != nullptr) interposer_ = engine.host->find_interposer();
  if (!looks()) coverage_.store(Coverage::kCaught, std::memory_order_release);
}

bool Callers::Know(bool starts) {
  if (are_raw()) return false;
  if (!looks()) return true;
  sys::InEngine inside;
  sys::Scratch<Culprit> culprit;
  culprit->Clear();
  // Code that comes between the look and the new state is looked at by a second one; code that
  // comes later, by whoever brings it.
  for (int looks = 0; looks < 2 && !are_raw() && (looks == 0 || HasNews()); ++looks) {
    if (!Look(culprit.get())) {
      BecomeRaw(culprit->c_str(), starts);
      return false;
    }
    Coverage before = Coverage::kNotLooked;
    coverage_.compare_exchange_strong(before, Coverage::kCaught);
  }
  return !are_raw();
}

bool Callers::HasNews() const {
  return engine.host->count_loads() != loads_.load() || made_.load() != looked_made_.load();
}

void Callers::LookAtLoaded() {
  if (engine.active() && are_known()) Know();
}

void Callers::LookAtMemory(const void* address, size_t n) {
  NoteExecutable();
  if (!engine.active() || !are_known() || !looks() || n > kLargestStub) return;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  sys::InEngine inside;
  if (rawcall::SearchMemory({begin, begin + n}) == Verdict::kRaw) {
    BecomeRaw(kMade);
  }
}

// From here on nothing attaches; then what is attached is let go of.
void Callers::BecomeRaw(const char* culprit, bool starts) {
  if (coverage_.exchange(Coverage::kRaw) == Coverage::kRaw || !engine.active()) return;
  engine.notice.Hinder(lease::Hindrance::kRawCalls, culprit);
  // Nobody asks later for the bytes that the parent has in its cache.
  for (uint32_t fd = 0; fd < engine.descriptors.end(); ++fd) TakeOver(static_cast<int>(fd));
  engine.Retire(lease::Hindrance::kRawCalls);
  if (!starts || engine.settings.raw != settings::Raw::kRefuse) return;
  sys::Text<480> text;
  text.Append(culprit).Append(" makes system calls past libc (NVCACHE_RAW=refuse)");
  engine.notice.RefuseCache(text.c_str());
}

}  // namespace nvcache::vfs
