// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/huge.h"

#include <errno.h>
#include <fmt/format.h>

#include <fstream>
#include <sstream>
#include <string>

#include "recovery/tool/progress.h"
#include "src/sys/memory.h"

namespace nvcache::tool {
namespace {

using sys::kHugePage;

uint64_t WholePages(const pool::Pool& pool) {
  return pool.view().superblock->pool_size / kHugePage * kHugePage;
}

// What the kernel tells of the mapping, in KiB: "ShmemPmdMapped:   262144 kB"; the other two are of
// hugetlbfs. "VmFlags:" ends it.
uint64_t HugeInMapping(const void* base) {
  std::ifstream maps("/proc/self/smaps");
  const std::string begin = fmt::format("{:x}-", reinterpret_cast<uintptr_t>(base));
  std::string line;
  while (std::getline(maps, line) && line.rfind(begin, 0) != 0) continue;
  uint64_t huge = 0;
  while (std::getline(maps, line) && line.rfind("VmFlags:", 0) != 0) {
    std::istringstream words(line);
    std::string name;
    uint64_t kib = 0;
    words >> name >> kib;
    const bool counts =
        name == "ShmemPmdMapped:" || name == "Shared_Hugetlb:" || name == "Private_Hugetlb:";
    if (counts) huge += kib * 1024;
  }
  return huge;
}

}  // namespace

// The kernel counts what this process has met.
std::optional<uint64_t> HugeBytes(const pool::Pool& pool) {
  if (pool.durability() == pmem::Durability::kPower) return {};
  const uint8_t* const base = pool.view().base;
  for (uint64_t at = 0; at < WholePages(pool); at += kHugePage) pool::Peek(base[at]);
  return HugeInMapping(base);
}

uint64_t MakeAllHuge(const pool::Pool& pool) {
  const std::optional<uint64_t> before = HugeBytes(pool);
  const uint64_t wanted = WholePages(pool);
  if (!before || *before == wanted) return 0;
  Progress progress("making huge pages");
  for (uint64_t at = 0; at < wanted; at += kHugePage) {
    if (sys::MakeHuge(pool.view().base + at) == -EINVAL) break;
    progress.Update(at, wanted);
  }
  return wanted - *HugeBytes(pool);
}

}  // namespace nvcache::tool
