// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/name_mutants.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "src/nvlog/record.h"
#include "src/nvlog/walk.h"
#include "src/pool/name_record.h"
#include "src/sys/crc32c.h"
#include "tests/crash/medium.h"

namespace nvcache::crash {

namespace {

using nvlog::RecordHeader;
using pool::Deed;
using pool::NameRecord;

// A record of names in a pool's memory, or in what was stored there.
struct Said {
  uint64_t at = 0;          // of its header, in the pool
  uint64_t generation = 0;  // of its segment
  RecordHeader header = {};
  NameRecord record = {};
  // In a trace: its stores, and the PWB of its header.
  std::vector<size_t> stores;
  size_t commit = 0;
};

pool::Superblock SuperblockOf(const uint8_t* memory) {
  pool::Superblock superblock;
  std::memcpy(&superblock, memory, sizeof(superblock));
  return superblock;
}

// False: none that is committed begins there.
bool Read(const uint8_t* memory, uint64_t at, Said* said) {
  const pool::Superblock superblock = SuperblockOf(memory);
  said->at = at;
  std::memcpy(&said->header, memory + at, sizeof(said->header));
  const RecordHeader& header = said->header;
  if (header.kind != nvlog::Kind::kName || header.length > sizeof(NameRecord) ||
      header.commit != nvlog::CommitWord(header.lsn, superblock.salt)) {
    return false;
  }
  const uint64_t in_segment = (at - pool::kSegmentsOffset) % superblock.segment_size;
  pool::SegmentHeader segment;
  std::memcpy(&segment, memory + at - in_segment, sizeof(segment));
  said->generation = segment.generation;
  const nvlog::Place place = (at - pool::kSegmentsOffset) / pool::kUnitSize;
  if (header.header_crc != nvlog::HeaderCrc(header, place, segment.generation, superblock.salt)) {
    return false;
  }
  std::memcpy(static_cast<void*>(&said->record), memory + at + pool::kUnitSize, header.length);
  return sys::Crc32c(&said->record, header.length) == header.payload_crc;
}

// All that were committed, in the order of the trace.
std::vector<Said> AllSaid(const Trace& trace) {
  std::vector<Said> all;
  if (trace.root == kNobody || trace.pool.empty()) return all;
  std::string memory = trace.pool;
  const auto* bytes = reinterpret_cast<const uint8_t*>(memory.data());
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Event& event = trace.events[i];
    if (event.type == Event::kStore) {
      std::memcpy(&memory[event.at], trace.Data(event.data), event.length);
    }
    Said said;
    if (event.type != Event::kPwb || event.step != Step::kCommit || !Read(bytes, event.at, &said)) {
      continue;
    }
    said.commit = i;
    const uint64_t end = event.at + nvlog::RecordUnits(said.header) * pool::kUnitSize;
    for (size_t before = i; before-- > 0;) {
      const Event& other = trace.events[before];
      if (other.thread != event.thread) continue;
      if (other.at < event.at || other.at >= end) break;
      if (other.type == Event::kStore) said.stores.push_back(before);
    }
    all.push_back(said);
  }
  return all;
}

// The checksums of what is in `said` now, and where it goes.
std::string BytesOf(const Said& said, uint64_t salt) {
  std::string bytes(nvlog::RecordUnits(said.header) * pool::kUnitSize, '\0');
  RecordHeader header = said.header;
  header.payload_crc = sys::Crc32c(&said.record, header.length);
  const nvlog::Place place = (said.at - pool::kSegmentsOffset) / pool::kUnitSize;
  header.header_crc = nvlog::HeaderCrc(header, place, said.generation, salt);
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + pool::kUnitSize, &said.record, header.length);
  return bytes;
}

// In the place of what was stored. The first of the header's stores clears its word.
void Rewrite(Trace* trace, const Said& said) {
  const std::string bytes =
      BytesOf(said, SuperblockOf(reinterpret_cast<const uint8_t*>(trace->pool.data())).salt);
  const auto of_header = [&](size_t i) { return trace->events[i].at < said.at + kLine; };
  const auto clears = std::find_if(said.stores.rbegin(), said.stores.rend(), of_header);
  for (const size_t i : said.stores) {
    Event& event = trace->events[i];
    if (i == *clears) continue;
    event.data = trace->Keep(bytes.data() + (event.at - said.at), event.length);
  }
}

