// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/mutants.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "src/nvlog/record.h"
#include "src/nvlog/walk.h"
#include "src/sys/boot.h"
#include "src/sys/crc32c.h"
#include "tests/crash/medium.h"
#include "tests/crash/name_mutants.h"

namespace nvcache::crash {

namespace {

using Events = std::vector<Event>;
using Indexes = std::vector<size_t>;  // ascending
using nvlog::Kind;
using nvlog::RecordHeader;

bool Is(const Event& event, Event::Type type, Step step) {
  return event.type == type && event.step == step;
}

Indexes All(const Events& events, Event::Type type, Step step) {
  Indexes found;
  for (size_t i = 0; i < events.size(); ++i) {
    if (Is(events[i], type, step)) found.push_back(i);
  }
  return found;
}

// What the fence at `fence` makes durable by PWBs that are `step`: these, their stores, and itself.
// They lie directly before it, in the order of their thread.
Indexes DurableBy(const Events& events, size_t fence, Step step) {
  Indexes unit = {fence};
  std::set<uint64_t> lines;
  for (size_t i = fence; i-- > 0;) {
    const Event& event = events[i];
    if (event.thread != events[fence].thread) continue;
    const uint64_t line = event.at / kLine;
    if (Is(event, Event::kPwb, step)) {
      lines.insert(line);
    } else if (event.type != Event::kStore || lines.count(line) == 0) {
      break;
    }
    unit.push_back(i);
  }
  std::reverse(unit.begin(), unit.end());
  return unit;
}

// The events at `which` go before the one at `before`.
void Move(Events* events, const Indexes& which, size_t before) {
  Events moved, result;
  for (const size_t i : which) moved.push_back((*events)[i]);
  for (size_t i = 0; i <= events->size(); ++i) {
    if (i == before) result.insert(result.end(), moved.begin(), moved.end());
    if (i < events->size() && !std::binary_search(which.begin(), which.end(), i)) {
      result.push_back((*events)[i]);
    }
  }
  *events = std::move(result);
}

// The first event from `from` on, or the last before it, that `is`; events->size() if there is
// none.
template <typename Function>
size_t After(const Events& events, size_t from, Function is) {
  while (from < events.size() && !is(events[from])) ++from;
  return from;
}
template <typename Function>
size_t Before(const Events& events, size_t from, Function is) {
  while (from-- > 0) {
    if (is(events[from])) return from;
  }
  return events.size();
}

constexpr size_t kNowhere = ~size_t{0};

// Where a unit that DurableBy() has found goes: before that event, or nowhere.
using Where = std::function<size_t(const Events&, const Indexes& unit)>;
using ChangeEvents = std::function<void(Events*)>;

// What `step` makes durable, with the fence of the step after it.
Indexes Unit(const Events& events, Step step, size_t i) {
  const auto durable = static_cast<Step>(static_cast<int>(step) + 1);
  return DurableBy(events, All(events, Event::kFence, durable)[i], step);
}
size_t Units(const Events& events, Step step) {
  return All(events, Event::kFence, static_cast<Step>(static_cast<int>(step) + 1)).size();
}

// Each unit in turn goes to where it is said.
ChangeEvents BringForward(Step step, const Where& where) {
  return [step, where](Events* events) {
    const size_t n = Units(*events, step);
    for (size_t i = 0; i < n; ++i) {
      const Indexes unit = Unit(*events, step, i);
      const size_t before = where(*events, unit);
      if (before <= events->size() && !std::binary_search(unit.begin(), unit.end(), before)) {
        Move(events, unit, before);
      }
    }
  };
}

// The same for moves to later: the last one first, so that they keep their order.
ChangeEvents PutOff(Step step, const Where& where) {
  return [step, where](Events* events) {
    for (size_t i = Units(*events, step); i-- > 0;) {
      const Indexes unit = Unit(*events, step, i);
      const size_t before = where(*events, unit);
      if (before <= events->size() && before > unit.back()) Move(events, unit, before);
    }
  };
}

// Behind fences that come next, one after the other: of any thread, of the unit's own, or of
// another process.
enum Who { kAnybody, kItself, kAnother };
struct Next {
  Step step;
  Who who = kAnybody;
};
Where Behind(const std::vector<Next>& fences) {
  return [fences](const Events& e, const Indexes& unit) {
    const Event& own = e[unit.front()];
    size_t place = unit.back() + 1;
    for (const auto& [step, who] : fences) {
      place = After(e, place, [&, step = step, who = who](const Event& event) {
        return Is(event, Event::kFence, step) && (who != kItself || event.thread == own.thread) &&
               (who != kAnother || ProcessOf(event) != ProcessOf(own));
      });
      if (place == e.size()) return kNowhere;
      ++place;
    }
    return place;
  };
}

// The first event of that type.
Where BeforeFirst(Event::Type type) {
  return [type](const Events& e, const Indexes&) {
    const size_t first = After(e, 0, [&](const Event& event) { return event.type == type; });
    return first == e.size() ? kNowhere : first;
  };
}

void Erase(Events* events, Indexes which) {
  std::sort(which.begin(), which.end());
  which.erase(std::unique(which.begin(), which.end()), which.end());
  for (; !which.empty(); which.pop_back()) {
    events->erase(events->begin() + static_cast<std::ptrdiff_t>(which.back()));
  }
}

// Before that event, by its thread.
void Insert(Events* events, size_t before, Events more) {
  for (Event& event : more) event.thread = (*events)[before].thread;
  events->insert(events->begin() + static_cast<std::ptrdiff_t>(before), more.begin(), more.end());
}

// The fence of that step that the thread of the event at `from` comes to.
size_t OwnFence(const Events& events, size_t from, Step step) {
  return After(events, from, [&](const Event& event) {
    return event.thread == events[from].thread && Is(event, Event::kFence, step);
  });
}

// ---------------------------------------------------------------------------------------------

// The three stores of each header of `steps`, with the PWB after them.
std::vector<Indexes> Headers(const Events& events, const std::set<Step>& steps) {
  std::vector<Indexes> headers;
  for (size_t pwb = 0; pwb < events.size(); ++pwb) {
    if (events[pwb].type != Event::kPwb || steps.count(events[pwb].step) == 0) continue;
    Indexes header = {pwb};
    for (size_t i = pwb; i-- > 0 && header.size() < 4;) {
      const Event& event = events[i];
      if (event.thread != events[pwb].thread) continue;
      if (event.type != Event::kStore || event.at / kLine != events[pwb].at / kLine) break;
      header.push_back(i);
    }
    std::reverse(header.begin(), header.end());
    if (header.size() == 4) headers.push_back(header);
  }
  return headers;
}
const std::set<Step> kRecords = {Step::kGroupHeaders, Step::kCommit};
const std::set<Step> kSegments = {Step::kSegmentCopy, Step::kSegment};

ChangeEvents WordFirst(const std::set<Step>& steps) {
  return [steps](Events* events) {
    for (const Indexes& header : Headers(*events, steps)) {
      std::swap((*events)[header[1]], (*events)[header[2]]);
    }
  };
}

ChangeEvents WordStays(const std::set<Step>& steps) {
  return [steps](Events* events) {
    Indexes cleared;
    for (const Indexes& header : Headers(*events, steps)) cleared.push_back(header[0]);
    Erase(events, cleared);
  };
}

// ---------------------------------------------------------------------------------------------
// Headers with other fields: what a wrong group looks like.

// A header that was written, with its stores in the trace.
struct Written {
  Indexes events;
  nvlog::Place place;
  pool::SegmentHeader segment;
  RecordHeader header;
};
using Group = std::vector<Written>;  // by index

pool::Superblock SuperblockOf(const Trace& trace) {
  pool::Superblock superblock;
  std::memcpy(&superblock, trace.pool.data(), sizeof(superblock));
  return superblock;
}

// All that were committed in segments of that kind, in the order of the trace.
std::vector<Group> Groups(const Trace& trace, pool::SegmentKind kind = pool::SegmentKind::kLog) {
  std::vector<Group> groups;
  std::map<uint16_t, Group> members;
  std::string memory = trace.pool;
  const uint64_t size = memory.empty() ? 0 : SuperblockOf(trace).segment_size;
  size_t at = 0;
  for (const Indexes& stores : Headers(trace.events, kRecords)) {
    for (; at < stores[3]; ++at) {
      const Event& event = trace.events[at];
      if (event.type != Event::kStore) continue;
      std::memcpy(&memory[event.at], trace.Data(event.data), event.length);
    }
    const Event& pwb = trace.events[stores[3]];
    Written written = {stores, (pwb.at - pool::kSegmentsOffset) / kLine, {}, {}};
    std::memcpy(&written.header, &memory[pwb.at], sizeof(written.header));
    const uint64_t segment = (pwb.at - pool::kSegmentsOffset) / size * size;
    std::memcpy(&written.segment, &memory[pool::kSegmentsOffset + segment],
                sizeof(written.segment));
    Group& group = members[pwb.thread];
    group.push_back(written);
    if (pwb.step != Step::kCommit) continue;
    std::erase_if(group, [&](const Written& w) { return w.header.lsn != written.header.lsn; });
    std::rotate(group.begin(), group.end() - 1, group.end());
    if (written.segment.kind == kind) groups.push_back(group);
    group.clear();
  }
  return groups;
}

// In the place of what these stores have stored, but for the first one, which clears the word.
void StoreHeader(Trace* trace, const Indexes& stores, const void* header) {
  for (const size_t i : {stores[1], stores[2]}) {
    Event& event = trace->events[i];
    event.data = trace->Keep(static_cast<const uint8_t*>(header) + event.at % kLine, event.length);
  }
}

// `header` in the place of what was written.
void Rewrite(Trace* trace, const Written& written, RecordHeader header) {
  nvlog::Seal(&header, written.place, written.segment.generation, SuperblockOf(*trace).salt);
  StoreHeader(trace, written.events, &header);
}

// Of these, each header becomes what change(&header, written) makes of it, unless that says false.
template <typename Function>
void ChangeHeaders(Trace* trace, const Group& group, Function change) {
  for (const Written& written : group) {
    RecordHeader header = written.header;
    if (change(&header, written)) Rewrite(trace, written, header);
  }
}

void SetLsn(Trace* trace, const Group& group, nvlog::Lsn lsn) {
  ChangeHeaders(trace, group, [lsn](RecordHeader* header, const Written&) {
    header->lsn = lsn;
    return true;
  });
}

// What is said of the file with that number, is said of another one.
bool Renumber(RecordHeader* header) {
  header->file += 1000;
  return true;
}

// It says nothing: zeros where the file has nothing.
bool Mute(RecordHeader* header, uint32_t length) {
  header->kind = Kind::kErase;
  header->offset = uint64_t{1} << 40;
  header->length = length;
  return true;
}

// Two groups in turn have each other's LSN, if they are neighbours and `are` right for that.
template <typename Function>
void SwapLsns(Trace* trace, Function are) {
  const std::vector<Group> groups = Groups(*trace);
  for (size_t i = 0; i + 1 < groups.size(); ++i) {
    const Group &a = groups[i], &b = groups[i + 1];
    const auto above = [](const Group& group, nvlog::Lsn lsn) {
      return std::all_of(group.begin(), group.end(),
                         [&](const Written& w) { return w.segment.generation < lsn; });
    };
    if (!are(a, b) || !above(b, a[0].header.lsn)) continue;
    SetLsn(trace, a, b[0].header.lsn);
    SetLsn(trace, b, a[0].header.lsn);
    ++i;
  }
}

bool AreInTwoLanes(const Group& a, const Group& b) {
  return a[0].segment.log != b[0].segment.log && a[0].header.file == b[0].header.file;
}

// Two threads that write to the same pages.
void LsnBeforePages(Trace* trace) { SwapLsns(trace, AreInTwoLanes); }

// The same, and both have drawn the earlier number.
void LsnDrawnTwice(Trace* trace) {
  const std::vector<Group> groups = Groups(*trace);
  for (size_t i = 0; i + 1 < groups.size(); ++i) {
    const Group &a = groups[i], &b = groups[i + 1];
    if (AreInTwoLanes(a, b) && b[0].segment.generation < a[0].header.lsn) {
      SetLsn(trace, b, a[0].header.lsn);
      ++i;
    }
  }
}

// Two threads that want the same lane.
void LsnBeforeLane(Trace* trace) {
  SwapLsns(trace,
           [](const Group& a, const Group& b) { return a[0].segment.log == b[0].segment.log; });
}

// All file records but a file's first are of another number: the file counts as known in every
// segment once it is known in one.
void DeclaredOnce(Trace* trace) {
  std::set<uint32_t> known;
  for (const Group& group : Groups(*trace)) {
    ChangeHeaders(trace, group, [&](RecordHeader* header, const Written&) {
      return header->kind == Kind::kFile && !known.insert(header->file).second && Renumber(header);
    });
  }
}

// What is in the place of `length` bytes at `at` before event `end`, and the last stores of them.
Indexes LastStores(const Trace& trace, size_t end, uint64_t at, uint64_t length) {
  Indexes stores;
  for (uint64_t line = at / kLine; line * kLine < at + length; ++line) {
    const size_t i = Before(trace.events, end, [&](const Event& event) {
      return event.type == Event::kStore && event.at / kLine == line;
    });
    if (i < trace.events.size()) stores.push_back(i);
  }
  return stores;
}

// Calls function(record, written) for each file record in the logs.
template <typename Function>
void ForEachFileRecord(const Trace& trace, Function function) {
  for (const Group& group : Groups(trace)) {
    for (const Written& written : group) {
      if (written.header.kind != Kind::kFile) continue;
      const uint64_t at = pool::kSegmentsOffset + (written.place + 1) * kLine;
      pool::FileRecord record = {};
      auto* bytes = reinterpret_cast<uint8_t*>(&record);
      for (const size_t i : LastStores(trace, written.events[0], at, written.header.length)) {
        const Event& event = trace.events[i];
        std::memcpy(bytes + (event.at - at), trace.Data(event.data), event.length);
      }
      function(record, written);
    }
  }
}

// A number that has named another file in the segment goes on without a new file record.
void NumberUsedAgain(Trace* trace) {
  std::map<std::pair<nvlog::Lsn, uint32_t>, uint64_t> inodes;  // by generation and number
  std::set<nvlog::Place> others;
  ForEachFileRecord(*trace, [&](const pool::FileRecord& record, const Written& written) {
    const auto [known, is_new] =
        inodes.try_emplace({written.segment.generation, written.header.file}, record.inode);
    if (!is_new && known->second != record.inode) others.insert(written.place);
  });
  for (const Group& group : Groups(*trace)) {
    ChangeHeaders(trace, group, [&](RecordHeader* header, const Written& written) {
      return header->kind == Kind::kFile && others.count(written.place) > 0 && Renumber(header);
    });
  }
}

// What is kept counts as newer than all that there was when its segment was taken.
void KeptAsNewer(Trace* trace) {
  for (const Group& group : Groups(*trace, pool::SegmentKind::kKept)) {
    SetLsn(trace, group, group[0].segment.generation);
  }
}

// What is kept is committed after the checkpoint has passed it.
void KeptAfterCheckpoint(Trace* trace) {
  std::set<size_t> held;
  for (const Group& group : Groups(*trace, pool::SegmentKind::kKept)) {
    const Indexes& commit = group[0].events;
    held.insert(commit.begin(), commit.end());
    held.insert(OwnFence(trace->events, commit.back(), Step::kCommitted));
  }
  Events late, result;
  int records = 0;
  for (size_t i = 0; i < trace->events.size(); ++i) {
    const Event& event = trace->events[i];
    (held.count(i) > 0 ? late : result).push_back(event);
    if (!Is(event, Event::kFence, Step::kCheckpointDurable) || ++records % 2 != 0) continue;
    result.insert(result.end(), late.begin(), late.end());
    late.clear();
  }
  result.insert(result.end(), late.begin(), late.end());
  trace->events = std::move(result);
}

// Calls value(event, checkpoint) for each store of a checkpoint record; the result was stored.
template <typename Function>
void ChangeCheckpoints(Trace* trace, Step step, Function value) {
  if (trace->pool.empty()) return;  // of a recovery after a kill
  const uint64_t salt = SuperblockOf(*trace).salt;
  for (const size_t pwb : All(trace->events, Event::kPwb, step)) {
    const size_t store = Before(trace->events, pwb, [&](const Event& event) {
      return event.type == Event::kStore && event.at == trace->events[pwb].at;
    });
    pool::CheckpointRecord record;
    std::memcpy(&record, trace->Data(trace->events[store].data), pool::kCheckpointStored);
    record.checkpoint = value(store, record.checkpoint);
    record.crc =
        sys::Crc32c(&record, offsetof(pool::CheckpointRecord, crc), static_cast<uint32_t>(salt));
    trace->events[store].data = trace->Keep(&record, pool::kCheckpointStored);
  }
}

// The cleanup thread reads the LSN counter after it has looked where the lanes end.
void BoundAfterLook(Trace* trace) {
  const std::vector<Group> groups = Groups(*trace);
  ChangeCheckpoints(trace, Step::kCheckpoint, [&](size_t store, nvlog::Lsn checkpoint) {
    for (const Group& group : groups) {
      if (group[0].events.back() < store) {
        checkpoint = std::max(checkpoint, group[0].header.lsn + 1);
      }
    }
    return checkpoint;
  });
}

// It does not look at lanes that have no segment: one of them has drawn an LSN, and commits next.
void IdleLaneMissed(Trace* trace) {
  const std::vector<Group> groups = Groups(*trace);
  nvlog::Lsn highest = 0;
  ChangeCheckpoints(trace, Step::kCheckpoint, [&](size_t store, nvlog::Lsn checkpoint) {
    const auto next = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return group[0].events.back() > store;
    });
    highest = std::max(highest, checkpoint);
    if (next != groups.end() && next->at(0).segment.previous_generation == 0) {
      highest = std::max(highest, next->at(0).header.lsn + 1);
    }
    return highest;
  });
}

