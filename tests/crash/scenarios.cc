// SPDX-License-Identifier: BSD-3-Clause
#include "tests/crash/scenarios.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "src/lease/leases.h"
#include "src/sys/kernel.h"
#include "src/vfs/engine/access.h"
#include "src/vfs/engine/engine.h"
#include "src/vfs/vfs.h"
#include "tests/crash/capture.h"
#include "tests/crash/log_stage.h"
#include "tests/crash/machine.h"
#include "tests/crash/name_scenarios.h"
#include "tests/unit/host.h"

namespace nvcache::crash {

namespace {

constexpr size_t kPage = pool::kPageSize;

// ---------------------------------------------------------------------------------------------
// The log alone

constexpr uint64_t kLanesPool = 2u << 20;  // large enough for three lanes

// Each thread has a lane of its own, one after the other.
template <typename Function>
void OnThread(Function function) {
  std::thread(function).join();
}

// A group of two pages and one that overlaps it: small enough for every image.
Trace Tiny(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 2 * kPage);
  LogStage stage("tiny", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  stage.Write(a, kPage - 40, 80);
  stage.Write(a, kPage - 10, 60);
  stage.Clean(1);
  stage.Abandon(a, kPage - 40, 80);
  stage.Write(a, kPage - 60, 30);
  stage.Close();
  return stage.Finish();
}

// Segments are taken again, twice, and what their former lives have left lies where the new records
// do: of the same sizes, and of the same file numbers.
Trace Again(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 3 * kPage);
  MakeFile(place, "b", 3 * kPage);
  LogStage stage("again", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  for (int life = 0; life < 4; ++life) {
    const uint32_t file = life % 2 == 0 ? a : b;
    stage.Write(file, 0, 40);
    stage.Write(file, 30, 200);
    stage.Write(life == 3 ? a : file, kPage - 100, 300);
    stage.Write(file, 50, 2 * kPage);
    stage.FillSegment(file, 3);
    OnThread([&] { stage.Clean(life == 2 ? 3 : 2); });
    stage.Write(file, 10, 40);
    stage.Write(file, 5, 3000);
    OnThread([&] { stage.Clean(); });
  }
  stage.Write(a, 3, 2 * kPage);
  stage.Write(b, 3, 100);
  return stage.Finish();
}

// Groups over a segment's end, with room for more and less of them in front of it.
Trace Over(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 3 * kPage);
  MakeFile(place, "b", 3 * kPage);
  LogStage stage("over", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  for (const uint64_t room : {0u, 1u, 2u, 66u, 70u, 131u, 150u}) {
    stage.Write(a, 20, 200);
    stage.FillSegment(a, room);
    stage.Write(room % 3 == 0 ? b : a, 50, 3 * kPage);
    stage.Write(a, 20, 100);
    if (room % 2 == 0) stage.Clean(3);
    stage.Write(b, 7, kPage);
    if (room % 2 != 0) stage.Clean();
  }
  // Over more than one.
  stage.FillSegment(a, 80);
  stage.Write(b, 9, 20 * kPage);
  stage.Write(a, 7, 60);
  return stage.Finish();
}

// A group is begun that needs a new segment, and given up.
Trace GivenUp(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  LogStage stage("given-up", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  stage.Write(a, 10, 100);
  stage.FillSegment(a, 70);
  stage.Abandon(a, 20, 3 * kPage);
  stage.Write(a, 40, 50);
  stage.Abandon(a, 20, 3 * kPage);
  stage.Write(a, 100, 2 * kPage);
  stage.Write(a, 30, 70);
  return stage.Finish();
}

// Several lanes, one file: it is declared in each, and its groups lie in all of them.
Trace Declared(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  LogStage stage("declared", place, seed, MakeAgedPool(place, seed, kLanesPool));
  const uint32_t a = stage.Open("a", true);
  for (uint64_t i = 0; i < 7; ++i) {
    OnThread([&] { stage.Write(a, 10 + 20 * i, 100); });
    if (i == 3) stage.Clean(2);
  }
  return stage.Finish();
}

// Several lanes, several files, numbers that differ in what they name from lane to lane.
Trace Lanes(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  LogStage stage("lanes", place, seed, MakeAgedPool(place, seed, kLanesPool));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  const uint32_t c = stage.Open("c", false);
  for (uint64_t i = 0; i < 6; ++i) {
    OnThread([&] { stage.Write(i % 2 == 0 ? a : b, 10 + 20 * i, 100); });
    OnThread([&] { stage.Write(i % 3 == 0 ? c : a, 50 + 10 * i, 50); });
    if (i == 2) stage.Clean(4);
    if (i == 4) OnThread([&] { stage.Truncate(a, 70); });
  }
  return stage.Finish();
}

// Lanes are idle, and get busy one after the other, between the cleanup thread's batches.
Trace Idle(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  LogStage stage("idle", place, seed, MakeAgedPool(place, seed, kLanesPool));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  stage.Write(a, 10, 100);
  stage.Clean();
  OnThread([&] { stage.Write(a, 50, 100); });
  stage.Write(b, 10, 100);
  stage.Clean(~size_t{0}, {}, [&] { OnThread([&] { stage.Write(b, 200, 30); }); });
  stage.Write(a, 30, 60);
  return stage.Finish();
}

// One thread attaches the pool, another one writes.
Trace Attach(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  LogStage stage("attach", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  OnThread([&] {
    stage.Write(a, 10, 100);
    stage.Write(a, 50, 100);
    stage.Close();
    stage.Reopen();
    stage.Write(a, 90, 10);
  });
  return stage.Finish();
}

// A number has one file after the other, in one segment.
Trace Numbers(const Place& place, uint64_t seed) {
  for (const char* name : {"a", "b", "c"}) MakeFile(place, name, 300);
  LogStage stage("numbers", place, seed, MakeAgedPool(place, seed));
  for (const char* name : {"a", "b", "c", "d"}) {
    const uint32_t file = stage.Open(name, *name != 'd', 5);
    stage.Write(file, 10, 100);
    stage.Write(file, 100, 250);
    if (*name == 'd') break;
    if (*name == 'b') stage.FillSegment(file, 20);
    stage.Clean();
  }
  return stage.Finish();
}

// Truncations to nothing, to the middle and to more, holes, and writes over what they leave.
Trace Truncated(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 2 * kPage);
  LogStage stage("truncated", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", false);
  stage.Write(a, 100, 500);
  stage.Truncate(a, 300);
  stage.Write(a, 700, 100);
  stage.Write(b, 0, 900);
  stage.Erase(a, 50, 200);
  stage.Write(a, 100, 40);
  stage.Clean(3);
  stage.Truncate(b, 400);
  stage.Truncate(b, 1000);
  stage.Erase(b, 100, 600);
  stage.Write(b, 650, 30);
  stage.Truncate(a, 0);
  stage.Clean(4);
  stage.Write(a, 20, 60);
  stage.Truncate(a, 0);
  stage.Write(a, 10, 20);
  stage.Write(b, 90, 20);
  stage.Clean();
  stage.Truncate(a, 15);
  stage.Truncate(b, 0);
  stage.Write(b, 5, 10);
  return stage.Finish();
}

// Two files, one of which is not there when recovery looks: the other's groups become void.
Trace Away(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  LogStage stage("away", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  stage.Away(b);
  stage.Write(a, 10, 100);
  stage.Write(b, 10, 100);
  stage.Write(a, 50, 100);
  stage.Write(b, 100, 500);
  stage.Write(a, 20, 60);
  stage.Write(a, kPage - 10, 30);
  return stage.Finish();
}

// The same with truncations and holes, from several lanes.
Trace CutAway(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  LogStage stage("cut-away", place, seed, MakeAgedPool(place, seed, kLanesPool));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  stage.Away(b);
  stage.Write(a, 10, 100);
  stage.Write(b, 10, 100);
  OnThread([&] { stage.Write(a, 300, 40); });
  stage.Truncate(a, 0);
  stage.Write(b, 50, 40);
  OnThread([&] { stage.Write(a, 20, 60); });
  stage.Erase(a, 30, 20);
  stage.Write(a, 100, 30);
  return stage.Finish();
}

// A file that the file system may lose until it is synced, before its first record. It is declared
// in two lanes.
Trace Lost(const Place& place, uint64_t seed) {
  LogStage stage("lost", place, seed, MakeAgedPool(place, seed, kLanesPool));
  const uint32_t a = stage.Open("a", false);
  stage.Write(a, 0, 100);
  OnThread([&] { stage.Write(a, 50, 100); });
  OnThread([&] { stage.Clean(1); });
  stage.Write(a, 120, 80);
  stage.Clean(1);
  stage.Write(a, 10, 80);
  return stage.Finish();
}

// A new file's groups become void while another file is away.
Trace Marked(const Place& place, uint64_t seed) {
  MakeFile(place, "b", kPage);
  LogStage stage("marked", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", false);
  const uint32_t b = stage.Open("b", true);
  stage.Away(b);
  stage.Write(b, 10, 100);
  stage.Write(a, 0, 100);
  stage.Write(a, 100, 100);
  return stage.Finish();
}

// A disk that refuses one file: its records are kept, the checkpoint passes them, it heals.
Trace Kept(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  LogStage stage("kept", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  stage.Write(a, 10, 100);
  stage.Write(b, 10, 100);
  stage.Write(a, kPage - 50, 100);
  stage.Write(a, 200, 100);
  stage.Write(a, 250, 100);
  stage.Clean(2, {a});
  stage.Write(b, 50, 40);
  stage.Truncate(a, kPage);
  stage.Write(a, 60, 30);
  stage.Clean(~size_t{0}, {a});
  stage.Write(a, 20, 70);
  stage.Erase(a, 30, 30);
  OnThread([&] { stage.Heal(a); });
  stage.Write(a, 5, 60);
  stage.Clean(3);
  stage.Write(b, 5, 60);
  stage.Write(a, 15, 100);
  stage.Clean(2);
  // Once more, in the segment that was a kept one.
  stage.FillSegment(b, 0);
  stage.Write(b, 10, 20);
  stage.Write(a, 25, 40);
  stage.Clean(~size_t{0}, {a});
  stage.Write(a, 35, 40);
  return stage.Finish();
}

// Kept records are copied once more, to segments whose former lives have left records there that
// are newer, and lie where the next kept ones would.
Trace Copied(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  LogStage stage("copied", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  const auto fill = [&] {
    for (uint64_t i = 0; i < 8; ++i) stage.Write(i % 4 == 3 ? a : b, 100 * i, 100);
    stage.FillSegment(b, 0);
  };
  stage.Write(a, 10, 100);
  stage.Write(a, 60, 100);
  stage.Clean(~size_t{0}, {a});
  for (int i = 0; i < 2; ++i) {
    fill();
    fill();
    stage.Write(b, 30, 100);
    stage.Clean(~size_t{0}, {a});
    OnThread([&] { stage.CopyKept(); });
    stage.Write(b, 40, 100);
    stage.Write(a, 90, 30);
    stage.Clean(1, {a});
  }
  OnThread([&] { stage.Heal(a); });
  stage.Write(a, 50, 100);
  stage.Write(b, 50, 100);
  stage.Clean();
  stage.Write(a, 40, 10);
  return stage.Finish();
}

// The same with a new file.
Trace KeptNew(const Place& place, uint64_t seed) {
  MakeFile(place, "b", kPage);
  LogStage stage("kept-new", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", false);
  const uint32_t b = stage.Open("b", true);
  stage.Write(a, 0, 100);
  stage.Write(b, 10, 100);
  stage.Clean(~size_t{0}, {a});
  stage.Write(a, 60, 100);
  stage.Write(b, 10, 50);
  stage.Clean(1, {a});
  stage.Write(a, 20, 40);
  OnThread([&] { stage.Clean(~size_t{0}, {a}); });
  OnThread([&] { stage.Heal(a); });
  stage.Write(a, 30, 40);
  stage.Clean();
  stage.Write(a, 10, 40);
  return stage.Finish();
}

// The same while another file is away: groups become void, some of them kept ones.
Trace KeptAway(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  LogStage stage("kept-away", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  stage.Away(b);
  stage.Write(a, 10, 100);
  stage.Write(b, 10, 100);
  stage.Write(a, 50, 100);
  stage.Clean(2, {a, b});
  stage.Write(b, 60, 40);
  stage.Write(a, 20, 60);
  stage.Truncate(a, 120);
  stage.Write(a, 100, 60);
  return stage.Finish();
}

// A clean pool of which one record of the checkpoint is damaged.
Trace Repair(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  const std::string pool = MakeAgedPool(place, seed);
  {
    LogStage stage("before", place, seed, pool);
    const uint32_t a = stage.Open("a", true);
    for (int i = 0; i < 5; ++i) {
      stage.Write(a, 0, 12 * kPage);
      stage.Clean();
    }
    stage.Close();
    stage.Finish();
  }
  {
    std::fstream out(pool, std::ios::binary | std::ios::in | std::ios::out);
    const uint64_t record = pool::kCheckpointOffset + seed % 2 * pool::kCheckpointDistance;
    out.seekp(static_cast<std::streamoff>(record));
    out << "damaged";
  }
  LogStage stage("repair", place, seed, pool);
  const uint32_t a = stage.Open("a", true);
  stage.Write(a, 10, 100);
  stage.Write(a, 60, 2 * kPage);
  return stage.Finish();
}

// ---------------------------------------------------------------------------------------------
// Several processes

// Two processes append to files of their own by turns, and write back by turns. One leaves, then
// the other; they come again, and have each other's seats.
Trace Pair(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  LogStage stage("pair", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  const uint32_t c = stage.Open("c", false);
  stage.Write(a, 10, 100);
  stage.As(1);
  stage.Write(b, 10, 100);
  stage.Write(c, 0, 100);
  stage.As(0);
  stage.Write(a, 50, kPage);
  stage.Clean(1);
  stage.As(1);
  stage.Write(b, 60, 100);
  stage.Clean(2);
  stage.As(0);
  stage.Write(a, 20, 60);
  stage.Clean();
  stage.As(1);
  stage.Write(c, 50, 100);
  stage.As(0);
  stage.Write(a, 30, 30);
  stage.Leave();
  stage.As(1);
  stage.Write(b, 5, 40);
  stage.Clean(1);
  stage.Close();
  stage.Reopen();
  stage.Write(b, 15, 40);
  stage.As(0);
  stage.Write(a, 15, 40);
  stage.Clean();
  stage.As(1);
  stage.Clean();
  stage.As(0);
  stage.Write(a, 25, 40);
  stage.Leave();
  stage.As(1);
  stage.Close();
  stage.Reopen();
  stage.Write(b, 35, 40);
  return stage.Finish();
}

// What one process has freed, the other one takes: what lies there of groups over the end of a
// segment, and newer groups than those that still lie in another one.
Trace Passed(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 3 * kPage);
  MakeFile(place, "b", 3 * kPage);
  LogStage stage("passed", place, seed, MakeAgedPool(place, seed, kLanesPool));
  const uint32_t files[] = {stage.Open("a", true), stage.Open("b", true)};
  stage.As(1);
  stage.As(0);
  for (uint32_t life = 0; life < 4; ++life) {
    const uint32_t file = files[life % 2];
    stage.As(life % 2);
    stage.Write(file, 10, 100);
    OnThread([&] { stage.Write(file, 50, 100); });
    stage.Write(file, 30, 60);
    if (life < 2) {
      stage.FillSegment(file, 3);
      stage.Write(file, 20, 2 * kPage);
      stage.Clean(7);
    }
    stage.As(1 - life % 2);
    stage.Write(files[1 - life % 2], 70, 100);
    stage.As(life % 2);
    stage.Clean();
    stage.As(1 - life % 2);
    OnThread([&] { stage.Write(files[1 - life % 2], 40, kPage); });
    stage.Clean(1);
  }
  return stage.Finish();
}

// One file is one process's, then the other's, and back: whoever has it is through with it then.
Trace Handed(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  MakeFile(place, "c", kPage);
  LogStage stage("handed", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  const uint32_t own[] = {stage.Open("b", true), stage.Open("c", true)};
  stage.As(1);
  for (uint32_t turn = 0; turn < 6; ++turn) {
    stage.As(turn % 2);
    stage.Write(a, 10, 100);
    stage.Write(a, 50 + turn, 100);
    // In front of it in the log, or behind it, is what stays.
    if (turn % 3 == 0) stage.Write(own[turn % 2], 10 * turn, 50);
    if (turn == 4) stage.Truncate(a, 90);
    // At turn 3 there is a group of the turn before, too.
    stage.Clean(turn % 3 == 0 ? 2 + turn / 3 : ~size_t{0});
    if (turn % 3 == 1) stage.Write(own[turn % 2], 5 * turn, 50);
  }
  stage.As(0);
  stage.Write(a, 30, 100);
  return stage.Finish();
}

// A process dies, another one brings what it has left to the files and writes on. Then it has one
// of these files, and a third process, in the dead one's seat, the other one.
Trace Orphan(const Place& place, uint64_t seed) {
  for (const char* name : {"a", "b", "c"}) MakeFile(place, name, kPage);
  LogStage stage("orphan", place, seed, MakeAgedPool(place, seed, kLanesPool));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  const uint32_t c = stage.Open("c", true);
  const uint32_t d = stage.Open("d", false);
  stage.Write(a, 10, 100);
  OnThread([&] { stage.Write(a, 50, 100); });
  stage.Write(a, 30, 60);
  stage.As(1);
  stage.Write(c, 10, 100);
  stage.As(0);
  stage.Clean(1);
  stage.Write(b, 10, 100);
  stage.Write(d, 0, 100);
  stage.DieAt(Step::kCommitted, [&] { stage.Write(b, 50, kPage); });
  stage.As(1);
  stage.Write(c, 50, 100);
  stage.Adopt([&] { OnThread([&] { stage.Write(c, 70, 40); }); });
  OnThread([&] { stage.Write(a, 60, 100); });
  stage.Write(c, 20, 30);
  stage.As(2);
  stage.Write(b, 20, 60);
  stage.As(1);
  stage.Clean();
  stage.As(2);
  stage.Write(a, 15, 50);
  OnThread([&] { stage.Write(d, 50, 100); });
  stage.Clean(2);
  stage.As(1);
  stage.Write(b, 55, 50);
  stage.Clean();
  stage.Leave();
  stage.As(2);
  stage.Write(a, 25, 50);
  stage.Close();
  return stage.Finish();
}

// A process comes, and before it has a seat it brings a dead one's groups to the files, while a
// third one goes on. When it leaves it does so once more.
Trace OrphanFound(const Place& place, uint64_t seed) {
  for (const char* name : {"a", "b"}) MakeFile(place, name, kPage);
  LogStage stage("orphan-found", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  stage.As(1);
  stage.Write(b, 10, 100);
  stage.As(0);
  stage.Write(a, 10, 100);
  stage.Write(a, 50, 100);
  stage.Clean(1);
  stage.DieAt(Step::kCommitted, [&] { stage.Write(a, 70, kPage); });
  stage.As(1);
  stage.Write(b, 50, 100);
  stage.As(2);
  stage.Write(a, 30, 60);
  stage.Clean();
  stage.As(1);
  stage.Write(a, 20, 60);
  stage.Clean();
  stage.DieAt(Step::kSegmentTaken, [&] { stage.Write(a, 40, 60); });
  stage.As(2);
  stage.Adopt();
  stage.Write(b, 20, 60);
  stage.Clean();
  stage.Write(a, 15, 60);
  stage.As(0);
  stage.Write(b, 30, 60);
  stage.Die();
  stage.As(2);
  stage.Close();
  return stage.Finish();
}

// Long groups are left, the one that adopts them dies at that, too, and the next one has both.
Trace Orphans(const Place& place, uint64_t seed) {
  for (const char* name : {"a", "b", "c"}) MakeFile(place, name, 2 * kPage);
  LogStage stage("orphans", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  const uint32_t c = stage.Open("c", true);
  stage.As(1);
  stage.Write(b, 10, 100);
  stage.As(2);
  stage.Write(c, 10, 100);
  stage.As(0);
  stage.Write(a, 10, 100);
  stage.FillSegment(a, 3);
  stage.Write(a, 50, kPage);
  stage.DieAt(Step::kCheckpointDurable, [&] { stage.Clean(2); });
  stage.As(1);
  stage.Write(b, 50, 100);
  stage.DieAt(Step::kCount, [&] { stage.Adopt(); });
  stage.As(2);
  stage.Write(c, 50, 100);
  stage.Adopt();
  stage.Write(a, 20, 100);
  stage.As(0);
  stage.Write(b, 30, kPage);
  stage.As(2);
  stage.Clean();
  stage.Write(c, 5, 30);
  stage.As(1);
  stage.Write(a, 60, 30);
  stage.Clean();
  return stage.Finish();
}

// A disk refuses a file. The process dies that keeps its groups, and takes the next ones for
// granted; the disk takes them all from the one that adopts them.
Trace OrphanKept(const Place& place, uint64_t seed) {
  for (const char* name : {"a", "b", "c"}) MakeFile(place, name, kPage);
  LogStage stage("orphan-kept", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  const uint32_t c = stage.Open("c", true);
  const uint32_t d = stage.Open("d", false);
  stage.Write(a, 10, 100);
  stage.Write(b, 10, 100);
  stage.Write(a, 50, 100);
  stage.Write(d, 0, 100);
  stage.Clean(~size_t{0}, {a, d});
  stage.As(1);
  stage.Write(c, 10, 100);
  stage.As(0);
  stage.Write(a, 30, 60);
  stage.Write(b, 20, 50);
  stage.Clean(1, {a, d});
  stage.Write(a, 40, 100);
  stage.Write(d, 60, 100);
  stage.Truncate(a, kPage - 100);
  stage.DieAt(Step::kVoidDurable, [&] { stage.Heal(d); });
  stage.As(1);
  stage.Write(c, 50, 100);
  stage.Adopt([&] { OnThread([&] { stage.Write(c, 70, 40); }); });
  stage.Write(a, 20, 40);
  stage.As(2);
  stage.Write(d, 20, 60);
  stage.As(1);
  stage.Clean();
  stage.As(2);
  stage.Write(a, 35, 40);
  stage.Write(b, 5, 40);
  stage.Clean(2);
  return stage.Finish();
}

// The disk refuses one of the files that were left: its groups stay, and those of the other file
// are void. The one that makes them so dies at that, the next one goes on. That file is written to
// again.
Trace OrphanRefused(const Place& place, uint64_t seed) {
  for (const char* name : {"a", "b", "c"}) MakeFile(place, name, kPage);
  LogStage stage("orphan-refused", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  const uint32_t c = stage.Open("c", true);
  // It declares the file: no group that becomes void does.
  stage.Write(b, 0, 20);
  stage.Write(b, 10, 100);
  stage.Clean(1);
  stage.Write(a, 10, 100);
  stage.Write(b, 50, 100);
  stage.Write(a, 50, 100);
  stage.Write(b, 20, 60);
  stage.As(1);
  stage.Write(c, 10, 100);
  stage.As(2);
  stage.Write(c, 30, 100);
  stage.As(0);
  stage.Die();
  stage.As(1);
  stage.RefuseWrites(a, EIO);
  stage.DieAt(Step::kAppliedDurable, [&] { stage.Adopt(); });
  stage.As(2);
  stage.Adopt([&] { OnThread([&] { stage.Write(c, 70, 40); }); }, false);
  stage.RefuseWrites(a, 0);
  stage.Write(b, 30, 60);
  stage.Clean();
  stage.Write(b, 5, 30);
  stage.Write(c, 5, 30);
  return stage.Finish();
}

// ---------------------------------------------------------------------------------------------
// Write-through

// One process. Segments are filled, freed when the checkpoint has passed them, and taken again:
// what their former lives have left lies where the new records do.
Trace Through(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 2 * kPage);
  LogStage stage("through", place, seed, MakeAgedPool(place, seed));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", false);
  stage.WriteThrough(a, 10, 100);
  stage.Settle(b);
  stage.WriteThrough(a, kPage - 50, 100);
  OnThread([&] { stage.WriteThrough(b, 0, 100); });
  stage.MoveThrough();
  for (int life = 0; life < 3; ++life) {
    stage.WriteThrough(life % 2 == 0 ? a : b, 30, 60);
    stage.WriteThrough(a, 50, 8 * kPage);
    stage.WriteThrough(life % 2 == 0 ? b : a, 5, 9 * kPage);
    stage.WriteThrough(a, 70, 100);
    if (life == 1) stage.Settle(a);
    OnThread([&] { stage.MoveThrough(); });
    stage.WriteThrough(a, 40, 60);
  }
  stage.Close();
  stage.Reopen();
  stage.WriteThrough(a, 20, 60);
  return stage.Finish();
}

// Two processes and one file: each writes over what the other one has written, and each moves the
// checkpoint, and settles the file. One leaves its groups to the other one.
Trace ThroughPair(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  LogStage stage("through-pair", place, seed, MakeAgedPool(place, seed, kLanesPool));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  stage.As(1);
  for (uint32_t turn = 0; turn < 4; ++turn) {
    stage.As(turn % 2);
    stage.WriteThrough(a, 10, 100);
    stage.As(1 - turn % 2);
    stage.WriteThrough(a, 60, 100);
    if (turn == 0) stage.Write(b, 10, 100);
    stage.As(turn % 2);
    stage.WriteThrough(a, kPage - 20 * turn, 60);
    if (turn % 2 == 0) stage.Settle(a);
    stage.As(1 - turn % 2);
    stage.WriteThrough(a, 90, 30);
    if (turn % 2 == 1) stage.MoveThrough();
    stage.As(turn % 2);
    stage.WriteThrough(a, 80, 40);
  }
  stage.As(1);
  stage.WriteThrough(a, 20, 60);
  stage.Leave(true);
  stage.As(0);
  stage.WriteThrough(a, 50, 60);
  stage.MoveThrough();
  stage.As(1);
  stage.WriteThrough(a, 70, 20);
  stage.Leave();
  stage.As(0);
  stage.Write(b, 50, 60);
  stage.Close();
  return stage.Finish();
}

// What goes past the logs, over groups that are settled first: each process makes those of the
// other one void, too. A process that has lost the file's lock commits late.
Trace ThroughSettled(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  LogStage stage("through-settled", place, seed, MakeAgedPool(place, seed, kLanesPool));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  stage.WriteThrough(a, 10, 100);
  stage.As(1);
  stage.WriteThrough(a, 40, 60);
  stage.WriteThrough(b, 10, 50);
  stage.As(0);
  stage.WriteThrough(a, 30, 20);
  stage.Settle(a);
  stage.WritePast(a, 20, 60);
  stage.WritePast(b, 60, 10);
  stage.As(1);
  stage.Settle(a);
  stage.WriteThrough(a, 25, 30);
  stage.As(0);
  stage.WriteThrough(a, 50, 30);
  // Once it commits, for it has looked before; once it gives up.
  for (const bool is_own : {true, false}) {
    stage.WriteThrough(a, 15, 20, [&] {
      stage.As(1);
      stage.Settle(a);
      stage.WritePast(a, 20, 40);
      stage.Settle(a);
      return is_own;
    });
    stage.WriteThrough(a, 30, 10);
  }
  stage.As(1);
  stage.Settle(a, [&] {
    stage.As(0);
    stage.WriteThrough(a, 40, 20);
  });
  stage.WriteThrough(a, 50, 20);
  stage.Settle(a);
  stage.WritePast(a, 10, kPage);
  stage.MoveThrough();
  stage.Settle(a);
  stage.WriteThrough(a, 35, 40);
  return stage.Finish();
}

// A process dies with groups of write-through and of write-back. Another one goes on with the file
// that both had, and brings the rest to the disk; a third one has the seat after that.
Trace ThroughOrphan(const Place& place, uint64_t seed) {
  for (const char* name : {"a", "b", "c"}) MakeFile(place, name, kPage);
  LogStage stage("through-orphan", place, seed, MakeAgedPool(place, seed, kLanesPool));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  const uint32_t c = stage.Open("c", true);
  stage.WriteThrough(a, 10, 100);
  stage.As(1);
  stage.WriteThrough(a, 50, 100);
  stage.Write(c, 10, 100);
  stage.As(0);
  stage.Write(b, 10, 100);
  stage.WriteThrough(a, 70, 60);
  stage.Write(b, 50, 60);
  stage.DieAt(Step::kCommitted, [&] { stage.WriteThrough(a, 100, kPage); });
  stage.As(1);
  stage.WriteThrough(a, 60, 100);
  stage.Settle(a);
  stage.WritePast(a, 80, 40);
  stage.Settle(a);
  stage.Adopt([&] { OnThread([&] { stage.WriteThrough(a, 20, 60); }); });
  stage.Write(b, 30, 60);
  stage.As(2);
  stage.WriteThrough(a, 90, 30);
  stage.MoveThrough();
  stage.As(0);
  stage.WriteThrough(a, 85, 30);
  stage.As(2);
  stage.WriteThrough(a, 75, 30);
  stage.DieAt(Step::kCheckpointDurable, [&] { stage.MoveThrough(); });
  stage.As(1);
  stage.Adopt();
  stage.WriteThrough(a, 65, 30);
  stage.MoveThrough();
  stage.WriteThrough(a, 55, 30);
  return stage.Finish();
}

// A file is write-through, then one process's alone, then write-through again, then the other
// one's: each time it passes the disk.
Trace ThroughHanded(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  LogStage stage("through-handed", place, seed, MakeAgedPool(place, seed, kLanesPool));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  stage.As(1);
  for (uint32_t turn = 0; turn < 4; ++turn) {
    stage.As(turn % 2);
    stage.Settle(a);
    stage.WriteThrough(a, 10, 100);
    stage.As(1 - turn % 2);
    stage.WriteThrough(a, 60, 100);
    if (turn == 1) stage.WriteThrough(b, 10, 100);
    stage.As(turn % 2);
    stage.WriteThrough(a, 40 + turn, 60);
    stage.Settle(a);
    stage.Write(a, 20, 60);
    stage.Write(a, 70, 60);
    if (turn == 2) stage.MoveThrough();
    stage.Clean();
  }
  stage.As(0);
  stage.Settle(a);
  stage.WriteThrough(a, 30, 100);
  stage.MoveThrough();
  return stage.Finish();
}

// ---------------------------------------------------------------------------------------------
// Published

// A file is one process's alone, who publishes it; both write through to it, and past the logs;
// then it is the other one's alone. While one of them has it, the checkpoint of write-through is
// moved, or the file is settled: that says nothing of what is published later.
Trace Published(const Place& place, uint64_t seed) {
  for (const char* name : {"a", "b", "c", "d"}) MakeFile(place, name, kPage);
  LogStage stage("published", place, seed, MakeAgedPool(place, seed, kLanesPool));
  const uint32_t a = stage.Open("a", true);
  const uint32_t own[] = {stage.Open("b", true), stage.Open("c", true)};
  const uint32_t d = stage.Open("d", true);
  stage.As(1);
  for (uint32_t turn = 0; turn < 6; ++turn) {
    const uint32_t owner = turn % 2, other = 1 - owner;
    stage.As(owner);
    stage.Settle(a);
    stage.Cache(a);
    stage.Write(own[owner], 10 * turn, 50);
    stage.Write(a, 10, 100);
    if (turn % 3 == 0) {
      stage.Clean(turn == 0 ? 2 : 1);
    } else {
      stage.As(other);
      stage.WriteThrough(d, turn, 20);
      stage.Settle(turn % 3 == 1 ? d : a);
      if (turn % 3 == 1) stage.MoveThrough();
      stage.As(owner);
    }
    if (turn % 3 != 1) stage.Write(a, 60 + turn, 60);
    stage.Publish(a);
    stage.As(other);
    stage.WriteThrough(a, 40, 60);
    stage.As(owner);
    stage.WriteThrough(a, 70, 40);
    stage.CleanUnhurried();
    if (turn % 3 == 2) {
      stage.Write(own[owner], 5 * turn, 20);
      stage.Clean();
      continue;
    }
    stage.As(other);
    if (turn % 3 == 0) stage.MoveThrough();
    if (turn % 3 == 1) stage.Settle(a);
    stage.WritePast(a, 50, 40);
    stage.As(owner);
    if (turn % 3 == 0) stage.CleanUnhurried();
  }
  stage.As(0);
  stage.Settle(a);
  stage.Cache(a);
  stage.Write(a, 30, 100);
  stage.Publish(a);
  stage.Leave();
  stage.As(1);
  stage.WriteThrough(a, 20, 40);
  stage.Close();
  return stage.Finish();
}

// A process dies before the log says that its file is published, or when it does. Another one
// publishes a file of its own, for the first time.
Trace PublishedOrphan(const Place& place, uint64_t seed) {
  for (const char* name : {"a", "b", "c"}) MakeFile(place, name, kPage);
  LogStage stage("published-orphan", place, seed, MakeAgedPool(place, seed, kLanesPool));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  const uint32_t c = stage.Open("c", true);
  stage.Write(a, 10, 100);
  stage.Write(b, 10, 100);
  stage.As(1);
  stage.Write(c, 10, 100);
  stage.As(2);
  stage.As(0);
  stage.DieAt(Step::kPublishesDurable, [&] { stage.Publish(a); });
  stage.As(1);
  stage.Write(c, 50, 100);
  stage.Publish(c);
  stage.As(2);
  stage.WriteThrough(c, 40, 60);
  stage.Settle(c);
  stage.WritePast(c, 60, 60);
  stage.As(1);
  stage.Adopt();
  stage.WriteThrough(a, 50, 100);
  stage.As(0);
  stage.Settle(a);
  stage.Cache(a);
  stage.Write(a, 20, 100);
  stage.Write(b, 20, 60);
  stage.DieAt(Step::kCommitted, [&] { stage.Publish(a); });
  stage.As(2);
  stage.Adopt();
  stage.WriteThrough(a, 60, 30);
  stage.Settle(a);
  stage.WritePast(a, 40, 60);
  stage.Write(b, 5, 30);
  stage.As(1);
  stage.Settle(a);
  stage.Cache(a);
  stage.Write(a, 30, 100);
  stage.Clean();
  return stage.Finish();
}

// No log has anything of write-through: what says that some groups are void is its checkpoint
// alone. A process dies, and another one fails, when it is about to publish a file for the first
// time. Two files that are published have the same number in a log, one after the other.
Trace PublishedMoved(const Place& place, uint64_t seed) {
  for (const char* name : {"a", "b", "c", "d"}) MakeFile(place, name, kPage);
  LogStage stage("published-moved", place, seed, MakeAgedPool(place, seed, kLanesPool));
  constexpr uint32_t kNumber = 5;
  const uint32_t a = stage.Open("a", true, kNumber);
  const uint32_t b = stage.Open("b", true);
  const uint32_t c = stage.Open("c", true);
  const uint32_t d = stage.Open("d", true, kNumber);
  stage.As(1);
  stage.As(2);
  stage.Write(c, 10, 100);
  stage.DieAt(Step::kPublishesDurable, [&] { stage.Publish(c); });
  stage.As(0);
  OnThread([&] {
    stage.Write(b, 10, 100);
    stage.PublishInVain(b);
  });
  stage.Write(a, 10, 100);
  stage.Write(b, 30, 100);
  stage.Publish(a);
  stage.As(1);
  stage.MoveThrough();
  stage.Cache(a);
  stage.Write(a, 40, 60);
  stage.Clean();
  stage.As(0);
  stage.Write(d, 10, 100);
  stage.Publish(d);
  stage.Write(b, 20, 60);
  stage.CleanUnhurried();
  stage.As(1);
  stage.Write(a, 60, 100);
  stage.Publish(a);
  stage.As(2);
  stage.MoveThrough();
  for (const uint32_t file : {a, d}) {
    stage.Cache(file);
    stage.Write(file, 30, 50);
    stage.Clean();
  }
  stage.As(0);
  stage.CleanUnhurried();
  stage.As(1);
  stage.Write(c, 20, 100);
  stage.Clean();
  return stage.Finish();
}

// A process dies when others have written to what it had published; another one when it has the
// file in its cache again.
Trace PublishedAgain(const Place& place, uint64_t seed) {
  for (const char* name : {"a", "b"}) MakeFile(place, name, kPage);
  LogStage stage("published-again", place, seed, MakeAgedPool(place, seed, kLanesPool));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  stage.As(1);
  stage.As(0);
  stage.Write(a, 10, 100);
  stage.Write(b, 10, 100);
  stage.Publish(a);
  stage.As(1);
  stage.WriteThrough(a, 50, 100);
  stage.As(0);
  stage.Die();
  stage.As(1);
  stage.WriteThrough(a, 30, 40);
  stage.Adopt([&] { OnThread([&] { stage.WriteThrough(a, 20, 40); }); });
  stage.WriteThrough(a, 80, 40);
  stage.Settle(a);
  stage.Cache(a);
  stage.Write(a, 60, 100);
  stage.As(0);
  stage.As(1);
  stage.Publish(a);
  stage.As(0);
  stage.WriteThrough(a, 70, 30);
  stage.Settle(a);
  stage.WritePast(a, 90, 30);
  stage.As(1);
  stage.Settle(a);
  stage.Cache(a);
  stage.Write(a, 40, 30);
  stage.Truncate(a, kPage - 10);
  stage.Die();
  stage.As(0);
  stage.Write(b, 30, 40);
  stage.Adopt();
  stage.WriteThrough(a, 35, 60);
  stage.MoveThrough();
  stage.As(1);
  stage.WriteThrough(a, 45, 60);
  stage.Leave();
  stage.As(0);
  stage.Write(b, 20, 30);
  stage.Clean();
  return stage.Finish();
}

// A process ends, and leaves what it has published to another one. That one moves the checkpoint;
// of the segments that are free then, the first to be taken is the one that says what is published.
Trace PublishedLeft(const Place& place, uint64_t seed) {
  for (const char* name : {"a", "b"}) MakeFile(place, name, 2 * kPage);
  LogStage stage("published-left", place, seed, MakeAgedPool(place, seed, kLanesPool));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  stage.Write(b, 10, 100);
  stage.As(1);
  stage.Write(a, 10, 100);
  stage.As(0);
  stage.Clean();
  stage.As(1);
  stage.FillSegment(a, 3);
  stage.Write(a, 50, kPage);
  stage.Publish(a);
  stage.As(0);
  stage.WriteThrough(a, 40, 60);
  stage.As(1);
  stage.WriteThrough(a, 90, 60);
  stage.Leave(true);
  stage.As(0);
  stage.WriteThrough(a, 70, 60);
  stage.MoveThrough();
  stage.WritePast(a, 60, 100);
  stage.Write(b, 20, 100);
  stage.As(1);
  stage.Settle(a);
  stage.Write(b, 60, 100);
  stage.WriteThrough(a, 30, 50);
  stage.As(0);
  stage.Clean();
  return stage.Finish();
}

// The disk loses something of one of two files that are published, and their process dies. Whoever
// adopts its logs leaves what they have of both, and brings the rest to the disk. The other file is
// settled, and written to past the logs.
Trace PublishedFailed(const Place& place, uint64_t seed) {
  for (const char* name : {"a", "b", "c", "d"}) MakeFile(place, name, kPage);
  LogStage stage("published-failed", place, seed, MakeAgedPool(place, seed, kLanesPool));
  const uint32_t a = stage.Open("a", true);
  const uint32_t b = stage.Open("b", true);
  const uint32_t own[] = {stage.Open("c", true), stage.Open("d", true)};
  stage.As(1);
  stage.As(0);
  for (const uint32_t file : {a, b, own[0]}) stage.Write(file, 10, 100);
  for (const uint32_t file : {a, b}) stage.Publish(file);
  stage.As(1);
  for (const uint32_t file : {a, b}) stage.WriteThrough(file, 50, 100);
  stage.As(0);
  stage.Write(own[0], 50, 100);
  stage.As(1);
  stage.MoveThroughInVain(a);
  stage.As(0);
  stage.Die();
  stage.As(1);
  stage.Write(own[1], 10, 100);
  stage.Adopt({}, false);
  stage.Settle(b);
  stage.WritePast(b, 40, 60);
  stage.Settle(b);
  stage.Write(own[0], 30, 40);
  stage.Clean();
  return stage.Finish();
}

// ---------------------------------------------------------------------------------------------
// Creation, on a device that held a pool: its header was overwritten.

Trace Create(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  const std::string pool = MakeAgedPool(place, seed);
  {
    LogStage stage("before", place, seed, pool);
    const uint32_t a = stage.Open("a", true);
    for (uint64_t i = 0; i < 20; ++i) stage.Write(a, i * 10, 500);
    stage.Clean(3);
    stage.Finish();
  }
  std::ifstream in(pool, std::ios::binary);
  std::string old{std::istreambuf_iterator<char>(in), {}};
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

// ---------------------------------------------------------------------------------------------
// The whole engine

// Another process that uses a file, or does not.
class Neighbour {
 public:
  // Before anything is recorded. It does not use the file yet.
  Neighbour(const Place& place, const std::string& name) {
    int orders[2], answers[2];
    struct stat st = {};
    if (::pipe(orders) != 0 || ::pipe(answers) != 0 ||
        ::stat((place.disk + "/" + name).c_str(), &st) != 0) {
      throw std::runtime_error("there is no neighbour");
    }
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(orders[1]);
      ::_exit(Obey(place.memory, st, orders[0], answers[1]));
    }
    ::close(orders[0]);
    ::close(answers[1]);
    orders_ = orders[1];
    answers_ = answers[0];
  }
  ~Neighbour() {
    ::close(orders_);
    ::close(answers_);
    ::waitpid(pid_, nullptr, 0);
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  void Come() const { Order('c'); }
  void Go() const { Order('g'); }

 private:
  static int Obey(const std::string& folder, const struct stat& st, int orders, int answers) {
    constexpr uint64_t kLong = 60ull * 1000 * 1000 * 1000;
    lease::Leases leases;
    const char* why = "";
    if (!leases.Open(folder.c_str(), &why)) return 1;
    for (char order; ::read(orders, &order, 1) == 1;) {
      if (order == 'g') {
        leases.Drop(st.st_dev, st.st_ino, false);
      } else {
        leases.Share(st.st_dev, st.st_ino);
        if (leases.HeldElsewhere(st.st_dev, st.st_ino) &&
            !leases.AwaitRelease(st.st_dev, st.st_ino, kLong)) {
          return 1;
        }
      }
      if (::write(answers, &order, 1) != 1) return 1;
    }
    leases.Close();
    return 0;
  }
  void Order(char order) const {
    if (::write(orders_, &order, 1) != 1 || ::read(answers_, &order, 1) != 1) {
      throw std::runtime_error("the neighbour does not obey");
    }
  }

  pid_t pid_ = -1;
  int orders_ = -1, answers_ = -1;
};

class Program {
 public:
  struct Sizes {
    const char* batch_delay = "1";
    const char* batch_min = "8";
    uint64_t pool = pool::kMinPoolSize;
    const char* write_back = "always";
  };
  Program(const std::string& name, const Place& place, uint64_t seed)
      : Program(name, place, seed, Sizes()) {}
  Program(const std::string& name, const Place& place, uint64_t seed, const Sizes& sizes)
      : place_(place),
        random_(seed),
        capture_(*new Capture(name, seed, MakeAgedPool(place, seed, sizes.pool))) {
    std::string settings[] = {"NVCACHE_POOL=" + place.memory + "/pool",
                              "NVCACHE_EMULATE=1",
                              "NVCACHE_NOTICE=0",
                              "NVCACHE_DRAM=128k",
                              "NVCACHE_INCLUDE=*",
                              std::string("NVCACHE_WRITE_BACK=") + sizes.write_back,
                              std::string("NVCACHE_BATCH_DELAY=") + sizes.batch_delay,
                              std::string("NVCACHE_BATCH_MIN=") + sizes.batch_min};
    std::vector<char*> environment;
    for (std::string& setting : settings) environment.push_back(setting.data());
    environment.push_back(nullptr);
    vfs::engine.lease_folder = place_.memory.c_str();
    vfs::Start(test::HostOfLibcThreads(), environment.data());
  }

  // A descriptor; the file's number is files()[fd].
  int Open(const std::string& name, int flags = O_RDWR) {
    const std::string path = place_.disk + "/" + name;
    const bool exists = ::access(path.c_str(), F_OK) == 0;
    vfs::OpenGuard guard(AT_FDCWD, path.c_str(), flags, 0600);
    const long replaced = guard.Replace();
    const int fd =
        replaced != vfs::kNotOurs ? static_cast<int>(replaced) : ::open(path.c_str(), flags, 0600);
    if (fd < 0) throw std::runtime_error(path + " cannot be opened");
    auto [known, is_new] = numbers_.try_emplace(path, 0);
    if (is_new) known->second = capture_.Watch(fd, path, exists);
    files_[fd] = known->second;
    guard.Opened(fd);
    return fd;
  }
  // Opens a file that is known with O_TRUNC.
  int Cut(const std::string& name) {
    const uint32_t file = numbers_.at(place_.disk + "/" + name);
    int fd = -1;
    capture_.Do({Operation::kTruncate, file, 0, 0, 0}, "", [&] {
      const std::string path = place_.disk + "/" + name;
      vfs::OpenGuard guard(AT_FDCWD, path.c_str(), O_RDWR | O_TRUNC, 0);
      if (const long replaced = guard.Replace(); replaced != vfs::kNotOurs) {
        fd = static_cast<int>(replaced);
      } else {
        fd = ::open(path.c_str(), O_RDWR | O_TRUNC, 0);
        capture_.Cut(file);
      }
      Must(fd >= 0);
      files_[fd] = file;
      guard.Opened(fd);
    });
    return fd;
  }
  void Write(int fd, uint64_t offset, size_t n, std::mt19937_64* random) {
    const std::string bytes = RandomBytes(random, n);
    const auto kind = IsCached(fd) ? Operation::kWrite : Operation::kThrough;
    capture_.Do({kind, files_.at(fd), offset, 0, 0}, bytes, [&] {
      long r = vfs::Pwrite(fd, bytes.data(), n, static_cast<off_t>(offset));
      if (r == vfs::kNotOurs) r = sys::Pwrite(fd, bytes.data(), n, offset);
      Must(r == static_cast<long>(n));
    });
  }
  void Write(int fd, uint64_t offset, size_t n) { Write(fd, offset, n, &random_); }
  void Read(int fd, uint64_t offset, size_t n) {
    std::string bytes(n, '\0');
    vfs::Pread(fd, bytes.data(), n, static_cast<off_t>(offset));
  }
  void Sync(int fd) {
    capture_.Do({Operation::kSync, files_.at(fd), 0, 0, 0}, "", [&] {
      const long r = vfs::Fsync(fd);
      Must(r == 0 || (r == vfs::kNotOurs && sys::Fsync(fd) == 0));
    });
  }
  // In our cache; else its bytes are the kernel's.
  static bool IsCached(int fd) {
    return vfs::engine.descriptors.Of(fd)->file.load()->state.load() == vfs::State::kCached;
  }
  // Of the kernel's: all of it is on the disk, or in a log.
  static bool IsKnown(int fd) {
    struct stat st = {};
    Must(::fstat(fd, &st) == 0);
    const lease::Tally* tally = vfs::engine.tallies.Find(lease::TagOf(st.st_dev, st.st_ino));
    return tally != nullptr && lease::Tallies::StandingOf(*tally).known;
  }
  // Syncs until it is so.
  void MakeKnown(int fd) {
    for (int tries = 0; !IsKnown(fd); ++tries) {
      Must(tries < 10);
      Sync(fd);
    }
  }
  void MakeCached(int fd) {
    for (int tries = 0; !IsCached(fd); ++tries) {
      Must(tries < 1000);
      Sync(fd);
    }
  }
  void Truncate(int fd, uint64_t size) {
    capture_.Do({Operation::kTruncate, files_.at(fd), size, 0, 0}, "",
                [&] { Must(vfs::Ftruncate(fd, static_cast<off_t>(size)) == 0); });
  }
  void Punch(int fd, uint64_t offset, uint32_t n) {
    capture_.Do({Operation::kErase, files_.at(fd), offset, n, 0}, "", [&] {
      constexpr int kMode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
      const auto at = static_cast<off_t>(offset);
      const long r = vfs::Fallocate(fd, kMode, at, n);
      Must(r == 0 || (r == vfs::kNotOurs && sys::Fallocate(fd, kMode, at, n) == 0));
    });
  }
  // Another process has claimed the file when it returns: if it was cached, it is published.
  void Give(int fd, const Neighbour& neighbour) {
    capture_.Do({Operation::kPublish, files_.at(fd), 0, 0, 0}, "", [&] { neighbour.Come(); });
  }
  // The disk refuses the file's bytes, or only says so when it is to sync them. 0: not any more.
  void RefuseWrites(int fd, int error) { capture_.RefuseWrites(files_.at(fd), error); }
  void RefuseSyncs(int fd, int error) { capture_.RefuseSyncs(files_.at(fd), error); }
  // Returns when the disk has all of it.
  void AwaitDisk(int fd) {
    for (int tries = 0; vfs::Drain(fd) != 0; ++tries) Must(tries < 1000);
  }
  void Close(int fd) {
    vfs::Close(fd);
    ::close(fd);
  }
  void Drain() { vfs::DrainAll(); }
  // Gives the pool back. No file is open any more.
  void Detach() {
    capture_.Do({Operation::kClose, 0, 0, 0, 0}, "", [&] {
      vfs::TableLock lock;
      Must(vfs::engine.attachment.ReleaseAll() == 0);
      Must(!vfs::engine.attached());
    });
  }
  // The next Open() takes the pool again, which need not be clean from now on.
  void Reattach() {
    capture_.Do({Operation::kOther, 0, 0, 0, 0}, "", [] {});
  }
  std::mt19937_64& random() { return random_; }

  Trace Finish() {
    Trace trace = capture_.Finish();
    trace.FindItems();
    return trace;
  }

 private:
  static void Must(bool ok, int line = __builtin_LINE()) {
    if (ok) return;
    throw std::runtime_error("the scenario failed: a call's result is wrong in line " +
                             std::to_string(line));
  }

  const Place place_;
  std::mt19937_64 random_;
  Capture& capture_;  // the engine's threads outlive us
  std::map<std::string, uint32_t> numbers_;
  std::map<int, uint32_t> files_;
};

// Appends, overwrites, an fsync, and a clean end.
Trace Small(const Place& place, uint64_t seed) {
  Program program("small", place, seed);
  const int fd = program.Open("a", O_RDWR | O_CREAT);
  uint64_t end = 0;
  for (int i = 0; i < 12; ++i) {
    const size_t n = 1 + program.random()() % 300;
    program.Write(fd, end, n);
    end += n;
    if (i % 3 == 2) program.Write(fd, program.random()() % end, 40);
    if (i == 5) program.Sync(fd);
    if (i == 8) program.Drain();
  }
  program.Close(fd);
  program.Detach();
  program.Reattach();
  const int again = program.Open("a");
  program.Write(again, 17, 100);
  program.Write(again, end, 5000);
  return program.Finish();
}

// Write calls of several pages, with and without frames, that overlap.
Trace Groups(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 5 * kPage);
  Program program("groups", place, seed);
  const int fd = program.Open("a");
  auto& random = program.random();
  for (int i = 0; i < 40; ++i) {
    if (i % 4 == 1) program.Read(fd, random() % (8 * kPage), kPage);
    program.Write(fd, random() % (8 * kPage), 1 + random() % (6 * kPage));
    if (i % 10 == 9) program.Drain();
  }
  return program.Finish();
}

// Write calls that are too long for one group, and a file that is cut when it is opened.
Trace Split(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 100);
  MakeFile(place, "b", 3 * kPage);
  Program program("split", place, seed);
  const int a = program.Open("a");
  program.Write(a, 50, 100);
  program.Write(a, 120, 170 * kPage);
  program.Write(a, 60 * kPage, 2 * kPage);
  const int b = program.Open("b");
  program.Write(b, kPage, 500);
  program.Drain();
  program.Close(b);
  const int cut = program.Cut("b");
  program.Write(cut, 2000, 200);
  program.Write(a, 10, 90 * kPage);
  return program.Finish();
}

// All segments are taken several times, by groups of all sizes.
Trace Rounds(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 100);
  Program program("rounds", place, seed, {.batch_min = "1"});
  const int a = program.Open("a");
  const int b = program.Open("b", O_RDWR | O_CREAT);
  auto& random = program.random();
  for (int i = 0; i < 130; ++i) {
    const size_t n = i % 3 == 0 ? 1 + random() % 500 : 1 + random() % (40 * kPage / 2);
    program.Write(i % 5 == 0 ? b : a, random() % (16 * kPage), n);
  }
  return program.Finish();
}

Trace Threads(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  Program program("threads", place, seed, {.pool = kLanesPool});
  const int fds[] = {program.Open("a"), program.Open("b", O_RDWR | O_CREAT)};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed * 3 + t);
      for (int i = 0; i < 60; ++i) {
        program.Write(fds[random() % 2], random() % (4 * kPage), 1 + random() % (2 * kPage),
                      &random);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return program.Finish();
}

// New files, fsync before and after writes, files that are cut.
Trace Names(const Place& place, uint64_t seed) {
  MakeFile(place, "old", 2 * kPage);
  Program program("names", place, seed);
  const int old = program.Open("old");
  const int a = program.Open("a", O_RDWR | O_CREAT);
  const int b = program.Open("b", O_RDWR | O_CREAT);
  program.Write(a, 0, 100);
  program.Write(b, 0, 100);
  program.Write(old, 100, 100);
  program.Sync(a);
  program.Write(a, 50, 200);
  program.Truncate(old, 150);
  program.Write(old, 300, 50);
  program.Drain();
  program.Write(b, 80, 100);
  program.Truncate(a, 20);
  program.Truncate(b, 5000);
  program.Write(b, 4900, 300);
  program.Write(a, 10, 70);
  program.Sync(old);
  program.Truncate(old, 10);
  program.Sync(old);
  const int c = program.Open("c", O_RDWR | O_CREAT);
  program.Write(c, 10, 5000);
  program.Write(old, 0, 5);
  return program.Finish();
}

// Files that lose all of their bytes while some are pending, as SQLite cuts its journal; an fsync
// after that waits for nothing.
Trace Cut(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 2 * kPage);
  MakeFile(place, "b", 300);
  Program program("cut", place, seed);
  const int a = program.Open("a");
  const int b = program.Open("b");
  program.Sync(a);
  program.Write(a, 100, 100);
  program.Write(b, 10, 100);
  program.Truncate(a, 0);
  program.Sync(a);
  program.Write(b, 50, 100);
  program.Write(a, 20, 50);
  program.Write(a, kPage, 30);
  program.Drain();
  program.Write(b, 200, 20);
  program.Truncate(a, 0);
  program.Sync(a);
  program.Write(b, 100, 150);
  program.Drain();
  program.Write(a, 0, 10);
  program.Truncate(a, 0);
  program.Write(a, 5, 70);
  program.Truncate(a, 40);
  program.Write(a, 60, 10);
  const int c = program.Open("c", O_RDWR | O_CREAT);
  program.Write(c, 0, 500);
  program.Truncate(c, 0);
  program.Sync(c);
  program.Write(c, 10, 20);
  program.Truncate(b, 0);
  program.Truncate(b, 1000);
  program.Sync(b);
  program.Close(b);
  const int again = program.Cut("b");
  program.Write(again, 30, 10);
  program.Close(a);
  program.Close(c);
  program.Close(again);
  program.Detach();
  return program.Finish();
}

// Holes, more of them than the engine can have pending: some are the kernel's alone.
Trace Holes(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 4 * kPage);
  Program program("holes", place, seed, {.batch_delay = "1000", .batch_min = "1000"});
  const int a = program.Open("a");
  auto& random = program.random();
  for (uint64_t i = 0; i < 14; ++i) {
    program.Write(a, random() % (3 * kPage), 1 + random() % kPage);
    program.Punch(a, i * 700, 300);
    if (i % 5 == 4) program.Truncate(a, 3 * kPage + random() % kPage);
    if (i % 7 == 6) program.Sync(a);
  }
  program.Drain();
  program.Punch(a, 100, 2 * kPage);
  program.Write(a, kPage, 50);
  program.Truncate(a, 200);
  program.Write(a, 150, 300);
  return program.Finish();
}

// A disk that refuses what is written to one file, or loses it, and heals.
Trace Refused(const Place& place, uint64_t seed) {
  MakeFile(place, "a", 2 * kPage);
  MakeFile(place, "b", kPage);
  Program program("refused", place, seed);
  const int a = program.Open("a");
  const int b = program.Open("b");
  const int c = program.Open("c", O_RDWR | O_CREAT);
  program.Write(a, 100, 200);
  program.Write(b, 10, 100);
  program.Write(c, 20, 100);
  program.RefuseWrites(a, EIO);
  program.RefuseSyncs(c, EIO);
  program.Write(a, 50, 100);
  program.Write(c, 0, 300);
  program.Drain();
  program.Write(a, 10, kPage);
  program.Write(b, 50, 100);
  program.Write(c, 200, 300);
  program.Drain();
  // All that was kept is useless.
  program.Write(a, 0, 2 * kPage);
  program.Write(c, 0, 600);
  program.Drain();
  program.Write(c, 20, 60);
  program.RefuseWrites(a, 0);
  program.AwaitDisk(a);
  program.Write(a, 20, 100);
  program.Write(b, 20, 100);
  program.Drain();
  program.Write(a, 60, 100);
  program.Truncate(a, 100);
  program.RefuseSyncs(a, EIO);
  program.RefuseSyncs(c, 0);
  program.AwaitDisk(c);
  program.Write(c, 10, 100);
  program.Write(a, 300, 30);
  program.Drain();
  program.Write(a, 310, 30);
  program.RefuseSyncs(a, 0);
  program.AwaitDisk(a);
  program.Write(a, 90, 30);
  program.Drain();
  program.Write(a, 80, 30);
  return program.Finish();
}

// More files than are open at a time: their numbers are used again.
Trace Many(const Place& place, uint64_t seed) {
  Program program("many", place, seed);
  for (int i = 0; i < 40; ++i) {
    const int fd = program.Open("f" + std::to_string(i % 22), O_RDWR | O_CREAT);
    program.Write(fd, static_cast<uint64_t>(i), 200);
    if (i % 2 == 0) program.Write(fd, 150, 100);
    program.Close(fd);
  }
  return program.Finish();
}

// The engine and a neighbour who uses one of its files: that is write-through, and written to past
// the log; then the neighbour goes, comes again, and the file is the one and the other.
Trace Shared(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  Neighbour neighbour(place, "a");
  neighbour.Come();
  Program program("shared", place, seed, {.write_back = "auto"});
  const int a = program.Open("a");
  const int b = program.Open("b");
  program.Write(a, 5, 100);
  program.MakeCached(b);
  program.Write(b, 10, 100);
  program.MakeKnown(a);
  program.Write(a, 10, 100);
  program.Write(a, kPage - 30, 60);
  program.Sync(a);
  program.Write(a, 60, 100);
  program.Punch(a, 40, 60);
  program.Write(a, 70, 60);
  program.MakeKnown(a);
  program.Write(a, 20, 60);
  program.Drain();
  program.MakeKnown(a);
  program.Write(a, 30, 60);
  neighbour.Go();
  program.MakeCached(a);
  program.Write(a, 25, 60);
  program.Write(b, 50, 60);
  program.Write(a, 35, 60);
  program.Give(a, neighbour);
  program.Write(a, 45, 60);
  program.MakeKnown(a);
  program.Write(a, 55, 60);
  program.Write(a, 15, 30);
  program.Close(a);
  program.Close(b);
  program.Detach();
  return program.Finish();
}

// The engine has a file in its cache, and a neighbour claims it, time and again: before and after
// the checkpoint has passed what was published, and with something pending of another file.
Trace Claimed(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  const Neighbour neighbour(place, "a");
  Program program("claimed", place, seed, {.write_back = "auto"});
  const int a = program.Open("a");
  const int b = program.Open("b");
  program.MakeCached(b);
  for (int round = 0; round < 4; ++round) {
    program.MakeCached(a);
    program.Write(a, 10, 100);
    program.Write(b, 10, 50);
    program.Write(a, 60, 100);
    if (round == 3) program.Truncate(a, 130);
    program.Give(a, neighbour);
    program.Write(a, 40, 60);
    program.Write(b, 40, 50);
    if (round == 1) program.Drain();
    if (round == 2) program.Punch(a, 50, 60);
    program.Write(a, 70, 50);
    program.Sync(a);
    program.Write(a, 90, 30);
    neighbour.Go();
  }
  program.MakeCached(a);
  program.Write(a, 80, 30);
  program.Give(a, neighbour);
  program.Close(a);
  program.Close(b);
  program.Detach();
  return program.Finish();
}

// The disk loses what was published, and says so once: it is kept for recovery, and the checkpoint
// passes it.
Trace ClaimedRefused(const Place& place, uint64_t seed) {
  MakeFile(place, "a", kPage);
  MakeFile(place, "b", kPage);
  const Neighbour neighbour(place, "a");
  Program program("claimed-refused", place, seed, {.write_back = "auto"});
  const int a = program.Open("a");
  const int b = program.Open("b");
  program.MakeCached(b);
  program.MakeCached(a);
  program.Write(a, 10, 100);
  program.Write(b, 10, 50);
  program.Truncate(a, 300);
  program.Write(a, 60, 100);
  program.Give(a, neighbour);
  program.Write(a, 40, 60);
  program.RefuseSyncs(a, EIO);
  for (int i = 0; i < 3; ++i) {
    program.Write(b, 40, 50);
    program.Drain();
    program.RefuseSyncs(a, 0);
  }
  program.Write(b, 20, 30);
  return program.Finish();
}

// The same, but it loses something of another file. The one that was published is settled, and
// written to past the log.
Trace ClaimedBeside(const Place& place, uint64_t seed) {
  for (const char* name : {"a", "b"}) MakeFile(place, name, kPage);
  const Neighbour neighbour(place, "a");
  Program program("claimed-beside", place, seed, {.write_back = "auto"});
  const int a = program.Open("a");
  const int b = program.Open("b");
  program.MakeCached(b);
  program.MakeCached(a);
  program.Write(a, 10, 100);
  program.Write(a, 60, 100);
  program.Write(b, 10, 50);
  program.Give(a, neighbour);
  program.RefuseSyncs(b, EIO);
  program.Write(b, 20, 50);
  program.Drain();
  program.RefuseSyncs(b, 0);
  program.AwaitDisk(b);
  program.Write(a, 40, 60);
  program.Sync(a);
  program.Write(a, 70, 60);
  program.Write(b, 30, 50);
  program.Drain();
  program.Write(b, 20, 30);
  return program.Finish();
}

}  // namespace

std::vector<Scenario> AllScenarios() {
  std::vector<Scenario> all = {
      {"create", "a pool is made where another one was", Create, false, 0, 64, 0},
      {"tiny", "two small groups that overlap, an abandoned one, a clean end", Tiny, false, 10, 512,
       1},
      {"declared", "one file in several lanes", Declared, false, 20, 64, 2},
      {"lanes", "several files in several lanes", Lanes, true, 20, 64, 3},
      {"idle", "lanes get busy while others are written back", Idle, false, 20, 64, 2},
      {"attach", "one thread attaches the pool, another one writes", Attach, false, 20, 64, 2},
      {"numbers", "one number for one file after the other", Numbers, false, 20, 64, 3},
      {"truncated", "truncations, holes, and writes over what they leave", Truncated, true, 20, 64,
       3},
      {"away", "a file is away while its groups are recovered", Away, false, 2, 64, 2},
      {"cut-away", "a file that was cut is recovered while another one is away", CutAway, false, 2,
       64, 2},
      {"lost", "a new file that the file system may lose", Lost, true, 4, 64, 1},
      {"marked", "a new file is recovered while another one is away", Marked, true, 1, 64, 3},
      {"kept", "a disk refuses a file, and heals", Kept, false, 40, 64, 8, true},
      {"copied", "kept records are copied once more", Copied, false, 40, 64, 3},
      {"kept-new", "a disk refuses a new file, and heals", KeptNew, true, 4, 64, 2},
      {"kept-away", "kept groups are recovered while a file is away", KeptAway, false, 2, 64, 2},
      {"repair", "a clean pool with a damaged checkpoint record", Repair, false, 20, 64, 2},
      {"again", "segments are taken again", Again, false, 40, 64, 0, true},
      {"over", "groups over the end of a segment", Over, false, 60, 64, 0},
      {"given-up", "groups in new segments that are given up", GivenUp, false, 40, 64, 0},
      {"pair", "two processes by turns, who leave and come again", Pair, true, 150, 64, 60, true},
      {"passed", "segments go from one process to the other", Passed, false, 200, 64, 80, true},
      {"handed", "a file goes from one process to the other, and back", Handed, false, 150, 64, 20,
       true},
      {"orphan", "a process dies, others go on with what it had", Orphan, false, 150, 64, 50, true},
      {"orphan-found", "a process that comes finds a dead one's logs", OrphanFound, false, 150, 64,
       20, true},
      {"orphans", "the one that adopts a dead one's logs dies, too", Orphans, false, 200, 64, 30,
       true},
      {"orphan-kept", "what a dead process had kept is adopted", OrphanKept, false, 150, 64, 50,
       true},
      {"orphan-refused", "a disk refuses what is adopted", OrphanRefused, false, 150, 64, 20, true},
      {"through", "write-through by one process, whose segments are taken again", Through, false,
       200, 64, 50, true},
      {"through-pair", "two processes write through to one file by turns", ThroughPair, true, 400,
       64, 80, true},
      {"through-settled", "a write-through file is settled, and written to past the logs",
       ThroughSettled, false, 200, 64, 30, true},
      {"through-orphan", "a process dies with groups of write-through", ThroughOrphan, false, 300,
       64, 60, true},
      {"through-handed", "a file goes from write-through to write-back, and back", ThroughHanded,
       false, 200, 64, 30, true},
      {"published", "a file is published by the one process and by the other", Published, false,
       200, 64, 30, true},
      {"published-orphan", "a process dies when it publishes a file", PublishedOrphan, false, 200,
       64, 20, true},
      {"published-moved", "a file is published, and others have it when the checkpoint is moved",
       PublishedMoved, false, 200, 64, 20, true},
      {"published-again", "a process dies that has a file again which it had published",
       PublishedAgain, false, 200, 64, 20, true},
      {"published-left", "a process leaves what it has published to another one", PublishedLeft,
       false, 200, 64, 20, true},
      {"published-failed", "the disk loses what was published, and its process dies",
       PublishedFailed, false, 200, 64, 20, true},
      {"small", "small writes, fsync, a clean end, and on", Small, true, 200, 64, 20, true},
      {"names", "new files and files that are cut", Names, true, 200, 64, 20, true},
      {"cut", "files that lose all of their bytes while some are pending", Cut, true, 200, 64, 20,
       true},
      {"holes", "more holes than can be pending", Holes, false, 40, 64, 5},
      {"refused", "a disk refuses and heals, under the cleanup thread", Refused, true, 40, 64, 5},
      {"shared", "a file that a neighbour uses, under the whole engine", Shared, false, 200, 64,
       30},
      {"claimed", "a file that a neighbour claims, under the whole engine", Claimed, false, 200, 64,
       30},
      {"claimed-refused", "the disk loses what was published", ClaimedRefused, false, 200, 64, 30},
      {"claimed-beside", "the disk loses something beside what was published", ClaimedBeside, false,
       200, 64, 30},
      {"groups", "overlapping writes of several pages", Groups, false, 60, 64, 0},
      {"split", "write calls of several groups, a file that is cut", Split, false, 60, 64, 0},
      {"many", "more files than numbers that are used", Many, true, 60, 64, 0},
      {"threads", "three threads on two files", Threads, false, 60, 64, 0},
      {"rounds", "many segments with the cleanup thread at work", Rounds, false, 60, 64, 0},
  };
  const std::vector<Scenario> names = NameScenarios();
  all.insert(all.end(), names.begin(), names.end());
  return all;
}

}  // namespace nvcache::crash
