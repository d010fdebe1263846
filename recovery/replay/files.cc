// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/replay/files.h"

#include <errno.h>
#include <sys/resource.h>

#include "recovery/replay/recreate.h"
#include "recovery/replay/resolve.h"
#include "src/sys/arena.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"

namespace nvcache::recovery {

namespace {

// Or as many as the limit of descriptors allows. Each that has to go costs an fsync.
constexpr uint32_t kMaxOpen = 1024;

// The disk's words, not the name's: the file may well be there, so its entries are not for
// discarding.
bool IsRefusal(long error) {
  return error == -EIO || error == -EROFS || error == -ENOSPC || error == -EDQUOT;
}

}  // namespace

Files::~Files() {
  if (files_ == nullptr) return;
  for (uint32_t slot = 0; slot < slots_; ++slot) {
    if (files_[slot].is_open) sys::Close(files_[slot].fd);
  }
  sys::Munmap(files_, slots_ * sizeof(File));
}

bool Files::Open(const pool::View& view, bool dry_run) {
  view_ = view;
  dry_run_ = dry_run;
  slots_ = view.superblock->file_slots;
  size_limit_ = sys::SoftLimit(RLIMIT_FSIZE);
  files_ = static_cast<File*>(sys::Reserve(slots_ * sizeof(File)));
  return files_ != nullptr;
}

void Files::Resolve(uint32_t slot, uint32_t incarnation) {
  NVCACHE_CHECK(files_[slot].state == File::kUnknown);
  if (!pool::FileRecordValid(*view_.file(slot), incarnation)) {
    MakeUnresolved(slot, EBADMSG);
  } else if (const long fd = OpenNow(slot); fd < 0 && !IsRefusal(fd)) {
    MakeUnresolved(slot, static_cast<int>(-fd));
  } else {
    files_[slot].state = File::kGood;
    if (fd < 0) Refuse(files_[slot], static_cast<int>(-fd));
  }
}

void Files::Write(uint32_t slot, const void* bytes, size_t n, uint64_t offset) {
  File& file = files_[slot];
  if (!EnsureOpen(slot)) return;
  if (offset + n > size_limit_) {  // the kernel would not only refuse but kill us with SIGXFSZ
    Refuse(file, EFBIG);
    return;
  }
  const auto* p = static_cast<const uint8_t*>(bytes);
  while (n > 0) {
    const long done = sys::Pwrite(file.fd, p, n, offset);
    if (done == -EINTR) continue;
    if (done <= 0) {
      Refuse(file, done < 0 ? static_cast<int>(-done) : EIO);
      return;
    }
    p += done;
    offset += static_cast<uint64_t>(done);
    n -= static_cast<size_t>(done);
  }
}

void Files::SyncAll() {
  for (uint32_t slot = 0; slot < slots_; ++slot) {
    if (files_[slot].is_open) SyncAndClose(slot);
  }
}

void Files::MakeUnresolved(uint32_t slot, int error) {
  files_[slot].state = File::kUnresolved;
  files_[slot].error = error;
}

void Files::Refuse(File& file, int error) {
  if (file.state != File::kGood) return;
  file.state = File::kRefused;
  file.error = error;
}

bool Files::EnsureOpen(uint32_t slot) {
  File& file = files_[slot];
  NVCACHE_CHECK(file.state == File::kGood);
  file.last_use = ++uses_;
  if (file.is_open) return true;
  const long fd = OpenNow(slot);
  if (fd < 0) Refuse(file, static_cast<int>(-fd));
  return fd >= 0;
}

long Files::OpenNow(uint32_t slot) {
  if (open_ == kMaxOpen) CloseOldest();
  long fd = FindOrRecreate(slot);
  while ((fd == -EMFILE || fd == -ENFILE) && open_ > 0) {
    CloseOldest();
    fd = FindOrRecreate(slot);
  }
  if (fd < 0) return fd;
  files_[slot].is_open = true;
  files_[slot].fd = static_cast<int>(fd);
  ++open_;
  return fd;
}

// Only where its first entry is met: a file that goes while others are written to was removed.
long Files::FindOrRecreate(uint32_t slot) {
  pool::FileRecord* record = view_.file(slot);
  File& file = files_[slot];
  const long found = OpenRecorded(*record);
  if (found != -ENOENT || record->name != pool::kNameNew || file.state != File::kUnknown) {
    return found;
  }
  const long created = Recreate(record, dry_run_);
  file.recreated = created >= 0;
  return created;
}

// The descriptor that wrote is the one that hears of errors: sync before it goes.
void Files::SyncAndClose(uint32_t slot) {
  File& file = files_[slot];
  pool::FileRecord* record = view_.file(slot);
  const bool settles = record->name == pool::kNameNew && !dry_run_;
  long error = sys::Fsync(file.fd);
  sys::Close(file.fd);
  file.is_open = false;
  --open_;
  if (error == 0 && settles) error = SyncFolder(*record);
  if (error < 0) {
    Refuse(file, static_cast<int>(-error));
  } else if (settles) {
    pool::SettleName(record);
  }
}

void Files::CloseOldest() {
  uint32_t oldest = slots_;
  for (uint32_t slot = 0; slot < slots_; ++slot) {
    if (!files_[slot].is_open) continue;
    if (oldest == slots_ || files_[slot].last_use < files_[oldest].last_use) oldest = slot;
  }
  NVCACHE_CHECK(oldest < slots_);
  SyncAndClose(oldest);
}

}  // namespace nvcache::recovery