// Recovery leaves a checkpoint that is not above the newest LSN that was drawn.
void RecoveredTooLow(Trace* trace) {
  ChangeCheckpoints(trace, Step::kRecoveredCheckpoint,
                    [](size_t, nvlog::Lsn checkpoint) { return checkpoint - pool::kLsnMargin; });
}

// The next use of a pool begins its LSNs at 1 again.
void LsnsFromOne(Trace* trace) {
  const Indexes uses = All(trace->events, Event::kFence, Step::kInUseDurable);
  if (uses.size() < 2) return;
  const std::vector<Group> groups = Groups(*trace);
  const uint64_t salt = SuperblockOf(*trace).salt;
  nvlog::Lsn first = 0;
  for (const Indexes& stores : Headers(trace->events, kSegments)) {
    if (stores[0] < uses[1]) continue;
    pool::SegmentHeader header = {};
    for (const size_t i : {stores[1], stores[2]}) {
      const Event& event = trace->events[i];
      auto* bytes = reinterpret_cast<uint8_t*>(&header);
      std::memcpy(bytes + event.at % kLine, trace->Data(event.data), event.length);
    }
    if (first == 0) first = header.generation;
    header.generation -= first - 1;
    header.checkpoint = 1;
    header.word = pool::SegmentWord(header.generation, salt);
    header.crc = pool::SegmentHeaderCrc(header, salt);
    StoreHeader(trace, stores, &header);
  }
  for (const Group& group : groups) {
    for (Written written : group) {
      if (written.events[0] < uses[1]) continue;
      written.segment.generation -= first - 1;
      written.header.lsn -= first - 1;
      Rewrite(trace, written, written.header);
    }
  }
}

