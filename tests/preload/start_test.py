#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""start.c under strace: how many system calls a program makes more with NVCache than without, from its
start to its end, and for a new file that is written and closed; and how many page faults it takes more. Not how long
they take."""

import os
import pathlib
import subprocess
import time

import kit
from kit import check, say

# By the start, of a pool that was used before: as many as there are today; ASKED, beside one for each descriptor
# that the program inherits: one of them is the loader's, from glibc 2.39 on, which says newfstatat before. By the file: the bound, also where the names of another folder are in the log.
# Processes that run beside add some of the former: so the least of a few runs counts.
START, ASKED, FILE = 29, 3, 6
# From the start to the end of a program that does nothing, and of one that makes a file.
FAULTS = {"": 25, "truncated": 32}
RUNS = 5
KNOWN_FOR_NAMES = 11  # seconds
WAYS = ("truncated", "exclusive", "stream")


class Counted:
    def __init__(self, bench, program):
        self.bench, self.program = bench, program
        self.settings = {name: value for name, value in bench.settings(NVCACHE_NOTICE="0").items()
                         if name != "NVCACHE_DRAM"}

    def calls(self, settings, *words):
        """The calls of one run, by name."""
        trace = self.bench.folder / "trace"
        file = self.bench.folder / "file"
        file.unlink(missing_ok=True)
        words = [*words, file] if words else []
        done, lines = self.bench.strace(trace, settings, self.program, *words)
        check(done.returncode == 0 and done.stderr == "", f"strace: {done.stderr.strip()}")
        if words:
            check(file.read_bytes() == bytes(4096), f"{words[0]}: the file is not as it was written")
        names = [line.split()[1].partition("(")[0] for line in lines]
        check("execve" in names and "exit_group" in names, "strace has not seen the program")
        return names

    def inherited(self):
        """So many descriptors the program has from us and from strace, which may leave it some."""
        done, _ = self.bench.strace(self.bench.folder / "trace", {}, "ls", "/proc/self/fd")
        return len(done.stdout.split()) - 1  # that of the folder

    def faults(self, settings, *words):
        """The fewest of a few runs."""
        return min(self.faults_of_one(settings, words) for _ in range(2 * RUNS))

    def faults_of_one(self, settings, words):
        process = os.posix_spawn(self.program, [self.program, *words], {**os.environ, **settings})
        _, status, usage = os.wait4(process, 0)
        check(status == 0, f"{words}: status {status}")
        return usage.ru_minflt

    def more_faults(self, *words):
        if words:
            words = [*words, self.bench.folder / "file"]
        return self.faults(self.settings, *words) - self.faults({}, *words)

    def make_known(self):
        """The leases have a folder whose names are in the log."""
        folder = self.bench.folder / "known"
        folder.mkdir()
        subprocess.run(["sync", folder, folder], env=os.environ | self.settings, check=True)

    def least(self, settings, *words, only=None):
        runs = [self.calls(settings, *words) for _ in range(RUNS)]
        return min(len(run) if only is None else run.count(only) for run in runs)

    def more(self, settings, *words, only=None):
        return self.least(settings, *words, only=only) - self.least({}, *words, only=only)


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True, help="start.c, built")
    options = parser.parse_args()
    with kit.Bench(options, size="16M", write_back="auto") as bench:
        counted = Counted(bench, pathlib.Path(options.program).resolve())
        counted.make_known()  # and somebody has made the leases' file
        # Of the tests before: for so long, folders become known by what is made there.
        time.sleep(KNOWN_FOR_NAMES)
        start, asked = counted.more(counted.settings), counted.more(counted.settings, only="fstat")
        inherited = counted.inherited()
        say(f"a program that does nothing: {start} calls more, {asked} of them fstat, for {inherited} descriptors")
        check(asked <= inherited + ASKED, f"{asked} calls of fstat, at most {inherited + ASKED}")
        check(start - asked <= START, f"{start - asked} other calls more than without NVCache, at most {START}")
        for way, most in FAULTS.items():
            more = counted.more_faults(*way.split())
            say(f"{way or 'a program that does nothing'}: {more} page faults more, at most {most}")
            check(more <= most, f"{way or 'nothing'}: {more} page faults more than without NVCache, at most {most}")
        for way in WAYS:
            more = counted.more(counted.settings, way) - start
            say(f"a new file, {way}: {more} calls more")
            check(more <= FILE, f"{way}: {more} calls more for a new file than without NVCache, at most {FILE}")


if __name__ == "__main__":
    main()
