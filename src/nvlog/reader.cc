// SPDX-License-Identifier: BSD-3-Clause
#include "src/nvlog/reader.h"

#include <errno.h>
#include <linux/magic.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "src/nvlog/entry_crc.h"
#include "src/sys/check.h"
#include "src/sys/crc32c.h"
#include "src/sys/kernel.h"
#include "src/sys/words.h"

namespace nvcache::nvlog {

namespace {

// What no writer writes, whatever the checksum says.
bool IsSane(const EntryHeader& header, uint32_t file_slots) {
  return header.length >= 1 && header.length <= pool::kPageSize &&
         header.offset % pool::kPageSize + header.length <= pool::kPageSize &&
         header.offset >> 63 == 0 && header.file < file_slots && header.group_count >= 1 &&
         header.group_count <= kMaxGroupEntries && header.group_index < header.group_count;
}

bool IsMember(const EntryHeader& header, const EntryHeader& first, uint32_t index) {
  return header.group_index == index && header.group_count == first.group_count &&
         header.file == first.file && header.incarnation == first.incarnation;
}

// Units between two questions about what was never written.
constexpr uint64_t kStride = (1u << 20) / pool::kUnitSize;

// What a file system calls a hole is zero. But not each of them looks at the pages that are mapped
// before it calls something so.
bool KnowsItsHoles(int fd) {
  struct statfs fs = {};
  return fd >= 0 && sys::Fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

}  // namespace

Reader::Reader(const pool::View& view, int fd) : view_(view), fd_(KnowsItsHoles(fd) ? fd : -1) {
  const uint64_t units = view.log_units();
  int records_valid = 0;
  pool::ReadTail(view, &begin_, &records_valid);
  end_ = begin_ + units;
  if (records_valid == 2) return;
  // The damaged record was the newer one, perhaps, and the log went on by up to a lap from there.
  // An entry of that lap was written over places that were free: what older entries are left
  // before its end, a lap ago, are on disk. Applying them again could undo newer writes, whose
  // entries are gone.
  const Position oldest = begin_;
  for (Position position = end_; position < end_ + units; ++position) {
    EntryHeader header;
    const Verdict verdict = Examine(position, &header);
    if (verdict == Verdict::kNothing) continue;
    const uint64_t taken = verdict == Verdict::kDamagedHeader ? 1 : EntryUnits(header.length);
    begin_ = std::max(begin_, position - units + taken);
  }
  end_ = oldest + 2 * units;
}

Reader Reader::OfAll(const pool::View& view) {
  const uint64_t units = view.log_units();
  const Reader any(view, 0, 0);
  Position end = units;
  for (uint64_t unit = 0; unit < units; ++unit) {
    EntryHeader header = {};
    sys::CopyWords(&header, view.log() + unit * pool::kUnitSize, sizeof(header));
    const Position position = header.position;  // as it says; Examine sees whether that is so
    if (position % units != unit || position >> 62 != 0) continue;
    const Verdict verdict = any.Examine(position, &header);
    if (verdict == Verdict::kNothing || verdict == Verdict::kDamagedHeader) continue;
    end = std::max(end, position + EntryUnits(header.length));
  }
  return Reader(view, end - units, end);
}

Verdict Reader::Examine(Position position, EntryHeader* header) const {
  const Verdict verdict = ExamineHeader(position, header);
  if (verdict != Verdict::kCommitted) return verdict;
  return PayloadCrc(*header) == header->payload_crc ? verdict : Verdict::kDamagedPayload;
}

Verdict Reader::ExamineHeader(Position position, EntryHeader* header) const {
  const uint8_t* unit = view_.log() + position % view_.log_units() * pool::kUnitSize;
  EntryHeader copy = {};  // checked and used: what lies in the log may change while we look
  sys::CopyWords(&copy, unit, sizeof(copy));
  const bool committed = copy.commit == CommitWord(position, view_.salt());
  const bool applied = copy.commit == AppliedWord(position, view_.salt());
  const bool whole = copy.position == position &&
                     copy.header_crc == HeaderCrc(copy, view_.salt()) &&
                     IsSane(copy, view_.superblock->file_slots);
  if (!whole) return committed || applied ? Verdict::kDamagedHeader : Verdict::kNothing;
  if (!committed && !applied && copy.commit != kNotCommitted) return Verdict::kDamagedHeader;
  *header = copy;
  if (applied) return Verdict::kApplied;
  return committed ? Verdict::kCommitted : Verdict::kInFlight;
}

uint32_t Reader::PayloadCrc(const EntryHeader& header) const {
  const size_t at = PayloadOffset(header.position);
  const size_t before_end = std::min<size_t>(header.length, LogBytes() - at);
  const uint32_t crc = sys::Crc32c(view_.log() + at, before_end);
  return sys::Crc32c(view_.log(), header.length - before_end, crc);
}

void Reader::Payload(const EntryHeader& header, void* out, size_t n, size_t skip) const {
  NVCACHE_CHECK(skip <= header.length && n <= header.length - skip);
  const size_t at = (PayloadOffset(header.position) + skip) % LogBytes();
  const size_t before_end = std::min(n, LogBytes() - at);
  std::memcpy(out, view_.log() + at, before_end);
  std::memcpy(static_cast<uint8_t*>(out) + before_end, view_.log(), n - before_end);
}

EntryHeader Reader::HeaderAt(Position position) const {
  EntryHeader header = {};
  sys::CopyWords(&header, view_.log() + position % view_.log_units() * pool::kUnitSize,
                 sizeof(header));
  NVCACHE_CHECK(header.position == position && IsSane(header, view_.superblock->file_slots));
  return header;
}

int Reader::PayloadInPlace(Position position, size_t length, iovec pieces[2]) const {
  const size_t at = PayloadOffset(position);
  const size_t before_end = std::min(length, LogBytes() - at);
  pieces[0] = {view_.log() + at, before_end};
  pieces[1] = {view_.log(), length - before_end};
  return before_end < length ? 2 : 1;
}

// A new pool's memory is made when it is used. It is not made, page by page, to find nothing in it:
// so the question comes before the first look at the page.
Position Reader::AfterNothing(Position position) const {
  const Position next = position + 1;
  const uint64_t unit = next % view_.log_units();
  if (fd_ < 0 || unit % kStride != 0) return next;
  const uint64_t asked = view_.superblock->log_offset + unit * pool::kUnitSize;
  const long data = sys::Lseek(fd_, static_cast<off_t>(asked), SEEK_DATA);
  const uint64_t rest = view_.log_units() - unit;
  if (data == -ENXIO) return next + rest;  // nothing up to the end
  if (data < 0 || static_cast<uint64_t>(data) <= asked) return next;
  return next + std::min((static_cast<uint64_t>(data) - asked) / pool::kUnitSize, rest);
}

bool Reader::Passed(Position position) const {
  Position tail = 0;
  int records_valid = 0;
  return pool::ReadTail(view_, &tail, &records_valid) && tail > position;
}

bool GroupWalk::Next(Group* group) {
  while (next_ < reader_.end()) {
    const Position position = next_;
    EntryHeader header;
    const Verdict verdict = reader_.Examine(position, &header);
    if (verdict == Verdict::kNothing) {
      next_ = std::min(reader_.AfterNothing(position), reader_.end());
      continue;
    }
    if (verdict == Verdict::kDamagedHeader) {
      *group = {position, 1, 0, verdict, position};
    } else if (verdict == Verdict::kInFlight || header.group_index != 0) {
      *group = {position, EntryUnits(header.length), 1, Verdict::kInFlight, kNoPosition};
    } else {
      *group = Collect(header, verdict);
    }
    next_ = position + group->units;
    // In a pool that is in use, what looks damaged may just have been freed and written over.
    if (group->damaged == kNoPosition || !reader_.Passed(position)) return true;
  }
  return false;
}

// The group that a committed or applied first entry leads.
Group GroupWalk::Collect(const EntryHeader& first, Verdict verdict) {
  Found found = Look(first, verdict);
  if (found.group.damaged == kNoPosition || found.by_itself) return found.group;
  if (!IsNamed(found)) {
    found.group.verdict = Verdict::kUnfinished;
    return found.group;
  }
  // Its PSYNC is over: in a pool that is in use, all of it is to be seen by now.
  EntryHeader again;
  return Look(first, reader_.Examine(first.position, &again)).group;
}

// As damaged, if it is not whole.
GroupWalk::Found GroupWalk::Look(const EntryHeader& first, Verdict verdict) const {
  Group group = {first.position, EntryUnits(first.length), first.group_count, verdict, kNoPosition};
  const bool applied = verdict == Verdict::kApplied;
  const auto damaged = [&](Position position, Verdict how) {
    // What was applied is on disk: nothing more can be lost.
    if (applied || group.damaged != kNoPosition) return;
    group.verdict = how;
    group.damaged = position;
  };
  if (verdict != Verdict::kCommitted) damaged(first.position, verdict);
  for (uint32_t index = 1; index < first.group_count; ++index) {
    const Position position = first.position + group.units;
    EntryHeader member;
    const Verdict found = reader_.Examine(position, &member);
    const bool readable = found == Verdict::kCommitted || found == Verdict::kDamagedPayload;
    if (!readable || !IsMember(member, first, index)) {
      // Where the member after it begins is not known, and this may be another group's first.
      damaged(position, Verdict::kDamagedHeader);
      if (found == Verdict::kDamagedHeader) ++group.units;
      // Until the PSYNC, there is nothing here, or what is written before the commit word.
      const bool torn = found == Verdict::kNothing || found == Verdict::kInFlight;
      return {group, !torn, position + 1};
    }
    if (found == Verdict::kDamagedPayload) damaged(position, found);
    group.units += EntryUnits(member.length);
  }
  return {group, false, first.position + group.units};
}

// Whether a header that was written later says that the group was durable by then. After so many
// looks that only a log can need them that nobody wrote, it is said to be.
bool GroupWalk::IsNamed(const Found& found) {
  constexpr uint64_t kLaps = 64;
  const Position group = found.group.position;
  Position last = group;
  for (Position position = group + found.group.units; position < last_;) {
    if (++looks_ > kLaps * total()) return true;
    EntryHeader header;
    const Verdict verdict = reader_.ExamineHeader(position, &header);
    if (verdict == Verdict::kNothing || verdict == Verdict::kDamagedHeader) {
      position = reader_.AfterNothing(position);
      continue;
    }
    const bool thread = header.thread_back != 0 && position - header.thread_back == group;
    if (thread || (header.previous >= group && header.previous < found.members)) return true;
    position += EntryUnits(header.length);
    last = position;
  }
  last_ = last;
  return false;
}

}  // namespace nvcache::nvlog