// The operation that runs on the thread of each event; none: ~0.
std::vector<uint32_t> Running(const Trace& trace) {
  std::vector<uint32_t> running;
  std::map<uint16_t, uint32_t> now;
  for (const Event& event : trace.events) {
    if (event.type == Event::kBegin) now[event.thread] = event.file;
    const auto found = now.find(event.thread);
    running.push_back(found == now.end() ? ~uint32_t{0} : found->second);
    if (event.type == Event::kEnd) now.erase(event.thread);
  }
  return running;
}

bool IsOf(const Trace& trace, uint32_t operation, Operation::Kind kind) {
  return operation < trace.operations.size() && trace.operations[operation].kind == kind;
}

// Writers do not wait for the sync that has to come before their record.
void NotAwaited(Trace* trace) {
  const std::vector<uint32_t> running = Running(*trace);
  Events events;
  for (size_t i = 0; i < trace->events.size(); ++i) {
    const Event& event = trace->events[i];
    const bool syncs = event.type == Event::kSyncBegin || event.type == Event::kSyncEnd;
    if (!syncs || !IsOf(*trace, running[i], Operation::kWrite)) events.push_back(event);
  }
  trace->events = std::move(events);
}

// The kernel's call comes before its record.
void ErasedBeforeLogged(Trace* trace) {
  for (size_t i = 0; i < trace->events.size(); ++i) {
    const Event event = trace->events[i];
    if (event.type != Event::kTruncate && event.type != Event::kErase) continue;
    const uint32_t operation = Running(*trace)[i];
    if (!IsOf(*trace, operation, Operation::kTruncate) &&
        !IsOf(*trace, operation, Operation::kErase)) {
      continue;
    }
    const size_t begin = Before(trace->events, i, [&](const Event& e) {
      return e.type == Event::kBegin && e.file == operation;
    });
    Move(&trace->events, {i}, begin + 1);
  }
}

// ---------------------------------------------------------------------------------------------

// Puts off the PSYNC of each group, and the return of its call, to the first event that is `until`.
template <typename Function>
void PsyncLater(Events* events, Function until) {
  std::set<uint16_t> skip;
  for (size_t i = 0; i < events->size(); ++i) {
    const Event psync = (*events)[i];
    if (!Is(psync, Event::kFence, Step::kCommitted)) continue;
    if (skip.erase(psync.thread) > 0) continue;  // it was put off to here
    Indexes moved = {i};
    size_t to = i + 1;
    for (; to < events->size() && !until((*events)[to], psync.thread); ++to) {
      const Event& event = (*events)[to];
      if (event.thread != psync.thread) continue;
      if (event.type == Event::kEnd) moved.push_back(to);
    }
    if (to == events->size()) continue;
    skip.insert(psync.thread);
    Move(events, moved, to);
    --i;  // another event is here now
  }
}

// The thread's next group names this one before its PSYNC.
void NamedBeforePsync(Events* events) {
  PsyncLater(events, [](const Event& event, uint16_t thread) {
    return event.thread == thread && Is(event, Event::kFence, Step::kCommitted);
  });
}

// Another thread's group, which may be of the same page, is committed before it.
void UnlockedBeforePsync(Events* events) {
  PsyncLater(events, [](const Event& event, uint16_t thread) {
    return Is(event, Event::kFence, Step::kCommitted) ||
           (event.thread == thread && event.type == Event::kBegin);
  });
}

// How far a seat's write-back is (View::written_back).
bool IsNote(const Event& event) {
  constexpr uint64_t kBegin = pool::kWrittenBackOffset;
  constexpr uint64_t kEnd = kBegin + pool::kMaxSeats * pool::kWrittenBackDistance;
  return event.type == Event::kStore && event.at >= kBegin && event.at < kEnd &&
         (event.at - kBegin) % pool::kWrittenBackDistance == 0;
}

// What goes to the kernel is noted after the call.
void NotedLate(Trace* trace) {
  const Events& events = trace->events;
  for (size_t i = events.size(); i-- > 0;) {
    if (!IsNote(events[i])) continue;
    size_t call = i;
    for (size_t next = i + 1; next < events.size(); ++next) {
      if (events[next].thread != events[i].thread) continue;
      if (events[next].type != Event::kWrite) break;
      call = next;
    }
    if (call != i) Move(&trace->events, {i}, call + 1);
  }
}

// ---------------------------------------------------------------------------------------------
// Checks that recovery lacks.

struct Found {
  nvlog::Place place;
  nvlog::Lsn generation;
  bool whole;  // as its checksum says
  RecordHeader header;
};

// Every header in a segment that has the commit word of its LSN.
std::vector<Found> CommittedHeaders(const pool::View& view) {
  std::vector<Found> all;
  const uint64_t units = view.segment_units();
  for (uint32_t segment = 0; segment < view.segment_count(); ++segment) {
    pool::SegmentHeader taken;
    if (!pool::CopySegmentHeader(view, *view.segment(segment), segment, &taken)) continue;
    for (uint64_t unit = nvlog::kFirstUnit; unit < units - nvlog::kLastUnits; ++unit) {
      Found found = {segment * units + unit, taken.generation, false, {}};
      std::memcpy(&found.header, view.unit(found.place), sizeof(found.header));
      if (found.header.commit != nvlog::CommitWord(found.header.lsn, view.salt())) continue;
      if (!nvlog::IsSane(found.header, units - unit - nvlog::kLastUnits)) continue;
      found.whole = found.header.header_crc ==
                    nvlog::HeaderCrc(found.header, found.place, taken.generation, view.salt());
      all.push_back(found);
    }
  }
  return all;
}

void Replace(const pool::View& view, const Found& found) {
  RecordHeader header = found.header;
  header.header_crc = nvlog::HeaderCrc(header, found.place, found.generation, view.salt());
  std::memcpy(view.unit(found.place), &header, sizeof(header));
}

uint32_t PayloadCrc(const pool::View& view, const RecordHeader& header, nvlog::Place place) {
  if (header.kind == Kind::kFile) return sys::Crc32c(view.unit(place + 1), header.length);
  if (header.kind != Kind::kData) return 0;
  const uint64_t first = nvlog::FirstLength(header.offset, header.length);
  const uint64_t links = nvlog::LinkUnits(nvlog::PagesOf(header.offset, header.length));
  const uint32_t crc = sys::Crc32c(view.unit(place + 1 + links), first);
  return sys::Crc32c(view.unit(place + 1 + links + nvlog::UnitsOf(first)), header.length - first,
                     crc);
}

// Payloads: each has the checksum that its header says.
std::vector<nvlog::Place> AnyPayload(const pool::View& view) {
  std::vector<nvlog::Place> changed;
  for (Found& found : CommittedHeaders(view)) {
    if (!found.whole) continue;
    const uint32_t crc = PayloadCrc(view, found.header, found.place);
    if (crc == found.header.payload_crc) continue;
    found.header.payload_crc = crc;
    Replace(view, found);
    changed.push_back(found.place);
  }
  return changed;
}

// Members: a group is as long as there are headers of it.
std::vector<nvlog::Place> AnyMembers(const pool::View& view) {
  std::map<nvlog::Lsn, std::vector<Found>> groups;
  for (const Found& found : CommittedHeaders(view)) {
    if (found.whole) groups[found.header.lsn].push_back(found);
  }
  std::vector<nvlog::Place> changed;
  for (auto& [lsn, group] : groups) {
    if (group.size() >= group[0].header.count) continue;
    for (size_t i = 0; i < group.size(); ++i) {
      group[i].header.index = static_cast<uint16_t>(i);
      group[i].header.count = static_cast<uint16_t>(group.size());
      Replace(view, group[i]);
      changed.push_back(group[i].place);
    }
  }
  return changed;
}

// The generation: what is left of a segment's former life counts.
std::vector<nvlog::Place> AnyGeneration(const pool::View& view) {
  std::vector<nvlog::Place> changed;
  for (const Found& found : CommittedHeaders(view)) {
    if (found.whole) continue;
    Replace(view, found);
    changed.push_back(found.place);
  }
  return changed;
}

// The life: what is left of a segment's former lives was damaged in this one.
std::vector<nvlog::Place> AnyLife(const pool::View& view) {
  std::vector<nvlog::Place> changed;
  for (Found& found : CommittedHeaders(view)) {
    if (found.whole) continue;
    found.header.life = nvlog::LifeOf(found.generation);
    std::memcpy(view.unit(found.place), &found.header, sizeof(found.header));
    changed.push_back(found.place);
  }
  return changed;
}

