// SPDX-License-Identifier: BSD-3-Clause
//
// The order on the medium (I6):
//
//   entries applied; those of one page of a file in log order
//   every file synced; those that were new are not any more
//   nothing left:  tail past every position ever taken, durable; then the state, clean
//   else:          applied groups marked, each durable before the next
//
// Killed before the files are synced, nothing in the log has changed, and the next run applies
// everything again: of each page in the same order, so with the same result. Files that the file
// system has lost are created on the way (recreate.cc); the next run knows them by their records.
// Killed while groups are marked, a run of the oldest ones is: had a newer one been marked alone,
// applying an older one again would undo it. Killed between tail and state, the next run finds an
// empty log.
#include "recovery/replay/replay.h"

#include <errno.h>

#include <algorithm>

#include "recovery/replay/files.h"
#include "recovery/replay/window.h"
#include "src/pmem/persist.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"

namespace nvcache::recovery {

namespace {

using nvlog::EntryHeader;
using nvlog::Group;
using nvlog::Position;
using nvlog::Verdict;
using pmem::Step;

constexpr uint64_t kUnmapUnits = (32u << 20) / pool::kUnitSize;

class Run {
 public:
  Run(pool::Pool& pool, const Options& options, const Observer& observer, Summary* summary)
      : pool_(pool),
        view_(pool.view()),
        reader_(view_, pool.fd()),
        walk_(reader_),
        options_(options),
        observer_(observer),
        summary_(*summary),
        window_(reader_, files_) {}

  bool Do();

 private:
  void ApplyAll();
  void Secure(const Group& group);
  EntryHeader* FirstHeader(const Group& group) const;
  void ApplyGroup(const Group& group);
  void ApplyWindow();
  void Unmap();
  void SyncAll();
  void TellProgress(uint64_t synced, uint64_t to_sync) const;
  size_t LogBytes() const { return view_.log_units() * pool::kUnitSize; }
  bool FindFile(const EntryHeader& first);
  bool IsOnDisk(const EntryHeader& first) const;
  void TakeEntry(const EntryHeader& header);
  void CutRest();
  void TellRecreated(uint32_t slot);
  void TellUnresolved(uint32_t slot);
  void CountFiles();
  bool IsKept(const EntryHeader& first);
  void MarkApplied();

