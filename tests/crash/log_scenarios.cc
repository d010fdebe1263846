// SPDX-License-Identifier: BSD-3-Clause
//
// The log alone: scripts of what is done with it.
#include <errno.h>

#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/crash/log_stage.h"
#include "tests/crash/machine.h"
#include "tests/crash/scenarios.h"
#include "tests/crash/script.h"
#include "tests/kit/files.h"

namespace nvcache::crash {

namespace {

constexpr uint64_t kOneLane = pool::kMinPoolSize;

Step StepOf(const std::string& name) {
  for (int i = 0; i < static_cast<int>(Step::kCount); ++i) {
    if (name == NameOf(static_cast<Step>(i))) return static_cast<Step>(i);
  }
  if (name == "sync") return Step::kCount;
  throw std::runtime_error("there is no step " + name);
}

// Does with a LogStage what a script says, in its words. A `file` is there before, with so many
// bytes. It may have a number of its own in the logs, as one that is `new` may.
class LogActor : public Actor {
 public:
  LogActor(const std::string& name, const Place& place, uint64_t seed, const std::string& pool)
      : stage_(name, place, seed, pool) {
    AddVerbs();
  }
  Trace Finish() { return stage_.Finish(); }

 private:
  uint32_t File(const Action& action, size_t i = 0) const { return files_.at(action.Word(i)); }
  void Open(const Action& action, bool exists) {
    const uint64_t number = action.Number(exists ? 2 : 1, ~uint32_t{0});
    files_[action.Word(0)] = stage_.Open(action.Word(0), exists, static_cast<uint32_t>(number));
  }
  // How many groups, but those of some files.
  void Clean(const Action& action) {
    size_t i = 0, groups = ~size_t{0};
    if (!action.words.empty() && action.Word(0) != "but") groups = action.Number(i++);
    std::vector<uint32_t> keep;
    for (++i; i < action.words.size(); ++i) keep.push_back(File(action, i));
    stage_.Clean(groups, keep, Meanwhile(action));
  }
  // A process that has `lost` the file's lock gives up.
  void WriteThrough(const Action& action) {
    std::function<bool()> meanwhile;
    if (!action.meanwhile.empty()) {
      meanwhile = [this, &action] {
        Do(action.meanwhile);
        return !action.Has("lost");
      };
    }
    stage_.WriteThrough(File(action), action.Number(1), action.Number(2), meanwhile);
  }
  // Null if it is nothing.
  std::function<void()> Meanwhile(const Action& action) {
    if (action.meanwhile.empty()) return {};
    return [this, &action] { Do(action.meanwhile); };
  }

  void AddVerbs() {
    using A = const Action&;
    Add({
        {"file", [this](A a) { Open(a, true); }},
        {"open", [this](A a) { Open(a, true); }},
        {"new", [this](A a) { Open(a, false); }},
        {"away", [this](A a) { stage_.Away(File(a)); }},
        {"write", [this](A a) { stage_.Write(File(a), a.Number(1), a.Number(2)); }},
        {"fill", [this](A a) { stage_.FillSegment(File(a), a.Number(1)); }},
        {"cut", [this](A a) { stage_.Truncate(File(a), a.Number(1)); }},
        {"erase",
         [this](A a) { stage_.Erase(File(a), a.Number(1), static_cast<uint32_t>(a.Number(2))); }},
        {"abandon", [this](A a) { stage_.Abandon(File(a), a.Number(1), a.Number(2)); }},
        {"clean", [this](A a) { Clean(a); }},
        {"clean-unhurried", [this](A) { stage_.CleanUnhurried(); }},
        {"heal", [this](A a) { stage_.Heal(File(a)); }},
        {"copy-kept", [this](A) { stage_.CopyKept(); }},
        {"hand-over", [this](A a) { stage_.HandOver(File(a)); }},
        {"hand-over-in-vain", [this](A a) { stage_.HandOverInVain(File(a)); }},
        {"cache", [this](A a) { stage_.Cache(File(a)); }},
        {"through", [this](A a) { WriteThrough(a); }},
        {"past", [this](A a) { stage_.WritePast(File(a), a.Number(1), a.Number(2)); }},
        {"settle", [this](A a) { stage_.Settle(File(a), Meanwhile(a)); }},
        {"move-through", [this](A) { stage_.MoveThrough(); }},
        {"fail-through", [this](A a) { stage_.MoveThroughInVain(File(a)); }},
        {"close", [this](A) { stage_.Close(); }},
        {"reopen", [this](A) { stage_.Reopen(); }},
        {"leave", [this](A) { stage_.Leave(); }},
        {"leave-to-others", [this](A) { stage_.Leave(true); }},
        {"die", [this](A) { stage_.Die(); }},
        {"die-at", [this](A a) { stage_.DieAt(StepOf(a.Rest(0)), Meanwhile(a)); }},
        {"adopt", [this](A a) { stage_.Adopt(Meanwhile(a), !a.Has("unresolved")); }},
        {"refuse", [this](A a) { stage_.RefuseWrites(File(a), EIO); }},
        {"take", [this](A a) { stage_.RefuseWrites(File(a), 0); }},
        // Each thread has a lane of its own, one after the other.
        {"thread", [this](A a) { std::thread(Meanwhile(a)).join(); }},
        {"0:", [this](A) { stage_.As(0); }},
        {"1:", [this](A) { stage_.As(1); }},
        {"2:", [this](A) { stage_.As(2); }},
    });
  }