// The word 0: a segment that was being taken has lost its headers.
std::vector<nvlog::Place> NoneIsTaken(const pool::View& view) {
  std::vector<nvlog::Place> changed;
  const uint64_t units = view.segment_units();
  for (uint32_t segment = 0; segment < view.segment_count(); ++segment) {
    if (view.segment(segment)->word != 0 || view.segment_copy(segment)->word != 0) continue;
    std::memset(static_cast<void*>(view.segment(segment)), 0, sizeof(pool::SegmentHeader));
    changed.push_back(segment * units);
  }
  return changed;
}

// ---------------------------------------------------------------------------------------------

// Where the files' part of the batch begins that the unit at the end of it belongs to: behind the
// last fence of the steps in `ends`.
Where BatchBegin(const std::set<Step>& ends) {
  return [ends](const Events& e, const Indexes& unit) {
    size_t place = kNowhere;
    for (size_t i = unit.front(); i-- > 0;) {
      if (e[i].thread != e[unit.front()].thread) continue;
      if (e[i].type == Event::kFence && ends.count(e[i].step) > 0 && place != kNowhere) break;
      if (e[i].type == Event::kWrite || e[i].type == Event::kSyncBegin) place = i;
    }
    return place;
  };
}

// A batch's checkpoint is stored when the thread's next one is.
void CheckpointLater(Events* events) {
  const Indexes fences = All(*events, Event::kFence, Step::kCheckpointDurable);
  std::map<size_t, Indexes> at;  // what is put off to each event
  std::set<size_t> moved;
  for (size_t i = 0; i + 3 < fences.size(); i += 2) {
    size_t next = i + 2;
    while (next < fences.size() && (*events)[fences[i]].thread != (*events)[fences[next]].thread) {
      next += 2;
    }
    if (next >= fences.size()) continue;
    Indexes& to = at[DurableBy(*events, fences[next], Step::kCheckpoint).front()];
    for (const size_t fence : {fences[i], fences[i + 1]}) {
      for (const size_t event : DurableBy(*events, fence, Step::kCheckpoint)) {
        to.push_back(event);
        moved.insert(event);
      }
    }
  }
  Events result;
  for (size_t i = 0; i < events->size(); ++i) {
    if (const auto here = at.find(i); here != at.end()) {
      for (const size_t event : here->second) result.push_back((*events)[event]);
    }
    if (moved.count(i) == 0) result.push_back((*events)[i]);
  }
  *events = std::move(result);
}

// Its record 0, 1 or any.
enum Whose { kPool, kSeat, kThrough };
enum Records { kFirst, kSecond, kAny };
bool IsCheckpoint(const Event& event, Whose whose, Records which) {
  static constexpr uint64_t kBegin[] = {pool::kCheckpointOffset, pool::kSeatCheckpointsOffset,
                                        pool::kThroughCheckpointOffset};
  const bool of_seat = whose == kSeat;
  const uint64_t begin = kBegin[whose];
  const uint64_t distance = of_seat ? pool::kSeatCheckpointsDistance : pool::kCheckpointDistance;
  const uint64_t size = of_seat ? distance : sizeof(pool::CheckpointRecord);
  const auto is = [&](uint64_t from) { return event.at >= from && event.at < from + size; };
  if (event.type != Event::kStore && event.type != Event::kPwb) return false;
  return (which != kSecond && is(begin)) || (which != kFirst && is(begin + distance));
}

// Of units of another checkpoint, none is moved.
Where IfOf(Whose whose, const Where& where) {
  return [whose, where](const Events& e, const Indexes& unit) {
    return IsCheckpoint(e[unit.front()], whose, kAny) ? where(e, unit) : kNowhere;
  };
}

// The second record of the checkpoint is never written.
ChangeEvents OneRecord(Whose whose) {
  return [whose](Events* events) {
    std::erase_if(*events, [&](const Event& event) { return IsCheckpoint(event, whose, kSecond); });
  };
}

// PWBs of these checkpoints, or the fences right behind them, are left out.
void LeaveOutOfCheckpoint(Events* events, Whose whose, Event::Type type) {
  Indexes left_out;
  for (size_t pwb = 0; pwb < events->size(); ++pwb) {
    if ((*events)[pwb].type != Event::kPwb || !IsCheckpoint((*events)[pwb], whose, kAny) ||
        (*events)[pwb].step == Step::kSeen || (*events)[pwb].step == Step::kCreateCheckpoint) {
      continue;
    }
    const size_t fence = After(*events, pwb, [&](const Event& event) {
      return event.type == Event::kFence && event.thread == (*events)[pwb].thread;
    });
    left_out.push_back(type == Event::kPwb ? pwb : fence);
  }
  std::erase(left_out, events->size());
  Erase(events, left_out);
}

void SegmentAfterCommit(Events* events) {
  const size_t n = All(*events, Event::kFence, Step::kSegmentTaken).size();
  for (size_t i = 0; i < n; ++i) {
    const size_t fence = All(*events, Event::kFence, Step::kSegmentTaken)[i];
    Indexes unit = DurableBy(*events, fence, Step::kSegment);
    const uint16_t thread = (*events)[fence].thread;
    // The copy, too.
    for (size_t at = unit.front(); at-- > 0;) {
      const Event& event = (*events)[at];
      if (event.thread != thread) continue;
      if (!Is(event, Event::kPwb, Step::kSegmentCopy)) break;
      const Indexes copy = {at};
      unit.insert(unit.begin(), at);
      for (size_t store = at; store-- > 0;) {
        const Event& e = (*events)[store];
        if (e.thread != thread) continue;
        if (e.type != Event::kStore || e.at / kLine != event.at / kLine) break;
        unit.insert(unit.begin(), store);
      }
      break;
    }
    const size_t committed = OwnFence(*events, fence, Step::kCommitted);
    if (committed < events->size()) Move(events, unit, committed + 1);
  }
}

// The payloads and the other headers of groups of which `is` says so are written back after the
// first header is durable.
template <typename Function>
void WriteBackLate(Events* events, Function is) {
  std::map<uint16_t, Events> late;
  Events result;
  for (size_t i = 0; i < events->size(); ++i) {
    const Event& event = (*events)[i];
    if (is(i) &&
        (Is(event, Event::kPwb, Step::kPayload) || Is(event, Event::kPwb, Step::kGroupHeaders))) {
      late[event.thread].push_back(event);
      continue;
    }
    result.push_back(event);
    if (!is(i) || !Is(event, Event::kFence, Step::kCommitted)) continue;
    Events& own = late[event.thread];
    result.insert(result.end(), own.begin(), own.end());
    own.clear();
  }
  *events = std::move(result);
}

void MembersAfterCommit(Events* events) {
  WriteBackLate(events, [](size_t) { return true; });
}

// Of the voids that follow each other, only the last one is waited for.
void VoidTogether(Events* events) {
  std::map<uint16_t, size_t> waits;  // the newest one of each thread
  Indexes leave;
  for (size_t i = 0; i < events->size(); ++i) {
    const Event& event = (*events)[i];
    if (event.type != Event::kFence) continue;
    const auto before = waits.find(event.thread);
    if (event.step == Step::kVoidDurable) {
      if (before != waits.end()) leave.push_back(before->second);
      waits[event.thread] = i;
    } else if (before != waits.end()) {
      waits.erase(before);
    }
  }
  Erase(events, leave);
}

// ---------------------------------------------------------------------------------------------
// Several processes.

// The last one to leave has drawn a lower LSN than another one before, and goes by its own.
void LeftTooLow(Trace* trace) {
  const std::vector<Group> groups = Groups(*trace);
  ChangeCheckpoints(trace, Step::kCheckpoint, [&](size_t store, nvlog::Lsn checkpoint) {
    const Event& event = trace->events[store];
    if (!IsCheckpoint(event, kPool, kAny)) return checkpoint;
    nvlog::Lsn own = 1;
    for (const Group& group : groups) {
      const size_t commit = group[0].events.back();
      if (commit < store && ProcessOf(trace->events[commit]) == ProcessOf(event)) {
        own = group[0].header.lsn + 1;
      }
    }
    return own;
  });
}

// Where the last checkpoint before it begins.
size_t LastCheckpoint(const Events& e, const Indexes& unit) {
  for (const auto& [step, durable] :
       {std::pair(Step::kRecoveredCheckpoint, Step::kRecoveredCheckpointDurable),
        std::pair(Step::kCheckpoint, Step::kCheckpointDurable)}) {
    size_t place = kNowhere;
    for (size_t i = unit.front(); i-- > 0;) {
      if (Is(e[i], Event::kFence, durable)) place = DurableBy(e, i, step).front();
      if (e[i].type == Event::kSyncEnd || Is(e[i], Event::kFence, Step::kCommitted)) break;
    }
    if (place != kNowhere) return place;
  }
  return kNowhere;
}

// Behind the last checkpoint of a recovery.
size_t BehindRecovered(const Events& e, const Indexes&) {
  const Indexes checkpoints = All(e, Event::kFence, Step::kRecoveredCheckpointDurable);
  return checkpoints.empty() ? kNowhere : checkpoints.back() + 1;
}

void AppliedNewestFirst(Events* events) {
  const size_t n = All(*events, Event::kFence, Step::kAppliedDurable).size();
  for (size_t i = 1; i < n; ++i) {
    const Indexes fences = All(*events, Event::kFence, Step::kAppliedDurable);
    const size_t first = DurableBy(*events, fences[0], Step::kApplied).front();
    Move(events, DurableBy(*events, fences[i], Step::kApplied), first);
  }
}

// ---------------------------------------------------------------------------------------------
// Write-through.

