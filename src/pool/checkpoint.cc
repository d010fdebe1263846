// SPDX-License-Identifier: BSD-3-Clause
#include "src/pool/checkpoint.h"

#include <algorithm>
#include <cstddef>

#include "src/pmem/persist.h"
#include "src/sys/crc32c.h"
#include "src/sys/words.h"

namespace nvcache::pool {

namespace {

uint32_t CheckpointCrc(const CheckpointRecord& record, uint64_t salt) {
  return sys::Crc32c(&record, offsetof(CheckpointRecord, crc), static_cast<uint32_t>(salt));
}

CheckpointRecord* RecordOf(const View& view, uint32_t seat, uint64_t i) {
  if (seat == kOfThrough) return view.through_checkpoint_record(i);
  return seat == kOfPool ? view.checkpoint_record(i) : view.seat_checkpoint_record(seat, i);
}

bool IsZero(const CheckpointRecord& record) {
  return record.checkpoint == 0 && record.zero == 0 && record.crc == 0;
}

}  // namespace

int LoadCheckpoint(const View& view, uint32_t seat, Lsn* checkpoint) {
  *checkpoint = 0;
  // A pool that is inspected while it is in use changes one record after the other under our eyes.
  int valid = 0;
  for (int attempt = 0; attempt < 3 && valid < 2; ++attempt) {
    valid = 0;
    for (uint64_t i = 0; i < 2; ++i) {
      CheckpointRecord copy = {};
      sys::CopyWords(&copy, RecordOf(view, seat, i), sizeof(copy));
      const bool unused = seat != kOfPool && IsZero(copy);
      if (!unused &&
          (copy.checkpoint >> kLsnBits != 0 || copy.crc != CheckpointCrc(copy, view.salt()))) {
        continue;
      }
      ++valid;
      *checkpoint = std::max(*checkpoint, copy.checkpoint);
    }
  }
  return valid;
}

void WriteCheckpoint(const View& view, uint32_t seat, uint64_t i, Lsn checkpoint, pmem::Step step) {
  CheckpointRecord record = {checkpoint, 0, 0};
  record.crc = CheckpointCrc(record, view.salt());
  CheckpointRecord* place = RecordOf(view, seat, i);
  pmem::StoreBytes(place, &record, sizeof(record));
  pmem::Pwb(place, sizeof(*place), step);
}

bool ReadCheckpoint(const View& view, Lsn* checkpoint, int* records_valid) {
  *records_valid = LoadCheckpoint(view, kOfPool, checkpoint);
  return *records_valid > 0;
}

bool ReadSeatCheckpoint(const View& view, uint32_t seat, Lsn* checkpoint, int* records_valid) {
  *records_valid = LoadCheckpoint(view, seat, checkpoint);
  return *records_valid > 0;
}

bool ReadThroughCheckpoint(const View& view, Lsn* checkpoint, int* records_valid) {
  *records_valid = LoadCheckpoint(view, kOfThrough, checkpoint);
  return *records_valid > 0;
}

}  // namespace nvcache::pool
