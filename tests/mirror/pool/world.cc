// SPDX-License-Identifier: BSD-3-Clause
#include "tests/mirror/pool/world.h"

#include <algorithm>
#include <set>

#include "mirror/pool/faults.h"
#include "src/nvlog/log_reading.h"

namespace nvcache::mirror {

Faults g_faults;

namespace {

constexpr uint64_t kPage = pool::kPageSize;

}  // namespace

World::World(const std::string& path, uint64_t seed, bool keeps) : random_(seed), keeps_(keeps) {
  pmem::Initialize();
  test::MakePool(path);
  for (User& user : users_) {
    test::Use(user.pool, path);
    EXPECT_TRUE(user.log.Open(&user.pool));
    user.kept.Open();
  }
  for (uint32_t i = 0; i < kFiles; ++i) {
    File& file = files_.emplace_back();
    file.path = "/file" + std::to_string(i);
    file.number = i + 1;
    file.through = i == 4;
    file.may_fail = keeps && i < 4 && i % 2 == 1;
    file.owner = i % 4 / 2;
    for (nvlog::FileTag& tag : file.tags) tag.number = file.number;
  }
}

World::~World() {
  for (User& user : users_) {
    user.log.Close();
    user.pool.Close();
  }
}

std::string World::Page(Lsn lsn, uint64_t bytes) {
  std::string page(bytes, '\0');
  for (uint64_t at = 0; at < bytes; ++at) page[at] = static_cast<char>(lsn >> at % 8 * 8 ^ at);
  return page;
}

void World::Note(File& file, const Group& group) {
  groups_.push_back(group);
  file.last = group.lsn;
  for (uint64_t i = 0; i < group.pages; ++i) file.versions[group.page + i].push_back(group.lsn);
}

// ---------------------------------------------------------------------------------------------
// What processes do.

void World::Write(File& file) {
  User& user = users_[file.owner];
  pool::FileRecord record = RecordOf(file);
  const bool is_long = random_.OneIn(12);
  const uint64_t most = std::min(user.log.max_group_pages(), kPages);
  const uint64_t pages = is_long ? 1 + random_.Below(most) : 1;
  const uint64_t page = random_.Below(kPages - pages + 1);
  const uint64_t length = is_long            ? pages * kPage
                          : random_.OneIn(3) ? kPage
                                             : 8 + random_.Below(200);
  nvlog::GroupWriter group(user.log, file.tags[file.owner]);
  if (group.BeginData(page * kPage, length, &record) != nvlog::Outcome::kDone) return;
  const std::string bytes = Page(group.lsn(), length);
  for (uint64_t at = 0; at < length; at += kPage) {
    const auto n = static_cast<uint32_t>(std::min(kPage, length - at));
    // Now and then a call that comes to nothing.
    if (random_.OneIn(60)) return;
    group.AddPage(reinterpret_cast<const uint8_t*>(bytes.data()) + at, n, nullptr, nvlog::kNoPlace);
  }
  if (random_.OneIn(30)) return;
  const Lsn lsn = group.Commit();
  nvlog::Place place = nvlog::kNoPlace;
  group.ForEachPart([&](nvlog::Place at, uint64_t, uint64_t) { place = at; });
  const uint32_t segment = static_cast<uint32_t>(place / user.pool.view().segment_units());
  Note(file, {lsn, user.pool.view().segment(segment)->log, &file, page, pages});
}

void World::WriteThrough(File& file) {
  const uint64_t by = random_.Below(2);
  User& user = users_[by];
  pool::FileRecord record = RecordOf(file);
  nvlog::GroupWriter group(user.log, file.tags[by], 0);
  const uint64_t page = random_.Below(kPages), length = 8 + random_.Below(kPage - 8);
  if (group.BeginData(page * kPage, length, &record, true) != nvlog::Outcome::kDone) return;
  const Lsn lsn = group.Draw();
  // The bytes come before the LSN in a program; here they say what it is.
  const std::string bytes = Page(lsn, length);
  group.AddPage(reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<uint32_t>(length));
  if (random_.OneIn(20)) return;
  group.Commit();
  // Which of the four lanes is of no interest: they have one checkpoint.
  Note(file, {lsn, user.pool.seat() * pool::kLogsOfSeat + pool::kThroughLog, &file, page, 1});
}

void World::SyncStep() {
  switch (sync_++) {
    case 0:
      sync_bound_ = users_[0].pool.seats().next_lsn().load();
      break;
    case 1:
      for (File& file : files_) {
        if (!file.through) continue;
        for (const auto& [page, versions] : file.versions) file.disk[page] = versions.back();
      }
      break;
    case 2:
      users_[0].pool.StoreThroughCheckpoint(sync_bound_);
      break;
    default:
      for (User& user : users_) user.log.FreeThrough(true);
      sync_ = 0;
  }
}

bool World::Keep(User& user, File& file, nvlog::Place place) {
  const nvlog::RecordHeader& header = user.log.At(place);
  const uint64_t first = header.offset / kPage;
  for (uint64_t i = 0; i < nvlog::PagesOf(header.offset, header.length); ++i) {
    const nvlog::Log::Piece piece = user.log.PieceAt(place, first + i);
    const nvlog::Kept::Copy copy = {
        nvlog::Kind::kData, header.lsn,  file.number,    (first + i) * kPage + piece.begin,
        piece.length,       piece.bytes, nvlog::kNoPlace};
    const nvlog::Place at =
        user.kept.Append(copy, &file.declared_kept, file.tags[file.owner].record.load(), 0);
    if (at == nvlog::kNoPlace) return false;
    file.kept.push_back({header.lsn, first + i, at});
  }
  // Those that newer ones hide need not stay, in any order.
  for (size_t i = file.kept.size(); i-- > 0;) {
    const Copy old = file.kept[i];
    const bool hidden = std::any_of(file.kept.begin(), file.kept.end(), [&](const Copy& copy) {
      return copy.page == old.page && copy.lsn > old.lsn;
    });
    if (!hidden || random_.OneIn(2)) continue;
    user.kept.Void(old.place);
    ++voids_;
    file.kept.erase(file.kept.begin() + static_cast<ptrdiff_t>(i));
  }
  return true;
}

// False: there are no more, or the disk refuses and there is no room to keep it.
bool World::CleanRecord(User& user) {
  const nvlog::Place place = user.log.NextRecord(user.ends);
  if (place == nvlog::kNoPlace) return false;
  const nvlog::RecordHeader& header = user.log.At(place);
  if (header.kind == nvlog::Kind::kData) {
    File& file = files_[header.file - 1];
    if (file.fails) {
      if (!Keep(user, file, place)) {
        // The disk takes it again, all of it, just in time.
        file.fails = false;
        for (const auto& [page, versions] : file.versions) file.disk[page] = versions.back();
        while (!file.kept.empty()) {
          user.kept.Void(file.kept.front().place);
          file.kept.pop_front();
        }
      }
    } else {
      const uint64_t first = header.offset / kPage;
      for (uint64_t i = 0; i < nvlog::PagesOf(header.offset, header.length); ++i) {
        file.disk[first + i] = file.versions[first + i].back();
      }
    }
  }
  user.log.Pass(place);
  return true;
}

bool World::BeginVoids(User& user) {
  for (File& file : files_) {
    if (&users_[file.owner] != &user || !file.fails || !random_.OneIn(4)) continue;
    file.fails = false;
    for (const auto& [page, versions] : file.versions) file.disk[page] = versions.back();
    user.file = &file;
    return true;
  }
  return false;
}

void World::VoidStep(User& user) {
  File& file = *user.file;
  if (!file.kept.empty()) {
    user.kept.Void(file.kept.front().place);
    file.kept.pop_front();
    ++voids_;
    return;
  }
  if (!random_.OneIn(3)) user.kept.Settle();
  user.stage = Stage::kLook;
}

void World::CleanStep(User& user) {
  switch (user.stage) {
    case Stage::kLook:
      for (File& file : files_) {
        if (file.may_fail && &users_[file.owner] == &user && random_.OneIn(6)) file.fails = true;
      }
      if (BeginVoids(user)) {
        user.stage = Stage::kVoid;
        break;
      }
      user.log.Look(&user.ends);
      user.stage = Stage::kClean;
      break;
    case Stage::kClean:
      if (!CleanRecord(user)) user.stage = Stage::kCheckpoint;
      break;
    case Stage::kCheckpoint:
      user.pool.StoreSeatCheckpoint(user.ends.bound);
      user.stage = Stage::kForget;
      break;
    case Stage::kForget:
      user.log.Forget(user.ends.bound, user.ends, [](nvlog::Place) {});
      user.kept.Settle();
      if (random_.OneIn(2)) user.log.GiveBack();
      user.stage = Stage::kLook;
      break;
    case Stage::kVoid:
      VoidStep(user);
      break;
  }
}

// Nothing of it is pending.
void World::HandOver(File& file) {
  if (file.through || file.fails || !file.kept.empty()) return;
  if (file.last >= users_[file.owner].pool.checkpoint()) return;
  for (const User& user : users_) {
    if (user.file == &file && user.stage == Stage::kVoid) return;
  }
  file.owner ^= 1;
  file.declared_kept = 0;
}

void World::Act() {
  const uint64_t what = random_.Below(100);
  File& file = files_[random_.Below(kFiles)];
  if (what < 45) {
    file.through ? WriteThrough(file) : Write(file);
  } else if (what < 50) {
    HandOver(file);
  } else if (what < 60) {
    SyncStep();
  } else {
    CleanStep(users_[random_.Below(2)]);
  }
}

// ---------------------------------------------------------------------------------------------
// Images.

std::string World::CheckGroups(const std::vector<Seen>& seen, const std::vector<Lsn>& checkpoints,
                               Position position) const {
  std::map<Lsn, const Seen*> present;
  for (const Seen& group : seen) {
    if (group.parts.empty()) continue;
    if (group.kept && !keeps_) return "a kept group that nobody has kept";
    if (!group.kept && !present.emplace(group.lsn, &group).second) return "a group is there twice";
  }
  const Lsn newest = present.empty() ? 0 : present.rbegin()->first;
  size_t found = 0;
  for (const Group& group : groups_) {
    const auto there = present.find(group.lsn);
    const std::string name = "group " + std::to_string(group.lsn);
    if (there == present.end()) {
      if (group.lsn < checkpoints[group.log]) continue;
      if (group.lsn < position) return name + " is missing below " + std::to_string(position);
      if (group.lsn < newest)
        return name + " is missing, and " + std::to_string(newest) + " is there";
      continue;
    }
    ++found;
    std::string bytes;
    for (const Seen::Part& part : there->second->parts) {
      if (part.path != group.file->path) return name + " is of another file";
      bytes += part.bytes;
    }
    if (bytes != Page(group.lsn, bytes.size())) return name + " has other bytes";
  }
  return found == present.size() ? "" : "a group that nobody has written";
}

// All that a recovery would do to the disk as it is now. What lies below the position was promised.
std::string World::CheckDisk(const std::vector<Seen>& seen, Position position) const {
  std::map<std::string, std::map<uint64_t, Lsn>> written;
  for (const Seen& group : seen) {
    for (const Seen::Part& part : group.parts) {
      const uint64_t first = part.offset / kPage;
      for (uint64_t i = 0; i < nvlog::PagesOf(part.offset, part.bytes.size()); ++i) {
        written[part.path][first + i] = group.lsn;
      }
    }
  }
  for (const File& file : files_) {
    for (const auto& [page, versions] : file.versions) {
      Lsn promised = 0;
      for (const Lsn lsn : versions) {
        if (lsn < position) promised = lsn;
      }
      const auto on_disk = file.disk.find(page);
      Lsn result = on_disk != file.disk.end() ? on_disk->second : 0;
      const auto& pages = written[file.path];
      if (const auto found = pages.find(page); found != pages.end()) result = found->second;
      if (result < promised) {
        return file.path + " page " + std::to_string(page) + " would be as of " +
               std::to_string(result) + ", not " + std::to_string(promised);
      }
    }
  }
  return "";
}

std::string World::Check(Image* image) const {
  std::string problem;
  std::vector<Lsn> checkpoints;
  const std::vector<Seen> seen = Walk(image->view(), &problem, &checkpoints);
  if (problem.empty()) problem = CheckGroups(seen, checkpoints, image->position());
  if (problem.empty()) problem = CheckDisk(seen, image->position());
  return problem;
}

}  // namespace nvcache::mirror
