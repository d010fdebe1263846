// SPDX-License-Identifier: BSD-3-Clause
#include "recovery/tool/pending.h"

#include <algorithm>
#include <memory>

#include "recovery/tool/progress.h"
#include "recovery/tool/text.h"

namespace nvcache::tool {
namespace {

constexpr uint64_t kGroupsPerUpdate = 1024;

void AddGroup(const pool::View& view, const nvlog::Reader& reader, const nvlog::Group& group,
              Pending* pending) {
  nvlog::Position position = group.position;
  for (uint32_t i = 0; i < group.entries; ++i) {
    nvlog::EntryHeader header;
    const nvlog::Verdict verdict = reader.Examine(position, &header);
    // The owner is at work, and has reused the place since the walk looked.
    if (verdict == nvlog::Verdict::kNothing || verdict == nvlog::Verdict::kDamagedHeader) return;
    auto [file, is_new] = pending->files.try_emplace({header.file, header.incarnation});
    if (is_new) {
      FindInTable(view, header.file, header.incarnation, &file->second);
    }
    ++file->second.entries;
    file->second.bytes += header.length;
    ++pending->entries;
    pending->bytes += header.length;
    position += nvlog::EntryUnits(header.length);
  }
}

}  // namespace

void FindInTable(const pool::View& view, uint32_t slot, uint32_t incarnation, PendingFile* file) {
  if (slot >= view.superblock->file_slots) return;
  const auto copy =
      std::make_unique<pool::FileRecord>(*view.file(slot));  // it may change meanwhile
  if (!pool::FileRecordValid(*copy, incarnation)) return;
  file->path = PathOf(*copy);
  file->inode = copy->inode;
  file->is_new = copy->name == pool::kNameNew;
}

Pending FindPending(const pool::View& view) {
  Progress progress("reading the log");
  Pending pending;
  const nvlog::Reader reader(view);
  nvlog::GroupWalk walk(reader);
  const nvlog::Position begin = reader.begin();
  nvlog::Group group;
  for (uint64_t n = 0; walk.Next(&group); ++n) {
    if (n % kGroupsPerUpdate == 0) progress.Update(walk.done(), walk.total());
    if (reader.Passed(group.position)) continue;  // reached the disk meanwhile
    switch (group.verdict) {
      case nvlog::Verdict::kCommitted:
        AddGroup(view, reader, group, &pending);
        break;
      case nvlog::Verdict::kDamagedHeader:
      case nvlog::Verdict::kDamagedPayload:
        ++pending.damaged_groups;
        break;
      case nvlog::Verdict::kUnfinished:
        ++pending.unfinished_groups;
        continue;
      case nvlog::Verdict::kInFlight:
        ++pending.in_flight;
        continue;
      default:
        continue;
    }
    pending.units = std::max(pending.units, group.position + group.units - begin);
  }
  return pending;
}

}  // namespace nvcache::tool
