// SPDX-License-Identifier: BSD-3-Clause
#include "src/replay/files.h"

#include <errno.h>
#include <limits.h>
#include <linux/falloc.h>

#include <algorithm>

#include "src/pmem/persist.h"
#include "src/pool/identify.h"
#include "src/replay/resolve.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/memory.h"
#include "src/sys/scratch.h"
#include "src/sys/size_limit.h"

namespace nvcache::replay {

namespace {

// Or as many as the limit of descriptors allows. Each that has to go costs an fsync.
constexpr uint32_t kMaxOpen = 1024;

// Bytes that the disk is given at a time.
constexpr uint64_t kPiece = 16u << 20;

constexpr uint64_t kMinFileUnits = 1 + nvlog::UnitsOf(pool::FileRecordSize(1));

alignas(pool::kPageSize) constexpr uint8_t kZeros[pool::kPageSize] = {};

// Leaves out what was written.
void Skip(iovec** pieces, int* n, size_t done) {
  for (; *n > 0 && done >= (*pieces)->iov_len; ++*pieces, --*n) done -= (*pieces)->iov_len;
  if (*n == 0) return;
  (*pieces)->iov_base = static_cast<uint8_t*>((*pieces)->iov_base) + done;
  (*pieces)->iov_len -= done;
}

bool IsGone(long error) { return error == -ENOENT || error == -ESTALE; }

// No errno.
constexpr long kWasRemoved = LONG_MIN + 2;
static_assert(kWasRemoved != Names::kNotMine && kWasRemoved != Names::kToBeMade);

// Each file that a pool can name has a file record of its own.
uint64_t MaxFiles(const pool::View& view) {
  const uint64_t units = view.segment_count() * view.segment_units();
  return std::min<uint64_t>(units / kMinFileUnits, nvlog::kNoFile);
}

}  // namespace

Files::~Files() {
  if (files_ == nullptr) return;
  for (uint32_t file = newest_; file != nvlog::kNoFile; file = files_[file].older) {
    sys::Close(files_[file].fd);
  }
  sys::UnmapUnlocked(files_, max_files_ * sizeof(File));
}

bool Files::Open(bool dry_run) {
  dry_run_ = dry_run;
  size_limit_ = sys::FileSizeLimit();
  max_files_ = MaxFiles(reader_.view());
  files_ = static_cast<File*>(sys::Reserve(max_files_ * sizeof(File)));
  return files_ != nullptr;
}

void Files::Resolve(uint32_t number) {
  File& file = (*this)[number];
  NVCACHE_CHECK(file.state == File::kUnknown && (number == nvlog::kNoFile || number < max_files_));
  const long fd = number == nvlog::kNoFile ? -EBADMSG : OpenNow(number);
  if (fd == kWasRemoved || fd == Names::kToBeMade) {
    file.state = fd == kWasRemoved ? File::kRemoved : File::kGood;
    return;
  }
  if (fd < 0 && !IsRefusal(fd)) {
    file.state = File::kUnresolved;
    file.error = static_cast<int>(-fd);
    return;
  }
  file.state = File::kGood;
  file.unopened = fd < 0;
  if (fd < 0) Refuse(file, fd);
}

// ---------------------------------------------------------------------------------------------
// Changes.

void Files::Write(uint32_t number, iovec* pieces, int n, size_t bytes, uint64_t offset) {
  File& file = files_[number];
  if (!EnsureOpen(number)) return;
  if (offset + bytes > size_limit_) {  // the kernel would not only refuse but kill us with SIGXFSZ
    Refuse(file, -EFBIG);
    return;
  }
  file.is_unsynced = true;
  for (uint64_t at = offset; n > 0;) {
    const long done = sys::Pwritev(file.fd, pieces, n, at);
    if (done == -EINTR) continue;
    if (done <= 0) {
      Refuse(file, done < 0 ? done : -EIO);
      return;
    }
    at += static_cast<uint64_t>(done);
    Skip(&pieces, &n, static_cast<size_t>(done));
  }
  WriteOut(number, offset, bytes);
}

void Files::Truncate(uint32_t number, uint64_t size) {
  File& file = files_[number];
  if (!EnsureOpen(number)) return;
  uint64_t now = 0;
  long error = SizeOf(file, &now);
  if (error == 0 && size > size_limit_ && size > now) error = -EFBIG;  // or SIGXFSZ, as above
  file.is_unsynced = true;
  if (error == 0) {
    do {
      error = sys::Ftruncate(file.fd, static_cast<off_t>(size));
    } while (error == -EINTR);
  }
  if (error < 0) Refuse(file, error);
}

void Files::Touch(uint32_t number) {
  if (EnsureOpen(number)) files_[number].is_unsynced = true;
}

void Files::Erase(uint32_t number, uint64_t offset, uint64_t length) {
  File& file = files_[number];
  if (!EnsureOpen(number)) return;
  uint64_t size = 0;
  long error = SizeOf(file, &size);
  if (error == 0 && offset >= size) return;
  length = std::min(length, size - offset);
  file.is_unsynced = true;
  if (error == 0) {
    do {
      error = sys::Fallocate(file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                             static_cast<off_t>(offset), static_cast<off_t>(length));
    } while (error == -EINTR);
  }
  if (error == -EOPNOTSUPP || error == -ENOSYS) {
    WriteZeros(number, offset, length);
  } else if (error < 0) {
    Refuse(file, error);
  }
}

// Where a file system knows no holes.
void Files::WriteZeros(uint32_t number, uint64_t offset, uint64_t length) {
  constexpr int kPieces = 16;
  const File& file = files_[number];
  while (length > 0 && file.state == File::kGood) {
    iovec pieces[kPieces];
    int n = 0;
    size_t bytes = 0;
    for (; n < kPieces && bytes < length; ++n) {
      const auto piece = static_cast<size_t>(std::min<uint64_t>(length - bytes, sizeof(kZeros)));
      pieces[n] = {const_cast<uint8_t*>(kZeros), piece};
      bytes += piece;
    }
    Write(number, pieces, n, bytes, offset);
    offset += bytes;
    length -= bytes;
  }
}

long Files::SizeOf(const File& file, uint64_t* size) const {
  struct stat st = {};
  const long error = sys::Fstat(file.fd, &st);
  *size = static_cast<uint64_t>(st.st_size);
  return error;
}

// The kernel would leave everything to fsync, or to its timer. So the disk works while records are
// applied, no more than a few pieces of a large file wait for it, and fsync is short.
void Files::WriteOut(uint32_t file, uint64_t offset, size_t bytes) {
  if (filling_.bytes > 0 && filling_.file != file) StartPiece();
  if (filling_.bytes == 0) filling_ = {file, offset, offset, 0};
  filling_.begin = std::min(filling_.begin, offset);
  filling_.end = std::max(filling_.end, offset + bytes);
  filling_.bytes += bytes;
  if (filling_.bytes < kPiece) return;
  AwaitPiece(started_[next_piece_]);
  started_[next_piece_] = filling_;
  next_piece_ = (next_piece_ + 1) % kInFlight;
  StartPiece();
}

// The wait for it shows whether it can be had.
void Files::StartPiece() {
  if (filling_.bytes > 0 && files_[filling_.file].is_open) {
    sys::SyncFileRange(files_[filling_.file].fd, filling_.begin, filling_.end - filling_.begin,
                       SYNC_FILE_RANGE_WRITE);
  }
  filling_.bytes = 0;
}

// Errors are told once for each descriptor: an error that this wait is told, fsync is not.
void Files::AwaitPiece(const Piece& piece) {
  File& file = files_[piece.file];
  if (piece.bytes == 0 || !file.is_open) return;
  const long error = sys::SyncFileRange(file.fd, piece.begin, piece.end - piece.begin,
                                        SYNC_FILE_RANGE_WAIT_BEFORE);
  if (error < 0 && error != -ENOSYS) Refuse(file, error);
}

void Files::Refuse(File& file, long error) {
  if (file.state != File::kGood) return;
  if (error == kWasRemoved) {  // just now
    file.state = File::kRemoved;
    return;
  }
  file.state = File::kRefused;
  file.error = static_cast<int>(-error);
}

// ---------------------------------------------------------------------------------------------
// Descriptors.

// Opens a good file, if it is not open.
bool Files::EnsureOpen(uint32_t number) {
  File& file = files_[number];
  if (file.state != File::kGood) return false;
  if (file.is_open) {
    TakeFromOpen(number);
    AddToOpen(number);
    return true;
  }
  const long fd = OpenNow(number);
  if (fd < 0) Refuse(file, fd);
  return fd >= 0;
}

long Files::OpenNow(uint32_t number) {
  if (open_ == kMaxOpen) SyncAndClose(oldest_);
  long fd = Find(number);
  while ((fd == -EMFILE || fd == -ENFILE) && open_ > 0) {
    SyncAndClose(oldest_);
    fd = Find(number);
  }
  if (fd < 0) return fd;
  files_[number].is_open = true;
  files_[number].fd = static_cast<int>(fd);
  AddToOpen(number);
  return fd;
}

bool Files::CopyRecord(uint32_t number, pool::FileRecord* record) const {
  if (number == nvlog::kNoFile) return false;
  return (files_[number].by_last ? ahead_ : walk_).CopyRecord(number, record);
}

// A file that the program has renamed is declared again, with its new name; one that it has
// removed, as removed. When the first record leads nowhere, the last one counts. The file system
// may not know of a removal yet: where it is not mounted, nothing says that the file is gone.
long Files::Find(uint32_t number) {
  File& file = files_[number];
  sys::Scratch<pool::FileRecord> record;
  if (!CopyRecord(number, record.get())) return -EBADMSG;
  uint64_t successor = 0;
  const long look = names_.Look(pool::Fingerprint(*record), &successor);
  if (look == -ENOENT) return kWasRemoved;
  if (look >= 0) return OpenLookedAt(look, *record, successor);
  if (look != Names::kNotMine) return look;
  long found = OpenRecorded(*record);
  if (!IsGone(found)) return found;
  if (!file.by_last && LookAhead() && ahead_.RecordOf(number) != walk_.RecordOf(number)) {
    file.by_last = ahead_.CopyRecord(number, record.get());
    if (!file.by_last) return -EBADMSG;
    found = OpenRecorded(*record);
  }
  if (IsGone(found) && names_.WasReplaced(*record)) return kWasRemoved;
  if (!IsGone(found) || (record->flags & pool::kFileRemoved) == 0) return found;
  return IsMountedAt(record->path, record->file_system) ? kWasRemoved : -ENODEV;
}

// Once, and only where a file is missed: it reads all logs.
bool Files::LookAhead() {
  if (is_ahead_) return true;
  if (!ahead_.Open()) return false;
  for (nvlog::Group group; ahead_.Next(&group);) continue;
  is_ahead_ = true;
  return true;
}

bool Files::SyncNext() {
  if (oldest_ == nvlog::kNoFile) return false;
  SyncAndClose(oldest_);
  return true;
}

// The descriptor that wrote is the one that hears of errors: sync before it goes.
void Files::SyncAndClose(uint32_t number) {
  File& file = files_[number];
  const long error = file.is_unsynced ? sys::Fsync(file.fd) : 0;
  if (sync_error_ == 0) sync_error_ = error;
  TakeFromOpen(number);
  sys::Close(file.fd);
  file.is_open = false;
  file.is_unsynced = false;
  if (error < 0) Refuse(file, error);
}

void Files::AddToOpen(uint32_t number) {
  File& file = files_[number];
  file.older = newest_;
  file.newer = nvlog::kNoFile;
  (newest_ == nvlog::kNoFile ? oldest_ : files_[newest_].newer) = number;
  newest_ = number;
  ++open_;
}

void Files::TakeFromOpen(uint32_t number) {
  const File& file = files_[number];
  (file.newer == nvlog::kNoFile ? newest_ : files_[file.newer].older) = file.older;
  (file.older == nvlog::kNoFile ? oldest_ : files_[file.older].newer) = file.newer;
  --open_;
}

}  // namespace nvcache::replay