// Behind the fence after the next checkpoint of write-through, of whoever stores that.
size_t BehindThrough(const Events& e, const Indexes& unit) {
  const size_t moved = After(e, unit.back() + 1, [](const Event& event) {
    return event.type == Event::kPwb && IsCheckpoint(event, kThrough, kSecond);
  });
  if (moved == e.size()) return kNowhere;
  return Behind({{Step::kCheckpointDurable, kItself}})(e, {moved});
}

// PWBs in segments of write-through, and the fences that end them.
Indexes OfThrough(const Trace& trace) {
  Indexes all;
  std::string memory = trace.pool;
  std::set<uint16_t> at_it;  // threads whose last PWB was one
  const uint64_t size = memory.empty() ? 1 : SuperblockOf(trace).segment_size;
  for (size_t i = 0; i < trace.events.size() && !memory.empty(); ++i) {
    const Event& event = trace.events[i];
    if (event.type == Event::kStore) {
      std::memcpy(&memory[event.at], trace.Data(event.data), event.length);
    } else if (event.type == Event::kPwb) {
      pool::SegmentHeader header = {};
      const uint64_t in = event.at < pool::kSegmentsOffset ? 0 : event.at - pool::kSegmentsOffset;
      const uint64_t at = event.step == Step::kSegmentCopy ? event.at : event.at - in % size;
      std::memcpy(&header, &memory[at], sizeof(header));
      at_it.erase(event.thread);
      if (event.at < pool::kSegmentsOffset || !pool::IsThroughLog(header.log)) continue;
      at_it.insert(event.thread);
      all.push_back(i);
    } else if (event.type == Event::kFence && at_it.erase(event.thread) > 0) {
      all.push_back(i);
    }
  }
  return all;
}

void LeaveOutOfThrough(Trace* trace, Step step) {
  Indexes all = OfThrough(*trace);
  std::erase_if(all, [&](size_t i) { return trace->events[i].step != step; });
  Erase(&trace->events, all);
}

// The kernel is told, and the first header is durable, before the rest is written back.
void ThroughBeforePayload(Trace* trace) {
  const Indexes all = OfThrough(*trace);
  WriteBackLate(&trace->events,
                [&](size_t i) { return std::binary_search(all.begin(), all.end(), i); });
}

// A group of write-through.
struct Logged {
  Group records;
  uint32_t file;  // in the trace
  const Written& last() const { return records.back(); }
  nvlog::Lsn lsn() const { return records[0].header.lsn; }
  uint32_t log() const { return records[0].segment.log; }
  uint32_t seat() const { return log() / pool::kLogsOfSeat; }
  size_t begin() const { return records[0].events.front(); }
  size_t commit() const { return records[0].events.back(); }
  bool settles() const { return last().header.kind == Kind::kSettled; }
};

std::vector<Logged> ThroughGroups(const Trace& trace) {
  std::vector<Logged> all;
  const std::vector<uint32_t> running = Running(trace);
  for (const Group& group : Groups(trace)) {
    if (!pool::IsThroughLog(group[0].segment.log)) continue;
    const uint32_t operation = running[group[0].events.back()];
    if (operation == ~uint32_t{0}) continue;
    all.push_back({group, trace.operations[operation].file});
  }
  return all;
}

void SetBound(Trace* trace, const Logged& settled, nvlog::Lsn bound, nvlog::Lsn lsn) {
  ChangeHeaders(trace, settled.records, [&](RecordHeader* header, const Written&) {
    if (header->kind == Kind::kSettled) header->offset = bound;
    header->lsn = lsn;
    return true;
  });
}

// A group may have this LSN, as far as its log is concerned.
bool MayHave(const std::vector<Logged>& groups, const Logged& group, nvlog::Lsn lsn) {
  if (group.records[0].segment.generation >= lsn) return false;
  return std::none_of(groups.begin(), groups.end(), [&](const Logged& other) {
    return other.log() == group.log() && other.commit() < group.commit() && other.lsn() >= lsn;
  });
}

// Another process has drawn its LSN before the file was settled, and tells the kernel later.
void LsnBeforeCall(Trace* trace) {
  const std::vector<Logged> groups = ThroughGroups(*trace);
  for (const Logged& settled : groups) {
    if (!settled.settles()) continue;
    const nvlog::Lsn bound = settled.last().header.offset;
    const auto next = std::find_if(groups.begin(), groups.end(), [&](const Logged& group) {
      return group.file == settled.file && group.commit() > settled.commit();
    });
    if (next == groups.end() || next->settles() || !MayHave(groups, *next, bound)) continue;
    SetLsn(trace, next->records, bound);
    SetBound(trace, settled, bound + 1, settled.lsn());
  }
}

// A process that has lost the file's lock draws its LSN when others have settled the file.
void LateOwner(Trace* trace) {
  const std::vector<Logged> groups = ThroughGroups(*trace);
  const Logged* settled = nullptr;  // the newest
  for (const Logged& group : groups) {
    if (group.settles()) {
      settled = &group;
      continue;
    }
    if (settled == nullptr || settled->file != group.file || group.lsn() > settled->lsn()) continue;
    const nvlog::Lsn bound = settled->last().header.offset;
    if (!MayHave(groups, *settled, bound)) continue;
    SetBound(trace, *settled, bound, bound);
    SetLsn(trace, group.records, settled->lsn());
  }
}

// A process draws the LSN below which all is void when it has synced the file.
void BoundAfterSync(Trace* trace) {
  for (const Logged& group : ThroughGroups(*trace)) {
    if (group.settles()) SetBound(trace, group, group.lsn(), group.lsn());
  }
}

// No record says that a file is settled.
void SettledUnsaid(Trace* trace) {
  for (const Logged& group : ThroughGroups(*trace)) {
    if (group.settles()) SetBound(trace, group, 1, group.lsn());
  }
}

// What the kernel will cut off, the log says afterwards alone.
void CutSaidLate(Trace* trace) {
  const auto is_cut = [](const Logged& group) {
    return group.last().header.kind == Kind::kTruncate;
  };
  const std::vector<Logged> groups = ThroughGroups(*trace);
  for (size_t i = 0; i + 1 < groups.size(); ++i) {
    if (!is_cut(groups[i]) || !is_cut(groups[i + 1])) continue;
    ChangeHeaders(trace, groups[i].records, [](RecordHeader* header, const Written&) {
      return header->kind != Kind::kTruncate || Mute(header, pool::kPageSize);
    });
    ++i;
  }
}

void SettledBeforeSync(Trace* trace) {
  const size_t n = ThroughGroups(*trace).size();
  for (size_t i = 0; i < n; ++i) {
    const Logged group = ThroughGroups(*trace)[i];
    if (!group.settles()) continue;
    Events& events = trace->events;
    const uint16_t thread = events[group.commit()].thread;
    const size_t fence = OwnFence(events, group.commit(), Step::kCommitted);
    const size_t sync = Before(events, group.begin(), [&](const Event& event) {
      return event.thread == thread && event.type == Event::kSyncBegin;
    });
    Indexes unit;
    for (size_t at = sync + 1; at <= fence; ++at) {
      const Event::Type type = events[at].type;
      const bool of_pool = type == Event::kStore || type == Event::kPwb || type == Event::kFence;
      if (events[at].thread == thread && of_pool) unit.push_back(at);
    }
    Move(&events, unit, sync);
  }
}

// The checkpoint passes a group that comes next, of a log that was idle.
void ThroughAboveNext(Trace* trace) {
  const std::vector<Logged> groups = ThroughGroups(*trace);
  const Events events = trace->events;
  nvlog::Lsn highest = 0;
  ChangeCheckpoints(trace, Step::kCheckpoint, [&](size_t store, nvlog::Lsn checkpoint) {
    if (!IsCheckpoint(events[store], kThrough, kAny)) return checkpoint;
    const auto next = std::find_if(groups.begin(), groups.end(),
                                   [&](const Logged& group) { return group.begin() > store; });
    highest = std::max(highest, checkpoint);
    if (next != groups.end()) highest = std::max(highest, next->lsn() + 1);
    return highest;
  });
}

// The kernel is told of an item, whose bytes lie at `data`.
Event WriteOf(const Item& item, uint32_t file, uint32_t data) {
  return {Event::kWrite, {}, 0, file, item.offset, static_cast<uint32_t>(item.length), data};
}

// What the adopter of that seat would write, were these groups as those of write-back.
Events WritesOf(const Trace& trace, uint32_t seat, size_t before) {
  Events writes;
  for (const Logged& group : ThroughGroups(trace)) {
    if (group.seat() != seat || group.commit() > before) continue;
    for (const Item& item : trace.items) {
      if (item.kind != Item::kPiece || item.order != 2 * group.lsn()) continue;
      writes.push_back(WriteOf(item, group.file, item.data));
    }
  }
  return writes;
}

// Of an event of the first record of a seat's checkpoint.
uint32_t SeatOf(const Event& event) {
  const uint64_t seat = (event.at - pool::kSeatCheckpointsOffset) / sizeof(pool::CheckpointRecord);
  return static_cast<uint32_t>(seat);
}

// Whoever adopts a dead process's logs brings those of write-through to the files, too.
void OrphanReplayed(Trace* trace) {
  for (size_t i = trace->events.size(); i-- > 0;) {
    const Event pwb = trace->events[i];
    if (!Is(pwb, Event::kPwb, Step::kRecoveredCheckpoint) || !IsCheckpoint(pwb, kSeat, kFirst)) {
      continue;
    }
    const size_t store = Before(trace->events, i, [&](const Event& event) {
      return event.type == Event::kStore && event.at == pwb.at;
    });
    Insert(&trace->events, store, WritesOf(*trace, SeatOf(pwb), i));
  }
}

