#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A program the file of whose library is cut, written over or replaced by another one does the same with NVCache and without,
also where the library has no pool. A library whose code is gone makes the process one that calls past libc, before its first
file is hot; what was looked at before stays as it is."""

import pathlib
import shutil

import kit
from kit import check, say

UNSEEN = "(code that cannot be looked at)"


def run(bench, options, case, settings):
    folder = bench.folder / "-".join(case)
    (folder / "files").mkdir(parents=True)
    library = folder / pathlib.Path(options.needed).name
    shutil.copy(options.needed, library)
    settings = {**settings, "LD_LIBRARY_PATH": folder}
    done, lines = bench.strace(folder / "trace", settings, options.program, library, *case[:2], options.loaded,
                               cwd=folder / "files", may_fail=True)
    check(done.returncode == 0, f"{case}: status {done.returncode}, {done.stderr}")
    calls = [line.split(None, 1)[1] for line in lines]
    elided = []
    for index, call in enumerate(calls):
        if call.startswith('access("a sync of a hot file"'):
            elided.append(not any(c.startswith("fsync(") for c in calls[index:calls.index(next(
                c for c in calls[index:] if c.startswith('access("the end"')), index)]))
    return done.stdout, elided, done.stderr


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True, help="replaced.c, built")
    parser.add_argument("--needed", required=True, help="replaced_library.c, built: the library that the program needs")
    parser.add_argument("--loaded", required=True, help="one that needs nothing")
    options = parser.parse_args()
    with kit.Bench(options, size="16M", write_back="auto") as bench:
        for how in ("renamed", "zeros", "cut"):
            for when in ("early", "late"):
                expected = run(bench, options, (how, when, "without"), {})
                seen = run(bench, options, (how, when, "with"), bench.settings(NVCACHE_NOTICE="all"))
                off = run(bench, options, (how, when, "off"), {**bench.settings(NVCACHE_NOTICE="0"), "NVCACHE_POOL": "/none/pool"})
                check(expected[0] == seen[0] == off[0], f"{how}, {when}: {seen[0]}\ninstead of\n{expected[0]}")
                check(not any(expected[1]) and not any(off[1]), f"{how}, {when}: elided without a pool")
                gone = how == "cut"
                # What is loaded last has all looked at once more.
                first, last = seen[1][0], seen[1][-1]
                check(first == (when == "late" or not gone) and last == (not gone), f"{how}, {when}: elided are {seen[1]}")
                check((UNSEEN in seen[2]) == gone, f"{how}, {when}: {seen[2]}")
        say("six cases the same")


if __name__ == "__main__":
    main()
