// SPDX-License-Identifier: BSD-3-Clause
#include "mirror/store/memory_store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "mirror/core/error.h"

namespace nvcache::mirror {

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kPiece = 2 << 20;  // bytes of an area that are had at once
constexpr uint64_t kBlock = 1024;     // bytes of zeros that are left out

uint64_t Whole(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// If this is stored, so is all that was stored before; if it is not, nothing is that is stored
// later.
void Publish(uint64_t* word, uint64_t value) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

bool IsZero(const uint8_t* bytes, uint64_t n) {
  return bytes[0] == 0 && std::memcmp(bytes, bytes + 1, n - 1) == 0;
}

bool Allocate(int fd, uint64_t offset, uint64_t bytes) {
  int status;
  do {
    status = fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (status != 0 && errno == EINTR);
  return status == 0;
}

uint8_t* MapFile(int fd, uint64_t offset, uint64_t bytes) {
  void* at =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  return at == MAP_FAILED ? nullptr : static_cast<uint8_t*>(at);
}

}  // namespace

Id RandomId() {
  Id id;
  const auto size = static_cast<ssize_t>(id.bytes.size());
  while (getrandom(id.bytes.data(), id.bytes.size(), 0) != size) {
  }
  return id;
}

sys::Descriptor MakeMemory(const std::string& name) {
  return sys::Descriptor(memfd_create(("nvcache " + name).c_str(), MFD_CLOEXEC));
}

bool CanLock(uint64_t bytes) {
  bytes = Whole(bytes);
  void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return false;
  const bool can = mlock2(at, bytes, MLOCK_ONFAULT) == 0;
  munmap(at, bytes);
  return can;
}

MemoryStore::MemoryStore(sys::Descriptor file, std::string name, const Id& boot, Budget* budget)
    : file_(std::move(file)), name_(std::move(name)), budget_(*budget) {
  if (!budget_.Take(kFrontBytes)) {
    throw NoRoom("the memory of mirror " + name_ + " does not fit into the limit");
  }
  try {
    ReadOrMake(boot);
  } catch (...) {
    if (front_ != nullptr) munmap(front_, kFrontBytes);
    budget_.Give(kFrontBytes);
    throw;
  }
}

MemoryStore::~MemoryStore() {
  for (const Area& area : areas_) {
    if (area.bytes != nullptr) munmap(area.bytes, Whole(area.size));
    budget_.Give(area.size);
  }
  munmap(front_, kFrontBytes);
  budget_.Give(kFrontBytes);
}

void MemoryStore::ReadOrMake(const Id& boot) {
  MemoryHeader found = {};
  const ssize_t n = pread(file_.get(), &found, sizeof(found), 0);
  if (n < 0) throw StoreError("the memory of mirror " + name_ + ": " + Why(errno));
  const bool made = n == sizeof(found) && found.magic == kMemoryMagic;
  if (found.magic != 0 && !made) {
    throw StoreError("the memory of mirror " + name_ + " is some other file; remove it");
  }
  remembers_ = made && found.boot == boot;
  if (!remembers_ && ftruncate(file_.get(), 0) != 0) {
    throw StoreError("the memory of mirror " + name_ + ": " + Why(errno));
  }
  if (!Allocate(file_.get(), 0, kFrontBytes)) {
    throw NoRoom("no memory for mirror " + name_ + ": " + Why(errno));
  }
  front_ = MapFile(file_.get(), 0, kFrontBytes);
  if (front_ == nullptr) throw NoRoom("no memory for mirror " + name_ + ": " + Why(errno));
  locked_ = mlock2(front_, kFrontBytes, MLOCK_ONFAULT) == 0;
  header_ = reinterpret_cast<MemoryHeader*>(front_);
  if (!remembers_) return Make(boot);

  CheckKnown();
  for (size_t area = 0; area < areas_.size(); ++area) {
    if (header_->selected != area + 1) Drop(area);
  }
  if (header_->selected == 0) return;
  image_ = header_->areas[ImageArea()];
  if (!Map(ImageArea(), image_.pool_size)) {
    throw NoRoom("no address space for the image of mirror " + name_ + ": " + Why(errno));
  }
  budget_.TakeAnyway(image_.pool_size);
  image_ = FinishStaged();
}

void MemoryStore::Make(const Id& boot) {
  header_->format = kMemoryFormat;
  header_->boot = boot;
  header_->incarnation = RandomId();
  std::memcpy(header_->name, name_.data(), std::min(name_.size(), kMaxName));
}

void MemoryStore::Seal() { Publish(&header_->magic, kMemoryMagic); }

void MemoryStore::Become(const Id& incarnation, Epoch promised, Version version) {
  header_->incarnation = incarnation;
  header_->promised = promised;
  header_->version = version;
}

void MemoryStore::CheckKnown() const {
  const MemoryHeader& header = *header_;
  if (header.format != kMemoryFormat) {
    throw StoreError("the memory of mirror " + name_ +
                     " is of another version of NVCache; use that one, or remove it");
  }
  if (name_ != std::string(header.name, strnlen(header.name, sizeof(header.name)))) {
    throw StoreError("the memory of mirror " + name_ + " is that of another one; remove it");
  }
  const Staged& staged = header.staged;
  bool sane = header.selected <= 2 && staged.ranges <= kMaxRanges && staged.bytes <= kMaxBytes;
  if (sane && header.selected != 0) {
    struct stat st = {};
    const uint64_t size = header.areas[header.selected - 1].pool_size;
    sane = size != 0 && size <= kMaxImage && fstat(file_.get(), &st) == 0 &&
           static_cast<uint64_t>(st.st_size) >= AreaOffset(header.selected - 1) + size;
  }
  const auto* range = reinterpret_cast<const Range*>(front_ + kStagedRanges);
  uint64_t sum = 0;
  for (uint64_t i = 0; sane && staged.full != 0 && i < staged.ranges; ++i, ++range) {
    const uint64_t size = header.selected == 0 ? 0 : header.areas[header.selected - 1].pool_size;
    sane = range->offset <= size && range->length <= size - range->offset;
    sum += range->length;
  }
  sane = sane && (staged.full == 0 || (header.selected != 0 && sum == staged.bytes));
  if (!sane) throw StoreError("the memory of mirror " + name_ + " is damaged; remove it");
}

void MemoryStore::SetPromised(Epoch epoch) { Publish(&header_->promised, epoch); }
void MemoryStore::SetVersion(Version version) { Publish(&header_->version, version); }

bool MemoryStore::Map(size_t number, uint64_t size) {
  Area& area = areas_[number];
  const uint64_t end = AreaOffset(number) + Whole(size);
  struct stat st = {};
  if (fstat(file_.get(), &st) != 0) return false;
  if (static_cast<uint64_t>(st.st_size) < end &&
      ftruncate(file_.get(), static_cast<off_t>(end)) != 0) {
    return false;
  }
  uint8_t* const bytes = MapFile(file_.get(), AreaOffset(number), Whole(size));
  if (bytes == nullptr) return false;
  locked_ = mlock2(bytes, Whole(size), MLOCK_ONFAULT) == 0 && locked_;
  area = {bytes, size, std::vector<bool>((size + kPiece - 1) / kPiece)};
  return true;
}

void MemoryStore::Drop(size_t number) {
  Area& area = areas_[number];
  if (area.bytes != nullptr) munmap(area.bytes, Whole(area.size));
  budget_.Give(area.size);
  area = {};
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(AreaOffset(number)), static_cast<off_t>(kMaxImage));
}

bool MemoryStore::BeginCopy(const Id& lineage, uint64_t pool_size) {
  DropCopy();
  if (pool_size == 0 || pool_size > kMaxImage || pool_size % kRangeUnit != 0) return false;
  if (!budget_.Take(pool_size)) return false;
  copy_area_ = header_->selected == 1 ? 1 : 0;
  if (!Map(copy_area_, pool_size)) {
    budget_.Give(pool_size);
    return false;
  }
  header_->areas[copy_area_] = {.lineage = lineage, .pool_size = pool_size};
  copy_size_ = pool_size;
  return true;
}

void MemoryStore::DropCopy() {
  if (copy_size_ == 0) return;
  copy_size_ = 0;
  Drop(copy_area_);
}

void MemoryStore::Reserve(size_t number, const std::vector<Range>& ranges) {
  Area& area = areas_[number];
  for (const Range& range : ranges) {
    if (range.length == 0) continue;
    for (uint64_t i = range.offset / kPiece; i <= (range.offset + range.length - 1) / kPiece; ++i) {
      if (area.reserved[i]) continue;
      const uint64_t bytes = std::min(kPiece, Whole(area.size) - i * kPiece);
      if (!Allocate(file_.get(), AreaOffset(number) + i * kPiece, bytes)) {
        throw NoRoom("no memory for the image of mirror " + name_ + ": " + Why(errno));
      }
      area.reserved[i] = true;
    }
  }
}

void MemoryStore::Copy(size_t number, const Range* ranges, size_t count, const uint8_t* bytes) {
  for (size_t i = 0; i < count; ++i) {
    if (ranges[i].length == 0) continue;
    std::memcpy(areas_[number].bytes + ranges[i].offset, bytes, ranges[i].length);
    bytes += ranges[i].length;
    Step();
  }
}

void MemoryStore::WriteCopy(const std::vector<Range>& ranges, const uint8_t* bytes) {
  Reserve(copy_area_, ranges);
  Copy(copy_area_, ranges.data(), ranges.size(), bytes);
}

void MemoryStore::Exchange(Epoch epoch, Position position) {
  const size_t area = copy_area_;
  ImageInfo& info = header_->areas[area];
  info.written = epoch;
  info.position = position;
  Step();
  Publish(&header_->selected, area + 1);
  Step();
  image_ = info;
  copy_size_ = 0;
  Drop(1 - area);
}

void MemoryStore::Write(const std::vector<Range>& ranges, const uint8_t* bytes, Epoch epoch,
                        Position position) {
  Reserve(ImageArea(), ranges);
  size_t sum = 0;
  for (const Range& range : ranges) sum += range.length;
  if (!ranges.empty()) {
    std::memcpy(front_ + kStagedRanges, ranges.data(), ranges.size() * sizeof(Range));
  }
  if (sum != 0) std::memcpy(front_ + kStagedBytes, bytes, sum);
  Staged& staged = header_->staged;
  staged.ranges = ranges.size();
  staged.bytes = sum;
  staged.epoch = epoch;
  staged.position = position;
  Step();
  Publish(&staged.full, 1);
  Step();
  image_ = FinishStaged();
}

ImageInfo MemoryStore::FinishStaged() {
  Staged& staged = header_->staged;
  ImageInfo& info = header_->areas[ImageArea()];
  if (staged.full == 0) return info;
  Copy(ImageArea(), reinterpret_cast<const Range*>(front_ + kStagedRanges), staged.ranges,
       front_ + kStagedBytes);
  info.written = staged.epoch;
  Step();
  info.position = staged.position;
  Step();
  Publish(&staged.full, 0);
  return info;
}

void MemoryStore::Forget() {
  if (header_->selected == 0) return;
  const size_t area = ImageArea();
  Publish(&header_->selected, 0);
  Step();
  image_ = {};
  Drop(area);
}

Range MemoryStore::Find(uint64_t offset) const {
  const Range end = {image_.pool_size, 0};
  if (header_->selected == 0) return end;
  const Area& area = areas_[ImageArea()];
  const uint64_t base = AreaOffset(ImageArea());
  for (uint64_t at = offset / kRangeUnit * kRangeUnit; at < area.size;) {
    // Bytes that were never written have no pages, and get none by being read.
    const off_t data = lseek(file_.get(), static_cast<off_t>(base + at), SEEK_DATA);
    if (data < 0 || static_cast<uint64_t>(data) - base >= area.size) break;
    const auto hole = static_cast<uint64_t>(lseek(file_.get(), data, SEEK_HOLE)) - base;
    const uint64_t stop = std::min(hole, area.size);
    const auto zero = [&](uint64_t i) {
      return IsZero(area.bytes + i, std::min(kBlock, stop - i));
    };
    at = static_cast<uint64_t>(data) - base;
    while (at < stop && zero(at)) at += kBlock;
    if (at >= stop) {
      at = stop;
      continue;
    }
    uint64_t last = at;
    while (last < stop && last - at < kMaxBytes && !zero(last)) last += kBlock;
    return {at, static_cast<uint32_t>(std::min(last, stop) - at)};
  }
  return end;
}

void MemoryStore::Read(const Range& range, uint8_t* bytes) const {
  if (range.length != 0) {
    std::memcpy(bytes, areas_[ImageArea()].bytes + range.offset, range.length);
  }
}

}  // namespace nvcache::mirror
