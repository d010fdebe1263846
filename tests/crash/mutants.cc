// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/mutants.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "src/nvlog/entry_crc.h"
#include "src/nvlog/reader.h"
#include "src/sys/crc32c.h"
#include "tests/crash/medium.h"

namespace nvcache::crash {

namespace {

using Events = std::vector<Event>;
using Indexes = std::vector<size_t>;  // ascending

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

// For each fence `durable`, in turn: moves all of it to where `place` says, if it says so.
template <typename Function>
void MoveEach(Events* events, Step step, Step durable, Function place) {
  const size_t n = All(*events, Event::kFence, durable).size();
  for (size_t i = 0; i < n; ++i) {
    const size_t fence = All(*events, Event::kFence, durable)[i];
    const Indexes unit = DurableBy(*events, fence, step);
    const size_t before = place(*events, unit);
    if (before <= events->size() && !std::binary_search(unit.begin(), unit.end(), before)) {
      Move(events, unit, before);
    }
  }
}

constexpr size_t kNowhere = ~size_t{0};

// ---------------------------------------------------------------------------------------------

// The three stores of each header, with the PWB after them.
std::vector<Indexes> Headers(const Events& events) {
  std::vector<Indexes> headers;
  for (const Step step : {Step::kGroupHeaders, Step::kCommit}) {
    for (const size_t pwb : All(events, Event::kPwb, step)) {
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
  }
  return headers;
}

void WordBeforeRest(Events* events) {
  for (const Indexes& header : Headers(*events)) {
    std::swap((*events)[header[1]], (*events)[header[2]]);
  }
}

void WordNotCleared(Events* events) {
  Indexes cleared;
  for (const Indexes& header : Headers(*events)) cleared.push_back(header[0]);
  std::sort(cleared.begin(), cleared.end());
  for (; !cleared.empty(); cleared.pop_back()) {
    events->erase(events->begin() + static_cast<std::ptrdiff_t>(cleared.back()));
  }
}

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

// ---------------------------------------------------------------------------------------------
// Checks that recovery lacks.

// Every header in the log that recovery takes for committed.
template <typename Function>
void ForEachHeader(const pool::View& view, Function visit) {
  const nvlog::Reader reader(view);
  for (nvlog::Position position = reader.begin(); position < reader.end(); ++position) {
    nvlog::EntryHeader header;
    if (reader.ExamineHeader(position, &header) == nvlog::Verdict::kCommitted) visit(header);
  }
}

void Replace(const pool::View& view, nvlog::EntryHeader header) {
  header.header_crc = nvlog::HeaderCrc(header, view.salt());
  std::memcpy(view.log() + header.position % view.log_units() * pool::kUnitSize, &header,
              sizeof(header));
}

// Payloads: each has the checksum that its header says.
std::vector<uint64_t> AnyPayload(const pool::View& view) {
  const nvlog::Reader reader(view);
  std::vector<uint64_t> changed;
  ForEachHeader(view, [&](nvlog::EntryHeader header) {
    std::string bytes(header.length, '\0');
    reader.Payload(header, bytes.data(), bytes.size());
    const uint32_t crc = sys::Crc32c(bytes.data(), bytes.size());
    if (crc == header.payload_crc) return;
    header.payload_crc = crc;
    Replace(view, header);
    changed.push_back(header.position);
  });
  return changed;
}

// Members: a group is as long as there are headers of it.
std::vector<uint64_t> AnyMembers(const pool::View& view) {
  const nvlog::Reader reader(view);
  std::vector<uint64_t> changed;
  ForEachHeader(view, [&](const nvlog::EntryHeader& first) {
    if (first.group_index != 0) return;
    std::vector<nvlog::EntryHeader> group = {first};
    nvlog::Position next = first.position + nvlog::EntryUnits(first.length);
    while (group.size() < first.group_count) {
      nvlog::EntryHeader member;
      if (reader.ExamineHeader(next, &member) != nvlog::Verdict::kCommitted) break;
      if (member.group_index != group.size()) break;
      group.push_back(member);
      next += nvlog::EntryUnits(member.length);
    }
    if (group.size() == first.group_count) return;
    for (nvlog::EntryHeader& header : group) {
      header.group_count = static_cast<uint32_t>(group.size());
      Replace(view, header);
      changed.push_back(header.position);
    }
  });
  return changed;
}

void TailBeforeSync(Events* events) {
  MoveEach(events, Step::kTail, Step::kTailDurable, [](const Events& e, const Indexes& unit) {
    const uint16_t thread = e[unit.front()].thread;
    // The batch's first write to a file.
    size_t place = kNowhere;
    for (size_t i = unit.front(); i-- > 0;) {
      if (e[i].thread != thread) continue;
      if (Is(e[i], Event::kFence, Step::kTailDurable)) break;
      if (e[i].type == Event::kWrite || e[i].type == Event::kSyncBegin) place = i;
    }
    return place;
  });
}

// A batch's tail is stored when the next batch's is.
void ReusedBeforeTail(Events* events) {
  MoveEach(events, Step::kTail, Step::kTailDurable, [](const Events& e, const Indexes& unit) {
    const uint16_t thread = e[unit.front()].thread;
    const size_t next = After(e, unit.back() + 1, [&](const Event& event) {
      return event.thread == thread && Is(event, Event::kFence, Step::kTailDurable);
    });
    return next == e.size() ? next : DurableBy(e, next, Step::kTail).front();
  });
}

void SlotReusedBeforeTail(Events* events) {
  std::set<uint64_t> used;
  MoveEach(events, Step::kFileRecord, Step::kFileRecordDurable,
           [&](const Events& e, const Indexes& unit) {
             if (used.insert(e[unit.front()].at).second) return kNowhere;
             const size_t tail = Before(e, unit.front(), [](const Event& event) {
               return Is(event, Event::kFence, Step::kTailDurable);
             });
             return tail == e.size() ? kNowhere : DurableBy(e, tail, Step::kTail).front();
           });
}

// After the next fence `step`, of any thread or of its own.
size_t Behind(const Events& e, const Indexes& unit, Step step, bool own) {
  const size_t next = After(e, unit.back() + 1, [&](const Event& event) {
    return Is(event, Event::kFence, step) && (!own || event.thread == e[unit.front()].thread);
  });
  return next == e.size() ? kNowhere : next + 1;
}

void RecordAfterCommit(Events* events) {
  MoveEach(events, Step::kFileRecord, Step::kFileRecordDurable,
           [](const Events& e, const Indexes& unit) {
             return Behind(e, unit, Step::kCommitted, false);
           });
}

void InUseAfterCommit(Events* events) {
  MoveEach(events, Step::kInUse, Step::kInUseDurable, [](const Events& e, const Indexes& unit) {
    return Behind(e, unit, Step::kCommitted, false);
  });
}

void SettledAfterTail(Events* events) {
  MoveEach(events, Step::kSettle, Step::kSettled, [](const Events& e, const Indexes& unit) {
    return Behind(e, unit, Step::kTailDurable, true);
  });
}

void CleanBeforeTail(Events* events) {
  MoveEach(events, Step::kClean, Step::kCleanDurable, [](const Events& e, const Indexes& unit) {
    size_t place = kNowhere;
    for (size_t i = unit.front(); i-- > 0;) {
      if (Is(e[i], Event::kFence, Step::kRecoveredTailDurable)) {
        place = DurableBy(e, i, Step::kRecoveredTail).front();
      } else if (Is(e[i], Event::kFence, Step::kTailDurable)) {
        return place == kNowhere ? DurableBy(e, i, Step::kTail).front() : place;
      }
    }
    return place;
  });
}

void NamedBeforeSuccessor(Events* events) {
  MoveEach(
      events, Step::kSuccessor, Step::kSuccessorDurable, [](const Events& e, const Indexes& unit) {
        const size_t named = After(e, unit.back() + 1,
                                   [](const Event& event) { return event.type == Event::kNamed; });
        return named == e.size() ? kNowhere : named + 1;
      });
}

void RecoveredBeforeSync(Events* events) {
  MoveEach(events, Step::kRecoveredTail, Step::kRecoveredTailDurable,
           [](const Events& e, const Indexes&) {
             const size_t sync =
                 After(e, 0, [](const Event& event) { return event.type == Event::kSyncBegin; });
             return sync == e.size() ? kNowhere : sync;
           });
}

void AppliedNewestFirst(Events* events) {
  const size_t n = All(*events, Event::kFence, Step::kAppliedDurable).size();
  for (size_t i = 1; i < n; ++i) {
    const Indexes fences = All(*events, Event::kFence, Step::kAppliedDurable);
    const size_t first = DurableBy(*events, fences[0], Step::kApplied).front();
    Move(events, DurableBy(*events, fences[i], Step::kApplied), first);
  }
}

void MagicFirst(Events* events) {
  MoveEach(events, Step::kMagic, Step::kMagicDurable, [](const Events& e, const Indexes&) {
    return After(e, 0, [](const Event& event) { return event.type == Event::kStore; });
  });
}

void LeaveOut(Events* events, Step step) {
  std::erase_if(*events, [step](const Event& event) {
    return (event.type == Event::kPwb || event.type == Event::kFence) && event.step == step;
  });
}

const char* ScenarioOf(Step step) {
  switch (step) {
    case Step::kInUseDurable:
    case Step::kTail:
      return "attach";
    case Step::kFileRecordDurable:
      return "record";
    case Step::kSettle:
    case Step::kSettled:
    case Step::kSuccessor:
    case Step::kSuccessorDurable:
      return "lost";
    case Step::kApplied:
    case Step::kAppliedDurable:
      return "kept";
    case Step::kCut:
    case Step::kCutDurable:
      return "cut-kept";
    case Step::kRepairedTail:
    case Step::kRepairedTailDurable:
      return "repair";
    default:
      return "";
  }
}

}  // namespace

std::vector<Mutant> AllMutants() {
  std::vector<Mutant> mutants;
  for (int i = 0; i < static_cast<int>(Step::kCount); ++i) {
    const auto step = static_cast<Step>(i);
    mutants.push_back({NameOf(step), "the step is left out", ScenarioOf(step),
                       [step](Events* events, bool) { LeaveOut(events, step); }});
  }
  // Steps that the engine and recovery share.
  for (const Step step : {Step::kSettle, Step::kSettled, Step::kClean, Step::kCleanDurable}) {
    for (const bool in_recovery : {false, true}) {
      mutants.push_back({NameOf(step) + std::string(in_recovery ? ", recovery" : ", engine"),
                         "the step is left out there", in_recovery ? "marked" : ScenarioOf(step),
                         [step, in_recovery](Events* events, bool of_recovery) {
                           if (of_recovery == in_recovery) LeaveOut(events, step);
                         }});
    }
  }
  struct {
    const char* name;
    const char* what;
    const char* scenario;
    void (*apply)(Events*);
  } const orders[] = {
      {"word before rest", "a header's commit word is stored before its other fields", "",
       WordBeforeRest},
      {"word not cleared", "a header's old word stays while the other fields change", "",
       WordNotCleared},
      {"tail before sync", "the tail is durable before the files are written and synced", "",
       TailBeforeSync},
      {"reused before tail", "places are taken again before the tail is durable", "attach",
       ReusedBeforeTail},
      {"slot before tail", "a slot of the file table is written again before the tail is durable",
       "slot", SlotReusedBeforeTail},
      {"record after commit", "a file's record is written after its first entry committed", "",
       RecordAfterCommit},
      {"in use after commit", "the state is set after the first entry committed", "",
       InUseAfterCommit},
      {"settled after tail", "the name is settled after the file's first entries are freed", "lost",
       SettledAfterTail},
      {"clean before tail", "the state is clean before the tail is durable", "", CleanBeforeTail},
      {"named before successor", "recovery names a new file before its record knows it", "lost",
       NamedBeforeSuccessor},
      {"recovered before sync", "recovery moves the tail before it syncs the files", "",
       RecoveredBeforeSync},
      {"applied newest first", "recovery marks what it has applied in the wrong order", "kept",
       AppliedNewestFirst},
      {"magic first", "a new pool's magic is durable before its contents", "", MagicFirst},
      {"named before psync", "a group is named by the thread's next one before its PSYNC", "record",
       NamedBeforePsync},
      {"unlocked before psync", "another thread writes to the pages before the group's PSYNC",
       "threads", UnlockedBeforePsync},
  };
  for (const auto& order : orders) {
    mutants.push_back({order.name, order.what, order.scenario,
                       [apply = order.apply](Events* events, bool) { apply(events); }});
  }
  const auto nothing = [](Events*, bool) {};
  mutants.push_back({"payload unchecked", "recovery does not look at the checksums of payloads", "",
                     nothing, AnyPayload});
  mutants.push_back({"members unchecked", "recovery applies what there is of a group", "groups",
                     nothing, AnyMembers});
  return mutants;
}

}  // namespace nvcache::crash
