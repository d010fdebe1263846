#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the library adds to the stack that a call takes, and calls on stacks that leave no room for
more.

  stack_test.py MODE --program STACK --scratch FOLDER [--library LIBNVCACHE] [--case NAME]...

MODE is measure: each case of stack.c without and with NVCACHE, in a table. No more than LIMIT bytes
may be added, and the kernel's frame of a signal where the call meets a bad pointer (without us the
kernel needs none). smallest, handler and tight: the same cases on the smallest stack that a thread
may have, in a handler on an alternate stack of SIGSTKSZ, and on one that has room for the kernel's
frame and little more. overflow: near the end of a stack.

Without --library the program has NVCACHE built in.
"""

import argparse
import pathlib
import subprocess
import sys

import kit

LIMIT = 2048  # bytes
SECONDS = 300

# libc's streams and posix_spawn are not for handlers.
NOT_IN_HANDLERS = {"fopen", "fwrite", "fflush", "fflush_all", "fclose", "posix_spawn"}
# The kernel's second frame of a signal, for the bad pointer, has no room there.
NOT_TIGHT = NOT_IN_HANDLERS | {"write_bad_pointer", "writev_bad_pointer", "writev_bad_array",
                               "read_bad_pointer"}


class Runs:
    def __init__(self, arguments):
        self.arguments = arguments

    def run(self, cached, mode, case=None):
        """Exit status, output and errors, in a new folder and with a new pool."""
        environment = kit.without_nvcache()
        with kit.Bench(self.arguments, size="64M") as bench:
            if cached:
                environment |= bench.settings(self.arguments.preloaded, NVCACHE_NOTICE="0", NVCACHE_RAW="trust")
            command = [str(self.arguments.program), str(bench.folder), mode] + ([case] if case else [])
            try:
                done = subprocess.run(command, env=environment, timeout=SECONDS, capture_output=True,
                                      text=True, stdin=subprocess.DEVNULL, check=False)
            except subprocess.TimeoutExpired:
                return "never ends", "", ""
            if cached and mode not in ("cases", "nothing") and not bench.pool.exists():
                return "no pool was made: the cache stayed off", done.stdout, done.stderr
            return done.returncode, done.stdout, done.stderr

    def cases(self):
        return self.run(False, "cases")[1].split()


def measure(runs, cases):
    wrong = 0
    print(f"{'bytes of stack':24} {'without':>8} {'with':>8} {'added':>8}")
    for case in cases:
        numbers = []
        for cached in (False, True):
            status, output, errors = runs.run(cached, "measure", case)
            if status != 0:
                print(f"{case}: status {status} {'with' if cached else 'without'}: {errors}")
                break
            numbers.append([int(number) for number in output.split()])
        if len(numbers) < 2:
            wrong += 1
            continue
        (without, frame), (used, _) = numbers
        added = used - without
        note = ""
        if frame:
            note = f"  of it the kernel's frame: {frame}"
        if added > LIMIT + frame:
            note += f"  more than {LIMIT}"
            wrong += 1
        print(f"{case:24} {without:8} {used:8} {added:8}{note}")
    return wrong


def survive(runs, mode, cases):
    """What the program survives without us, it survives with us."""
    wrong = done = 0
    for case in cases:
        if runs.run(False, mode, case)[0] != 0:
            print(f"{case}: not even without NVCACHE")
            continue
        status, output, errors = runs.run(True, mode, case)
        done += 1
        if status != 0:
            print(f"{case or mode}: status {status}: {output}{errors}")
            wrong += 1
    print(f"{done} calls, {wrong} failed")
    return wrong + (done == 0)


def main():
    parser = argparse.ArgumentParser()
    parser.set_defaults(nvcache="/")
    parser.add_argument("mode", choices=("measure", "smallest", "handler", "tight", "overflow"))
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--library", dest="preloaded", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--case", action="append")
    arguments = parser.parse_args()
    runs = Runs(arguments)
    cases = arguments.case or runs.cases()
    if arguments.mode == "measure":
        wrong = measure(runs, cases)
    elif arguments.mode == "overflow":
        wrong = survive(runs, "overflow", [None])
    else:
        without = {"handler": NOT_IN_HANDLERS, "tight": NOT_TIGHT}.get(arguments.mode, ())
        wrong = survive(runs, arguments.mode, [case for case in cases if case not in without])
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
