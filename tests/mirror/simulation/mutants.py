#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Breaks mirror/core in one place after the other, and has the simulation find each.

    mutants.py --root SOURCE --compiler c++ --flag=-O1 --libraries A,B --scratch DIR [--mutant NAME]

Exit status 1: a mutant was not reported, or its text is not in the source once."""

import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile

# Name, source, the seed of a run that shows it, and one or more changes of its text.
MUTANTS = [
    ("a lower epoch is promised and obeyed", "replica.cc", 3138,
     ("if (message.epoch < store_.promised()) return Refuse(connection, Refusal::kEpoch);", ""),
     ("if (message.epoch != store_.promised()) return Refuse(connection, Refusal::kEpoch);", ""),
     ("if (message.version > store_.version()) store_.SetVersion(message.version);\n  const Refusal", "const Refusal"),
     ("if (message.version > store_.version()) store_.SetVersion(message.version);\n  SayPromised",
      "SayPromised")),
    ("an old connection goes on", "replica.cc", 238,
     ("if (connection != writer_) return Refuse(connection, Refusal::kOrder);", ""),
     ("if (before != 0 && before != connection) host_.Close(before);", ""),
     ("if (answered && message.number != number_ + 1) return Refusal::kOrder;", ""),
     ("if (message.epoch != store_.promised()) return Refuse(connection, Refusal::kEpoch);", "")),
    ("a promise is answered and not stored", "replica.cc", 1,
     ("if (message.epoch > store_.promised()) store_.SetPromised(message.epoch);", ""),
     ("if (message.epoch != store_.promised()) return Refuse(connection, Refusal::kEpoch);", ""),
     ("if (message.version > store_.version()) store_.SetVersion(message.version);\n  const Refusal", "const Refusal"),
     ("if (message.version > store_.version()) store_.SetVersion(message.version);\n  SayPromised",
      "SayPromised")),
    ("a copy counts before it is whole", "replica.cc", 455, ("    if (message.whole) {", "    if (true) {")),
    ("a mark marks nothing", "replica.cc", 1,
     ("store_.Write({}, nullptr, message.epoch, message.position);", "")),
    ("acknowledged by f servers", "writer.cc", 1,
     ("positions[record.Majority() - 1]", "positions[record.Majority() - (record.Majority() > 1 ? 2 : 1)]")),
    ("new holders are not waited for", "writer.cc", 622,
     ("if (register_.wanted()) position = std::min(position, Majority(*register_.wanted()));", "")),
    ("holders change below what was acknowledged", "writer.cc", 212,
     ("if (wanted.mode == Mode::kMirrored && Majority(wanted) < published_) return;", "")),
    ("holders change before the copy", "writer.cc", 9,
     ("if (links_[i].IsFollowing()) holder.incarnation",
      "if (links_[i].stage() >= Link::Stage::kCopying) holder.incarnation"),
     ("if (wanted.mode == Mode::kMirrored && Majority(wanted) < published_) return;", "")),
    ("leaves without the disk", "writer.cc", 3, ("  if (!drained_) return;\n", "")),
    ("an old drain counts", "writer.cc", 3,
     ("if (state_ == State::kLeaving && position >= bar_) drained_ = true;", "drained_ = true;"),
     ("  drained_ = false;\n", "")),
    ("real before the record says so", "writer.cc", 1,
     ("  Change(Mode::kReal, ending_);", "  Change(Mode::kReal, ending_);\n  Enter(State::kReal, now);")),
    ("waits end while it leaves", "writer.cc", 46,
     ("if (state_ != State::kJoining && state_ != State::kMirrored) return;",
      "if (state_ == State::kReal) return;"),
     ("  if (register_.wanted()) return;\n  const bool is_mirrored", "  const bool is_mirrored")),
    ("comes back while the record becomes real", "writer.cc", 46,
     ("  if (register_.wanted()) return;\n  const bool is_mirrored", "  const bool is_mirrored")),
    ("mirrored before programs wait", "writer.cc", 2,
     ("if (!register_.wanted() && Acknowledged() > bar_) Change", "if (!register_.wanted()) Change")),
    ("mirrored before the record says so", "writer.cc", 5,
     ("if (!register_.wanted() && Acknowledged() > bar_) Change(Mode::kMirrored, false);",
      "if (!register_.wanted() && Acknowledged() > bar_) {\n"
      "    Change(Mode::kMirrored, false);\n    Enter(State::kMirrored, now);\n  }")),
    ("goes back to real while the record may be mirrored", "writer.cc", 8,
     ("  if (changes_mode_) return;\n  if (ending_", "  if (ending_")),
    ("the epoch is not a new one", "writer.cc", 82, ("  wanted.epoch += 1;", "  wanted.epoch += known ? 0 : 1;")),
    ("an unknown outcome is taken for none", "register.cc", 15,
     ("    asks_ = true;\n", "    asks_ = true;\n    if (!reached_) wanted_.reset();\n")),
    ("an outcome is believed before it is known", "register.cc", 16,
     ("  if (outcome != Outcome::kDone) {", "  if (outcome == Outcome::kConflict) {")),
    ("a link counts before its copy is whole", "link.cc", 1, ("  if (sent.whole) {", "  if (true) {")),
    ("recovery asks f servers", "recoverer.cc", 5,
     ("  if (count < register_.known()->Majority()) return;",
      "  if (count + (register_.known()->Majority() > 1 ? 1 : 0) < register_.known()->Majority()) return;")),
    ("recovery counts a server that has forgotten", "recoverer.cc", 111,
     (" && link.incarnation() == known;", ";")),
    ("recovery takes any image", "recoverer.cc", 2, ("if (best == nullptr ||", "if (best == nullptr || false &&")),
    ("recovery replays before a majority has the image", "recoverer.cc", 1,
     ("kSpreading && CountFollowing() >= register_.known()->Majority()", "kSpreading")),
    ("recovery takes no epoch", "recoverer.cc", 9, ("  wanted.epoch += 1;", "  wanted.epoch += 0;")),
    ("a pool that is being recovered comes back", "recoverer.cc", 1,
     ("  wanted.mode = Mode::kRecovering;", "  wanted.mode = Mode::kMirrored;")),
    ("files change before the record says so", "recoverer.cc", 1,
     ("  register_.Change(std::move(wanted));\n}\n\nvoid Recoverer::Replay() {",
      "  register_.Change(std::move(wanted));\n  Replay();\n}\n\nvoid Recoverer::Replay() {")),
    ("the epoch is taken before anybody was asked", "recoverer.cc", 1,
     ("CountAnswers() >= register_.known()->Majority()) TakeEpoch", "true) TakeEpoch")),
    ("the name of a mirror that lives is taken", "recoverer.cc", 1, ("  if (!lives) TakeEpoch();", "  TakeEpoch();")),
    ("the record is real before the files are", "recoverer.cc", 1,
     ("  host_.Replay();", "  host_.Replay();\n  Replayed(true);")),
]


# Within so many, each has to be reported.
MOST_RUNS = 20000


def mutated(source, changes):
    text = source.read_text()
    for before, after in changes:
        if text.count(before) != 1:
            raise ValueError(f"{source.name} has {text.count(before)} times: {before}")
        text = text.replace(before, after)
    return text


def look_at(mutant, options, scratch):
    """Whether it was reported, and what there is to say. It is run from its seed on."""
    name, file, shown_at, *changes = mutant
    source = options.root / "mirror/core" / file
    folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    (folder / file).write_text(mutated(source, changes))
    explorer = folder / "explorer"
    subprocess.run([options.compiler, "-std=c++20", *options.flag, "-w", f"-I{options.root}", folder / file,
                    *options.libraries.split(","), "-o", explorer], check=True)
    run = subprocess.run([explorer, "--seed", str(shown_at), "--runs", str(MOST_RUNS)], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, check=False)
    explorer.unlink()
    line = (run.stdout + run.stderr).partition("\n")[0] or f"ended with status {run.returncode}"
    seed = re.match(r"seed (\d+): ", line)
    if not seed:
        return False, f"{name}: NOT REPORTED: {line}"
    if int(seed[1]) != shown_at:
        line += f"\n{name}: shows at seed {shown_at} no more: write {seed[1]} down"
    return True, f"{name}: {line}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--flag", action="append", default=[])
    parser.add_argument("--libraries", required=True)
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--mutant", help="this one only")
    options = parser.parse_args()
    wanted = [each for each in MUTANTS if options.mutant in (None, each[0])]
    missed = 0
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for reported, lines in pool.map(lambda each: look_at(each, options, scratch), wanted):
                print(lines, flush=True)
                missed += not reported
    print(f"{len(wanted) - missed} of {len(wanted)} mutants were reported")
    return 1 if missed or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
