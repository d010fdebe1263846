#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A program that starts others (starter.c): what it was told is written is in the files when another
program is in its place; what was written a moment ago can be executed at once; and what it has
closed keeps no room on the disk.

    starter_test.py --nvcache build/nvcache --starter S --scratch DIR [--seed N] [--rounds N] [CASE ...]
"""

import mmap
import os
import pathlib
import random
import struct
import subprocess

import kit
from kit import LATE, check, say, until

PATIENCE = 30
FILES = 32
WAYS = ["execve", "execvpe", "fexecve", "execveat", "number"]


class Starter(kit.Bench):
    def __init__(self, options):
        super().__init__(options, size="16M", dram="4M")
        self.starter = str(pathlib.Path(options.starter).resolve())

    def start(self, *words, **settings):
        return subprocess.Popen(self.cached([self.starter, *words]), cwd=self.folder, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                env=dict(os.environ, NVCACHE_NOTICE="0", **settings))


def race(options):
    """A thread writes while its program becomes another one, which does not know of NVCache: every
    byte that was acknowledged is in the files, and the pool is clean."""
    draw = random.Random(options.seed)
    lost = dirty = 0
    for n in range(options.rounds):
        with Starter(options) as bench:
            counts = bench.pools / "acknowledged"
            counts.write_bytes(bytes(4096))
            way = WAYS[n % len(WAYS)]
            process = bench.start("race", way, str(counts), str(draw.randrange(1, 200)), **LATE)
            check(process.wait(PATIENCE) == 0, f"round {n}, {way}: exit code {process.returncode}")
            with open(counts, "rb") as file:
                wanted = struct.unpack(f"{FILES}I", mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)[:4 * FILES])
            check(sum(wanted) > 0, "nothing was written")
            for i, size in enumerate(wanted):
                path = bench.folder / f"f{i}"
                content = path.read_bytes() if path.exists() else b""
                # A write that was not acknowledged any more may be there.
                lost += content[:size] != bytes([ord("a") + i % 26]) * size
            dirty += bench.status()["state"] != "clean"
    check(lost + dirty == 0, f"{options.rounds} rounds: acknowledged bytes are missing in {lost} files; "
                             f"{dirty} pools are dirty")


def failed(options):
    """When nothing could be executed, the program is cached as before."""
    with Starter(options) as bench:
        process = bench.start("failed", **LATE)
        check(process.stdout.readline() == "written\n", "it did not write")
        pending = bench.pending()
        process.communicate("\n")
        check(pending == 1, f"{pending} records are pending after a write")


def written(options):
    """A program is executed that was written a moment ago, by whatever process."""
    busy = []
    for how in ("execve", "execvpe", "fexecve", "execveat", "number", "posix_spawn", "system"):
        for who in ("itself", "sibling"):
            with Starter(options) as bench:
                process = bench.start("written", how, who, "20", **LATE)
                text = process.communicate(timeout=600)[0]
                say(text.strip())
                check(bench.counter("segments_taken") is not None, "no pool")
                if process.returncode != 0:
                    busy.append(text.strip())
    check(not busy, "; ".join(busy))


def removed(options):
    """A file that the program has closed, and somebody else removes: its room is free, though the
    program makes no call."""
    with Starter(options) as bench:
        process = bench.start("waits", str(8 << 20))
        bench.others.append(process)
        check(process.stdout.readline() == "written\n", "it did not write")
        (bench.folder / "large").unlink()
        # The descriptors of the program: `nvcache run` has become it.
        def target(link):
            try:
                return os.readlink(link)
            except FileNotFoundError:  # just closed
                return ""

        def open_still():
            folder = pathlib.Path(f"/proc/{process.pid}/fd")
            return any(target(link).endswith("large (deleted)") for link in folder.iterdir())
        until(lambda: not open_still(), "the removed file is closed", PATIENCE)


def main():
    parser = kit.arguments(__doc__, rounds=60)
    parser.add_argument("--starter", required=True)
    options = parser.parse_args()
    kit.main(options, kit.cases_of((race, failed, written, removed), options))


if __name__ == "__main__":
    main()