// A recovery that has nothing to apply to a file does not sync it.
void ThroughUnsynced(Trace* trace) {
  std::set<uint32_t> written;
  for (const Event& event : trace->events) {
    if (event.type == Event::kWrite) written.insert(event.file);
  }
  std::erase_if(trace->events, [&](const Event& event) {
    const bool syncs = event.type == Event::kSyncBegin || event.type == Event::kSyncEnd;
    return syncs && written.count(event.file) == 0;
  });
}

// The pool says that it was used in the run of the kernel that comes after the power failure.
void BootUntold(Trace* trace) {
  constexpr uint64_t kBoot = pool::kStateOffset + offsetof(pool::StateRecord, boot);
  constexpr size_t kSize = sizeof(pool::StateRecord::boot);
  for (Event& event : trace->events) {
    if (event.type != Event::kStore || event.at != kBoot || event.length != kSize) continue;
    std::string boot(reinterpret_cast<const char*>(trace->Data(event.data)), kSize);
    ++boot.back();
    event.data = trace->Keep(boot.data(), kSize);
  }
}

// ---------------------------------------------------------------------------------------------
// Handed over.

// What says that a file is handed over, and the events of the thread that did that.
struct HandOver {
  Group records;
  uint32_t file;  // in the trace
  size_t told;    // the first event with which the kernel is told; size(): it had all before
  size_t begin;   // of the group
  size_t end;     // its last fence
  nvlog::Lsn lsn() const { return records[0].header.lsn; }
};

std::vector<HandOver> HandOvers(const Trace& trace) {
  std::vector<HandOver> all;
  const Events& events = trace.events;
  for (const Group& group : Groups(trace)) {
    if (group.back().header.kind != Kind::kHandedOver) continue;
    const size_t commit = group[0].events.back();
    const uint16_t thread = events[commit].thread;
    const size_t call = Before(events, commit, [&](const Event& event) {
      return event.type == Event::kBegin && IsOf(trace, event.file, Operation::kHandOver);
    });
    const auto told = [&](const Event& event) {
      return event.thread == thread && event.type == Event::kWrite;
    };
    HandOver found = {group, trace.operations[events[call].file].file, 0, 0, 0};
    found.told = After(events, call, told);
    if (found.told > commit) found.told = events.size();
    found.begin =
        1 + Before(events, commit, [&](const Event& event) {
          return told(event) || event.type == Event::kBegin ||
                 (event.thread == thread && Is(event, Event::kFence, Step::kHandsOverDurable));
        });
    found.end = OwnFence(events, commit, Step::kCommitted);
    if (found.end < events.size()) all.push_back(found);  // else its process has died
  }
  return all;
}

// The group's events, but for what others did meanwhile.
Indexes UnitOf(const Events& events, const HandOver& handed_over) {
  Indexes unit;
  for (size_t i = handed_over.begin; i <= handed_over.end; ++i) {
    if (events[i].thread == events[handed_over.end].thread) unit.push_back(i);
  }
  return unit;
}

// Of the last one first: the places of those before stay.
template <typename Function>
void MoveHandOvers(Trace* trace, Function place) {
  const std::vector<HandOver> all = HandOvers(*trace);
  for (size_t i = all.size(); i-- > 0;) {
    const size_t before = place(all[i]);
    if (before < trace->events.size()) {
      Move(&trace->events, UnitOf(trace->events, all[i]), before);
    }
  }
}

// The log says so before the kernel has the bytes.
void HandedOverBeforeTold(Trace* trace) {
  MoveHandOvers(trace, [](const HandOver& handed_over) { return handed_over.told; });
}

// The log says so when another process has written to the file.
void HandedOverLate(Trace* trace) {
  const std::vector<uint32_t> running = Running(*trace);
  MoveHandOvers(trace, [&](const HandOver& handed_over) {
    const Events& events = trace->events;
    size_t i = handed_over.end + 1;
    for (; i < events.size(); ++i) {
      if (!Is(events[i], Event::kFence, Step::kCommitted)) continue;
      if (ProcessOf(events[i]) == ProcessOf(events[handed_over.end])) return kNowhere;
      if (IsOf(*trace, running[i], Operation::kThrough) &&
          trace->operations[running[i]].file == handed_over.file) {
        break;
      }
    }
    return i < events.size() ? i + 1 : kNowhere;
  });
}

// No record says so: there is one that says nothing.
void Unsay(Trace* trace, pool::SegmentKind kind) {
  for (const Group& group : Groups(*trace, kind)) {
    ChangeHeaders(trace, {group.back()}, [](RecordHeader* header, const Written&) {
      return header->kind == Kind::kHandedOver && Mute(header, 1);
    });
  }
}
void HandedOverUnsaid(Trace* trace) { Unsay(trace, pool::SegmentKind::kLog); }
// Of what was handed over and is kept.
void KeptUnsaid(Trace* trace) { Unsay(trace, pool::SegmentKind::kKept); }

// The value that the event stores in a record of a checkpoint.
nvlog::Lsn CheckpointIn(const Trace& trace, const Event& event) {
  pool::CheckpointRecord record;
  std::memcpy(&record, trace.Data(event.data), pool::kCheckpointStored);
  return record.checkpoint;
}
bool StoresCheckpoint(const Event& event, Whose whose) {
  return event.type == Event::kStore && event.length == pool::kCheckpointStored &&
         IsCheckpoint(event, whose, kFirst);
}

// Its LSN is drawn before the kernel has the bytes, and the checkpoint of write-through is above
// it by then. It is one that somebody has drawn for something else.
void HandedOverLsnEarly(Trace* trace) {
  const std::vector<Logged> logged = ThroughGroups(*trace);
  const std::vector<Group> groups = Groups(*trace);
  for (const HandOver& handed_over : HandOvers(*trace)) {
    const Group& records = handed_over.records;
    nvlog::Lsn least = records[0].segment.generation, checkpoint = 0;
    for (const Group& group : groups) {
      if (group[0].segment.log == records[0].segment.log &&
          group[0].header.lsn < handed_over.lsn()) {
        least = std::max(least, group[0].header.lsn);
      }
    }
    for (size_t i = 0; i < handed_over.begin; ++i) {
      const Event& event = trace->events[i];
      if (StoresCheckpoint(event, kThrough)) checkpoint = CheckpointIn(*trace, event);
    }
    for (const Logged& settled : logged) {
      if (!settled.settles()) continue;
      const nvlog::Lsn bound = settled.last().header.offset;
      if (bound > least && bound < checkpoint) SetLsn(trace, records, bound);
    }
  }
}

// Both records of the checkpoint of which the event stores the first one.
Indexes BothRecords(const Events& events, size_t store) {
  Indexes unit;
  int fences = 0;
  for (size_t i = store; i < events.size() && fences < 2; ++i) {
    if (events[i].thread != events[store].thread) continue;
    unit.push_back(i);
    fences += events[i].type == Event::kFence ? 1 : 0;
  }
  return unit;
}

// A seat's checkpoint passes what was handed over before anybody has synced that: its process
// should have done so, or (`waits`) have waited until the checkpoint of write-through was moved.
void PassHandedOver(Trace* trace, bool waits) {
  Events& events = trace->events;
  const std::vector<HandOver> all = HandOvers(*trace);
  for (size_t n = all.size(); n-- > 0;) {
    const size_t from = all[n].end;
    const size_t passed = After(events, from, [&](const Event& event) {
      return ProcessOf(event) == ProcessOf(events[from]) && StoresCheckpoint(event, kSeat);
    });
    const auto moves = [&](const Event& event) { return StoresCheckpoint(event, kThrough); };
    const bool waited = After(events, from, moves) < passed;
    const size_t sync = Before(events, passed, [&](const Event& event) {
      return event.type == Event::kSyncBegin && event.file == all[n].file;
    });
    if (passed == events.size() || waited != waits || sync < from) continue;
    Move(&events, BothRecords(events, passed), sync);
  }
}
void HandedOverUnsynced(Trace* trace) { PassHandedOver(trace, false); }
void HandedOverUnawaited(Trace* trace) { PassHandedOver(trace, true); }

// Of the seats that were left, when the checkpoint of write-through was moved: where the first
// record of each one's checkpoint is stored.
Indexes PassedLeft(const Trace& trace) {
  Indexes all;
  const std::vector<uint32_t> running = Running(trace);
  for (size_t i = 0; i < trace.events.size(); ++i) {
    if (StoresCheckpoint(trace.events[i], kSeat) && IsOf(trace, running[i], Operation::kSyncAll)) {
      all.push_back(i);
    }
  }
  return all;
}

// The segments of a seat that was left are free, and its checkpoint is where it was.
void LeftUnpassed(Trace* trace) {
  for (Indexes all = PassedLeft(*trace); !all.empty(); all.pop_back()) {
    Erase(&trace->events, BothRecords(trace->events, all.back()));
  }
}

// Its checkpoint passes what it has left before that is synced.
void LeftBeforeSync(Trace* trace) {
  for (const size_t store : PassedLeft(*trace)) {
    const size_t begin = Before(trace->events, store,
                                [](const Event& event) { return event.type == Event::kBegin; });
    Move(&trace->events, BothRecords(trace->events, store), begin + 1);
  }
}

