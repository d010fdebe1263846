// SPDX-License-Identifier: BSD-3-Clause
//
// Looks at files as the library looks at what is mapped. Prints each object that calls past libc:
//
//   rawcall_scan FILE...
//   rawcall_scan --sites FILE...      each site with its number, also of harmless objects
//   rawcall_scan --functions FILE...  where the decoder does not come to the end of a function
//   rawcall_scan --starts FILE...     where each instruction of each function begins
//   rawcall_scan --time FILE...       also how long it took
#include <time.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "src/rawcall/code.h"
#include "src/rawcall/number.h"
#include "src/rawcall/search.h"
#include "src/rawcall/unwind.h"
#include "tests/rawcall/object.h"

namespace nvcache::rawcall {
namespace {

struct Totals {
  long objects = 0, raw = 0, functions = 0, unread = 0;
  double us = 0;
};

double Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

bool PrintSite(void* base, const Site& site) {
  std::printf("  %lx %s %ld%s\n", site.at - *static_cast<uintptr_t*>(base),
              site.in_function ? "function" : "outside", static_cast<long>(site.number),
              IsHarmless(site.number) ? " harmless" : "");
  return true;
}

void PrintStarts(Code* code, const Range& function, uintptr_t base) {
  Instruction i;
  std::printf("%lx:", function.begin - base);
  for (uintptr_t at = function.begin; code->Decode(at, function.end, &i); at += i.length) {
    std::printf(" %x", i.length);
  }
  std::printf("\n");
}

void CheckFunctions(const Image& image, const LoadedObject& loaded, bool prints, Totals* totals) {
  UnwindTable table(image);
  const Range text = image.Text(0, table.Functions());
  Code code(text);
  for (uintptr_t at = text.begin; at < text.end;) {
    Range function;
    if (!table.FunctionAround(at, &function)) {
      ++at;
      continue;
    }
    ++totals->functions;
    if (prints) PrintStarts(&code, function, loaded.base);
    if (!code.Reaches(function.begin, function.end)) {
      ++totals->unread;
      std::printf("  %s: the function %lx to %lx is not read to its end\n", loaded.path,
                  function.begin - loaded.base, function.end - loaded.base);
    }
    at = function.end > at ? function.end : at + 1;
  }
}

void Look(const std::string& path, const std::string& how, Totals* totals) {
  Object object;
  if (!object.Open(path) || object.IsLibc()) return;
  const LoadedObject loaded = object.loaded();
  const Image image(loaded);
  ++totals->objects;
  if (how == "--functions" || how == "--starts") {
    return CheckFunctions(image, loaded, how == "--starts", totals);
  }
  const double begin = Now();
  uintptr_t base = loaded.base;
  if (how == "--sites") std::printf("%s\n", path.c_str());
  const Verdict verdict =
      how == "--sites" ? SearchObject(image, {PrintSite, &base}) : SearchObject(image);
  totals->us += Now() - begin;
  if (verdict == Verdict::kHarmless) return;
  ++totals->raw;
  std::printf("%s%s\n", path.c_str(), IsTrusted(path.c_str()) ? " (trusted)" : "");
}

}  // namespace
}  // namespace nvcache::rawcall

int main(int argc, char** argv) {
  std::string how;
  nvcache::rawcall::Totals totals;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--", 2) == 0) {
      how = argv[i];
    } else {
      nvcache::rawcall::Look(argv[i], how, &totals);
    }
  }
  std::printf("objects %ld, raw %ld", totals.objects, totals.raw);
  if (how == "--functions")
    std::printf(", functions %ld, not read %ld", totals.functions, totals.unread);
  if (how == "--time") std::printf(", %.0f us", totals.us);
  std::printf("\n");
  return totals.unread > 0 ? 1 : 0;
}
