#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a write to a write-through file and its sync cost (hot_write.c): instructions, system calls, page faults; and what
it costs to open such a file again. Not how long they take.

Exit code 77 without valgrind."""

import re
import shutil
import sys

import kit
from kit import Failure, check, command, say, skip

COUNT = 2000
# Instructions of both calls, the program's few among them. valgrind has no AVX-512, so the bytes are copied and summed
# 64 at a time (src/sys/user_stream.h).
MOST = {100: 3000, 4096: 6000}
# For each write. How many batches come meanwhile is a matter of time: after each one the log has to be told anew which
# file it is, with as many calls more, name_to_handle_at among them.
CALLS = 1.01
DESCRIBED = 7
# Not after each write: beside four busy loops it was after one in fifty.
MOST_DESCRIBED = COUNT // 4
# To open a file that is as it was left, write to it, and close it.
REOPENED = 14
# A lap of the pool and more, and then as much again.
LAPS = {4096: 16384}
FAULTS = 200  # of the second half: the cleanup thread's are counted, too


class Hot:
    def __init__(self, bench, program):
        self.bench, self.program = bench, program
        self.file = bench.folder / "file"
        self.settings = {**bench.settings(NVCACHE_NOTICE="0")}

    def instructions(self, size, count):
        """Of the program's own thread, in all its writes and syncs."""
        done = command("valgrind", "--tool=callgrind", f"--callgrind-out-file={self.bench.folder}/counts",
                       "--toggle-collect=counted", self.program, self.file, size, count,
                       env={**kit.without_nvcache(), **self.settings})
        found = re.search(r"Collected : (\d+)", done)
        check(found, done)
        return int(found.group(1))

    def calls(self, size, count, *more):
        """Of the program's own thread, by name. Whether the cleanup thread sleeps, and has to be woken, is chance."""
        done, lines = self.bench.strace(self.bench.folder / "trace", self.settings, self.program, self.file, size, count, *more)
        check(done.returncode == 0, f"strace: {done.stderr.strip()}")
        thread = lines[0].split()[0]
        names = [line.split()[1].partition("(")[0] for line in lines if line.split()[0] == thread]
        return [name for name in names if name != "futex" and not name.startswith("<")]

    def faults(self, size, count):
        return int(command(self.program, self.file, size, count, env={**kit.without_nvcache(), **self.settings}))


def count_calls(hot):
    """The pool has room for all: so nobody waits for the cleanup thread, or does its work."""
    hot.faults(1, 1)  # it makes the pool
    for size in MOST:
        often, seldom = hot.calls(size, 2 * COUNT), hot.calls(size, COUNT)
        described = often.count("name_to_handle_at") - seldom.count("name_to_handle_at")
        more = len(often) - len(seldom) - DESCRIBED * described
        say(f"{size} bytes: {more / COUNT:.3f} system calls, and the file was described {described} times more")
        check(described <= MOST_DESCRIBED, f"{COUNT} writes of {size} bytes: the file was described {described} times more")
        check(more <= COUNT * CALLS,
              f"{COUNT} writes of {size} bytes and their syncs: {more} system calls, without those of {described} batches")
    more = len(hot.calls(100, COUNT, "reopen")) - len(hot.calls(100, 0, "reopen"))
    say(f"opened again: {more / COUNT:.2f} system calls, at most {REOPENED}")
    check(more <= COUNT * (REOPENED + 0.5), f"{COUNT} times open, write, close: {more} system calls")


def count_instructions_and_faults(hot):
    hot.faults(1, 1)
    for size, most in MOST.items():
        each = hot.instructions(size, COUNT) / COUNT
        say(f"{size} bytes: {each:.1f} instructions, at most {most}")
        check(each <= most, f"a write of {size} bytes and its sync: {each:.1f} instructions, at most {most}")
    for size, count in LAPS.items():
        faults = hot.faults(size, count)
        say(f"{size} bytes, once the pool was met: {faults} faults in {count // 2} writes")
        check(faults <= FAULTS, f"{count // 2} writes of {size} bytes: {faults} page faults, at most {FAULTS}")


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True)
    options = parser.parse_args()
    if not shutil.which("valgrind"):
        skip("there is no valgrind")
    for size, count in (("64M", count_calls), ("16M", count_instructions_and_faults)):
        with kit.Bench(options, size=size, dram="1M", write_back="auto") as bench:
            count(Hot(bench, options.program))


try:
    main()
except Failure as failure:
    sys.exit(str(failure))