  LogStage stage_;
  std::map<std::string, uint32_t> files_;
};

Trace Record(const std::string& name, const Place& place, uint64_t seed, const std::string& pool,
             const std::string& text) {
  const Script script = Parse(text);
  MakeFiles(place, script);
  LogActor actor(name, place, seed, pool);
  actor.Do(script);
  return actor.Finish();
}

// A clean pool of which one record of the checkpoint is damaged.
Trace Repair(const Place& place, uint64_t seed) {
  const std::string pool = MakeAgedPool(place, seed);
  Record("before", place, seed, pool, R"(
    file a p
    write a 0 12p, clean, write a 0 12p, clean, write a 0 12p, clean
    write a 0 12p, clean, write a 0 12p, clean, close)");
  {
    std::fstream out(pool, std::ios::binary | std::ios::in | std::ios::out);
    const uint64_t record = pool::kCheckpointOffset + seed % 2 * pool::kCheckpointDistance;
    out.seekp(static_cast<std::streamoff>(record));
    out << "damaged";
  }
  return Record("repair", place, seed, pool, "open a, write a 10 100, write a 60 2p");
}

// On a device that held a pool: its header was overwritten.
Trace Create(const Place& place, uint64_t seed) {
  const std::string pool = MakeAgedPool(place, seed);
  std::string writes = "file a p\n";
  for (int i = 0; i < 20; ++i) writes += "write a " + std::to_string(i * 10) + " 500\n";
  Record("before", place, seed, pool, writes + "clean 3");
  std::string old = kit::Slurp(pool);
  // Something else was written there since.
  old.replace(0, pool::kSegmentsOffset, std::string(pool::kSegmentsOffset, 'x'));

  Machine machine(old.size());
  std::memcpy(machine.pool(), old.data(), old.size());
  machine.Begin();
  Listen(&machine);
  pool::Problem problem;
  const bool ok = pool::Pool::Create(kDevicePath, {.size = 0, .emulate = true}, nullptr, &problem);
  Listen(nullptr);
  if (!ok) throw std::runtime_error(problem.text.c_str());
  Trace trace = std::move(machine.done());
  trace.scenario = "create";
  trace.seed = seed;
  trace.creation = true;
  trace.pool = old;
  trace.operations.push_back({Operation::kClose, 0, 0, 0, 0});
  trace.events.insert(trace.events.begin(), {Event::kBegin, {}, 0, 0, 0, 0, 0});
  trace.events.push_back({Event::kEnd, {}, 0, 0, 0, 0, 0});
  return trace;
}

struct LogScenario {
  const char* name;
  const char* what;
  Effort effort;
  uint64_t pool;
  const char* script;
};

const LogScenario kLogScenarios[] = {
    // A group of two pages and one that overlaps it: small enough for every image.
    {"tiny", "two small groups that overlap, an abandoned one, a clean end", Every(10, 1, 512),
     kOneLane, R"(
       file a 2p
       write a p-40 80, write a p-10 60, clean 1, abandon a p-40 80, write a p-60 30, close)"},
    // Several lanes, one file: it is declared in each, and its groups lie in all of them.
    {"declared", "one file in several lanes", Every(20, 2), kLanesPool, R"(
       file a p
       thread (write a 10 100), thread (write a 30 100), thread (write a 50 100)
       thread (write a 70 100), clean 2, thread (write a 90 100), thread (write a 110 100)
       thread (write a 130 100))"},
    // Several lanes, several files, numbers that differ in what they name from lane to lane.
    {"lanes", "several files in several lanes", WithRemovals(Every(20, 3)), kLanesPool, R"(
       file a p, file b p, new c
       thread (write a 10 100), thread (write c 50 50), thread (write b 30 100)
       thread (write a 60 50), thread (write a 50 100), thread (write a 70 50), clean 4
       thread (write b 70 100), thread (write c 80 50), thread (write a 90 100)
       thread (write a 90 50), thread (cut a 70), thread (write b 110 100)
       thread (write a 100 50))"},
    // Lanes are idle, and get busy one after the other, between the cleanup thread's batches.
    {"idle", "lanes get busy while others are written back", Every(20, 2), kLanesPool, R"(
       file a p, file b p
       write a 10 100, clean, thread (write a 50 100), write b 10 100
       clean (thread (write b 200 30)), write a 30 60)"},
    {"attach", "one thread attaches the pool, another one writes", Every(20, 2), kOneLane, R"(
       file a p
       thread (write a 10 100, write a 50 100, close, reopen, write a 90 10))"},
    // A number has one file after the other, in one segment.
    {"numbers", "one number for one file after the other", Every(20, 3), kOneLane, R"(
       file a 300 5
       write a 10 100, write a 100 250, clean, file b 300 5, write b 10 100, write b 100 250
       fill b 20, clean, file c 300 5, write c 10 100, write c 100 250, clean, new d 5
       write d 10 100, write d 100 250)"},
    // Truncations to nothing, to the middle and to more, holes, and writes over what they leave.
    {"truncated", "truncations, holes, and writes over what they leave", WithRemovals(Every(20, 3)),
     kOneLane, R"(
       file a 2p, new b
       write a 100 500, cut a 300, write a 700 100, write b 0 900, erase a 50 200, write a 100 40
       clean 3, cut b 400, cut b 1000, erase b 100 600, write b 650 30, cut a 0, clean 4
       write a 20 60, cut a 0, write a 10 20, write b 90 20, clean, cut a 15, cut b 0
       write b 5 10)"},
    // Two files, one of which is not there when recovery looks: the other's groups become void.
    {"away", "a file is away while its groups are recovered", Every(2, 2), kOneLane, R"(
       file a p, file b p
       away b, write a 10 100, write b 10 100, write a 50 100, write b 100 500, write a 20 60
       write a p-10 30)"},
    // The same with truncations and holes, from several lanes.
    {"cut-away", "a file that was cut is recovered while another one is away", Every(2, 2),
     kLanesPool, R"(
       file a p, file b p
       away b, write a 10 100, write b 10 100, thread (write a 300 40), cut a 0, write b 50 40
       thread (write a 20 60), erase a 30 20, write a 100 30)"},
    // A file that the file system may lose until it is synced, before its first record. It is
    // declared in two lanes.
    {"lost", "a new file that the file system may lose", WithRemovals(Every(4, 1)), kLanesPool, R"(
       new a
       write a 0 100, thread (write a 50 100), thread (clean 1), write a 120 80, clean 1
       write a 10 80)"},
    // A new file's groups become void while another file is away.
    {"marked", "a new file is recovered while another one is away", WithRemovals(Every(1, 3)),
     kOneLane, R"(
       new a, file b p
       away b, write b 10 100, write a 0 100, write a 100 100)"},
    // A disk that refuses one file: its records are kept, the checkpoint passes them, it heals.
    // Once more, in the segment that was a kept one.
    {"kept", "a disk refuses a file, and heals", WithDamage(Every(40, 8)), kOneLane, R"(
       file a p, file b p
       write a 10 100, write b 10 100, write a p-50 100, write a 200 100, write a 250 100
       clean 2 but a, write b 50 40, cut a p, write a 60 30, clean but a, write a 20 70
       erase a 30 30, thread (heal a), write a 5 60, clean 3, write b 5 60, write a 15 100, clean 2
       fill b 0, write b 10 20, write a 25 40, clean but a, write a 35 40)"},
    // Kept records are copied once more, to segments whose former lives have left records there
    // that are newer, and lie where the next kept ones would.
    {"copied", "kept records are copied once more", Every(40, 3), kOneLane, R"(
       file a p, file b p
       write a 10 100, write a 60 100, clean but a, write b 0 100, write b 100 100, write b 200 100
       write a 300 100, write b 400 100, write b 500 100, write b 600 100, write a 700 100, fill b 0
       write b 0 100, write b 100 100, write b 200 100, write a 300 100, write b 400 100
       write b 500 100, write b 600 100, write a 700 100, fill b 0, write b 30 100, clean but a
       thread (copy-kept), write b 40 100, write a 90 30, clean 1 but a, write b 0 100
       write b 100 100, write b 200 100, write a 300 100, write b 400 100, write b 500 100
       write b 600 100, write a 700 100, fill b 0, write b 0 100, write b 100 100, write b 200 100
       write a 300 100, write b 400 100, write b 500 100, write b 600 100, write a 700 100, fill b 0
       write b 30 100, clean but a, thread (copy-kept), write b 40 100, write a 90 30, clean 1 but a
       thread (heal a), write a 50 100, write b 50 100, clean, write a 40 10)"},
    // The same with a new file.
    {"kept-new", "a disk refuses a new file, and heals", WithRemovals(Every(4, 2)), kOneLane, R"(
       new a, file b p
       write a 0 100, write b 10 100, clean but a, write a 60 100, write b 10 50, clean 1 but a
       write a 20 40, thread (clean but a), thread (heal a), write a 30 40, clean, write a 10 40)"},
    // The same while another file is away: groups become void, some of them kept ones.
    {"kept-away", "kept groups are recovered while a file is away", Every(2, 2), kOneLane, R"(
       file a p, file b p
       away b, write a 10 100, write b 10 100, write a 50 100, clean 2 but a b, write b 60 40
       write a 20 60, cut a 120, write a 100 60)"},
    // Segments are taken again, twice, and what their former lives have left lies where the new
    // records do: of the same sizes, and of the same file numbers.
    {"again", "segments are taken again", WithDamage(Every(40, 0)), kOneLane, R"(
       file a 3p, file b 3p
       write a 0 40, write a 30 200, write a p-100 300, write a 50 2p, fill a 3, thread (clean 2)
       write a 10 40, write a 5 3000, thread (clean), write b 0 40, write b 30 200
       write b p-100 300
       write b 50 2p, fill b 3, thread (clean 2), write b 10 40, write b 5 3000, thread (clean)
       write a 0 40, write a 30 200, write a p-100 300, write a 50 2p, fill a 3, thread (clean 3)
       write a 10 40, write a 5 3000, thread (clean), write b 0 40, write b 30 200
       write a p-100 300
       write b 50 2p, fill b 3, thread (clean 2), write b 10 40, write b 5 3000, thread (clean)
       write a 3 2p, write b 3 100)"},
    // Groups over a segment's end, with room for more and less of them in front of it; then over
    // more than one.
    {"over", "groups over the end of a segment", Every(60, 0), kOneLane, R"(
       file a 3p, file b 3p
       write a 20 200, fill a 0, write b 50 3p, write a 20 100, clean 3, write b 7 p, write a 20 200
       fill a 1, write a 50 3p, write a 20 100, write b 7 p, clean, write a 20 200, fill a 2
       write a 50 3p, write a 20 100, clean 3, write b 7 p, write a 20 200, fill a 66, write b 50 3p
       write a 20 100, clean 3, write b 7 p, write a 20 200, fill a 70, write a 50 3p
       write a 20 100
       clean 3, write b 7 p, write a 20 200, fill a 131, write a 50 3p, write a 20 100, write b 7 p
       clean, write a 20 200, fill a 150, write b 50 3p, write a 20 100, clean 3, write b 7 p
       fill a 80, write b 9 20p, write a 7 60)"},
    // A group is begun that needs a new segment, and given up.
    {"given-up", "groups in new segments that are given up", {}, kOneLane, R"(
       file a p
       write a 10 100, fill a 70, abandon a 20 3p, write a 40 50, abandon a 20 3p, write a 100 2p
       write a 30 70)"},
    // The same with two segments, each of which names the one before. Another process takes the
    // first of them.
    {"given-up-named", "a segment is taken that one names which was given up", {}, kOneLane, R"(
          file a 20p, file b p
       0: write a 10 100, fill a 1, abandon a 20 17p
       1: write b 10 100
       0: write a 30 40
       1: write b 60 100, clean)"},
    // Two processes append to files of their own by turns, and write back by turns. One leaves,
    // then the other; they come again, and have each other's seats.
    {"pair", "two processes by turns, who leave and come again",
     WithRemovals(WithDamage(Every(150, 60))), kOneLane, R"(
          file a p, file b p, new c
       0: write a 10 100
       1: write b 10 100, write c 0 100
       0: write a 50 p, clean 1
       1: write b 60 100, clean 2
       0: write a 20 60, clean
       1: write c 50 100
       0: write a 30 30, leave
       1: write b 5 40, clean 1, close, reopen, write b 15 40
       0: write a 15 40, clean
       1: clean
       0: write a 25 40, leave
       1: close, reopen, write b 35 40)"},
    // What one process has freed, the other one takes: what lies there of groups over the end of a
    // segment, and newer groups than those that still lie in another one.
    {"passed", "segments go from one process to the other", WithDamage(Every(200, 80)), kLanesPool,
     R"(
          file a 3p, file b 3p
       1:
       0: write a 10 100, thread (write a 50 100), write a 30 60, fill a 3, write a 20 2p, clean 7
       1: write b 70 100
       0: clean
       1: thread (write b 40 p), clean 1
       1: write b 10 100, thread (write b 50 100), write b 30 60, fill b 3, write b 20 2p, clean 7
       0: write a 70 100
       1: clean
       0: thread (write a 40 p), clean 1
       0: write a 10 100, thread (write a 50 100), write a 30 60
       1: write b 70 100
       0: clean
       1: thread (write b 40 p), clean 1
       1: write b 10 100, thread (write b 50 100), write b 30 60
       0: write a 70 100
       1: clean
       0: thread (write a 40 p), clean 1)"},
    // One file is one process's, then the other's, and back: whoever has it is through with it
    // then. In front of it in the log, or behind it, is what stays; once there is a group of the
    // turn before, too.
    {"handed", "a file goes from one process to the other, and back", WithDamage(Every(150, 20)),
     kOneLane, R"(
          file a p, file b p, file c p
       1:
       0: write a 10 100, write a 50 100, write b 0 50, clean 2
       1: write a 10 100, write a 51 100, clean, write c 5 50
       0: write a 10 100, write a 52 100, clean
       1: write a 10 100, write a 53 100, write c 30 50, clean 3
       0: write a 10 100, write a 54 100, cut a 90, clean, write b 20 50
       1: write a 10 100, write a 55 100, clean
       0: write a 30 100)"},
    // A process dies, another one brings what it has left to the files and writes on. Then it has
    // one of these files, and a third process, in the dead one's seat, the other one.
    {"orphan", "a process dies, others go on with what it had", WithDamage(Every(150, 50)),
     kLanesPool, R"(
          file a p, file b p, file c p, new d
       0: write a 10 100, thread (write a 50 100), write a 30 60
       1: write c 10 100
       0: clean 1, write b 10 100, write d 0 100, die-at committed (write b 50 p)
       1: write c 50 100, adopt (thread (write c 70 40)), thread (write a 60 100), write c 20 30
       2: write b 20 60
       1: clean
       2: write a 15 50, thread (write d 50 100), clean 2
       1: write b 55 50, clean, leave
       2: write a 25 50, close)"},
    // A process comes, and before it has a seat it brings a dead one's groups to the files, while a
    // third one goes on. When it leaves it does so once more.
    {"orphan-found", "a process that comes finds a dead one's logs", WithDamage(Every(150, 20)),
     kOneLane, R"(
          file a p, file b p
       1: write b 10 100
       0: write a 10 100, write a 50 100, clean 1, die-at committed (write a 70 p)
       1: write b 50 100
       2: write a 30 60, clean
       1: write a 20 60, clean, die-at segment taken (write a 40 60)
       2: adopt, write b 20 60, clean, write a 15 60
       0: write b 30 60, die
       2: close)"},
    // Long groups are left, the one that adopts them dies at that, too, and the next one has both.
    {"orphans", "the one that adopts a dead one's logs dies, too", WithDamage(Every(200, 30)),
     kOneLane, R"(
          file a 2p, file b 2p, file c 2p
       1: write b 10 100
       2: write c 10 100
       0: write a 10 100, fill a 3, write a 50 p, die-at checkpoint durable (clean 2)
       1: write b 50 100, die-at sync (adopt)
       2: write c 50 100, adopt, write a 20 100
       0: write b 30 p
       2: clean, write c 5 30
       1: write a 60 30, clean)"},
    // A disk refuses a file. The process dies that keeps its groups, and takes the next ones for
    // granted; the disk takes them all from the one that adopts them.
    {"orphan-kept", "what a dead process had kept is adopted", WithDamage(Every(150, 50)), kOneLane,
     R"(
          file a p, file b p, file c p, new d
       0: write a 10 100, write b 10 100, write a 50 100, write d 0 100, clean but a d
       1: write c 10 100
       0: write a 30 60, write b 20 50, clean 1 but a d, write a 40 100, write d 60 100, cut a p-100
          die-at void durable (heal d)
       1: write c 50 100, adopt (thread (write c 70 40)), write a 20 40
       2: write d 20 60
       1: clean
       2: write a 35 40, write b 5 40, clean 2)"},
    // A disk refuses the file of a process that has not come as far as others. What it keeps goes
    // to segments of theirs, over newer records of the same sizes. It dies, and so does the one
    // which adopts it; the next one keeps what is its own, and has segments of the first.
    {"orphan-kept-over", "what is kept lies in another process's segment",
     WithDamage(Every(150, 50)), kOneLane, R"(
          file a p, file b p, file c p, file d p
       0: write a 10 100, write a 60 100
       1: write b 0 100, write b 100 100, write b 200 100, write b 300 100, write b 400 100, fill b 0
          write b 0 100, clean
       0: clean 1 but a
       2: write c 0 100, write c 100 100, write c 200 100
       0: write a 40 30, clean but a, write a 90 100
       1: write b 30 100, clean
       0: clean but a, write d 0 60, die-at void durable (heal a)
       2: refuse a, write c 50 100, die-at applied durable (adopt)
       1: adopt unresolved, take a, write b 10 100, write b 300 100, clean but b, write b 90 100
          clean)"},
    // The disk refuses one of the files that were left: its groups stay, and those of the other
    // file are void. The one that makes them so dies at that, the next one goes on. That file is
    // written to again. Its first group declares it: no group that becomes void does.
    {"orphan-refused", "a disk refuses what is adopted", WithDamage(Every(150, 20)), kOneLane, R"(
          file a p, file b p, file c p
       0: write b 0 20, write b 10 100, clean 1, write a 10 100, write b 50 100, write a 50 100
          write b 20 60
       1: write c 10 100
       2: write c 30 100
       0: die
       1: refuse a, die-at applied durable (adopt)
       2: adopt unresolved (thread (write c 70 40)), take a, write b 30 60, clean, write b 5 30
          write c 5 30)"},
    // One process. Segments are filled, freed when the checkpoint has passed them, and taken again:
    // what their former lives have left lies where the new records do.
    {"through", "write-through by one process, whose segments are taken again",
     WithDamage(Every(200, 50)), kOneLane, R"(
       file a 2p, new b
       through a 10 100, settle b, through a p-50 100, thread (through b 0 100), move-through
       through a 30 60, through a 50 8p, through b 5 9p, through a 70 100, thread (move-through)
       through a 40 60, through b 30 60, through a 50 8p, through a 5 9p, through a 70 100, settle a
       thread (move-through), through a 40 60, through a 30 60, through a 50 8p, through b 5 9p
       through a 70 100, thread (move-through), through a 40 60, close, reopen, through a 20 60)"},
    // Two processes and one file: each writes over what the other one has written, and each moves
    // the checkpoint, and settles the file. One leaves its groups to the other one.
    {"through-pair", "two processes write through to one file by turns",
     WithRemovals(WithDamage(Every(400, 80))), kLanesPool, R"(
          file a p, file b p
       1:
       0: through a 10 100
       1: through a 60 100, write b 10 100
       0: through a p 60, settle a
       1: through a 90 30
       0: through a 80 40
       1: through a 10 100
       0: through a 60 100
       1: through a p-20 60
       0: through a 90 30, move-through
       1: through a 80 40
       0: through a 10 100
       1: through a 60 100
       0: through a p-40 60, settle a
       1: through a 90 30
       0: through a 80 40
       1: through a 10 100
       0: through a 60 100
       1: through a p-60 60
       0: through a 90 30, move-through
       1: through a 80 40
       1: through a 20 60, leave-to-others
       0: through a 50 60, move-through
       1: through a 70 20, leave
       0: write b 50 60, close)"},
    // What goes past the logs, over groups that are settled first: each process makes those of the
    // other one void, too. A process that has lost the file's lock commits late, once, for it has
    // looked before; once it gives up.
    {"through-settled", "a write-through file is settled, and written to past the logs",
     WithDamage(Every(200, 30)), kLanesPool, R"(
          file a p, file b p
       0: through a 10 100
       1: through a 40 60, through b 10 50
       0: through a 30 20, settle a, past a 20 60, past b 60 10
       1: settle a, through a 25 30
       0: through a 50 30, through a 15 20 (1: settle a, past a 20 40, settle a), through a 30 10
          through a 15 20 lost (1: settle a, past a 20 40, settle a), through a 30 10
       1: settle a (0: through a 40 20), through a 50 20, settle a, past a 10 p, move-through
          settle a, through a 35 40)"},
    // A process dies with groups of write-through and of write-back. Another one goes on with the
    // file that both had, and brings the rest to the disk; a third one has the seat after that.
    {"through-orphan", "a process dies with groups of write-through", WithDamage(Every(300, 60)),
     kLanesPool, R"(
          file a p, file b p, file c p
       0: through a 10 100
       1: through a 50 100, write c 10 100
       0: write b 10 100, through a 70 60, write b 50 60, die-at committed (through a 100 p)
       1: through a 60 100, settle a, past a 80 40, settle a, adopt (thread (through a 20 60))
          write b 30 60
       2: through a 90 30, move-through
       0: through a 85 30
       2: through a 75 30, die-at checkpoint durable (move-through)
       1: adopt, through a 65 30, move-through, through a 55 30)"},
    // A file is write-through, then one process's alone, then write-through again, then the other
    // one's: each time it passes the disk.
    {"through-handed", "a file goes from write-through to write-back, and back",
     WithDamage(Every(200, 30)), kLanesPool, R"(
          file a p, file b p
       1:
       0: settle a, through a 10 100
       1: through a 60 100
       0: through a 40 60, settle a, write a 20 60, write a 70 60, clean
       1: settle a, through a 10 100
       0: through a 60 100, through b 10 100
       1: through a 41 60, settle a, write a 20 60, write a 70 60, clean
       0: settle a, through a 10 100
       1: through a 60 100
       0: through a 42 60, settle a, write a 20 60, write a 70 60, move-through, clean
       1: settle a, through a 10 100
       0: through a 60 100
       1: through a 43 60, settle a, write a 20 60, write a 70 60, clean
       0: settle a, through a 30 100, move-through)"},
    // A file is one process's alone, who hands it over; both write through to it, and past the
    // logs;
    // then it is the other one's alone. While one of them has it, the checkpoint of write-through
    // is moved, or the file is settled: that says nothing of what is handed over later.
    {"handed-over", "a file is handed over by the one process and by the other",
     WithDamage(Every(200, 30)), kLanesPool, R"(
          file a p, file b p, file c p, file d p
       1:
       0: settle a, cache a, write b 0 50, write a 10 100, clean 2, write a 60 60, hand-over a
       1: through a 40 60
       0: through a 70 40, clean-unhurried
       1: move-through, past a 50 40
       0: clean-unhurried
       1: settle a, cache a, write c 10 50, write a 10 100
       0: through d 1 20, settle d, move-through
       1: hand-over a
       0: through a 40 60
       1: through a 70 40, clean-unhurried
       0: settle a, past a 50 40
       1:
       0: settle a, cache a, write b 20 50, write a 10 100
       1: through d 2 20, settle a
       0: write a 62 60, hand-over a
       1: through a 40 60
       0: through a 70 40, clean-unhurried, write b 10 20, clean
       1: settle a, cache a, write c 30 50, write a 10 100, clean 1, write a 63 60, hand-over a
       0: through a 40 60
       1: through a 70 40, clean-unhurried
       0: move-through, past a 50 40
       1: clean-unhurried
       0: settle a, cache a, write b 40 50, write a 10 100
       1: through d 4 20, settle d, move-through
       0: hand-over a
       1: through a 40 60
       0: through a 70 40, clean-unhurried
       1: settle a, past a 50 40
       1: settle a, cache a, write c 50 50, write a 10 100
       0: through d 5 20, settle a
       1: write a 65 60, hand-over a
       0: through a 40 60
       1: through a 70 40, clean-unhurried, write c 25 20, clean
       0: settle a, cache a, write a 30 100, hand-over a, leave
       1: through a 20 40, close)"},
    // A process dies before the log says that its file is handed over, or when it does. Another one
    // hands a file over of its own, for the first time.
    {"handed-over-orphan", "a process dies when it hands a file over", WithDamage(Every(200, 20)),
     kLanesPool, R"(
          file a p, file b p, file c p
       0: write a 10 100, write b 10 100
       1: write c 10 100
       2:
       0: die-at hands over durable (hand-over a)
       1: write c 50 100, hand-over c
       2: through c 40 60, settle c, past c 60 60
       1: adopt, through a 50 100
       0: settle a, cache a, write a 20 100, write b 20 60, die-at committed (hand-over a)
       2: adopt, through a 60 30, settle a, past a 40 60, write b 5 30
       1: settle a, cache a, write a 30 100, clean)"},
    // No log has anything of write-through: what says that some groups are void is its checkpoint
    // alone. A process dies, and another one fails, when it is about to hand a file over for the
    // first time. Two files that are handed over have the same number in a log, one after the
    // other.
    {"handed-over-moved", "a file is handed over, and others have it when the checkpoint is moved",
     WithDamage(Every(200, 20)), kLanesPool, R"(
          file a p 5, file b p, file c p, file d p 5
       1:
       2: write c 10 100, die-at hands over durable (hand-over c)
       0: thread (write b 10 100, hand-over-in-vain b), write a 10 100, write b 30 100, hand-over a
       1: move-through, cache a, write a 40 60, clean
       0: write d 10 100, hand-over d, write b 20 60, clean-unhurried
       1: write a 60 100, hand-over a
       2: move-through, cache a, write a 30 50, clean, cache d, write d 30 50, clean
       0: clean-unhurried
       1: write c 20 100, clean)"},
    // A process dies when others have written to what it had handed over; another one when it has
    // the
    // file in its cache again.
    {"handed-over-again", "a process dies that has a file again which it had handed over",
     WithDamage(Every(200, 20)), kLanesPool, R"(
          file a p, file b p
       1:
       0: write a 10 100, write b 10 100, hand-over a
       1: through a 50 100
       0: die
       1: through a 30 40, adopt (thread (through a 20 40)), through a 80 40, settle a, cache a
          write a 60 100
       0:
       1: hand-over a
       0: through a 70 30, settle a, past a 90 30
       1: settle a, cache a, write a 40 30, cut a p-10, die
       0: write b 30 40, adopt, through a 35 60, move-through
       1: through a 45 60, leave
       0: write b 20 30, clean)"},
    // A process ends, and leaves what it has handed over to another one. That one moves the
    // checkpoint; of the segments that are free then, the first to be taken is the one that says
    // what is handed over.
    {"handed-over-left", "a process leaves what it has handed over to another one",
     WithDamage(Every(200, 20)), kLanesPool, R"(
          file a 2p, file b 2p
       0: write b 10 100
       1: write a 10 100
       0: clean
       1: fill a 3, write a 50 p, hand-over a
       0: through a 40 60
       1: through a 90 60, leave-to-others
       0: through a 70 60, move-through, past a 60 100, write b 20 100
       1: settle a, write b 60 100, through a 30 50
       0: clean)"},
    // The disk loses something of one of two files that are handed over, and their process dies.
    // Whoever adopts its logs leaves what they have of both, and brings the rest to the disk. The
    // other file is settled, and written to past the logs.
    {"handed-over-failed", "the disk loses what was handed over, and its process dies",
     WithDamage(Every(200, 20)), kLanesPool, R"(
          file a p, file b p, file c p, file d p
       1:
       0: write a 10 100, write b 10 100, write c 10 100, hand-over a, hand-over b
       1: through a 50 100, through b 50 100
       0: write c 50 100
       1: fail-through a
       0: die
       1: write d 10 100, adopt unresolved, settle b, past b 40 60, settle b, write c 30 40
          clean)"},
};

}  // namespace

std::vector<Scenario> LogScenarios() {
  std::vector<Scenario> all = {
      {"create", "a pool is made where another one was", Every(0, 0), Create},
  };
  for (const LogScenario& each : kLogScenarios) {
    all.push_back({each.name, each.what, each.effort, [each](const Place& place, uint64_t seed) {
                     return Record(each.name, place, seed, MakeAgedPool(place, seed, each.pool),
                                   each.script);
                   }});
  }
  all.push_back({"repair", "a clean pool with a damaged checkpoint record", Every(20, 2), Repair});
  return all;
}

}  // namespace nvcache::crash
