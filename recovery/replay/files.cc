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

// Bytes that the disk is given at a time.
constexpr uint64_t kPiece = 16u << 20;

// Leaves out what was written.
void Skip(iovec** pieces, int* n, size_t done) {
  for (; *n > 0 && done >= (*pieces)->iov_len; ++*pieces, --*n) done -= (*pieces)->iov_len;
  if (*n == 0) return;
  (*pieces)->iov_base = static_cast<uint8_t*>((*pieces)->iov_base) + done;
  (*pieces)->iov_len -= done;
}

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
  sys::UnmapUnlocked(files_, slots_ * sizeof(File));
}

bool Files::Open(const pool::View& view, nvlog::Position begin, bool dry_run) {
  view_ = view;
  begin_ = begin;
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
    return;
  }
  if (IsCut(slot)) files_[slot].cut = CutOf(slot);
  if (const long fd = OpenNow(slot); fd < 0 && !IsRefusal(fd)) {
    MakeUnresolved(slot, static_cast<int>(-fd));
  } else {
    files_[slot].state = File::kGood;
    files_[slot].unopened = fd < 0;
    if (fd < 0) Refuse(files_[slot], static_cast<int>(-fd));
    if (fd >= 0 && files_[slot].cut > 0 && !dry_run_) Cut(slot);
  }
}

void Files::Cut(uint32_t slot) {
  File& file = files_[slot];
  const long error = sys::Ftruncate(file.fd, 0);
  if (error < 0) Refuse(file, static_cast<int>(-error));
  file.is_unsynced = true;
}

void Files::ForgetCut(uint32_t slot) {
  if (files_[slot].cut == 0) return;
  files_[slot].cut = 0;
  pool::StoreCut(view_.file(slot), 0);
}

void Files::Write(uint32_t slot, iovec* pieces, int n, size_t bytes, uint64_t offset) {
  File& file = files_[slot];
  if (file.state != File::kGood || !EnsureOpen(slot)) return;
  if (offset + bytes > size_limit_) {  // the kernel would not only refuse but kill us with SIGXFSZ
    Refuse(file, EFBIG);
    return;
  }
  file.is_unsynced = true;
  for (uint64_t at = offset; n > 0;) {
    const long done = sys::Pwritev(file.fd, pieces, n, at);
    if (done == -EINTR) continue;
    if (done <= 0) {
      Refuse(file, done < 0 ? static_cast<int>(-done) : EIO);
      return;
    }
    at += static_cast<uint64_t>(done);
    Skip(&pieces, &n, static_cast<size_t>(done));
  }
  WriteOut(slot, offset, bytes);
}

// The kernel would leave everything to fsync, or to its timer. So the disk works while entries are
// applied, no more than a few pieces of a large file wait for it, and fsync is short.
void Files::WriteOut(uint32_t slot, uint64_t offset, size_t bytes) {
  if (filling_.bytes > 0 && filling_.slot != slot) StartPiece();
  if (filling_.bytes == 0) filling_ = {slot, offset, offset, 0};
  filling_.begin = offset < filling_.begin ? offset : filling_.begin;
  filling_.end = offset + bytes > filling_.end ? offset + bytes : filling_.end;
  filling_.bytes += bytes;
  if (filling_.bytes < kPiece) return;
  AwaitPiece(started_[oldest_]);
  started_[oldest_] = filling_;
  oldest_ = (oldest_ + 1) % kInFlight;
  StartPiece();
}

// Whether it can be had is seen by who waits for it.
void Files::StartPiece() {
  if (filling_.bytes > 0 && files_[filling_.slot].is_open) {
    sys::SyncFileRange(files_[filling_.slot].fd, filling_.begin, filling_.end - filling_.begin,
                       SYNC_FILE_RANGE_WRITE);
  }
  filling_.bytes = 0;
}

// Errors are told once for each descriptor: what this wait is told, fsync is not.
void Files::AwaitPiece(const Piece& piece) {
  File& file = files_[piece.slot];
  if (piece.bytes == 0 || !file.is_open) return;
  const long error = sys::SyncFileRange(file.fd, piece.begin, piece.end - piece.begin,
                                        SYNC_FILE_RANGE_WAIT_BEFORE);
  if (error < 0 && error != -ENOSYS) Refuse(file, static_cast<int>(-error));
}

bool Files::SyncNext() {
  while (next_to_sync_ < slots_ && !files_[next_to_sync_].is_open) ++next_to_sync_;
  if (next_to_sync_ == slots_) return false;
  SyncAndClose(next_to_sync_);
  return true;
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
  const bool lost = found == -ENOENT || (found == -ESTALE && record->predecessor != 0);
  if (!lost || record->name != pool::kNameNew || file.state != File::kUnknown) return found;
  const long created = Recreate(record, dry_run_);
  file.recreated = created >= 0;
  return created;
}

// The descriptor that wrote is the one that hears of errors: sync before it goes.
void Files::SyncAndClose(uint32_t slot) {
  File& file = files_[slot];
  pool::FileRecord* record = view_.file(slot);
  const bool settles = record->name == pool::kNameNew && file.is_unsynced;
  long error = file.is_unsynced ? sys::Fsync(file.fd) : 0;
  sys::Close(file.fd);
  file.is_open = false;
  file.is_unsynced = false;
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