// ----------------------------------------------------------------------------------------- Records

using Which = std::function<bool(const NameRecord&)>;

Which Is(Deed deed) {
  return [deed](const NameRecord& record) { return record.deed == deed; };
}

// It says nothing, in as many bytes: attributes of a file that never was.
void Mute(Said* said) {
  NameRecord& record = said->record;
  record = {};
  record.deed = Deed::kAttributes;
  record.set = pool::kSetTimes;
  record.file.inode = ~uint64_t{0};
  record.target_length =
      static_cast<uint16_t>(said->header.length - offsetof(NameRecord, text) - pool::kNameTexts);
  std::memset(record.text + 2, 'x', record.target_length);
}

template <typename Change>
void ChangeSaid(Trace* trace, const Which& which, Change change) {
  for (Said& said : AllSaid(*trace)) {
    if (!which(said.record)) continue;
    change(&said);
    Rewrite(trace, said);
  }
}

// The call that is announced has failed: the log says that it was made all the same.
void FailedIsSaid(Trace* trace) {
  const std::vector<Said> all = AllSaid(*trace);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!pool::IsAnnouncement(all[i].record.deed)) continue;
    const Deed done = static_cast<Deed>(static_cast<uint32_t>(all[i].record.deed) + 1);
    if (i + 1 < all.size() && all[i + 1].record.deed == done) continue;
    Said said = all[i];
    said.record.deed = done;
    Rewrite(trace, said);
  }
}

// -------------------------------------------------------------------------------------- Order,
// syncs

// The events of one move of the checkpoint: [sync, stores), [stores, end), of one thread.
struct Move {
  size_t sync, stores, end;
};

std::vector<Move> Moves(const Trace& trace) {
  std::vector<Move> moves;
  const std::vector<Event>& events = trace.events;
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].type != Event::kNamesBegin) continue;
    Move move = {i, i, i};
    const auto own = [&](size_t at) { return events[at].thread == events[i].thread; };
    while (move.sync > 0 && events[move.sync - 1].type == Event::kSyncBegin) --move.sync;
    for (size_t at = i; at < events.size() && events[at].type != Event::kEnd; ++at) {
      if (own(at) && events[at].type == Event::kNamesEnd) move.stores = at + 1;
      const bool durable =
          events[at].type == Event::kFence && events[at].step == Step::kCheckpointDurable;
      if (own(at) && durable) move.end = at + 1;
    }
    if (move.end > move.stores) moves.push_back(move);
  }
  return moves;
}

// The first change of the last call before that.
size_t LastCall(const Trace& trace, size_t before) {
  for (size_t i = before; i-- > 0;) {
    if (trace.events[i].type != Event::kEntry) continue;
    while (i > 0 && trace.events[i - 1].type == Event::kEntry) --i;
    return i;
  }
  return trace.events.size();
}

void Rotate(Trace* trace, size_t before, size_t begin, size_t end) {
  const auto at = [&](size_t i) { return trace->events.begin() + static_cast<std::ptrdiff_t>(i); };
  std::rotate(at(before), at(begin), at(end));
}

// The names are synced before the last call, and the checkpoint is drawn after it.
void DrawnAfterSync(Trace* trace) {
  for (const Move& move : Moves(*trace)) {
    const size_t call = LastCall(*trace, move.sync);
    if (call < move.sync) Rotate(trace, call, move.sync, move.stores);
  }
}

// Both are done between the announcement of the last call and the call.
void DrawnBetween(Trace* trace) {
  const auto salt = SuperblockOf(reinterpret_cast<const uint8_t*>(trace->pool.data())).salt;
  for (const Move& move : Moves(*trace)) {
    const size_t call = LastCall(*trace, move.sync);
    nvlog::Lsn announced = 0;
    for (const Said& said : AllSaid(*trace)) {
      if (said.commit < call) announced = said.header.lsn;
    }
    if (call > move.sync || announced == 0) continue;
    for (size_t i = move.stores; i < move.end; ++i) {
      Event& event = trace->events[i];
      if (event.type != Event::kStore || event.length != pool::kCheckpointStored) continue;
      pool::CheckpointRecord record;
      std::memcpy(&record, trace->Data(event.data), pool::kCheckpointStored);
      record.checkpoint = announced + 1;
      record.crc =
          sys::Crc32c(&record, offsetof(pool::CheckpointRecord, crc), static_cast<uint32_t>(salt));
      event.data = trace->Keep(&record, pool::kCheckpointStored);
    }
    Rotate(trace, call, move.sync, move.end);
  }
}

