// SPDX-License-Identifier: BSD-3-Clause
#include "src/cleanup/kernel_writer.h"

#include <algorithm>

#include "src/nvlog/log_reading.h"

namespace nvcache::cleanup {

using dramcache::CachedFile;
using nvlog::Kind;
using nvlog::Lsn;
using nvlog::Place;
using nvlog::RecordHeader;

long KernelWriter::Check(CachedFile& file) const {
  const long error = CheckDescriptor(file);
  return error == 0 ? -file.erase_error.load() : error;
}

void KernelWriter::Add(CachedFile& file, Place record) {
  if (log_.At(record).lsn > file.written_back.load()) records_.Add(file, record);
}

void KernelWriter::Write() {
  records_.ForEachRun([&](CachedFile& file, const Place* records, uint32_t count) -> long {
    if (file.failing.load() != 0) return count;
    const long done = WriteRun(file, records, count);
    if (done < 0) Fail(file, done);
    return done < 0 ? count : done;
  });
}

// The records of a group are in one list: with the last one, the kernel has all of it.
//
// How far the kernel will be is noted before the call: the process may die in it, and bytes that
// others have seen may not go back. Whoever replays the log then writes the bytes of the run once,
// from the front to the end, as the call would have done. If the kernel refuses the call before a
// batch, the note stays one run too high until the batch says that the file fails: no harm is done.
long KernelWriter::WriteRun(CachedFile& file, const Place* records, uint32_t count) {
  Hold();
  const auto begins = [](void* self, Lsn lsn) {
    static_cast<KernelWriter*>(self)->NoteWritten(lsn);
  };
  const long done = cache_.WriteBack(file, records, count, begins, this);
  if (done < 0) return done;
  const Lsn lsn = log_.At(records[done - 1]).lsn;
  const bool whole = done == count || log_.At(records[done]).lsn != lsn;
  file.written_back.store(whole ? lsn : lsn - 1);
  return done;
}

void KernelWriter::NoteWritten(Lsn lsn) {
  written_back_ = std::max(written_back_, lsn);
  const Lsn known = failing_.error() != 0 ? 0 : written_back_;
  pool::Note(*log_.view().written_back(log_.pool().seat()), known);
}

void KernelWriter::Fail(CachedFile& file, long error) {
  pool::Note(*log_.view().written_back(log_.pool().seat()), 0);
  failing_.Add(file, error);
}

// The next one begins behind what was read, and tells anew how far it is.
void KernelWriter::Recover(CachedFile& file) {
  written_back_ = 0;
  file.failing.store(0);
}

// ---------------------------------------------------------------------------------------------
// Before the batch.

long KernelWriter::WriteBack(CachedFile& file) {
  const Lsn end = file.newest.load();
  if (end <= file.written_back.load()) return 0;
  sys::Lock lock(lock_);
  return end <= file.written_back.load() && file.failing.load() == 0 ? 0 : WriteUpTo(file, end);
}

long KernelWriter::WriteBackBefore(CachedFile& file) {
  sys::Lock lock(lock_);
  return WriteUpTo(file, log_.newest());
}

long KernelWriter::WriteUpTo(CachedFile& file, Lsn end) {
  if (const int error = file.failing.load(); error != 0) return -error;
  if (const long error = WriteUpTo(end); error < 0) return error;
  // Some of it may be void.
  file.written_back.store(std::max(end, file.written_back.load()));
  return 1;
}

// All groups up to `end` are committed that are of the file that is asked for; of others, those
// that are not yet have not returned.
long KernelWriter::WriteUpTo(Lsn end) {
  ++passes_;
  long error = 0;
  Lsn last = 0;
  const auto write = [this](CachedFile& file, const Place* records, uint32_t count) {
    return WriteRun(file, records, count);
  };
  log_.ForEachUnread([&](Place place) {
    const Lsn lsn = log_.At(place).lsn;
    if (lsn > end) return false;
    if (lsn != last && !records_.HasRoomForGroup()) error = records_.ForEachRun(write);
    last = lsn;
    if (error == 0) error = Take(place);
    return error == 0;
  });
  const long written = records_.ForEachRun(write);
  return error < 0 ? error : written;
}

// A file is looked at once in each pass.
long KernelWriter::Take(Place place) {
  const RecordHeader& header = log_.At(place);
  CachedFile& file = calls_.file_of(header.file);
  if (header.kind == Kind::kFile || file.IsHandedOver(header.lsn)) return 0;
  if (file.failing.load() != 0 || header.lsn <= file.written_back.load()) return 0;
  if (header.kind != Kind::kData) {
    // The kernel has made it before anything later is to be seen.
    sys::Lock erased(file.erase_lock);
    return 0;
  }
  if (file.checked != passes_) {
    if (const long error = Check(file); error < 0) return error;
    file.checked = passes_;
  }
  records_.Add(file, place);
  return 0;
}

}  // namespace nvcache::cleanup
