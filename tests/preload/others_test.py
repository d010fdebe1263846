#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a call costs that is none of ours: callgrind counts the instructions of a program (others.c) that makes calls on a
device, or on a file, without the library and with it. A call's count is the same in each run. What a program does before
its calls is not (its environment and its addresses differ): a part of one instruction for each call, which is rounded away.

With commit at output, what leaves by a device asks whether something was told: nothing was.

Exit code 77 without valgrind."""

import re
import shutil
import sys

import kit
from kit import Failure, check, command, skip
from kit.journals import remove_memory

COUNT = 10000
# Instructions more than without the library, for each call.
MOST = {"read": 40, "write": 40, "pread": 40, "pwrite": 40, "lseek": 40, "fstat": 40, "close": 40,
        # Of what is open there, the kernel is asked whether it is a folder.
        "fsync": 250}
# The same on a file that was never synced. A write says in the leases that it is under way.
MOST_ON_FILE = {"read": 80, "pread": 80, "lseek": 80, "fstat": 80, "write": 80, "pwrite": 82}

# In a pool with its journal on a disk, whose syncs wait: a write looks at how it was opened.
MOST_WITH_JOURNAL = {"read": 40, "write": 52, "pwrite": 62, "close": 40}
MOST_ON_FILE_WITH_JOURNAL = {"read": 80, "write": 105, "pwrite": 110}
# Where outputs are held, more than where syncs wait.
MOST_AT_OUTPUT = dict.fromkeys(("write", "pwrite", "close", "fsync", "read"), 15)


def instructions(bench, kind, count, environment, *file):
    done = command("valgrind", "--tool=callgrind", f"--callgrind-out-file={bench.folder}/counts", bench.program, kind,
                   count, *file, env=environment)
    found = re.search(r"Collected : (\d+)", done)
    check(found, done)
    return int(found.group(1))


def each(bench, kind, environment, *file):
    some, none = (instructions(bench, kind, count, environment, *file) for count in (COUNT, 0))
    return round((some - none) / COUNT)


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True)
    options = parser.parse_args()
    if not shutil.which("valgrind"):
        skip("there is no valgrind")
    wrong = []
    with kit.Bench(options, size="16M", dram="1M", write_back="auto") as bench:
        bench.program = options.program
        file = bench.folder / "file"
        file.write_bytes(bytes(2 * COUNT))
        journals = {}
        for commit in ("fsync", "output"):
            journals[commit] = {**under(bench), "NVCACHE_POOL": str(bench.folder / commit), "NVCACHE_EMULATE": "0"}
            command(bench.nvcache, "create", bench.folder / commit, "--size", "1M", "--commit", commit)
        plain = kit.without_nvcache()
        for where, on, before, after, limits in (
                ("on a device", (), plain, under(bench), MOST), ("on a file", (file,), plain, under(bench), MOST_ON_FILE),
                ("on a device, a journal", (), plain, journals["fsync"], MOST_WITH_JOURNAL),
                ("on a file, a journal", (file,), plain, journals["fsync"], MOST_ON_FILE_WITH_JOURNAL),
                ("commit at output", (), journals["fsync"], journals["output"], MOST_AT_OUTPUT)):
            for kind, most in limits.items():
                some, more = (each(bench, kind, environment, *on) for environment in (before, after))
                print(f"{kind:8} {where:24} {some:4} instructions, {more - some:4} more; {most} at most")
                if more - some > most:
                    wrong.append(kind)
        for commit in ("fsync", "output"):
            remove_memory(bench.folder / commit)
    sys.exit(1 if wrong else 0)


def under(bench):
    return {**kit.without_nvcache(), **bench.settings(), "NVCACHE_NOTICE": "0"}


try:
    main()
except Failure as failure:
    sys.exit(str(failure))