// Calls erase(events, begin, end) with the indexes of each operation of that kind.
template <typename Erase>
void InEach(Trace* trace, Operation::Kind kind, Erase erase) {
  for (size_t begin = trace->events.size(); begin-- > 0;) {
    const Event event = trace->events[begin];
    if (event.type != Event::kBegin || trace->operations[event.file].kind != kind) continue;
    size_t end = begin;
    while (trace->events[end].type != Event::kEnd || trace->events[end].file != event.file) ++end;
    erase(&trace->events, begin, end);
  }
}

// In such calls, no single file or folder is synced. A sync of all has marks of its own next to
// those of the files.
void LeaveOutSyncs(Trace* trace, Operation::Kind kind) {
  InEach(trace, kind, [](std::vector<Event>* events, size_t begin, size_t end) {
    bool all = false;
    for (size_t i = end; i-- > begin;) {
      const Event::Type type = (*events)[i].type;
      const bool syncs = type == Event::kSyncBegin || type == Event::kSyncEnd;
      all = type == Event::kNamesEnd || type == Event::kNamesBegin || (all && syncs);
      if (syncs && !all) events->erase(events->begin() + static_cast<std::ptrdiff_t>(i));
    }
  });
}

// A call past the log is made while something of its folders is pending.
void PastWhilePending(Trace* trace) {
  InEach(trace, Operation::kPast, [](std::vector<Event>* events, size_t begin, size_t end) {
    const auto at = [events](size_t i) { return events->begin() + static_cast<std::ptrdiff_t>(i); };
    size_t first = end, last = begin;
    for (size_t i = begin; i < end; ++i) {
      const Event& event = (*events)[i];
      if (event.type == Event::kNamesBegin) first = std::min(first, i);
      if (event.type == Event::kFence && event.step == Step::kCheckpointDurable) last = i + 1;
    }
    while (first < last && (*events)[first - 1].type == Event::kSyncBegin) --first;
    if (first < last) events->erase(at(first), at(last));
  });
}

// ---------------------------------------------------------------------------------------- Recovery

// It syncs nothing.
void RecoveredUnsynced(Trace* trace) {
  std::erase_if(trace->events, [](const Event& event) {
    return event.type == Event::kNamesEnd || event.type == Event::kSyncEnd;
  });
}

// What it makes has its name at once, and no other one before; nor has what gives its name away.
void NoSafeNames(Trace* trace) {
  std::erase_if(trace->events, [trace](const Event& event) {
    return event.type == Event::kEntry && trace->EntryOf(event).name.rfind(".nvcache-", 0) == 0;
  });
}

// What is made has its name before the log says what goes on as what.
void NamedBeforeSuccessor(Trace* trace) {
  std::vector<Event>& events = trace->events;
  for (size_t fence = events.size(); fence-- > 1;) {
    if (events[fence].type != Event::kFence || events[fence].step != Step::kSuccessorDurable) {
      continue;
    }
    size_t named = fence + 1;
    const auto is_name = [&](const Event& event) {
      return event.type == Event::kEntry && trace->EntryOf(event).name.rfind(".nvcache-", 0) != 0;
    };
    while (named < events.size() && !is_name(events[named])) ++named;
    if (named == events.size()) continue;
    const auto first = events.begin() + static_cast<ptrdiff_t>(fence) - 1;  // its PWB
    std::rotate(first, first + 2, events.begin() + static_cast<ptrdiff_t>(named) + 1);
  }
}

