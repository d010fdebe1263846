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

bool IsZero(const CheckpointRecord& record) {
  return record.checkpoint == 0 && record.zero == 0 && record.crc == 0;
}

}  // namespace

CheckpointRecord* CheckpointRecordOf(const View& view, uint32_t whose, uint64_t i) {
  if (whose == kOfThrough) return view.through_checkpoint_record(i);
  return whose == kOfPool ? view.checkpoint_record(i) : view.seat_checkpoint_record(whose, i);
}

CheckpointRecord MakeCheckpointRecord(Lsn checkpoint, uint64_t salt) {
  CheckpointRecord record = {checkpoint, 0, 0};
  record.crc = CheckpointCrc(record, salt);
  return record;
}

int LoadCheckpoint(const View& view, uint32_t whose, Lsn* checkpoint) {
  *checkpoint = 0;
  // A pool that is inspected while it is in use changes one record after the other under our eyes.
  int valid = 0;
  for (int attempt = 0; attempt < 3 && valid < 2; ++attempt) {
    valid = 0;
    for (uint64_t i = 0; i < 2; ++i) {
      CheckpointRecord copy = {};
      sys::CopyWords(&copy, CheckpointRecordOf(view, whose, i), sizeof(copy));
      const bool unused = whose != kOfPool && IsZero(copy);
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

Lsn LoadCheckpointOfLog(const View& view, uint32_t log) {
  Lsn all = 0, own = 0;
  LoadCheckpoint(view, kOfPool, &all);
  LoadCheckpoint(view, WhoseCheckpoint(log), &own);
  return std::max(all, own);
}

void WriteCheckpoint(const View& view, uint32_t whose, uint64_t i, Lsn checkpoint,
                     pmem::Step step) {
  const CheckpointRecord record = MakeCheckpointRecord(checkpoint, view.salt());
  CheckpointRecord* place = CheckpointRecordOf(view, whose, i);
  pmem::StoreBytes(place, &record, kCheckpointStored);
  pmem::Pwb(place, sizeof(*place), step);
}

}  // namespace nvcache::pool
