// SPDX-License-Identifier: BSD-3-Clause
//
// The order on the medium (I6):
//
//   entries applied, in log order
//   every file synced; those that were new are not any more
//   nothing left:  tail past every position ever taken, durable; then the state, clean
//   else:          applied groups marked, each durable before the next
//
// Killed before the files are synced, nothing in the log has changed, and the next run applies
// everything again: in the same order, so with the same result. Files that the file system has lost
// are created on the way (recreate.cc); the next run knows them by their records. Killed while
// groups are marked, a run of the oldest ones is: had a newer one been marked alone, applying an
// older one again would undo it. Killed between tail and state, the next run finds an empty log.
#include "recovery/replay/replay.h"

#include <errno.h>

#include <atomic>

#include "recovery/replay/files.h"
#include "src/pmem/persist.h"
#include "src/sys/check.h"

namespace nvcache::recovery {

namespace {

using nvlog::EntryHeader;
using nvlog::Group;
using nvlog::Position;
using nvlog::Verdict;

class Run {
 public:
  Run(pool::Pool& pool, const Options& options, const Observer& observer, Summary* summary)
      : pool_(pool),
        view_(pool.view()),
        reader_(view_),
        options_(options),
        observer_(observer),
        summary_(*summary) {}

  bool Do();

 private:
  void ApplyAll();
  void ApplyGroup(const Group& group);
  bool FindFile(const EntryHeader& first);
  bool IsOnDisk(const EntryHeader& first) const;
  void ApplyEntry(const EntryHeader& header);
  void TellRecreated(uint32_t slot);
  void TellUnresolved(uint32_t slot);
  void CountFiles();
  bool IsKept(const EntryHeader& first);
  void MarkApplied();

