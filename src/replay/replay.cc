// SPDX-License-Identifier: BSD-3-Clause
//
// The order on the medium (I6):
//
//   groups applied; those of one file in the order of their LSNs
//   every file synced
//   nothing left:  groups in kept segments void, the oldest first, each durable before the next
//                  the checkpoint past every LSN ever drawn, durable; then the state, clean
//   else:          applied groups void, the oldest first, each durable before the next
//
// Killed before the files are synced, nothing in the logs has changed but the successors of what
// the names had lost (names.cc), and the next run applies everything again: in the same order, so
// with the same result.
//
// Killed while groups become void, the next run applies the rest again. For each byte of a file
// that it changes on the way, the rest has the newest change as well, because the older ones went
// first: had a newer group become void alone, applying an older one again would undo it. That is
// so, too, when only kept groups become void. All others from the old checkpoint on are left, and a
// kept group that they do not have is below it: older than all of them.
//
// Groups of write-through count from their checkpoint on, but for those that a later record says to
// be settled: a first walk finds these. Where the kernel still has what processes wrote, such
// groups are not applied, but their files are synced with the others.
//
// So it is with groups of write-back that were handed over: all of a file's that are older than its
// last kHandedOver. Each of these records counts by its own LSN: if the checkpoint of write-through
// is above it, or a bound of kSettled, then all groups of write-back that are older are void.
//
// Names (names.h) come before bytes, for these belong to files, wherever they are in the end; and
// attributes after them, but none from before a sync of the file that a record tells of: since then
// they may have been set past the logs. All records of names stay until nothing is unresolved, and
// with them what the logs have of files that were born in them: these may have to be made again.
//
// Kept groups count whatever the checkpoint says. So they are void before it is stored: else the
// next run would apply them without what came after them. Killed between checkpoint and state, the
// next run finds nothing.
#include "src/replay/replay.h"

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "src/nvlog/cut.h"
#include "src/pmem/persist.h"
#include "src/pool/identify.h"
#include "src/replay/files.h"
#include "src/replay/names.h"
#include "src/replay/window.h"
#include "src/sys/check.h"
#include "src/sys/kernel.h"
#include "src/sys/scratch.h"

namespace nvcache::replay {

namespace {

using nvlog::Group;
using nvlog::Kind;
using nvlog::kNoFile;
using nvlog::Place;
using nvlog::RecordHeader;
using nvlog::Verdict;
using pmem::Step;
using pool::Lsn;

constexpr uint64_t kUnmapUnits = (32u << 20) / pool::kUnitSize;

class Replayer {
 public:
  // `seat`: of whose logs; kNoSeat: of all.
  Replayer(pool::Pool& pool, uint32_t seat, const Options& options, const Observer& observer,
           Summary* summary)
      : pool_(pool),
        seat_(seat),
        view_(pool.view()),
        walk_(reader_),
        options_(options),
        observer_(observer),
        summary_(*summary),
        names_(reader_, pool.has_journal(), observer, *summary),
        files_(reader_, walk_, names_),
        window_(reader_, files_) {}

  bool Do();

 private:
  bool Open();
  bool FindSettled();
  void NoteSettled(const RecordHeader& header, uint32_t number);
  bool FoldNames(const nvlog::GroupWalk& walk);
  bool SyncNames();
  void NoteSyncError(long error);
  void ApplyAll();
  void TellBroken(const Group& group);
  void Secure(const nvlog::GroupWalk& walk, const Group& group);
  void SecureRecord(Place place, const RecordHeader& header);
  void PassVoid(const Group& group);
  void ApplyGroup(const Group& group);
  void ApplyWindow();
  void Unmap();
  void Advise(int advice) const;
  void SyncAll();
  void TellProgress(uint64_t synced, uint64_t to_sync) const;
  size_t LogBytes() const { return view_.segment_count() * view_.superblock->segment_size; }
  RecordHeader* HeaderAt(Place place) const {
    return reinterpret_cast<RecordHeader*>(view_.unit(place));
  }
  void FindFile(uint32_t file);
  void TakeRecord(const RecordHeader& header, Place place, uint32_t log);
  bool IsUnseen(const RecordHeader& header, uint32_t log) const;
  void TakeThrough(uint32_t file);
  void LeaveThrough(uint32_t file);
  void TellUnresolved(uint32_t file);
  const pool::FileRecord& RecordOf(uint32_t file, sys::Scratch<pool::FileRecord>& scratch) const;
  void CountFiles();
  void CountFile(uint32_t number);
  bool Stays(const nvlog::GroupWalk& walk, const Group& group);
  void VoidApplied();
  bool VoidKept();
  void Void(const Group& group);
  void MarkClean();

