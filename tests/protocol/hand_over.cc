// SPDX-License-Identifier: BSD-3-Clause
//
// Handing over: a file that was written back, is write-through, and nothing was synced. From then
// on its write-back groups are as old as p, of which the Handed over record tells.
#include <algorithm>

#include "tests/protocol/protocol.h"

namespace nvcache::protocol {

// By the owner; the kernel has every byte. False: the entry is another file's. `early`: p, if it
// was drawn too early.
Task<bool> Run::HandOver(size_t self, File file, Lsn early) {
  const auto busy = [&] {
    return std::ranges::any_of(processes_, [](const Process& other) { return other.passing > 0; });
  };
  bool passing = !Keeps("handed-over-tag-before-scan"_rule) && co_await SomebodyPasses(self, false);
  if (!Keeps("handed-over-tag-before-scan"_rule) || !Keeps("handed-over-scans"_rule))
    co_await Lurk(busy);
  if (entry_.state.tag != File::kNone) co_await RemoveTag(self, entry_.state.tag);
  co_await Step{};
  Lsn handed_over = 0;
  if (Keeps("handed-over-lsn-before-tag"_rule)) handed_over = co_await DrawHandedOver(early);
  co_await Step{};
  const State none = entry_.state;
  const State tagged = {file, false, none.bypasses};
  if (none.tag != File::kNone) co_return false;
  co_await Step{};
  if (Keeps("handed-over-tagged"_rule) && !Replace(none, tagged)) co_return false;
  Note(self, "sets the tag of the file that it hands over");
  if (Keeps("handed-over-tag-before-scan"_rule)) passing = co_await SomebodyPasses(self, false);
  if (!Keeps("handed-over-scans"_rule)) passing = false;
  co_await Step{};
  if (!Keeps("handed-over-lsn-before-tag"_rule)) {
    co_await Lurk([&] { return entry_.state.tag != file; });
    handed_over = co_await DrawHandedOver(early);
  }
  co_await Step{};
  if (!Keeps("handed-over-committed"_rule)) {
    GiveUp(self, file);
    co_await Dawdle();
  }
  Note(self, "hands over below", handed_over);
  const Lsn lsn = pool_.Draw();
  pool_.records.push_back({Record::Kind::kHandedOver, pid(self), lsn, file, {}, handed_over});
  co_await Step{};
  if (!Keeps("handed-over-known-first"_rule)) {
    GiveUp(self, file);
    co_await Lurk([&] { return !GroupsCount(file); });
    co_await Dawdle();
  }
  const State known = {file, true, tagged.bypasses};
  if (!Keeps("handed-over-known-in-one-step"_rule) && !passing) {
    const auto is_others = [&] {
      return entry_.state.tag != file && entry_.state.tag != File::kNone && !entry_.state.known;
    };
    co_await Lurk([&] { return is_others() && file_system_.unsynced() > 0; });
    const bool asks = is_others();
    entry_.state.known = true;
    if (asks) co_await Fsync(self, entry_.state.tag);
  }
  if (!passing && Replace(tagged, known)) Note(self, "makes the file known");
  co_return true;
}

// p, of which the entry knows. `early`: it was drawn before.
Task<Lsn> Run::DrawHandedOver(Lsn early) {
  const Lsn handed_over = early != 0 ? early : pool_.Draw();
  co_await Step{};
  if (Keeps("handed-over-raises-lsn"_rule)) entry_.lsn = std::max(entry_.lsn, handed_over);
  co_await Step{};
  co_return handed_over;
}

Lsn Run::HandedOverBelow(Pid log, File file) const {
  Lsn last = 0;
  for (const Record& record : pool_.records) {
    const bool its = record.kind == Record::Kind::kHandedOver && record.log == log;
    if (its && record.file == file) last = std::max(last, record.bound);
  }
  return last;
}

Lsn Run::LastHandedOver(Pid log) const {
  return std::max(HandedOverBelow(log, File::kA), HandedOverBelow(log, File::kB));
}

// The first group above the seat's checkpoint that is not.
std::optional<Lsn> Run::FirstNotHandedOver(Pid log) const {
  const auto& copies = pool_.back[log].copies;
  for (const Record& record : pool_.records) {
    const bool its = record.kind == Record::Kind::kBack && record.log == log;
    const Lsn passed = std::max({copies[0], copies[1], HandedOverBelow(log, record.file)});
    if (its && record.lsn >= passed) return record.lsn;
  }
  return std::nullopt;
}

// Above its checkpoint, and nobody has been left to pass them.
bool Run::HasHandedOver(Pid log) const {
  const auto& copies = pool_.back[log].copies;
  return std::ranges::count(left_, log) == 0 &&
         LastHandedOver(log) >= std::max(copies[0], copies[1]);
}

// By the owner, while others have the file.
Task<void> Run::PassHandedOver(size_t self) {
  const Lsn last = LastHandedOver(pid(self));
  Lsn to = last + 1;
  if (Keeps("handed-over-alone"_rule))
    to = std::min(to, FirstNotHandedOver(pid(self)).value_or(to));
  co_await Step{};
  Note(self, "passes what it has handed over below", to);
  if (pool_.through.seen > last || !Keeps("handed-over-passed-when-synced"_rule)) {
    co_await StoreSeatCheckpoint(pid(self), to);
  } else {
    co_await MoveSeatCheckpoint(pid(self), to);
  }
}

// By whoever has moved the checkpoint of write-through: nobody else cares for these seats.
Task<void> Run::PassLeft(const std::vector<Pid>& left, Lsn checkpoint) {
  for (const Pid log : left) {
    if (Keeps("left-checkpoint-first"_rule)) {
      co_await StoreSeatCheckpoint(log, checkpoint);
    } else {
      pool_.back[log].seen = checkpoint;
    }
    std::erase(left_, log);
  }
}

}  // namespace nvcache::protocol