// What a seat's process, or its adopter, would write of what was handed over, were it not so: of
// groups that the seat's checkpoint has not passed at `before`.
Events WritesOfHandedOver(const Trace& trace, uint32_t seat, size_t before) {
  const auto has = [&](const Group& group) {
    return group[0].segment.log / pool::kLogsOfSeat == seat && group[0].events.back() < before;
  };
  std::map<uint32_t, nvlog::Lsn> handed_over;
  for (const HandOver& hand_over : HandOvers(trace)) {
    if (has(hand_over.records)) handed_over[hand_over.file] = hand_over.lsn();
  }
  nvlog::Lsn passed = 0;
  for (size_t i = 0; i < before; ++i) {
    const Event& event = trace.events[i];
    if (StoresCheckpoint(event, kSeat) && SeatOf(event) == seat) {
      passed = CheckpointIn(trace, event);
    }
  }
  Events writes;
  for (const Group& group : Groups(trace)) {
    const nvlog::Lsn lsn = group[0].header.lsn;
    if (pool::IsThroughLog(group[0].segment.log) || !has(group) || lsn < passed) continue;
    for (const Item& item : trace.items) {
      const Operation& operation = trace.operations[item.operation];
      if (item.kind != Item::kData || item.order != 2 * lsn || lsn > handed_over[operation.file]) {
        continue;
      }
      const auto in_call = static_cast<uint32_t>(item.offset - operation.offset);
      writes.push_back(WriteOf(item, operation.file, operation.data + in_call));
    }
  }
  return writes;
}

// They go before each seat's checkpoint that is stored in that step.
void WriteHandedOver(Trace* trace, Step step) {
  Events& events = trace->events;
  for (size_t i = events.size(); i-- > 0;) {
    const Event store = events[i];
    if (!StoresCheckpoint(store, kSeat) || !Is(events[i + 1], Event::kPwb, step)) continue;
    Insert(&events, i, WritesOfHandedOver(*trace, SeatOf(store), i));
  }
}

// Whoever adopts a dead process's logs brings what it had handed over to the files, too.
void HandedOverReplayed(Trace* trace) { WriteHandedOver(trace, Step::kRecoveredCheckpoint); }
// The cleanup thread writes what was handed over as if the file was its own still.
void HandedOverWritten(Trace* trace) { WriteHandedOver(trace, Step::kCheckpoint); }

// What recovery finds of a file.
struct Told {
  nvlog::Lsn handed_over = 0, settled = 0;
  std::map<nvlog::Lsn, nvlog::Place> groups, hand_overs;  // of write-back
};

std::map<uint32_t, Told> TellOf(const pool::View& view, nvlog::Lsn* through_checkpoint) {
  std::map<uint32_t, Told> told;
  nvlog::Reader reader;
  nvlog::GroupWalk walk(reader);
  if (!reader.Open(view) || !walk.Open()) return told;
  *through_checkpoint = reader.through_checkpoint();
  for (nvlog::Group group; walk.Next(&group);) {
    if (group.verdict != nvlog::Verdict::kCommitted) continue;
    walk.ForEachRecord(group, [&](const RecordHeader& header, nvlog::Place place) {
      Told& file = told[walk.FileOf(header, place)];
      if (header.kind == Kind::kSettled) file.settled = std::max(file.settled, header.offset);
      if (header.kind == Kind::kHandedOver) {
        file.handed_over = header.lsn;
        file.hand_overs[header.lsn] = group.place;
      } else if (nvlog::IsChange(header.kind) && !pool::IsThroughLog(group.log)) {
        file.groups[header.lsn] = group.place;
      }
    });
  }
  return told;
}

std::vector<nvlog::Place> VoidBelow(const pool::View& view,
                                    const std::map<nvlog::Lsn, nvlog::Place>& groups,
                                    nvlog::Lsn bound) {
  std::vector<nvlog::Place> changed;
  for (auto group = groups.begin(); group != groups.lower_bound(bound); ++group) {
    const uint64_t word = nvlog::VoidWord(group->first, view.salt());
    std::memcpy(view.unit(group->second) + offsetof(RecordHeader, commit), &word, sizeof(word));
    changed.push_back(group->second);
  }
  return changed;
}

// What was handed over counts by the LSNs of its groups: recovery takes for void what it should
// not.
std::vector<nvlog::Place> HandedOverByOwnLsns(const pool::View& view, bool of_checkpoint) {
  std::vector<nvlog::Place> changed;
  nvlog::Lsn checkpoint = 0;
  for (const auto& [number, file] : TellOf(view, &checkpoint)) {
    const nvlog::Lsn bound = of_checkpoint ? checkpoint : file.settled;
    for (const nvlog::Place place :
         VoidBelow(view, file.groups, std::min(bound, file.handed_over))) {
      changed.push_back(place);
    }
  }
  return changed;
}
std::vector<nvlog::Place> CheckpointByOwnLsns(const pool::View& view) {
  return HandedOverByOwnLsns(view, true);
}
std::vector<nvlog::Place> SettledByOwnLsns(const pool::View& view) {
  return HandedOverByOwnLsns(view, false);
}

// Recovery that has the kernel which the processes had takes what was handed over for write-back.
std::vector<nvlog::Place> HandedOverApplied(const pool::View& view) {
  std::vector<nvlog::Place> changed;
  pool::StateRecord state;
  std::memcpy(&state, view.state(), sizeof(state));
  uint8_t now[sizeof(state.boot)];
  sys::ReadBootId(now);
  if (std::memcmp(now, state.boot, sizeof(now)) != 0) return changed;
  nvlog::Lsn checkpoint = 0;
  for (const auto& [number, file] : TellOf(view, &checkpoint)) {
    for (const nvlog::Place place : VoidBelow(view, file.hand_overs, ~nvlog::Lsn{0})) {
      changed.push_back(place);
    }
  }
  return changed;
}

void LeaveOut(Events* events, Step step) {
  std::erase_if(*events, [step](const Event& event) {
    return (event.type == Event::kPwb || event.type == Event::kFence) && event.step == step;
  });
}

// Of orders, done to both, to the engine's part (a dead process's logs included), or to
// recovery's.
enum Of { kBoth, kEngine, kRecovery };

struct Order {
  const char* name;
  const char* what;
  Of of;
  ChangeEvents change;
};

}  // namespace

