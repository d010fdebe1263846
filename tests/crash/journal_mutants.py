#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Planted bugs in the journal of level `disk` (docs/disk.md): for each of its rules one that breaks it, and the unit test
that must fail then.

    journal_mutants.py make SOURCES FOLDER    # copies of the engine's files, with all of them
    journal_mutants.py run PROGRAM [MUTANT]   # the unit tests with these copies: none has failed without a mutant,
                                              # and each mutant is found

The copies are compiled once. In each, MUTANT stands for whether it is this one's turn, which NVCACHE_TEST_MUTANT says when
the program runs. Text that the engine does not have any more ends the build."""

import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys

LEADER, JOURNAL = "src/pool/journal_leader.cc", "src/pool/journal.cc"
RING, BATCH, CUT = "src/journal/ring.cc", "src/journal/batch.cc", "src/nvlog/cut.cc"
MOVED = "src/replay/moved.cc"
NAMES = "src/replay/names.cc"
FILES = (LEADER, JOURNAL, RING, BATCH, CUT, MOVED, NAMES)
DIES, MOMENT = "JournalLeaderTest.DiesAtAnyInstruction", "JournalLeaderTest.OneMomentAtAnyInstruction"
BY_HANDLE = "ByHandle/MovedNamesReplayTest."
ORDER = "JournalLeaderTest.TheHeaderIsInOrderAtAnyInstruction"
LARGE = "LargeJournalLeaderTest.DiesInRoundsThatTakeEverything"
SECONDS = 120

# What it does: file, test, and what is there instead of what.
MUTANTS = {
    "a round is acknowledged before its write has returned": (LEADER, DIES, [
        ("  if (!nothing && !WriteWords())", "  if (MUTANT) Of(c.done).store(round);\n  if (!nothing && !WriteWords())")]),
    "the bound is read after the marks": (LEADER, MOMENT, [
        ("  MakeRoom();\n", "  MakeRoom();\n  if (MUTANT && cut == 0) bound_ = words().next();\n")]),
    "marks are cleared, and lines copied, before the list is written": (LEADER, DIES, [
        ("  Of(list[entry].bits).store(list[entry].bits | bits);\n", "  if (!MUTANT) Of(list[entry].bits).store(list[entry].bits | bits);\n"),
        ("  batch_.AddMarked(memory_.base(), word * kWordLines, bits);\n",
         "  batch_.AddMarked(memory_.base(), word * kWordLines, bits);\n"
         "  if (MUTANT) Of(memory_.taken()[Of(control().taken).load() - 1].bits).store(bits);\n")]),
    "the header is looked at once": (LEADER, ORDER, [
        ("    more = marks.TakeWord(0, kHeaderBits);\n", "    more = MUTANT ? 0 : marks.TakeWord(0, kHeaderBits);\n")]),
    "the header is looked at first": (LEADER, ORDER, [
        ("  return WriteHeader() && WriteBatch(journal::kEndsRound);", "  return (MUTANT || WriteHeader()) && WriteBatch(journal::kEndsRound);"),
        ("bool JournalLeader::WriteWords() {\n  batch_.Begin();\n",
         "bool JournalLeader::WriteWords() {\n  batch_.Begin();\n  if (MUTANT && !WriteHeader()) return false;\n")]),
    "what is marked of the header alone is left": (LEADER, "JournalLeaderTest.TheHeaderAlone", [
        ("word_count_ == 0 && header_ == 0", "word_count_ == 0 && (MUTANT || header_ == 0)")]),
    "the list is emptied before the write": (LEADER, DIES, [
        ("  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);\n  if (const long error = journal::Write(",
         "  if (MUTANT) Of(c.taken).store(0);\n"
         "  const uint64_t begin = sys::Now(CLOCK_MONOTONIC);\n  if (const long error = journal::Write(")]),
    "what a dead leader had taken is not marked again": (LEADER, "JournalLeaderTest.TakesOverFromADeadOne", [
        ("  for (uint32_t i = 0; i < taken; ++i) {\n", "  for (uint32_t i = 0; i < taken && !MUTANT; ++i) {\n")]),
    "the upper levels of marks stay as a dead leader left them": (LEADER, "JournalLeaderTest.TakesOverFromADeadOne", [
        ("  memory_.marks().SetAllAbove();", "  if (!MUTANT) memory_.marks().SetAllAbove();")]),
    "what is needed is not marked again": (LEADER, "JournalLeaderTest.NeverLosesWhatIsNeeded", [
        ("    next.next_line = NextNeeded(next.next_line);", "    next.next_line = MUTANT ? end : NextNeeded(next.next_line);")]),
    "a half says that it has all before it has": (LEADER, "JournalLeaderTest.NeverLosesWhatIsNeeded", [
        ("  if (ends && next.next_line >=", "  if (ends && MUTANT) next.is_whole = 1;\n  if (ends && next.next_line >=")]),
    "no room is kept for a round that takes everything": (LEADER, "JournalLeaderTest.ManyLinesInATightRing", [
        (">= wanted + RoundBytes(memory_.pool_size())) return;",
         ">= wanted + (MUTANT ? 0 : RoundBytes(memory_.pool_size()))) return;")]),
    "who comes when a round has begun is served by it": (LEADER, "JournalLeaderTest.WhoComesInARoundWaitsForTheNext", [
        ("  const uint64_t wanted = Of(control().begun).load() + 1;",
         "  const uint64_t wanted = Of(control().begun).load() + (MUTANT && Of(control().leads).load() != 0 ? 0 : 1);")]),
    "a bound without lines is not written": (LEADER, "JournalLeaderTest.ABoundIsWrittenWithoutLines", [
        ("&& quiet != 0 && cut == 0;", "&& (MUTANT || quiet != 0) && cut == 0;")]),
    "a failed write is tried again": (LEADER, "JournalLeaderTest.AFailedWriteIsNotTriedAgain", [
        ("Of(control().failed).load() == 0 &&", "(MUTANT || Of(control().failed).load() == 0) &&")]),
    "a journal that has failed is left by the one who failed it alone": (
        LEADER, "JournalLeaderTest.IsLeftWhereverTheOneDiesWhoFailsIt", [
            ("  return done ? Outcome::kLed : Leave();", "  return done ? Outcome::kLed : MUTANT ? Outcome::kFailed : Leave();")]),
    "a journal fails again": (LEADER, "JournalLeaderTest.FailsOnce", [
        ("compare_exchange_strong(none, number)) return false;", "compare_exchange_strong(none, number) && !MUTANT) return false;"),
        ("  words().ChangeState(kMirrorMirrored, kMirrorLeaving);", "  if (MUTANT) words().SetState(kMirrorLeaving);\n  words().ChangeState(kMirrorMirrored, kMirrorLeaving);")]),
    "a size limit that falls within a round fails the journal": (LEADER, "JournalLeaderTest.IsUnableWhereverItsSizeLimitFalls", [
        ("return MayWrite() ? Fail(error)", "return MayWrite() || MUTANT ? Fail(error)")]),
    "a size limit that falls within a round kills the program": (LEADER, "JournalLeaderTest.IsUnableWhereverItsSizeLimitFalls", [
        ("  sys::SignalsBlocked::Drop(SIGXFSZ);", "  if (!MUTANT) sys::SignalsBlocked::Drop(SIGXFSZ);")]),
    "a dead leader's batches stay in the way": (LEADER, LARGE, [
        ("    if (HasUnended() && !GoBack()) return false;", "    if (!MUTANT && HasUnended() && !GoBack()) return false;")]),
    "what a dead leader has written is not marked again": (LEADER, LARGE, [
        ("    memory_.marks().Set(pieces[i].line, pieces[i].count);", "    if (!MUTANT) memory_.marks().Set(pieces[i].line, pieces[i].count);")]),
    "a dead leader's batches are erased in their order": (LEADER, LARGE, [
        ("    if (!Erase(places[--count].word)) return false;", "    if (!Erase(places[MUTANT ? ++erased : count - 1].word)) return false;\n    --count;"),
        ("  journal::BatchHeader header, first = {};", "  uint64_t erased = 0;\n  journal::BatchHeader header, first = {};")]),
    "a dead leader's last batch is not erased": (LEADER, LARGE, [
        ("  if (end.place < end.half_end && !Erase(end.place))", "  if (!MUTANT && end.place < end.half_end && !Erase(end.place))")]),
    "a dead leader's batches are not erased": (LEADER, LARGE, [
        ("  while (count > 1) {", "  while (count > 1 && !MUTANT) {")]),
    "a round that was acknowledged is one that was not ended": (LEADER, LARGE, [
        ("  if (!nothing) Of(c.round).store(position().place);", "  if (!nothing && !MUTANT) Of(c.round).store(position().place);")]),
    "a pool that is being recovered has a bound of its own": (LEADER, "JournalLeaderTest.TheCutStaysTheBound", [
        ("  bound_ = cut != 0 ? cut : next;", "  bound_ = cut != 0 && !MUTANT ? cut : next;")]),
    "a torn batch is believed": (BATCH, "RingTest.ATornTailIsNothing", [
        ("  if (header.body_crc != BodyCrc(", "  if (!MUTANT && header.body_crc != BodyCrc(")]),
    "a line is copied while somebody stores to it": (BATCH, "BatchTest.ALineIsOfOneMoment", [
        ("  } while (std::memcmp(", "  } while (!MUTANT && (std::memcmp("),
        ("sizeof(first)) != 0 || again != first);", "sizeof(first)) != 0 || again != first));")]),
    "another journal's batches are believed": (BATCH, "RingTest.AnotherJournalsBatchesAreNothing", [
        ("         header.crc == sys::Crc32c(&header, kChecked, seed) &&",
         "         (MUTANT || header.crc == sys::Crc32c(&header, kChecked, seed)) &&")]),
    "the other half may end with any batch": (RING, "RingTest.TheOtherHalfEndsWithTheOneBefore", [
        ("older.last.sequence + 1 == newer.first.sequence", "(MUTANT || older.last.sequence + 1 == newer.first.sequence)"),
        ("older.last.body_crc == newer.first.previous", "(MUTANT || older.last.body_crc == newer.first.previous)")]),
    "the other half may end with another batch of that number": (RING, "RingTest.TheOtherHalfEndsWithTheOneBefore", [
        ("older.last.body_crc == newer.first.previous", "(MUTANT || older.last.body_crc == newer.first.previous)")]),
    "a round that is not whole is applied": (RING, "RingTest.ARoundCountsWhenItIsWhole", [
        ("  Walk(last, newer.rounds, apply);", "  Walk(last, MUTANT ? newer.batches : newer.rounds, apply);")]),
    "a broken batch before a whole one is no damage": (RING, "RingTest.ABrokenOneBeforeAWholeOneIsDamage", [
        ("  if (HasLater(newer.end, End(last), torn))", "  if (!MUTANT && HasLater(newer.end, End(last), torn))")]),
    "batches of an earlier life are witnesses of damage": (RING, "RingTest.AnEarlierLifeIsNoWitness", [
        ("header.life == life_ &&", "(MUTANT || header.life == life_) &&")]),
    # Either of the two is enough.
    "what an earlier life wrote in a round without an end counts by its number": (RING, "RingTest.AnEarlierLifeHadWrittenMore", [
        ("    const bool is_left = header.sequence", "    const bool is_left = !MUTANT && header.sequence"),
        ("  if (one.life != zero.life)", "  if (one.life != zero.life && !MUTANT)")]),
    "what a dead leader wrote is between the halves": (RING, "RingTest.ABatchThatWasWrittenAgainInTheOtherHalf", [
        ("  if (newer.begins && older.begins &&", "  if (!MUTANT && newer.begins && older.begins &&")]),
    "of two halves that end with one number, the first is the newer": (RING, "RingTest.ARoundThatWasWrittenAgainInTheOtherHalf", [
        ("  return halves[1].first.sequence > halves[0].first.sequence;", "  return !MUTANT && halves[1].first.sequence > halves[0].first.sequence;")]),
    "what a life began with may be gone": (RING, "RingTest.WhatALifeBeganWithIsNotTorn", [
        ("at.round.sequence + 1 < first_)", "(!MUTANT && at.round.sequence + 1 < first_))")]),
    "groups from the bound on are applied": (CUT, "JournalPoolTest.GroupsFromTheBoundOnAreNotApplied", [
        ("void CutFrom(const pool::View& view, Lsn cut) {\n", "void CutFrom(const pool::View& view, Lsn cut) {\n  if (MUTANT) return;\n")]),
    "memory of another boot is believed": (JOURNAL, "JournalPoolTest.MemoryOfAnotherBootIsNotBelieved", [
        ("      std::memcmp(control.boot, boot, sizeof(boot)) == 0;", "      (MUTANT || std::memcmp(control.boot, boot, sizeof(boot)) == 0);")]),
    "memory of another run is believed": (JOURNAL, "JournalPoolTest.MemoryOfAnotherRunIsNotBelieved", [
        ("      std::memcmp(control.run, header.run, sizeof(header.run)) == 0 &&",
         "      (MUTANT || std::memcmp(control.run, header.run, sizeof(header.run)) == 0) &&")]),
    "a void journal is read": (JOURNAL, "JournalPoolTest.AVoidJournalIsNotRead", [
        ("*memory == -ENOENT && header_.is_void != 0)", "*memory == -ENOENT && header_.is_void != 0 && !MUTANT)")]),
    # The file systems may be ahead of the logs.
    "a file that has moved is not looked for": (MOVED, BY_HANDLE + "AFileWasMoved/0", [
        ("  if (!AnyElsewhere() ||", "  if (MUTANT || !AnyElsewhere() ||")]),
    "folders are looked through in their order alone": (MOVED, BY_HANDLE + "AFolderWasMovedIntoALaterOne/0", [
        ("  } while (again);", "  } while (again && !MUTANT);")]),
    "a call that was announced counts as one that the logs do not have": (MOVED, BY_HANDLE + "ALinkWasAnnouncedAndARenameBeforeItIsLost/0", [
        ("  if (open_ == nvlog::kNoPlace) return;", "  if (open_ == nvlog::kNoPlace || MUTANT) return;")]),
    "what was announced alone is not looked for": (MOVED, BY_HANDLE + "ARenameWasAnnouncedAndTheFileIsElsewhere/0", [
        ("  if (open_ != nvlog::kNoPlace) return true;", "  if (open_ != nvlog::kNoPlace && !MUTANT) return true;")]),
    "nor found": (MOVED, BY_HANDLE + "ARenameWasAnnouncedAndTheFileIsElsewhere/0", [
        ("|| IsAnnounced(number_of_file);", "|| (IsAnnounced(number_of_file) && !MUTANT);")]),
    "a file that was to be replaced is not found": (MOVED, BY_HANDLE + "ARenameWasAnnouncedAndTheOtherFileMoved/0", [
        (" || open_change_.other == who);", " || (open_change_.other == who && !MUTANT));")]),
    "an announced rename was not made": (MOVED, BY_HANDLE + "ARenameWasAnnouncedAndMade/0", [
        ("  return (open_is_new_ &&", "  return (!MUTANT && open_is_new_ &&")]),
    "a name of before shows that a rename was made": (MOVED, BY_HANDLE + "ARenameWasAnnouncedToANameOfBefore/0", [
        ("open_is_new_", "(MUTANT || open_is_new_)")]),
    "half of a rename shows that it was made": (MOVED, BY_HANDLE + "ARenameWasAnnouncedAndHalfMade/0", [
        (" && !LeadsTo(change.from, change.who)) ||", " && (MUTANT || !LeadsTo(change.from, change.who))) ||")]),
    "what came after an announced rename shows nothing": (MOVED, BY_HANDLE + "ARenameWasAnnouncedAndTheFileMovedOn/0", [
        ("  if (HasCome(change.who, kNobody)) return true;", "  if (HasCome(change.who, kNobody) && !MUTANT) return true;")]),
    "nor does a file that has come to its old name": (MOVED, BY_HANDLE + "ARenameWasAnnouncedAndAnotherFileHasTheOldName/0", [
        ("|| HasCome(occupant.who, number);", "|| (HasCome(occupant.who, number) && !MUTANT);")]),
    "a file that is nowhere is missed, though nothing waits for it": (MOVED, BY_HANDLE + "AFileIsNowhereOfWhichThereAreNamesAlone/0", [
        ("  return !who.is_folder && !who.is_described &&", "  return !MUTANT && !who.is_folder && !who.is_described &&")]),
    "a file of which there are bytes is not missed": (MOVED, BY_HANDLE + "ADiskThatIsTooOld/0", [
        ("!who.is_described", "(MUTANT || !who.is_described)")]),
    "a rename over a file that is lost was made only where it shows": (NAMES, BY_HANDLE + "ARenameWasAnnouncedOverAnOldFileAndTheNewOneMovedBack/0", [
        ("(removes || IsOfMirror() || LeadsTo", "(removes || (IsOfMirror() && !MUTANT) || LeadsTo")]),
    "each name of a file is one that the logs lack": (MOVED, BY_HANDLE + "AFileWithNamesThatNoLogKnows/0", [
        ("(who.has_others || !has_last)", "((who.has_others && !MUTANT) || !has_last)")]),
    "a name that was replaced is the file's that the logs have for it": (MOVED, BY_HANDLE + "AFileWithNamesThatNoLogKnowsHasReplacedOne/0", [
        ("  const bool replaces = spot != kNobody &&", "  const bool replaces = !MUTANT && spot != kNobody &&")]),
    "a name that the logs know is found again": (MOVED, BY_HANDLE + "TheFileSystemIsBehind/0", [
        ("  if (spot != kNobody && HasTie(spot, number_of_file)) return false;", "  if (spot != kNobody && HasTie(spot, number_of_file) && !MUTANT) return false;")]),
    "a file from before the logs came when it was last changed": (MOVED, BY_HANDLE + "AnOlderFileThatTheLogsKnowHasTheName/0", [
        ("      who.born != nvlog::kNoPlace ?", "      MUTANT || who.born != nvlog::kNoPlace ?")]),
    "one that was moved before keeps its name from an older one": (MOVED, BY_HANDLE + "TheReplacedFileIsYoungerAndWasMovedBefore/0", [
        (" && !IsElsewhere(last - 1)", " && (MUTANT || !IsElsewhere(last - 1))")]),
    "one that has a name of before counts as moved": (MOVED, BY_HANDLE + "TheFileSystemIsBehindAndAnOlderFileHasTheName/0", [
        ("return IsFound(who) && !HasName(who, false);", "return IsFound(who) && (MUTANT || !HasName(who, false));")]),
    "a file loses the names that it has kept": (MOVED, BY_HANDLE + "ALinkWasMadeAndAnotherFileMoved/0", [
        (" && !LeadsTo(spot, tie.who)) Take", " && (MUTANT || !LeadsTo(spot, tie.who))) Take")]),
    "a file that is older than the one of the logs takes its name": (MOVED, BY_HANDLE + "AnOlderFileThatTheLogsKnowHasTheName/0", [
        ("    if (tie.came < BirthOf(", "    if (!MUTANT && tie.came < BirthOf(")]),
    "a file keeps the names that it has not": (MOVED, BY_HANDLE + "AFileWasMoved/0", [
        ("    if (spots_[spot].last == tie.who + 1 &&", "    if (!MUTANT && spots_[spot].last == tie.who + 1 &&")]),
    "any other file takes a name": (MOVED, BY_HANDLE + "AnOlderFileHasTheName/0", [
        ("  if (occupant.born <", "  if (!MUTANT && occupant.born <")]),
    "a file older than others takes a name": (MOVED, BY_HANDLE + "AFileOlderThanOthersHasTheName/0", [
        ("std::max(newest_, BirthOf(who.", "std::max(MUTANT ? 0 : newest_, BirthOf(who.")]),
    "one that no log knows replaces nothing": (MOVED, BY_HANDLE + "AFileWasRemovedAndAnotherOneHasItsName/0", [
        ("  if (!spot.is_final || spot.last == 0) return;", "  if (!spot.is_final || spot.last == 0 || MUTANT) return;")]),
    "a file that has a name of before counts as replaced": (MOVED, BY_HANDLE + "TheFileSystemIsBehindAndAnotherOneHasTheName/0", [
        ("  if (!HasName(spot.last - 1, false)) Lose", "  if (MUTANT || !HasName(spot.last - 1, false)) Lose")]),
    "a replaced file that is somewhere is gone": (MOVED, BY_HANDLE + "TheReplacedFileHasItsFirstNameAgain/0", [
        ("&& IsNowhere(who);", "&& (MUTANT || IsNowhere(who));")]),
    "a replaced file with another name is gone": (MOVED, BY_HANDLE + "TheReplacedFileHadAnotherNameThatIsLost/0", [
        ("  return !whos_[who].has_others && !HasLast(who) &&", "  return !whos_[who].has_others && (MUTANT || !HasLast(who)) &&")]),
    "one with names that no log knows is gone": (MOVED, BY_HANDLE + "AnotherFileHasANameOfOneWithNamesThatNoLogKnows/0", [
        ("  return !whos_[who].has_others", "  return (MUTANT || !whos_[who].has_others)")]),
    "a replaced file is not gone": (MOVED, BY_HANDLE + "AFileWasReplaced/0", [
        ("    if (marks_[i].has_lost && IsLost(i)) whos_[i].gone = true;", "    if (marks_[i].has_lost && IsLost(i) && !MUTANT) whos_[i].gone = true;")]),
    "a file without records of names is not replaced": (MOVED, BY_HANDLE + "AFileWithoutRecordsOfNamesWasReplaced/1", [
        ("      return LeadsTo(tie.spot, tie.who);", "      return !MUTANT && LeadsTo(tie.spot, tie.who);")]),
    "a file that is younger than a move was replaced by it": (MOVED, BY_HANDLE + "AFileWithoutRecordsOfNamesIsYoungerThanTheOneThatHasItsPath/1", [
        ("    if (tie.came == 0 || tie.came < born) continue;", "    if (tie.came == 0 || (tie.came < born && !MUTANT)) continue;")]),
}
DECLARATION = 'extern "C" int nvcache_test_mutant;\n'
MAIN = """#include <cstdlib>
extern "C" {
int nvcache_test_mutant = std::getenv("NVCACHE_TEST_MUTANT") ? std::atoi(std::getenv("NVCACHE_TEST_MUTANT")) : 0;
}
"""


def make(sources, folder):
    texts = {name: (sources / name).read_text() for name in FILES}
    for number, (what, (name, _, changes)) in enumerate(MUTANTS.items(), 1):
        for old, new in changes:
            if texts[name].count(old) != 1:
                sys.exit(f"{name} has this {texts[name].count(old)} times, for the mutant that {what}:\n{old}")
            texts[name] = texts[name].replace(old, new.replace("MUTANT", f"(nvcache_test_mutant == {number})"))
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / pathlib.Path(name).name).write_text(f'{DECLARATION}#line 1 "{sources / name}"\n{text}')
    (folder / "mutant.cc").write_text(MAIN)


def play(program, number, tests):
    """Exit code, None if it does not end, and output."""
    process = subprocess.Popen([program, f"--gtest_filter={tests}"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, start_new_session=True,
                               env={**os.environ, "NVCACHE_TEST_MUTANT": str(number)})
    try:
        output, _ = process.communicate(timeout=SECONDS)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its children, too
        output, _ = process.communicate()
        return None, output


def is_found(program, number, what):
    test = MUTANTS[what][1]
    code, output = play(program, number, test)
    return code == 1 and f"[  FAILED  ] {test}" in output, f"exit code {code}\n{output}"


def run(program, wanted):
    chosen = {what: number for number, what in enumerate(MUTANTS, 1) if not wanted or wanted in what}
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        none = pool.submit(play, program, 0, ":".join({MUTANTS[what][1] for what in chosen}))
        results = {what: pool.submit(is_found, program, number, what) for what, number in chosen.items()}
    code, output = none.result()
    if "[  SKIPPED ]" in output:
        print(output)
        return 77
    wrong = code != 0
    print(output if wrong else f"[ OK   ] none: {len({MUTANTS[what][1] for what in chosen})} tests find nothing")
    for what, result in results.items():
        found, text = result.result()
        wrong |= not found
        print(f"[ {'OK  ' if found else 'FAIL'} ] {what}" + ("" if found else f": not found\n{text}"))
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
    else:
        sys.exit(run(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else ""))