// The log does not say what goes on as what.
void SuccessorUnsaid(Trace* trace) {
  std::vector<uint64_t> lines;
  for (const Event& event : trace->events) {
    if (event.type == Event::kPwb && event.step == Step::kSuccessor) lines.push_back(event.at);
  }
  std::erase_if(trace->events, [&](const Event& event) {
    return event.type == Event::kStore && event.length == sizeof(uint64_t) &&
           std::count(lines.begin(), lines.end(), event.at / kLine * kLine) > 0;
  });
}

// The records that recovery will see, in their order.
std::vector<Said> Committed(const pool::View& view) {
  std::vector<Said> all;
  nvlog::Reader reader;
  nvlog::GroupWalk walk(reader);
  if (!reader.Open(view) || !walk.Open()) return all;
  for (nvlog::Group group; walk.Next(&group);) {
    if (group.verdict != nvlog::Verdict::kCommitted) continue;
    walk.ForEachRecord(group, [&](const RecordHeader&, nvlog::Place place) {
      Said said;
      const uint64_t at = pool::kSegmentsOffset + place * pool::kUnitSize;
      if (Read(view.base, at, &said)) all.push_back(said);
    });
  }
  return all;
}

std::vector<nvlog::Place> Replace(const pool::View& view, const Said& said) {
  const std::string bytes = BytesOf(said, view.salt());
  std::memcpy(view.base + said.at, bytes.data(), bytes.size());
  std::vector<nvlog::Place> changed;
  for (uint64_t unit = 0; unit < nvlog::RecordUnits(said.header); ++unit) {
    changed.push_back((said.at - pool::kSegmentsOffset) / pool::kUnitSize + unit);
  }
  return changed;
}

// What is announced last counts as done.
std::vector<nvlog::Place> AnnouncedIsDone(const pool::View& view) {
  std::vector<Said> all = Committed(view);
  if (all.empty() || !pool::IsAnnouncement(all.back().record.deed)) return {};
  all.back().record.deed = static_cast<Deed>(static_cast<uint32_t>(all.back().record.deed) + 1);
  return Replace(view, all.back());
}

// It is not looked at.
std::vector<nvlog::Place> AnnouncedIsNothing(const pool::View& view) {
  std::vector<Said> all = Committed(view);
  if (all.empty() || !pool::IsAnnouncement(all.back().record.deed)) return {};
  Mute(&all.back());
  return Replace(view, all.back());
}

// A name that some file had counts as removed from the file that was born last. For that there is
// an announcement of a call which has failed, so that all else is said as it was.
std::vector<nvlog::Place> RemovedFromAnother(const pool::View& view) {
  std::vector<nvlog::Place> changed;
  const std::vector<Said> all = Committed(view);
  const auto born = std::find_if(all.rbegin(), all.rend(), [](const Said& said) {
    return said.record.deed == Deed::kCreated;
  });
  for (size_t i = 0; i + 1 < all.size() && born != all.rend(); ++i) {
    Said said = all[i];
    if (said.record.deed != Deed::kRemoves || all[i + 1].record.deed == Deed::kRemoved) continue;
    said.record.deed = Deed::kRemoved;
    said.record.file = born->record.file;
    said.record.flags &= ~pool::kNameGone;
    for (const nvlog::Place place : Replace(view, said)) changed.push_back(place);
  }
  return changed;
}

Mutant OfEngine(const char* name, const char* what, const std::function<void(Trace*)>& apply) {
  return {name, what, [apply](Trace* trace, bool of_recovery) {
            if (!of_recovery && trace->root != kNobody) apply(trace);
          }};
}

Mutant OfRecovery(const char* name, const char* what, const std::function<void(Trace*)>& apply) {
  return {name, what, [apply](Trace* trace, bool of_recovery) {
            if (of_recovery && trace->root != kNobody) apply(trace);
          }};
}

Mutant Unsaid(const char* name, const char* what, const Which& which) {
  return OfEngine(name, what, [which](Trace* trace) { ChangeSaid(trace, which, Mute); });
}

// No record says that such an attribute was set, nor does one that makes the file.
Mutant WithoutSet(const char* name, const char* what, uint32_t set) {
  return OfEngine(name, what, [set](Trace* trace) {
    ChangeSaid(
        trace, [set](const NameRecord& record) { return (record.set & set) != 0; },
        [set](Said* said) {
          said->record.set &= ~set;
          if (said->record.set == 0) Mute(said);
        });
  });
}

