// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/pending.h"

#include <iterator>
#include <memory>
#include <utility>

#include "recovery/tool/progress.h"
#include "recovery/tool/text.h"

namespace nvcache::tool {
namespace {

constexpr uint64_t kGroupsPerUpdate = 1024;

class Collector {
 public:
  Collector(const nvlog::Reader& reader, const nvlog::GroupWalk& walk, Pending* pending)
      : reader_(reader), walk_(walk), pending_(*pending) {}

  void Add(const nvlog::Group& group);
  // At the end.
  void Sum();
  void Describe();

 private:
  // The part of a file in the logs of one seat that are of write-through, or that are not.
  struct Part {
    uint64_t records = 0;
    uint64_t bytes = 0;
    nvlog::Lsn first = 0;
    nvlog::Lsn last = 0;
  };
  using FileOfSeat = std::pair<uint32_t, uint32_t>;  // file, seat
  using Parts = std::map<FileOfSeat, Part>;

  void AddRecord(uint32_t log, const nvlog::RecordHeader& header, nvlog::Place place);
  void Settle(uint32_t file, nvlog::Lsn bound);
  void SumPart(const FileOfSeat& whose, const Part& part, bool through);
  bool Passed(const nvlog::Group& group);
  void Use(nvlog::Place place) {
    pending_.segments.insert(static_cast<uint32_t>(place / reader_.segment_units()));
  }

  const nvlog::Reader& reader_;
  const nvlog::GroupWalk& walk_;
  Pending& pending_;
  Parts back_, through_;
  nvlog::Lsn last_ = 0;  // the newest group's that was counted
  bool last_kept_ = false;
};

// The owner is at work, and the group reached the disk since the walk began.
bool Collector::Passed(const nvlog::Group& group) {
  return !group.kept && group.lsn != 0 && group.lsn < reader_.CheckpointNow(group.log);
}

void Collector::Add(const nvlog::Group& group) {
  switch (group.verdict) {
    case nvlog::Verdict::kCommitted:
      break;
    case nvlog::Verdict::kDamaged:
      if (Passed(group)) return;
      ++pending_.damaged_groups;
      Use(group.place);
      return;
    case nvlog::Verdict::kUnfinished:
      if (!Passed(group)) ++pending_.unfinished_groups;
      return;
    default:
      return;
  }
  if (Passed(group)) return;
  // A group and its copy in a kept segment are one.
  const bool is_copy = group.lsn == last_ && group.kept != last_kept_;
  if (!is_copy) {
    last_ = group.lsn;
    last_kept_ = group.kept;
  }
  walk_.ForEachRecord(group, [&](const nvlog::RecordHeader& record, nvlog::Place place) {
    const nvlog::RecordHeader header = record;
    const uint64_t units = nvlog::RecordUnits(header);
    Use(place);
    pending_.units += units;
    pending_.kept_units += group.kept ? units : 0;
    pending_.kept_records += group.kept && header.kind != nvlog::Kind::kFile ? 1 : 0;
    if (!is_copy) AddRecord(group.log, header, place);
  });
}

void Collector::AddRecord(uint32_t log, const nvlog::RecordHeader& header, nvlog::Place place) {
  if (header.kind == nvlog::Kind::kName) return;
  const uint32_t file = walk_.FileOf(header, place);
  pending_.walk_numbers[FileKey(log, header.file)] = file;
  if (header.kind == nvlog::Kind::kSettled) Settle(file, header.offset);
  if (!nvlog::IsChange(header.kind)) return;
  Parts& parts = pool::IsThroughLog(log) ? through_ : back_;
  Part& part = parts[{file, log / pool::kLogsOfSeat}];
  ++part.records;
  part.bytes += header.kind == nvlog::Kind::kData ? header.length : 0;
  if (part.first == 0) part.first = header.lsn;
  part.last = header.lsn;
}

// Groups of the file below `bound` are on the disk. Where one above it has been met already, the
// others stay with it.
void Collector::Settle(uint32_t file, nvlog::Lsn bound) {
  for (auto at = through_.lower_bound({file, 0});
       at != through_.end() && at->first.first == file;) {
    at = at->second.last < bound ? through_.erase(at) : std::next(at);
  }
}

void Collector::Sum() {
  for (const auto& [whose, part] : back_) SumPart(whose, part, false);
  for (const auto& [whose, part] : through_) SumPart(whose, part, true);
  pending_.through_checkpoint = reader_.CheckpointNow(pool::kThroughLog);
}

void Collector::SumPart(const FileOfSeat& whose, const Part& part, bool through) {
  const auto& [file, number] = whose;
  const auto add = [&part, file = file](PendingPart* to) {
    to->records += part.records;
    to->bytes += part.bytes;
    to->files.insert(file);
  };
  PendingOfSeat& seat = pending_.seats[number];
  add(&seat);
  if (through) add(&seat.through);
  if (through) add(&pending_.through);
  pending_.files[file].records += part.records;
  pending_.files[file].bytes += part.bytes;
  pending_.records += part.records;
  pending_.bytes += part.bytes;
  if (pending_.oldest == 0 || part.first < pending_.oldest) pending_.oldest = part.first;
}

// At the end, when the newest record of each file is known.
void Collector::Describe() {
  const auto record = std::make_unique<pool::FileRecord>();
  for (auto& [number, file] : pending_.files) {
    if (number == nvlog::kNoFile || !walk_.CopyRecord(number, record.get())) continue;
    file.path = PathOf(*record);
    file.inode = record->inode;
  }
}

}  // namespace

void OpenReader(const pool::Pool& pool, bool all, nvlog::Reader* reader) {
  // Bytes that were never written may be written meanwhile: the kernel is not asked.
  if (!reader->Open(pool.view(), -1, all)) throw std::bad_alloc();
}

void OpenWalk(nvlog::GroupWalk* walk) {
  if (!walk->Open()) throw std::bad_alloc();
}

std::string PathOf(const nvlog::GroupWalk& walk, uint32_t file) {
  const auto record = std::make_unique<pool::FileRecord>();
  if (file == nvlog::kNoFile || !walk.CopyRecord(file, record.get())) return {};
  return PathOf(*record);
}

Pending FindPending(const pool::Pool& pool, std::chrono::nanoseconds patience) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  Progress progress("reading the log");
  Pending pending;
  nvlog::Reader reader;
  OpenReader(pool, false, &reader);
  nvlog::GroupWalk walk(reader);
  OpenWalk(&walk);
  Collector collector(reader, walk, &pending);
  nvlog::Group group;
  for (uint64_t n = 0; pending.complete && walk.Next(&group); ++n) {
    if (n % kGroupsPerUpdate == 0) progress.Update(walk.done(), walk.total());
    pending.complete = Clock::now() - begin < patience;
    collector.Add(group);
  }
  collector.Sum();
  collector.Describe();
  return pending;
}

}  // namespace nvcache::tool
