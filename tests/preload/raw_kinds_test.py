#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Calls past libc, of each kind, do the same with NVCache and without, and libc's sync of what they have changed is a real
one: by strace, which shows as well that a file was hot, and the folder known, until the code came that makes them.

own              the program has the code from its start; with NVCACHE_RAW=refuse it is not started
library, stub    the code comes when the file is hot; and so in other kinds of memory (raw_kinds.c)
early-library    it comes before
jit, early-jit   there is much code that is harmless: the file stays hot
trust            nobody looks (NVCACHE_RAW=trust): locks are kept all the same"""

import pathlib
import re

import kit
from kit import check, say

LOCKS = ("posix_lock", "ofd_lock", "flock")
REAL, OF_FILE, OF_FOLDER = "a real sync", "a sync of a hot file", "a sync of a known folder"
WRITE = "a write to a hot file"


def announced_calls(lines):
    """Of each that was announced: what it is, and whether it came to the kernel."""
    open_ones, found = {}, []
    for line in lines:
        thread, call = line.split(None, 1)
        announced = re.match(r'access\("(a [a-z ]*)"', call)
        if announced:
            open_ones[thread] = [announced.group(1), False]
        elif call.startswith('access("the end"'):
            found.append(tuple(open_ones.pop(thread)))
        elif call.startswith(("fsync(", "pwrite")) and thread in open_ones:
            open_ones[thread][1] = True
    check(not open_ones, f"calls without an end: {open_ones}")
    return found


def run(bench, how, program, words, settings):
    folder = bench.folder / how
    folder.mkdir()
    done, lines = bench.strace(bench.folder / f"{how}.trace", settings, program, *words, cwd=folder)
    check(done.returncode == 0, f"{how}: status {done.returncode}, {done.stderr.strip()}")
    files = {}
    for path in sorted(folder.rglob("*")):
        kind = f"mode {path.lstat().st_mode:o}, links {path.lstat().st_nlink}"
        files[str(path.relative_to(folder))] = (kind, path.read_bytes() if path.is_file() else None)
    return done.stdout, files, announced_calls(lines)


def first_difference(one, other):
    case = ""
    for a, b in zip(one.splitlines(), other.splitlines()):
        case = a if not a.startswith(" ") else case
        if a != b:
            return f"{case}: {a!r} without NVCache, {b!r} with it"
    return "one is longer"


def judge(where, expected, seen):
    check(expected[0] == seen[0], first_difference(expected[0], seen[0]))
    check("errno" not in expected[0] and "exit 0 signal 0" in expected[0], f"the program fails: {expected[0]}")
    for name, file in expected[1].items():
        check(seen[1].get(name) == file, f"{name}: {file} without NVCache, {seen[1].get(name)} with it")
    check(len(seen[1]) == len(expected[1]), f"files: {seen[1].keys()}")
    check(all(real for _, real in expected[2]), "a call without NVCache does not come to the kernel")
    counts = {}
    for what, real in seen[2]:
        counts.setdefault(what, [0, 0])[real] += 1
    if where.endswith("jit"):
        check(counts[REAL][0] > 0, f"harmless code made it the kernel's: {counts}")
    elif where != "trust":
        check(counts[REAL][0] == 0, f"{counts[REAL][0]} of {sum(counts[REAL])} syncs made no call")
    if is_raw_from_its_start(where):
        check(all(elided == 0 for elided, _ in counts.values()), f"elided in a process that makes calls past libc: {counts}")
    return counts


def is_raw_from_its_start(where):
    return where == "own" or where.startswith("early-") and where != "early-jit"


def check_hot(counts, rule):
    """The code came to files that were cached, or else write-through, and to folders whose names were in the log."""
    check(counts[OF_FILE][1] == 0, f"{counts[OF_FILE][1]} of {sum(counts[OF_FILE])} files were not hot")
    check(counts[WRITE][rule != "auto"] == 0, f"{rule}: writes are {counts[WRITE]}")
    check(rule == "always" or counts[OF_FOLDER][1] == 0, f"folders were not known: {counts[OF_FOLDER]}")


def check_refused(bench, program, words):
    settings = bench.settings(NVCACHE_RAW="refuse", NVCACHE_REQUIRED="1")
    done, _ = bench.strace(bench.folder / "refused.trace", settings, program, *words, cwd=bench.folder, may_fail=True)
    check(done.returncode == 125 and "makes system calls past libc" in done.stderr and not done.stdout,
          f"refuse: status {done.returncode}, {done.stderr}")


def test(options, where):
    program = pathlib.Path(options.program)
    words = (options.raw_library, where, *(LOCKS if where == "trust" else options.kind))
    with kit.Bench(options, size="16M", write_back=options.rule) as bench:
        more = {"NVCACHE_RAW": "trust"} if where == "trust" else {}
        expected = run(bench, "without", program, words, {})
        seen = run(bench, "with", program, words, bench.settings(NVCACHE_NOTICE="0", **more))
        counts = judge(where, expected, seen)
        if not is_raw_from_its_start(where):
            check_hot(counts, options.rule)
        if where == "own":
            check_refused(bench, program, words)
        cases = expected[0].count(" child: exit ")
        say(f"{where}: {cases} cases, {len(expected[0].splitlines())} lines and {len(expected[1])} files the same; "
            + "; ".join(f"{what}: {real} calls, {none} elided" for what, (none, real) in counts.items()))


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True, help="raw_kinds.c, built")
    parser.add_argument("--raw-library", required=True, help="raw_library.c, built")
    parser.add_argument("--rule", required=True, choices=("auto", "exclusive", "always"))
    parser.add_argument("--where", required=True, nargs="+", help="see above")
    parser.add_argument("--kind", nargs="*", default=[], help="these alone")
    options = parser.parse_args()
    for where in options.where:
        test(options, where)


if __name__ == "__main__":
    main()