Mutant WithoutFlag(const char* name, const char* what, uint32_t flag) {
  return OfEngine(name, what, [flag](Trace* trace) {
    ChangeSaid(
        trace, [flag](const NameRecord& record) { return (record.flags & flag) != 0; },
        [flag](Said* said) { said->record.flags &= ~flag; });
  });
}

}  // namespace

std::vector<Mutant> NameMutants() {
  const auto nothing = [](Trace*, bool) {};
  return {
      Unsaid("created unsaid", "no record says that a file was made", Is(Deed::kCreated)),
      Unsaid("renamed unsaid", "no record says that a rename was made", Is(Deed::kRenamed)),
      Unsaid("removed unsaid", "no record says that a name was removed", Is(Deed::kRemoved)),
      Unsaid("linked unsaid", "no record says that a link was made", Is(Deed::kLinked)),
      Unsaid("mode unsaid", "no record says that a mode was set", Is(Deed::kAttributes)),
      WithoutSet("owner unsaid", "no record says that an owner was set", pool::kSetOwner),
      WithoutSet("times unsaid", "no record says that times were set", pool::kSetTimes),
      OfEngine("born as another's", "a record says of a new file that it is another user's",
               [](Trace* trace) {
                 ChangeSaid(trace, Is(Deed::kCreated), [](Said* said) { ++said->record.uid; });
               }),
      Unsaid("removal unannounced", "a name is removed before a record says that it will be",
             Is(Deed::kRemoves)),
      Unsaid("rename unannounced", "a rename is made before a record says that it will be",
             Is(Deed::kRenames)),
      WithoutFlag("gone unsaid", "no record says that a file has lost its last name",
                  pool::kNameGone),
      WithoutFlag("others unsaid", "no record says that a file has other names",
                  pool::kNameHasOthers),
      WithoutFlag("lacks unsaid", "no record says that a file has bytes that no log has",
                  pool::kNameLacks),
      OfEngine("other unsaid", "no record says which file a rename destroys",
               [](Trace* trace) {
                 ChangeSaid(
                     trace, [](const NameRecord& record) { return !pool::IsNone(record.other); },
                     [](Said* said) { said->record.other = {}; });
               }),
      OfEngine("folder unsaid", "no record says that it is a folder that gets another name",
               [](Trace* trace) {
                 ChangeSaid(
                     trace,
                     [](const NameRecord& record) {
                       return record.from_length > 0 && S_ISDIR(record.mode);
                     },
                     [](Said* said) { said->record.mode = 0; });
               }),
      OfEngine("failed is said", "the outcome of a call that fails is committed before it",
               FailedIsSaid),
      OfEngine("names drawn after sync", "the checkpoint is drawn after the sync of the names",
               DrawnAfterSync),
      OfEngine("names drawn between", "the checkpoint is drawn between announcement and call",
               DrawnBetween),
      OfEngine("renamed before bytes",
               "a file is renamed whose bytes are not in the log, nor on the disk",
               [](Trace* trace) { LeaveOutSyncs(trace, Operation::kRename); }),
      OfEngine("past unsynced", "a call past the log is not synced",
               [](Trace* trace) { LeaveOutSyncs(trace, Operation::kPast); }),
      OfEngine("past while pending", "a call past the log is made while its folder has records",
               PastWhilePending),
      OfRecovery("recovered names unsynced",
                 "recovery moves the checkpoint, and has synced nothing", RecoveredUnsynced),
      OfRecovery("no safe names", "recovery takes a file's only name away", NoSafeNames),
      OfRecovery("named before successor",
                 "recovery names what it has made before its record knows it",
                 NamedBeforeSuccessor),
      OfRecovery("named successor unsaid", "the log does not say as what a file goes on",
                 SuccessorUnsaid),
      {"announced is done", "recovery takes what is announced for done", nothing, AnnouncedIsDone},
      {"announced is nothing", "recovery does not look at what is announced", nothing,
       AnnouncedIsNothing},
      {"removed from another", "recovery removes a name that leads to another file by now", nothing,
       RemovedFromAnother},
  };
}

}  // namespace nvcache::crash
