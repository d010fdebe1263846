#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A program that locks its memory does not lock the engine's, and what it locks is locked.

  locked_memory_test.py --program LOCKED_MEMORY --scratch FOLDER [--library LIBNVCACHE]

Each case of locked_memory.c without and with NVCACHE, by name and by number: the same answers, the
same memory of the program's there, and no more than MORE KiB locked besides. Without --library the
program has NVCACHE built in.
"""

import argparse
import os
import pathlib
import subprocess
import sys

import kit

CURRENT, FUTURE, ON_FAULT = 1, 2, 4
FLAGS = {"CURRENT": CURRENT, "FUTURE": FUTURE, "both": CURRENT | FUTURE,
         "both on fault": CURRENT | FUTURE | ON_FAULT}
# The library's own code and data, libpmem's, the stacks of the engine's threads.
MORE = 4 << 10  # KiB
# Of the file of leases: what the processes of one user take, of which others may come just now.
LEASES = 4 << 10  # KiB


def run(arguments, cached, by_number, case):
    environment = kit.without_nvcache()
    if by_number:
        environment["BY_NUMBER"] = "1"
    # The frames and the tables of the pool that the program could lock, if they were its own.
    with kit.Bench(arguments, size="64M") as bench:
        if cached:
            environment |= bench.settings(arguments.preloaded, NVCACHE_NOTICE="0")
        done = subprocess.run([str(arguments.program), str(bench.folder), *case], env=environment,
                              timeout=120, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"exit {done.returncode}: {done.stdout}{done.stderr}", None
        if cached and not bench.pool.exists():
            return "no pool was made: the cache stayed off", None
    answers, _, numbers = done.stdout.partition("KiB: ")
    return answers, [int(number) for number in numbers.split()]


def differ(arguments, by_number, case):
    """What is wrong with a case: None if nothing."""
    without, plain = run(arguments, False, by_number, case)
    answers, numbers = run(arguments, True, by_number, case)
    if answers != without:
        return f"without:\n{without}with:\n{answers}"
    if not numbers:
        return None
    locked, leases, grown = numbers
    print(f"  locked {plain[0]} KiB without, {locked} with; of the leases there: {leases}; "
          f"their file has grown by {grown}")
    if locked > plain[0] + MORE:
        return f"{locked - plain[0]} KiB more are locked"
    if leases > LEASES or grown > LEASES:
        return f"{leases} KiB of the leases are there, and their file has grown by {grown}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.set_defaults(nvcache="/")
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--library", dest="preloaded", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    cases = [(f"{name} {when} the first open", (str(flags), when))
             for name, flags in FLAGS.items() for when in ("before", "after")]
    if os.geteuid() == 0:  # else it has no right to give up
        cases.append(("limits", ("limits",)))
    failed = 0
    for name, case in cases:
        for by_number in (False, True):
            print(f"{name}, by {'number' if by_number else 'name'}")
            problem = differ(arguments, by_number, case)
            if problem:
                print(f"FAILED: {problem}")
                failed += 1
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