  pool::Pool& pool_;
  const pool::View view_;
  const nvlog::Reader reader_;
  const Options& options_;
  const Observer& observer_;
  Summary& summary_;
  Files files_;
};

bool Run::Do() {
  if (!files_.Open(view_, options_.dry_run)) {
    summary_.error = ENOMEM;
    return false;
  }
  ApplyAll();
  if (!options_.dry_run) files_.SyncAll();
  CountFiles();
  if (options_.dry_run) return false;
  if (summary_.failed_files > 0 || (summary_.unresolved_entries > 0 && !options_.discard)) {
    MarkApplied();
    return false;
  }
  // No position from end() on was ever taken, so none of the old headers can come to life again.
  // Twice: both records agree, whatever state they were in.
  pool_.StoreTail(reader_.end());
  pool_.StoreTail(reader_.end());
  pool_.MarkClean();
  return true;
}

void Run::ApplyAll() {
  nvlog::GroupWalk walk(reader_);
  const auto progress = [&] {
    if (observer_.progress != nullptr) {
      observer_.progress(observer_.context, walk.done(), walk.total());
    }
  };
  for (Group group; walk.Next(&group); progress()) {
    if (group.verdict == Verdict::kCommitted) ApplyGroup(group);
    if (group.damaged == nvlog::kNoPosition) continue;
    ++summary_.damaged_groups;
    if (observer_.damaged != nullptr) observer_.damaged(observer_.context, group);
  }
  progress();
}

// The group is whole, so every entry of it is.
void Run::ApplyGroup(const Group& group) {
  Position position = group.position;
  for (uint32_t i = 0; i < group.entries; ++i) {
    EntryHeader header = {};
    NVCACHE_CHECK(reader_.Examine(position, &header) == Verdict::kCommitted);
    if (i == 0 && !FindFile(header)) return;
    ApplyEntry(header);
    position += nvlog::EntryUnits(header.length);
  }
}

// False if there is no need to apply the group.
bool Run::FindFile(const EntryHeader& first) {
  if (IsOnDisk(first)) return false;
  File& file = files_[first.file];
  const pool::FileRecord& record = *view_.file(first.file);
  if (file.state == File::kUnresolved) return true;
  if (file.state == File::kUnknown) {
    files_.Resolve(first.file, first.incarnation);
  } else if (record.incarnation != first.incarnation) {
    files_.MakeUnresolved(first.file, EBADMSG);
  }
  if (file.state == File::kUnresolved) TellUnresolved(first.file);
  if (file.recreated && file.entries == 0) TellRecreated(first.file);
  return true;
}

// A slot of the file table is used again once the durable tail has passed all that named it: then
// an older incarnation's entries, met behind a damaged tail, have been on disk for long.
bool Run::IsOnDisk(const EntryHeader& first) const {
  const pool::FileRecord& record = *view_.file(first.file);
  const auto later = static_cast<int32_t>(record.incarnation - first.incarnation);
  return later > 0 && pool::FileRecordValid(record, record.incarnation);
}

void Run::ApplyEntry(const EntryHeader& header) {
  File& file = files_[header.file];
  ++file.entries;
  file.bytes += header.length;
  if (file.state == File::kUnresolved) {
    if (observer_.orphan != nullptr) observer_.orphan(observer_.context, reader_, header);
    return;
  }
  if (file.state == File::kRefused || options_.dry_run) return;
  uint8_t payload[pool::kPageSize];
  reader_.Payload(header, payload, header.length);
  files_.Write(header.file, payload, header.length, header.offset);
}

void Run::TellRecreated(uint32_t slot) {
  if (observer_.recreated == nullptr) return;
  observer_.recreated(observer_.context, slot, *view_.file(slot));
}

void Run::TellUnresolved(uint32_t slot) {
  if (observer_.unresolved == nullptr) return;
  observer_.unresolved(observer_.context, slot, *view_.file(slot), files_[slot].error);
}

void Run::CountFiles() {
  for (uint32_t slot = 0; slot < files_.slots(); ++slot) {
    const File& file = files_[slot];
    switch (file.state) {
      case File::kUnknown:
        break;
      case File::kGood:
        ++summary_.files;
        summary_.recreated_files += file.recreated ? 1 : 0;
        summary_.entries += file.entries;
        summary_.bytes += file.bytes;
        break;
      case File::kUnresolved:
        ++summary_.unresolved_files;
        summary_.unresolved_entries += file.entries;
        summary_.unresolved_bytes += file.bytes;
        break;
      case File::kRefused:
        ++summary_.failed_files;
        summary_.failed_entries += file.entries;
        summary_.failed_bytes += file.bytes;
        if (summary_.error == 0) summary_.error = file.error;
        TellUnresolved(slot);
        break;
    }
  }
}

bool Run::IsKept(const EntryHeader& first) {
  const File& file = files_[first.file];
  const bool missing =
      file.state == File::kRefused || (file.state == File::kUnresolved && !options_.discard);
  return missing && !IsOnDisk(first);
}

void Run::MarkApplied() {
  nvlog::GroupWalk walk(reader_);
  for (Group group; walk.Next(&group);) {
    if (group.verdict != Verdict::kCommitted) continue;
    EntryHeader header = {};
    NVCACHE_CHECK(reader_.Examine(group.position, &header) == Verdict::kCommitted);
    if (IsKept(header)) continue;
    NVCACHE_CHECK(files_[header.file].state != File::kGood ||
                  view_.file(header.file)->name == pool::kNameSettled);
    auto* first = reinterpret_cast<EntryHeader*>(view_.log() + group.position % view_.log_units() *
                                                                   pool::kUnitSize);
    std::atomic_ref(first->commit)
        .store(nvlog::AppliedWord(group.position, view_.salt()), std::memory_order_release);
    pmem::Pwb(first, sizeof(*first));
    pmem::Pfence();
  }
  pmem::Psync();
}

}  // namespace

bool Replay(pool::Pool& pool, const Options& options, const Observer& observer, Summary* summary) {
  *summary = {};
  summary->was_dirty = pool.dirty();
  if (!options.dry_run) pool.Repair();
  return !summary->was_dirty || Run(pool, options, observer, summary).Do();
}

}  // namespace nvcache::recovery