  pool::Pool& pool_;
  const uint32_t seat_;
  const pool::View view_;
  nvlog::Reader reader_;
  nvlog::GroupWalk walk_;
  const Options& options_;
  const Observer& observer_;
  Summary& summary_;
  Names names_;
  Files files_;
  Window window_;
  bool same_kernel_ = false;
  bool kernel_has_ = false;  // all of write-through, and handed over, as far as the file is there
  bool kept_ = false;        // a group was met in a kept segment
  uint64_t applied_ = 0;     // units
  uint64_t unmapped_ = 0;    // units
};

bool Replayer::Do() {
  if (!Open() || !FindSettled()) {
    summary_.error = ENOMEM;
    return false;
  }
  names_.Agree(options_.dry_run);
  // Nobody should take its pages for important when they are unmapped.
  Advise(MADV_SEQUENTIAL);
  ApplyAll();
  Advise(MADV_NORMAL);
  SyncAll();
  if (kernel_has_) NoteSyncError(files_.sync_error());
  CountFiles();
  if (options_.dry_run) return false;
  const bool named = kernel_has_ ? SyncNames() : names_.Finish();
  const uint64_t unresolved = summary_.unresolved_records + summary_.unresolved_names;
  const uint64_t refused = summary_.failed_files + summary_.refused_names;
  if (!named || refused > 0 || (unresolved > 0 && !options_.discard)) {
    VoidApplied();
    return false;
  }
  if (kept_ && !VoidKept()) {
    summary_.error = ENOMEM;
    return false;
  }
  if (seat_ == pool::kNoSeat) MarkClean();
  return true;
}

bool Replayer::Open() {
  same_kernel_ = seat_ != pool::kNoSeat || pool_.IsSameBoot();
  const bool open = seat_ == pool::kNoSeat ? reader_.Open(view_, pool_.fd())
                                           : reader_.OpenSeat(view_, pool_.seats(), seat_);
  return open && walk_.Open() && files_.Open(options_.dry_run) && window_.Open(same_kernel_);
}

// In `files_`, by the numbers that the walk to come will give. Where others use the pool, the
// kernel is the one that has run all the time.
bool Replayer::FindSettled() {
  kernel_has_ = same_kernel_ && pool_.seats().ThroughFailed() == 0;
  const bool has_settled = reader_.has_through() && !kernel_has_;
  if (!has_settled && !pool_.MayHaveHandedOver()) return true;
  nvlog::GroupWalk walk(reader_);
  if (!walk.Open()) return false;
  bool noted = true;
  for (Group group; walk.Next(&group);) {
    if (group.verdict != Verdict::kCommitted) continue;
    walk.ForEachRecord(group, [&](const RecordHeader& header, Place place) {
      if (header.kind != Kind::kName) {
        NoteSettled(header, walk.FileOf(header, place));
      } else if (!kernel_has_) {
        Secure(walk, group);
        noted = noted && names_.Note(header, place);
      }
    });
  }
  return noted && (kernel_has_ || FoldNames(walk));
}

// A file with a record that it is settled has got bytes past the logs.
bool Replayer::FoldNames(const nvlog::GroupWalk& walk) {
  if (!names_.any()) return true;
  pmem::Psync(Step::kSeenGroupDurable);
  if (!names_.Fold()) return false;
  sys::Scratch<pool::FileRecord> record;
  for (uint32_t number = 0; number < walk.files(); ++number) {
    File& file = files_[number];
    if (!walk.CopyRecord(number, record.get())) continue;
    file.is_born = names_.NoteFile(pool::Fingerprint(*record), file.settled, file.changed);
  }
  return true;
}

// The kernel has them as they were. If it refuses, a file that was born in the logs may have to be
// made again, and its records stay.
bool Replayer::SyncNames() {
  if (!names_.any()) return true;
  if (!FoldNames(walk_)) return false;
  const long error = names_.Sync();
  NoteSyncError(error);
  return error == 0;
}

// The kernel tells of that once, and calls the pages clean: a process that tries again must not
// believe that it has them.
void Replayer::NoteSyncError(long error) {
  if (error < 0) pool_.seats().SetThroughFailed(static_cast<int>(-error));
}

// They come in the order of their LSNs. A file is handed over a second time only when the first
// time is settled, or below the checkpoint: so the last two are all that can matter.
void Replayer::NoteSettled(const RecordHeader& header, uint32_t number) {
  File& file = files_[number];
  if (nvlog::IsChange(header.kind)) file.changed = header.lsn;
  if (header.kind == Kind::kHandedOver) {
    file.handed_over_before = std::exchange(file.handed_over, header.lsn);
    if (header.lsn < reader_.through_checkpoint()) file.settled_back = header.lsn;
  } else if (header.kind == Kind::kSettled) {
    file.settled = std::max(file.settled, header.offset);
    for (const Lsn handed_over : {file.handed_over_before, file.handed_over}) {
      if (handed_over < header.offset) file.settled_back = std::max(file.settled_back, handed_over);
    }
  }
}

void Replayer::ApplyAll() {
  for (Group group; walk_.Next(&group); TellProgress(0, 0)) {
    kept_ = kept_ || group.kept;
    switch (group.verdict) {
      case Verdict::kCommitted:
        Secure(walk_, group);
        ApplyGroup(group);
        break;
      case Verdict::kVoid:
        PassVoid(group);
        break;
      case Verdict::kOnDisk:
        break;
      case Verdict::kUnfinished:
      case Verdict::kDamaged:
        TellBroken(group);
    }
  }
  ApplyWindow();
}

void Replayer::TellBroken(const Group& group) {
  const bool unfinished = group.verdict == Verdict::kUnfinished;
  ++(unfinished ? summary_.unfinished_groups : summary_.damaged_groups);
  const auto tell = unfinished ? observer_.unfinished : observer_.damaged;
  if (tell != nullptr) tell(observer_.context, group);
}

// The process that stored the group may have been killed before its PSYNC. Without this, a power
// failure could take the group away, or a part of it, and leave a part of what it was applied to:
// the next recovery does not write over that part.
void Replayer::Secure(const nvlog::GroupWalk& walk, const Group& group) {
  pmem::Pwb(HeaderAt(group.place), sizeof(RecordHeader), Step::kSeenGroup);
  uint64_t secured = ~uint64_t{0};
  walk.ForEachRecord(group, [&](const RecordHeader& header, Place place) {
    SecureRecord(place, header);
    const uint64_t number = place / view_.segment_units();
    if (number == secured) return;
    secured = number;
    const auto segment = static_cast<uint32_t>(number);
    pmem::Pwb(view_.segment(segment), pool::kUnitSize, Step::kSeenContent);
    pmem::Pwb(view_.segment_copy(segment), pool::kUnitSize, Step::kSeenContent);
  });
}

void Replayer::SecureRecord(Place place, const RecordHeader& header) {
  const uint64_t bytes = nvlog::RecordUnits(header) * pool::kUnitSize;
  pmem::Pwb(HeaderAt(place), bytes, Step::kSeenContent);
}

// A recovery has brought it to the disk, but its word may not be durable yet. In a kept segment it
// can also have been replaced by a newer one.
void Replayer::PassVoid(const Group& group) {
  pmem::Pwb(HeaderAt(group.place), sizeof(RecordHeader), Step::kSeenGroup);
}

// The group is whole, so every record of it is.
void Replayer::ApplyGroup(const Group& group) {
  uint64_t items = 0;
  walk_.ForEachRecord(group, [&](const RecordHeader& header, Place) {
    if (nvlog::IsChange(header.kind)) items += Window::ItemsOf(header);
  });
  if (window_.IsEnough(items)) ApplyWindow();
  walk_.ForEachRecord(group, [&](const RecordHeader& header, Place place) {
    TakeRecord(header, place, group.log);
  });
}

void Replayer::ApplyWindow() {
  const auto progress = [](void* self, uint64_t units) {
    auto& run = *static_cast<Replayer*>(self);
    run.applied_ += units;
    run.TellProgress(0, 0);
  };
  pmem::Psync(Step::kSeenGroupDurable);
  window_.Apply(progress, this);
  if (walk_.done() - unmapped_ >= kUnmapUnits) Unmap();
}

// The memory of the log that was dealt with need not stay in our address space: the mapped part is
// bounded, and the disk works while it goes.
void Replayer::Unmap() {
  Advise(MADV_DONTNEED);
  unmapped_ = walk_.done();
}

// Not of logs that we append to ourselves.
void Replayer::Advise(int advice) const {
  if (seat_ == pool::kNoSeat) sys::Madvise(view_.unit(0), LogBytes(), advice);
}

void Replayer::SyncAll() {
  applied_ = walk_.total();
  files_.StartSync();
  const uint64_t all = files_.open();
  for (uint64_t done = 0; files_.SyncNext();) TellProgress(++done, all);
  TellProgress(1, 1);
}

// Reading and writing the logs count alike, and syncing the files as the eighth part of either.
void Replayer::TellProgress(uint64_t synced, uint64_t to_sync) const {
  if (observer_.progress == nullptr) return;
  const uint64_t log = walk_.total();
  const uint64_t sync = to_sync == 0 ? 0 : log / 8 * synced / to_sync;
  observer_.progress(observer_.context, walk_.done() + applied_ + sync, 2 * log + log / 8);
}

void Replayer::FindFile(uint32_t file) {
  files_.Resolve(file);
  if (files_[file].state == File::kUnresolved) TellUnresolved(file);
}

// A file that is not there any more was removed since: the kernel knew it, so nothing is missing.
void Replayer::TakeThrough(uint32_t number) {
  File& file = files_[number];
  if (options_.dry_run || number == kNoFile || file.sought) return;
  file.sought = true;
  if (file.state == File::kUnknown) {
    files_.Resolve(number);
    if (file.state == File::kUnresolved) file.state = File::kUnknown;
  }
  if (file.state == File::kGood) files_.Touch(number);
}

// A sync has failed. Others may have written newer bytes than these, so they wait for a recovery of
// the whole pool.
void Replayer::LeaveThrough(uint32_t number) {
  File& file = files_[number];
  ++file.records;
  file.state = File::kRefused;
  file.unopened = true;
  file.error = pool_.seats().ThroughFailed();
}

// Since it was written, the kernel has run on, and others may look at the file; and the process had
// not brought it to the kernel, as far as that is known.
bool Replayer::IsUnseen(const RecordHeader& header, uint32_t log) const {
  return same_kernel_ && header.lsn > pool::Peek(*view_.written_back(log / pool::kLogsOfSeat));
}

void Replayer::TakeRecord(const RecordHeader& header, Place place, uint32_t log) {
  const bool through = pool::IsThroughLog(log);
  if (header.kind == Kind::kName && kernel_has_ && !names_.Note(header, place)) {
    summary_.error = ENOMEM;
    ++summary_.unresolved_names;
  }
  if (!nvlog::IsChange(header.kind)) return;
  const uint32_t number = walk_.FileOf(header, place);
  File& file = files_[number];
  const bool in_kernel = through || header.lsn < file.handed_over;
  if (header.lsn < (through ? file.settled : file.settled_back)) return;
  if (in_kernel && kernel_has_) {
    TakeThrough(number);
    return;
  }
  if (in_kernel && seat_ != pool::kNoSeat) {
    LeaveThrough(number);
    return;
  }
  if (file.state == File::kUnknown) FindFile(number);
  ++file.records;
  file.through |= in_kernel;
  if (header.kind == Kind::kData) file.bytes += header.length;
  if (file.state == File::kUnresolved || file.unopened) {
    if (observer_.orphan != nullptr) {
      observer_.orphan(observer_.context, number, reader_, header, place);
    }
    return;
  }
  if (file.state == File::kGood && !options_.dry_run) {
    const bool unseen = !in_kernel && IsUnseen(header, log);
    window_.Add(number, header, place, unseen ? log / pool::kLogsOfSeat : pool::kNoSeat);
  }
}

// All zero, if it is damaged.
const pool::FileRecord& Replayer::RecordOf(uint32_t file,
                                           sys::Scratch<pool::FileRecord>& scratch) const {
  if (!files_.CopyRecord(file, scratch.get())) {
    std::memset(static_cast<void*>(scratch.get()), 0, sizeof(pool::FileRecord));
  }
  return *scratch;
}

void Replayer::TellUnresolved(uint32_t file) {
  if (observer_.unresolved == nullptr) return;
  sys::Scratch<pool::FileRecord> scratch;
  observer_.unresolved(observer_.context, file, RecordOf(file, scratch), files_[file].error);
}

void Replayer::CountFiles() {
  for (uint32_t file = 0; file < walk_.files(); ++file) CountFile(file);
  CountFile(kNoFile);
}

void Replayer::CountFile(uint32_t number) {
  const File& file = files_[number];
  switch (file.state) {
    case File::kUnknown:
    case File::kRemoved:
      break;
    case File::kGood:
      ++summary_.files;
      if (file.through) ++summary_.through_files;
      summary_.records += file.records;
      summary_.bytes += file.bytes;
      break;
    case File::kUnresolved:
      ++summary_.unresolved_files;
      summary_.unresolved_records += file.records;
      summary_.unresolved_bytes += file.bytes;
      break;
    case File::kRefused:
      ++summary_.failed_files;
      summary_.failed_records += file.records;
      summary_.failed_bytes += file.bytes;
      if (summary_.error == 0) summary_.error = file.error;
      TellUnresolved(number);
      break;
  }
}

// `walk` has just found the group, and numbers files as the first one did.
bool Replayer::Stays(const nvlog::GroupWalk& walk, const Group& group) {
  bool stays = false;
  walk.ForEachRecord(group, [&](const RecordHeader& header, Place place) {
    if (header.kind == Kind::kName) {
      stays = true;
      return;
    }
    const File& file = files_[walk.FileOf(header, place)];
    NVCACHE_CHECK(!file.is_unsynced);
    stays = stays || file.state == File::kRefused || file.is_born ||
            (file.state == File::kUnresolved && !options_.discard);
  });
  return stays;
}

void Replayer::VoidApplied() {
  nvlog::GroupWalk walk(reader_);
  if (!walk.Open()) return;
  for (Group group; walk.Next(&group);) {
    if (group.verdict == Verdict::kCommitted && !Stays(walk, group)) Void(group);
  }
}

// Those that are damaged as well: nothing else would ever end them.
bool Replayer::VoidKept() {
  nvlog::GroupWalk walk(reader_);
  if (!walk.Open()) return false;
  for (Group group; walk.Next(&group);) {
    if (group.kept && group.lsn != 0 && group.verdict != Verdict::kVoid) Void(group);
  }
  return true;
}

// Discarded groups get the same word.
void Replayer::Void(const Group& group) {
  RecordHeader* first = HeaderAt(group.place);
  pmem::Store(first->commit, nvlog::VoidWord(group.lsn, view_.salt()));
  pmem::Pwb(first, sizeof(*first), Step::kApplied);
  pmem::Psync(Step::kAppliedDurable);
}

// No LSN from there on was ever drawn, so none of the old records can come to life again.
void Replayer::MarkClean() {
  constexpr uint64_t kLast = (uint64_t{1} << pool::kLsnBits) - 1;
  pool_.StoreCheckpoint(std::min(reader_.newest() + pool::kLsnMargin, kLast),
                        Step::kRecoveredCheckpoint, Step::kRecoveredCheckpointDurable);
  pool_.MarkClean();
}

}  // namespace

namespace {

bool ReplayLogs(pool::Pool& pool, uint32_t seat, const Options& options, const Observer& observer,
                Summary* summary) {
  static_assert(sizeof(Replayer) <= sys::kScratchSize);
  void* block = sys::TakeScratch();
  Replayer* run = new (block) Replayer(pool, seat, options, observer, summary);
  const bool clean = run->Do();
  run->~Replayer();
  sys::GiveScratch(block);
  return clean;
}

}  // namespace

namespace {

// The pool comes from a journal: what is not of one moment goes, before anything is counted.
void Cut(pool::Pool& pool) {
  nvlog::CutFrom(pool.view(), pool.cut());
  pmem::Psync(Step::kSeenGroupDurable);
  pool.BelieveAll();
}

}  // namespace

bool Replay(pool::Pool& pool, const Options& options, const Observer& observer, Summary* summary) {
  *summary = {};
  summary->was_dirty = pool.dirty();
  if (summary->was_dirty && pool.cut() != 0) Cut(pool);
  if (!options.dry_run) pool.Repair();
  return !summary->was_dirty || ReplayLogs(pool, pool::kNoSeat, options, observer, summary);
}

void Summary::Add(const Summary& other) {
  was_dirty = was_dirty || other.was_dirty;
  files += other.files;
  records += other.records;
  bytes += other.bytes;
  through_files += other.through_files;
  unresolved_files += other.unresolved_files;
  unresolved_records += other.unresolved_records;
  unresolved_bytes += other.unresolved_bytes;
  damaged_groups += other.damaged_groups;
  unfinished_groups += other.unfinished_groups;
  failed_files += other.failed_files;
  failed_records += other.failed_records;
  failed_bytes += other.failed_bytes;
  names += other.names;
  unresolved_names += other.unresolved_names;
  refused_names += other.refused_names;
  if (error == 0) error = other.error;
}

bool ReplayOrphans(pool::Pool& pool, Summary* summary) {
  bool resolved = !pool.seats().HasUnresolved();
  for (uint32_t seat; (seat = pool.Adopt()) != pool::kNoSeat;) {
    Summary own;
    const bool all = ReplayLogs(pool, seat, {}, {}, &own);
    pool.Settle(seat, all);
    resolved = resolved && all;
    summary->Add(own);
  }
  return resolved;
}

}  // namespace nvcache::replay