  pool::Pool& pool_;
  const pool::View view_;
  const nvlog::Reader reader_;
  nvlog::GroupWalk walk_;
  const Options& options_;
  const Observer& observer_;
  Summary& summary_;
  Files files_;
  Window window_;
  uint64_t applied_ = 0;   // units
  uint64_t unmapped_ = 0;  // units
};

bool Run::Do() {
  if (!files_.Open(view_, reader_.begin(), options_.dry_run) || !window_.Open()) {
    summary_.error = ENOMEM;
    return false;
  }
  // Nobody should take its pages for important when they are unmapped.
  sys::Madvise(view_.log(), LogBytes(), MADV_SEQUENTIAL);
  ApplyAll();
  sys::Madvise(view_.log(), LogBytes(), MADV_NORMAL);
  SyncAll();
  CountFiles();
  if (options_.dry_run) return false;
  if (summary_.failed_files > 0 || (summary_.unresolved_entries > 0 && !options_.discard)) {
    MarkApplied();
    return false;
  }
  // No position from end() on was ever taken, so none of the old headers can come to life again.
  // Twice: both records agree, whatever state they were in.
  pool_.StoreTail(reader_.end(), Step::kRecoveredTail, Step::kRecoveredTailDurable);
  pool_.StoreTail(reader_.end(), Step::kRecoveredTail, Step::kRecoveredTailDurable);
  pool_.MarkClean();
  return true;
}

void Run::ApplyAll() {
  for (Group group; walk_.Next(&group); TellProgress(0, 0)) {
    if (group.verdict == Verdict::kCommitted || group.verdict == Verdict::kApplied) Secure(group);
    if (group.verdict == Verdict::kCommitted) ApplyGroup(group);
    if (group.damaged == nvlog::kNoPosition) continue;
    const bool unfinished = group.verdict == Verdict::kUnfinished;
    ++(unfinished ? summary_.unfinished_groups : summary_.damaged_groups);
    const auto tell = unfinished ? observer_.unfinished : observer_.damaged;
    if (tell != nullptr) tell(observer_.context, group);
  }
  ApplyWindow();
  CutRest();
}

// Files that were cut and have nothing in the log.
void Run::CutRest() {
  for (uint32_t slot = 0; slot < files_.slots(); ++slot) {
    File& file = files_[slot];
    if (file.state != File::kUnknown || !files_.IsCut(slot)) continue;
    sys::Scratch<pool::FileRecord> record;
    if (!pool::CopyFileRecord(*view_.file(slot), record.get())) continue;
    files_.Resolve(slot, record->incarnation);
    // What is not there need not be cut; what cannot be looked at is kept.
    const bool gone = file.error == ENOENT || file.error == ESTALE;
    if (file.state == File::kUnresolved && !gone) file.entries = 1;
  }
}

// The process that stored the group may have been killed before its PSYNC. Without this, a power
// failure could take the group away, or a part of it, and leave a part of what it was applied to:
// what the next recovery does not write over.
void Run::Secure(const Group& group) {
  pmem::Pwb(FirstHeader(group), sizeof(EntryHeader), Step::kSeenGroup);
  if (group.verdict != Verdict::kCommitted) return;
  const uint64_t at = (group.position + 1) % view_.log_units(), units = group.units - 1;
  const uint64_t before_end = std::min(units, view_.log_units() - at);
  pmem::Pwb(view_.log() + at * pool::kUnitSize, before_end * pool::kUnitSize, Step::kSeenContent);
  if (before_end == units) return;
  pmem::Pwb(view_.log(), (units - before_end) * pool::kUnitSize, Step::kSeenContent);
}

EntryHeader* Run::FirstHeader(const Group& group) const {
  return reinterpret_cast<EntryHeader*>(view_.log() +
                                        group.position % view_.log_units() * pool::kUnitSize);
}

// The group is whole, so every entry of it is.
void Run::ApplyGroup(const Group& group) {
  if (window_.IsEnough(group.entries)) ApplyWindow();
  Position position = group.position;
  for (uint32_t i = 0; i < group.entries; ++i) {
    const EntryHeader header = reader_.HeaderAt(position);
    if (i == 0 && !FindFile(header)) return;
    TakeEntry(header);
    position += nvlog::EntryUnits(header.length);
  }
}

void Run::ApplyWindow() {
  const auto progress = [](void* self, uint64_t units) {
    auto& run = *static_cast<Run*>(self);
    run.applied_ += units;
    run.TellProgress(0, 0);
  };
  pmem::Psync(Step::kSeenGroupDurable);
  window_.Apply(progress, this);
  if (walk_.done() - unmapped_ >= kUnmapUnits) Unmap();
}

// The memory of the log that was dealt with need not stay in our address space: what is mapped is
// bounded, and the disk works while it goes.
void Run::Unmap() {
  sys::Madvise(view_.log(), LogBytes(), MADV_DONTNEED);
  unmapped_ = walk_.done();
}

void Run::SyncAll() {
  applied_ = walk_.total();
  files_.StartSync();
  const uint64_t all = files_.open();
  for (uint64_t done = 0; files_.SyncNext();) TellProgress(++done, all);
  TellProgress(1, 1);
}

// Reading and writing the log count alike, and syncing the files as the eighth part of either.
void Run::TellProgress(uint64_t synced, uint64_t to_sync) const {
  if (observer_.progress == nullptr) return;
  const uint64_t log = walk_.total();
  const uint64_t sync = to_sync == 0 ? 0 : log / 8 * synced / to_sync;
  observer_.progress(observer_.context, walk_.done() + applied_ + sync, 2 * log + log / 8);
}

// False if there is no need to apply the group. One that was cut off is nothing; its file is cut.
bool Run::FindFile(const EntryHeader& first) {
  if (IsOnDisk(first)) return false;
  File& file = files_[first.file];
  const pool::FileRecord& record = *view_.file(first.file);
  if (file.state == File::kUnresolved) return first.position >= file.cut;
  if (file.state == File::kUnknown) {
    files_.Resolve(first.file, first.incarnation);
  } else if (record.incarnation != first.incarnation) {
    files_.MakeUnresolved(first.file, EBADMSG);
  }
  if (first.position < file.cut) return false;
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

void Run::TakeEntry(const EntryHeader& header) {
  File& file = files_[header.file];
  ++file.entries;
  file.bytes += header.length;
  if (file.state == File::kUnresolved || file.unopened) {
    if (observer_.orphan != nullptr) observer_.orphan(observer_.context, reader_, header);
    return;
  }
  if (file.state == File::kGood && !options_.dry_run) window_.Add(header);
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
    // Were this entry marked and the file cut once more, it would be lost; and without the mark on
    // those before it, they would count again.
    if (group.position >= files_[header.file].cut) files_.ForgetCut(header.file);
    EntryHeader* first = FirstHeader(group);
    pmem::Store(first->commit, nvlog::AppliedWord(group.position, view_.salt()));
    pmem::Pwb(first, sizeof(*first), Step::kApplied);
    pmem::Psync(Step::kAppliedDurable);
  }
  for (uint32_t slot = 0; slot < files_.slots(); ++slot) {
    if (files_[slot].state == File::kGood) files_.ForgetCut(slot);
  }
}

}  // namespace

bool Replay(pool::Pool& pool, const Options& options, const Observer& observer, Summary* summary) {
  *summary = {};
  summary->was_dirty = pool.dirty();
  if (!options.dry_run) pool.Repair();
  return !summary->was_dirty || Run(pool, options, observer, summary).Do();
}

}  // namespace nvcache::recovery
