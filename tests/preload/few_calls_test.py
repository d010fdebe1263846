#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""few_calls.c under strace: how many system calls it takes more with NVCache than without to replace a file,
to unpack one as dpkg does, and for a transaction of SQLite that removes its journal, in a folder whose
names are in the log. Not how long they take. With a journal on a disk, a file that is appended to and synced: no look at
the times of a file, for each would cost the disk a write (docs/limits.md).

Exit code 77 where no journal can lie."""

import collections
import pathlib
import re

import kit
from kit import check, command, say
from kit.journals import remove_memory

TURNS, FIRST = 40, 10  # by then the folder is known
# More than without NVCache, the syncs taken off that it saves.
MORE = {"replaced": 16, "unpacked": 30, "journal": 14}
TURN = 'prctl(PR_SET_NAME, "turn"'
OVER = 'prctl(PR_SET_NAME, "over"'


LOOKS = re.compile(r"(fstat|newfstatat)\(|statx\(.*(STATX_(ALL|BASIC_STATS)|STATX_[MC]TIME)")


def turns_of(lines):
    """The calls of each turn, but for the first ones'."""
    thread = lines[0].split()[0]
    turns, calls = [], None
    for line in lines:
        if line.split()[0] != thread or "resumed>" in line:
            continue
        if TURN in line or OVER in line:
            if calls is not None:
                turns.append(calls)
            calls = []
        elif calls is not None:
            calls.append(line.split(maxsplit=1)[1])
    check(len(turns) == TURNS, f"{len(turns)} turns")
    return turns[FIRST:]


def run(bench, program, way, settings):
    folder = bench.folder / way / ("with" if settings else "without")
    folder.mkdir(parents=True)
    done, lines = bench.strace(bench.folder / "trace", settings, program, way, folder, TURNS)
    check(done.returncode == 0 and done.stderr == "", f"{way}: {done.stderr.strip()}")
    return turns_of(lines)


def least(turns):
    """The names of the calls of the turn with the fewest: every tenth of a second, one asks more about its folder."""
    return [call.partition("(")[0] for call in min(turns, key=len)]


def look_at_no_times(bench, program):
    pool = bench.folder / "pool"
    command(bench.nvcache, "create", pool, "--size", "4M")
    try:
        turns = run(bench, program, "appended", bench.settings(NVCACHE_POOL=str(pool), NVCACHE_EMULATE="0", NVCACHE_NOTICE="0"))
    finally:
        remove_memory(pool)
    found = [call for turn in turns for call in turn if LOOKS.match(call)]
    rounds = sum(call.startswith("pwritev2(") for turn in turns for call in turn)
    check(rounds >= len(turns), f"{rounds} rounds of {len(turns)} turns")
    # Now and then, one looks whether somebody has changed the file.
    check(len(found) <= len(turns) // 10, f"{len(found)} looks at times in {len(turns)} turns: {found[:3]}")


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True, help="few_calls.c, built")
    options = parser.parse_args()
    program = pathlib.Path(options.program).resolve()
    with kit.Bench(options, size="16M", write_back="auto") as bench:
        for way, most in MORE.items():
            plain = least(run(bench, program, way, {}))
            ours = least(run(bench, program, way, bench.settings(NVCACHE_NOTICE="0")))
            more = len(ours) - len(plain)
            added = collections.Counter(ours) - collections.Counter(plain)
            say(f"{way}: {more} calls more than {len(plain)}, at most {most}: {dict(added)}")
            check(not {"fsync", "fdatasync", "syncfs"} & set(ours), f"{way}: a sync is real")
            check(more <= most, f"{way}: {more} calls more than without NVCache, at most {most}")
        look_at_no_times(bench, program)


if __name__ == "__main__":
    main()
