#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a call costs that is none of ours: callgrind counts the instructions of a program (others.c) that makes calls on a
device, or on a file, without the library and with it. The counts are the same in each run.

Exit code 77 without valgrind."""

import re
import shutil
import sys

import kit
from kit import Failure, check, command, skip

COUNT = 10000
# Instructions more than without the library, for each call.
MOST = {"read": 40, "write": 40, "pread": 40, "pwrite": 40, "lseek": 40, "fstat": 40, "close": 40,
        # Of what is open there, the kernel is asked whether it is a folder.
        "fsync": 250}
# The same on a file that was never synced. A write says in the leases that it is under way.
MOST_ON_FILE = {"read": 80, "pread": 80, "lseek": 80, "fstat": 80, "write": 80, "pwrite": 82}


def instructions(bench, kind, count, environment, *file):
    done = command("valgrind", "--tool=callgrind", f"--callgrind-out-file={bench.folder}/counts", bench.program, kind,
                   count, *file, env=environment)
    found = re.search(r"Collected : (\d+)", done)
    check(found, done)
    return int(found.group(1))


def each(bench, kind, environment, *file):
    some, none = (instructions(bench, kind, count, environment, *file) for count in (COUNT, 0))
    return (some - none) / COUNT


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True)
    options = parser.parse_args()
    if not shutil.which("valgrind"):
        skip("there is no valgrind")
    failed = 0
    with kit.Bench(options, size="16M", dram="1M", write_back="auto") as bench:
        bench.program = options.program
        file = bench.folder / "file"
        file.write_bytes(bytes(2 * COUNT))
        for kind, most, on in (*((*one, ()) for one in MOST.items()), *((*one, (file,)) for one in MOST_ON_FILE.items())):
            without = each(bench, kind, kit.without_nvcache(), *on)
            more = each(bench, kind, {**kit.without_nvcache(), **bench.settings(), "NVCACHE_NOTICE": "0"}, *on) - without
            where = "a file" if on else "a device"
            print(f"{kind:8} on {where:8} {without:6.1f} instructions, {more:6.1f} more with the library; {most} at most")
            failed += more > most
    sys.exit(1 if failed else 0)


try:
    main()
except Failure as failure:
    sys.exit(str(failure))
