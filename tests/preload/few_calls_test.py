#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""few_calls.c under strace: how many system calls it takes more with NVCache than without to replace a file,
to unpack one as dpkg does, and for a transaction of SQLite that removes its journal, in a folder whose
names are in the log. Not how long they take."""

import collections
import pathlib

import kit
from kit import check, say

TURNS, FIRST = 40, 10  # by then the folder is known
# More than without NVCache, the syncs taken off that it saves.
MORE = {"replaced": 16, "unpacked": 30, "journal": 14}
TURN = 'prctl(PR_SET_NAME, "turn"'
OVER = 'prctl(PR_SET_NAME, "over"'


def least(lines):
    """The names of the calls of the turn with the fewest: every tenth of a second, one asks more about its folder."""
    thread = lines[0].split()[0]
    turns, names = [], None
    for line in lines:
        if line.split()[0] != thread or "resumed>" in line:
            continue
        if TURN in line or OVER in line:
            if names is not None:
                turns.append(names)
            names = []
        elif names is not None:
            names.append(line.split()[1].partition("(")[0])
    check(len(turns) == TURNS, f"{len(turns)} turns")
    return min(turns[FIRST:], key=len)


def run(bench, program, way, settings):
    folder = bench.folder / way / ("with" if settings else "without")
    folder.mkdir(parents=True)
    done, lines = bench.strace(bench.folder / "trace", settings, program, way, folder, TURNS)
    check(done.returncode == 0 and done.stderr == "", f"{way}: {done.stderr.strip()}")
    return least(lines)


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True, help="few_calls.c, built")
    options = parser.parse_args()
    program = pathlib.Path(options.program).resolve()
    with kit.Bench(options, size="16M", write_back="auto") as bench:
        for way, most in MORE.items():
            plain = run(bench, program, way, {})
            ours = run(bench, program, way, bench.settings(NVCACHE_NOTICE="0"))
            more = len(ours) - len(plain)
            added = collections.Counter(ours) - collections.Counter(plain)
            say(f"{way}: {more} calls more than {len(plain)}, at most {most}: {dict(added)}")
            check(not {"fsync", "fdatasync", "syncfs"} & set(ours), f"{way}: a sync is real")
            check(more <= most, f"{way}: {more} calls more than without NVCache, at most {most}")


if __name__ == "__main__":
    main()
