// SPDX-License-Identifier: BSD-3-Clause
#include "src/pmem/region.h"

#include <errno.h>
#include <sys/sysmacros.h>

#include "src/sys/kernel.h"
#include "src/sys/memory.h"
#include "src/sys/text.h"

namespace nvcache::pmem {

namespace {

// Bytes of a file, or of a devdax device (whose inode says 0; sysfs knows).
long SizeOf(int fd, size_t* size) {
  struct stat st;
  if (long error = sys::Fstat(fd, &st); error < 0) return error;
  if (S_ISREG(st.st_mode)) {
    *size = static_cast<size_t>(st.st_size);
    return 0;
  }
  if (!S_ISCHR(st.st_mode)) return -ENODEV;
  sys::Text<96> path;
  path.Append("/sys/dev/char/").AppendNumber(major(st.st_rdev)).Append(":");
  path.AppendNumber(minor(st.st_rdev)).Append("/size");
  long sysfs = sys::Openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC);
  if (sysfs < 0) return -ENODEV;
  char digits[32] = {};
  long n = sys::Read(static_cast<int>(sysfs), digits, sizeof(digits) - 1);
  sys::Close(static_cast<int>(sysfs));
  *size = 0;
  for (long i = 0; i < n && digits[i] >= '0' && digits[i] <= '9'; ++i) {
    *size = *size * 10 + static_cast<size_t>(digits[i] - '0');
  }
  return *size > 0 ? 0 : -ENODEV;
}

long MapByHand(int fd, int protection, Region* region) {
  long address = sys::MapUnlocked(region->size, protection, MAP_SHARED_VALIDATE | MAP_SYNC, fd);
  region->durability = Durability::kPower;
  if (sys::IsError(address)) {
    address = sys::MapUnlocked(region->size, protection, MAP_SHARED, fd);
    region->durability = Durability::kProcess;
  }
  if (sys::IsError(address)) return address;
  region->base = reinterpret_cast<uint8_t*>(address);
  return 0;
}

}  // namespace

long Map(int fd, const Libpmem* libpmem, Region* region) {
  if (long error = SizeOf(fd, &region->size); error < 0) return error;
  if (libpmem == nullptr) return MapByHand(fd, PROT_READ | PROT_WRITE, region);
  sys::Text<32> path;  // names the very file that the caller examined and locked
  path.Append(NVCACHE_DESCRIPTORS "/").AppendNumber(static_cast<uint64_t>(fd));
  int is_pmem = 0;
  size_t mapped = 0;
  void* base = libpmem->map_file(path.c_str(), 0, 0, 0, &mapped, &is_pmem);
  if (base == nullptr) return -ENODEV;
  if (mapped < region->size) {
    libpmem->unmap(base, mapped);
    return -ENODEV;
  }
  sys::KeepUnlocked(base, mapped);
  region->base = static_cast<uint8_t*>(base);
  region->size = mapped;
  region->durability = is_pmem != 0 ? Durability::kPower : Durability::kProcess;
  return 0;
}

long MapReadOnly(int fd, Region* region) {
  if (long error = SizeOf(fd, &region->size); error < 0) return error;
  if (region->size == 0) return -EINVAL;
  return MapByHand(fd, PROT_READ, region);
}

void Unmap(const Region& region, const Libpmem* libpmem) {
  if (libpmem != nullptr) {
    sys::ForgetUnlocked(region.base);
    libpmem->unmap(region.base, region.size);
  } else {
    sys::UnmapUnlocked(region.base, region.size);
  }
}

}  // namespace nvcache::pmem