std::vector<Mutant> AllMutants() {
  std::vector<Mutant> mutants;
  for (int i = 0; i < static_cast<int>(Step::kCount); ++i) {
    const auto step = static_cast<Step>(i);
    mutants.push_back({NameOf(step), "the step is left out",
                       [step](Trace* trace, bool) { LeaveOut(&trace->events, step); }});
  }
  // Steps that the engine and recovery share, or recovery and whoever adopts a dead one's logs.
  for (const Step step : {Step::kClean, Step::kCleanDurable, Step::kSeenGroup, Step::kSeenContent,
                          Step::kSeenGroupDurable, Step::kApplied, Step::kAppliedDurable,
                          Step::kRecoveredCheckpoint, Step::kRecoveredCheckpointDurable}) {
    for (const bool in_recovery : {false, true}) {
      mutants.push_back({NameOf(step) + std::string(in_recovery ? ", recovery" : ", engine"),
                         "the step is left out there",
                         [step, in_recovery](Trace* trace, bool of_recovery) {
                           if (of_recovery == in_recovery) LeaveOut(&trace->events, step);
                         }});
    }
  }
  struct {
    Whose whose;
    const char* name;
  } const checkpoints[] = {{kPool, "pool"}, {kSeat, "seat"}, {kThrough, "through"}};
  for (const auto& checkpoint : checkpoints) {
    for (const auto& [type, name] : {std::pair(Event::kPwb, "checkpoint, "),
                                     std::pair(Event::kFence, "checkpoint durable, ")}) {
      mutants.push_back({name + std::string(checkpoint.name),
                         "the step is left out of that checkpoint",
                         [whose = checkpoint.whose, t = type](Trace* trace, bool) {
                           LeaveOutOfCheckpoint(&trace->events, whose, t);
                         }});
    }
  }
  for (const Step step : {Step::kPayload, Step::kGroupHeaders, Step::kCommit, Step::kCommitted,
                          Step::kSegmentCopy, Step::kSegment, Step::kSegmentTaken}) {
    mutants.push_back({NameOf(step) + std::string(", through"),
                       "the step is left out of the logs of write-through",
                       [step](Trace* trace, bool of_recovery) {
                         if (!of_recovery) LeaveOutOfThrough(trace, step);
                       }});
  }
  const Order orders[] = {
      {"word before rest", "a record's commit word is stored before its other fields", kBoth,
       WordFirst(kRecords)},
      {"word not cleared", "a record's old word stays while the other fields change", kBoth,
       WordStays(kRecords)},
      {"members after commit", "the first header is durable before the rest is written back", kBoth,
       MembersAfterCommit},
      {"segment word first", "a segment's word is stored before its other fields", kBoth,
       WordFirst(kSegments)},
      {"segment word stays", "a segment's old word stays while the other fields change", kBoth,
       WordStays(kSegments)},
      {"segment after commit", "a segment is taken after the first group in it has committed",
       kBoth, SegmentAfterCommit},
      {"checkpoint before sync", "the checkpoint is durable before the files are synced", kBoth,
       BringForward(Step::kCheckpoint, BatchBegin({Step::kCheckpointDurable}))},
      {"told before checkpoint", "all is told to be on disk before the checkpoint says so", kBoth,
       CheckpointLater},
      {"taken before checkpoint", "a segment is taken again before the checkpoint is durable",
       kBoth, PutOff(Step::kCheckpoint, Behind({{Step::kSegmentTaken}}))},
      {"one checkpoint record", "only one record of the pool's checkpoint is written", kBoth,
       OneRecord(kPool)},
      {"one seat record", "only one record of a seat's checkpoint is written", kBoth,
       OneRecord(kSeat)},
      {"one through record", "only one record of write-through's checkpoint is written", kBoth,
       OneRecord(kThrough)},
      {"through before sync", "write-through's checkpoint is durable before the files are synced",
       kBoth,
       BringForward(Step::kCheckpoint,
                    IfOf(kThrough, BatchBegin({Step::kCheckpointDurable, Step::kCommitted})))},
      {"through taken early",
       "a segment of write-through is taken before its checkpoint is durable", kBoth,
       PutOff(Step::kCheckpoint, IfOf(kThrough, Behind({{Step::kSegmentTaken}})))},
      {"through before drained", "a file is write-through before who had it alone has forgotten it",
       kBoth, PutOff(Step::kCheckpoint, IfOf(kSeat, BehindThrough))},
      {"void before sync", "what is kept is void before the disk has it", kBoth,
       BringForward(Step::kVoid, BatchBegin({Step::kVoidDurable, Step::kCheckpointDurable}))},
      {"void together", "what was kept becomes void in any order", kBoth, VoidTogether},
      {"void after checkpoint", "what was kept is void after a later group is forgotten", kBoth,
       PutOff(Step::kVoid, Behind({{Step::kCheckpointDurable}, {Step::kCheckpointDurable}}))},
      {"in use after commit", "the state is set after the first group committed", kBoth,
       PutOff(Step::kInUse, Behind({{Step::kCommitted}}))},
      {"clean before checkpoint", "the state is clean before the checkpoint is durable", kBoth,
       BringForward(Step::kClean, LastCheckpoint)},
      {"magic first", "a new pool's magic is durable before its contents", kBoth,
       BringForward(Step::kMagic, BeforeFirst(Event::kStore))},
      {"named before psync", "a thread's next group begins before the PSYNC of the one before",
       kBoth, NamedBeforePsync},
      {"unlocked before psync", "another thread writes to the pages before the group's PSYNC",
       kBoth, UnlockedBeforePsync},
      {"recovered before sync", "recovery moves the checkpoint before it syncs the files",
       kRecovery, BringForward(Step::kRecoveredCheckpoint, BeforeFirst(Event::kSyncBegin))},
      {"applied after checkpoint", "recovery moves the checkpoint before kept groups are void",
       kRecovery, PutOff(Step::kApplied, BehindRecovered)},
      {"applied newest first", "recovery makes groups void in the wrong order", kRecovery,
       AppliedNewestFirst},
      {"adopted before sync", "an adopter moves a dead one's checkpoint before it syncs the files",
       kEngine, BringForward(Step::kRecoveredCheckpoint, BatchBegin({Step::kSeenGroupDurable}))},
      {"passed before adopted", "a dead one's segment is taken before its checkpoint is durable",
       kEngine, PutOff(Step::kRecoveredCheckpoint, Behind({{Step::kSegmentTaken}}))},
      {"settled before adopted", "a dead one's seat is used before its checkpoint is durable",
       kEngine, PutOff(Step::kRecoveredCheckpoint, Behind({{Step::kCheckpointDurable}}))},
      {"adopted, void late", "an adopter makes kept groups void after the dead one's checkpoint",
       kEngine,
       PutOff(Step::kApplied, Behind({{Step::kRecoveredCheckpointDurable, kItself},
                                      {Step::kRecoveredCheckpointDurable}}))},
      {"adopted newest first", "an adopter makes groups void in the wrong order", kEngine,
       AppliedNewestFirst},
      {"passed before checkpoint",
       "another process takes a segment before the checkpoint is durable", kEngine,
       PutOff(Step::kCheckpoint, Behind({{Step::kSegmentTaken, kAnother}}))},
      {"handed before checkpoint", "another process has the file before the checkpoint is durable",
       kEngine,
       PutOff(Step::kCheckpoint, Behind({{Step::kCommitted, kAnother},
                                         {Step::kCheckpointDurable, kAnother},
                                         {Step::kCheckpointDurable, kAnother}}))},
  };
  for (const Order& order : orders) {
    mutants.push_back({order.name, order.what, [order](Trace* trace, bool of_recovery) {
                         if (order.of == (of_recovery ? kEngine : kRecovery)) return;
                         order.change(&trace->events);
                       }});
  }
  struct {
    const char* name;
    const char* what;
    void (*apply)(Trace*);
    bool of_recovery = false;
  } const others[] = {
      {"lsn before pages", "an LSN is drawn before the pages are locked", LsnBeforePages},
      {"lsn before lane", "an LSN is drawn before the lane is locked", LsnBeforeLane},
      {"lsn drawn twice", "two groups of one file, in two lanes, have one LSN", LsnDrawnTwice},
      {"left too low", "the last one to leave stores a checkpoint below what another one had",
       LeftTooLow},
      {"lsns from one", "the next use of a pool begins its LSNs at 1 again", LsnsFromOne},
      {"bound after look", "the LSN counter is read after the lanes were looked at",
       BoundAfterLook},
      {"idle lane missed", "a lane without a segment is not waited for", IdleLaneMissed},
      {"number used again", "a segment's number gets another file without a file record",
       NumberUsedAgain},
      {"kept as newer", "what is kept has new LSNs", KeptAsNewer},
      {"kept after checkpoint", "what is kept is committed after the checkpoint has passed it",
       KeptAfterCheckpoint},
      {"declared once", "a file is declared in one segment, and not in the others", DeclaredOnce},
      {"new not awaited", "the first record of a new file does not wait for a sync", NotAwaited},
      {"cut not awaited", "nor does that of a file that was cut when it was opened", NotAwaited},
      {"not awaited", "a record does not wait for the sync that has to come before it", NotAwaited},
      {"through before payload", "write-through commits a group before its bytes are durable",
       ThroughBeforePayload},
      {"lsn before call", "write-through draws an LSN before the kernel is told", LsnBeforeCall},
      {"late owner", "a process without the file's lock draws its LSN after it was settled",
       LateOwner},
      {"bound after sync", "a settled file's bound is drawn after the sync", BoundAfterSync},
      {"settled unsaid", "no record says that a file is settled", SettledUnsaid},
      {"cut said late", "what the kernel cuts off is not in the log before", CutSaidLate},
      {"settled before sync", "the log says that a file is settled before it is synced",
       SettledBeforeSync},
      {"through above next", "write-through's checkpoint passes an idle log's next group",
       ThroughAboveNext},
      {"orphan replayed", "an adopter writes a dead one's write-through groups to the files",
       OrphanReplayed},
      {"boot untold", "recovery takes the kernel for the one that processes had", BootUntold},
      {"erased before logged", "the kernel erases before the log says so", ErasedBeforeLogged},
      {"handed over before told",
       "the log says that a file is handed over before the kernel has it", HandedOverBeforeTold},
      {"handed over late", "the log says so when another process has written to the file",
       HandedOverLate},
      {"handed over unsaid", "no record says that a file is handed over", HandedOverUnsaid},
      {"handed over lsn early", "that record's LSN is drawn before the kernel has the file",
       HandedOverLsnEarly},
      {"handed over unsynced",
       "a seat's checkpoint passes what was handed over before it is synced", HandedOverUnsynced},
      {"handed over unawaited", "the same, where its process has to wait for write-through's",
       HandedOverUnawaited},
      {"handed over written", "the cleanup thread writes what was handed over to the file",
       HandedOverWritten},
      {"handed over replayed", "an adopter writes what a dead one had handed over to the file",
       HandedOverReplayed},
      {"kept unsaid", "no kept record says that what is kept was handed over", KeptUnsaid},
      {"left unpassed", "segments of a seat that was left are free before its checkpoint says so",
       LeftUnpassed},
      {"left before sync", "that checkpoint passes what was handed over before it is synced",
       LeftBeforeSync},
      {"noted late", "how far write-back is, is noted after the kernel's call", NotedLate},
      {"noted late, recovery", "recovery notes it after the kernel's call", NotedLate, true},
      {"recovered too low", "recovery's checkpoint is not above what was drawn", RecoveredTooLow,
       true},
      {"through unsynced", "recovery does not sync what the kernel alone has", ThroughUnsynced,
       true},
  };
  for (const auto& other : others) {
    mutants.push_back({other.name, other.what, [other](Trace* trace, bool of_recovery) {
                         if (of_recovery == other.of_recovery) other.apply(trace);
                       }});
  }
  const auto nothing = [](Trace*, bool) {};
  const Mutant unchecked[] = {
      {"payload unchecked", "recovery does not look at the checksums of payloads", nothing,
       AnyPayload},
      {"members unchecked", "recovery applies what there is of a group", nothing, AnyMembers},
      {"generation unchecked", "recovery takes what a segment held before", nothing, AnyGeneration},
      {"life unchecked", "recovery takes what a segment held before for damage", nothing, AnyLife},
      {"taken unchecked", "recovery takes a segment that is being taken for a lost one", nothing,
       NoneIsTaken},
      {"handed over by own lsn", "what was handed over is void by the LSNs of its groups", nothing,
       CheckpointByOwnLsns},
      {"settled by own lsn", "what was handed over is settled by the LSNs of its groups", nothing,
       SettledByOwnLsns},
      {"handed over applied", "recovery writes what was handed over, and the kernel has", nothing,
       HandedOverApplied},
  };
  mutants.insert(mutants.end(), std::begin(unchecked), std::end(unchecked));
  for (const Mutant& mutant : NameMutants()) mutants.push_back(mutant);
  for (Mutant& mutant : mutants) mutant.shown = ShownAt(mutant.name);
  return mutants;
}

}  // namespace nvcache::crash
