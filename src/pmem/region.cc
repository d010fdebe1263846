// SPDX-License-Identifier: BSD-3-Clause
#include "src/pmem/region.h"

#include <errno.h>
#include <sys/sysmacros.h>

#include "src/sys/descriptor.h"
#include "src/sys/kernel.h"
#include "src/sys/memory.h"
#include "src/sys/text.h"

namespace nvcache::pmem {

namespace {

struct Kind {
  bool is_device = false;
  bool is_huge = false;  // whoever has it, has it in huge pages
};

// Bytes of a file, or of a devdax device (whose inode says 0; sysfs knows).
long SizeOf(int fd, size_t* size, Kind* kind) {
  struct stat st;
  if (long error = sys::Fstat(fd, &st); error < 0) return error;
  kind->is_device = !S_ISREG(st.st_mode);
  kind->is_huge = kind->is_device || static_cast<size_t>(st.st_blksize) >= sys::kHugePage;
  if (S_ISREG(st.st_mode)) {
    *size = static_cast<size_t>(st.st_size);
    return 0;
  }
  if (!S_ISCHR(st.st_mode)) return -ENODEV;
  sys::Text<96> path;
  path.Append("/sys/dev/char/").AppendNumber(major(st.st_rdev)).Append(":");
  path.AppendNumber(minor(st.st_rdev)).Append("/size");
  long sysfs = sys::Openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC);
  if (sysfs < 0) return sysfs == -EMFILE ? sysfs : -ENODEV;
  char digits[32] = {};
  long n = sys::Read(static_cast<int>(sysfs), digits, sizeof(digits) - 1);
  sys::Close(static_cast<int>(sysfs));
  *size = 0;
  for (long i = 0; i < n && digits[i] >= '0' && digits[i] <= '9'; ++i) {
    *size = *size * 10 + static_cast<size_t>(digits[i] - '0');
  }
  return *size > 0 ? 0 : -ENODEV;
}

// libpmem does not say why: it opens the file, for which there may be no room.
long WhyNotMapped(int fd) {
  const long another = sys::Fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (another == -EMFILE) return another;
  if (another >= 0) sys::Close(static_cast<int>(another));
  return -ENODEV;
}

// Where the kernel has huge pages by itself, it chooses a place that they may lie in: so it does
// for persistent memory, for hugetlbfs, and for tmpfs that is mounted with them. Else we do.
long MapByHand(int fd, int protection, bool is_huge, Region* region) {
  long address = sys::MapUnlocked(region->size, protection, MAP_SHARED_VALIDATE | MAP_SYNC, fd);
  region->durability = Durability::kPower;
  if (sys::IsError(address)) {
    const bool wants_place = !is_huge && region->size >= sys::kHugePage;
    void* const place = wants_place ? sys::HugePlace(region->size) : nullptr;
    address = sys::MapUnlocked(region->size, protection, MAP_SHARED, fd, place);
    if (sys::IsError(address) && place != nullptr) {
      address = sys::MapUnlocked(region->size, protection, MAP_SHARED, fd);
    }
    region->durability = Durability::kProcess;
  }
  if (sys::IsError(address)) return address;
  region->base = reinterpret_cast<uint8_t*>(address);
  return 0;
}

}  // namespace

long Map(int fd, const Libpmem* libpmem, Region* region) {
  Kind kind;
  if (long error = SizeOf(fd, &region->size, &kind); error < 0) return error;
  if (libpmem == nullptr || kind.is_device) {
    return MapByHand(fd, PROT_READ | PROT_WRITE, kind.is_huge, region);
  }
  // Names the very file that the caller examined and locked.
  const sys::FdLink path = sys::LinkTo(fd);
  int is_pmem = 0;
  size_t mapped = 0;
  void* base = libpmem->map_file(path.c_str(), 0, 0, 0, &mapped, &is_pmem);
  if (base == nullptr) return WhyNotMapped(fd);
  if (mapped < region->size) {
    libpmem->unmap(base, mapped);
    return -ENODEV;
  }
  sys::KeepUnlocked(base, mapped);
  region->base = static_cast<uint8_t*>(base);
  region->size = mapped;
  region->is_libpmems = true;
  region->durability = is_pmem != 0 ? Durability::kPower : Durability::kProcess;
  return 0;
}

long MapReadOnly(int fd, Region* region) {
  Kind kind;
  if (long error = SizeOf(fd, &region->size, &kind); error < 0) return error;
  if (region->size == 0) return -EINVAL;
  return MapByHand(fd, PROT_READ, kind.is_huge, region);
}

void Unmap(const Region& region, const Libpmem* libpmem) {
  if (region.is_libpmems) {
    sys::ForgetUnlocked(region.base);
    libpmem->unmap(region.base, region.size);
  } else {
    sys::UnmapUnlocked(region.base, region.size);
  }
}

}  // namespace nvcache::pmem
