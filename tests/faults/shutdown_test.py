#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A file system, ext4 or XFS, is shut down under three programs that write and name files on one pool. They are killed, some of them
before the others, it is mounted again, and recovery says that nothing is damaged; all that was acknowledged is there.
On XFS, names that were acknowledged after the shutdown may be there or not: an fsync of a folder says 0 there when the
shutdown has lost a change of it (Linux 6.18, without NVCache as well).

Exit code 77 where file systems cannot be mounted; 1 if CI=true."""

import random
import sys

import kit
from kit import check, say
from kit.agents import Crowd
from kit.disks import PowerDisk, needs_power_failures
from kit.faults import prepare, recover

PROGRAMS = 3
FILES = 6  # of each program, which it writes anew under their names
SLOTS = 64  # of 4096 bytes, in the file that it writes in place

# Says what has returned: "p SLOT NUMBER", the slot has it; "n FILE NUMBER", the file with this name does. A name that
# is about to change is said before.
PROGRAM = r'''
import os, random, sys
own, seed, slots, files = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
choice = random.Random(seed)
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())
def block(number, length):
    return (b"%08d" % number) * (length // 8)
place = os.open(own, os.O_RDWR | os.O_CREAT, 0o644)
folder = os.open(".", os.O_RDONLY)
number = 0
while True:
    number += 1
    try:
        if choice.random() < 0.7:
            slot = choice.randrange(slots)
            say("tp", slot, number)
            os.pwrite(place, block(number, choice.choice((8, 8, 8, 8, 8, 8, 8, 4096))), slot * 4096)
            os.fsync(place)
            say("p", slot, number)
        else:
            which = choice.randrange(files)
            say("tn", which, number)
            fd = os.open("%s.new" % own, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                os.write(fd, block(number, choice.choice((8, 8, 8, 20000))))
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename("%s.new" % own, "%s.%d" % (own, which))
            os.fsync(folder)
            say("n", which, number)
    except OSError as error:
        say("e", error.errno)
'''


class Model:
    """What the programs have said: of each slot and of each name the number that is there for certain, and those that
    may have come after it."""

    def __init__(self):
        self.certain, self.later = {}, {}
        self.returned = self.errors = 0  # calls
        self.names_count = True  # those that are acknowledged from now on

    def hear(self, which, words):
        kind = words[0]
        if kind == "e":
            self.errors += 1
            return
        key = (which, kind[-1], int(words[1]))
        if kind.startswith("t"):
            self.later.setdefault(key, []).append(int(words[2]))
        else:
            self.returned += 1
            if kind == "n" and not self.names_count:
                return
            self.certain[key] = int(words[2])
            self.later[key] = [n for n in self.later[key] if n > int(words[2])]

    def check(self, folder):
        for key, number in self.certain.items():
            which, kind, at = key
            path = folder / (f"{which}" if kind == "p" else f"{which}.{at}")
            found = path.read_bytes() if path.exists() else b""
            word = found[at * 4096:at * 4096 + 8] if kind == "p" else found[:8]
            have = int(word) if word.isdigit() else None
            check(have == number or have in self.later[key], f"{path.name}, {at}: {have}, {number} was acknowledged")


def play(bench, disk, seed):
    choice = random.Random(seed)
    folder = disk.folder / f"{seed}"
    folder.mkdir()
    for which in range(PROGRAMS):
        prepare(folder / f"{which}", SLOTS * 4096)
    model = Model()
    if bench.pool.exists():
        bench.pool.unlink()
    commands = [[sys.executable, "-c", PROGRAM, f"{which}", str(seed * PROGRAMS + which), str(SLOTS), str(FILES)]
                for which in range(PROGRAMS)]
    crowd = Crowd(bench, folder, commands, model.hear, NVCACHE_BATCH_DELAY="1")
    enough = choice.randrange(20, 400)
    crowd.await_words(lambda: model.returned >= enough, "calls that return")
    model.names_count = disk.kind != "xfs"
    disk.shut_down()
    refused = model.errors + choice.randrange(1, 60)
    crowd.await_words(lambda: model.errors >= refused, "calls that are refused")
    if choice.random() < 0.5:
        crowd.kill_one(choice.randrange(PROGRAMS))
        more = model.errors + 5
        crowd.await_words(lambda: model.errors >= more, "others")
    crowd.kill()
    disk.unmount()
    disk.mount()
    recover(bench, 0)
    model.check(folder)
    return model.returned


def main():
    options = kit.arguments(__doc__, rounds=10).parse_args()
    needs_power_failures(options)

    def rounds(kind):
        with kit.Bench(options, size="2M", dram="256k", timeout=60) as bench, PowerDisk(bench, kind=kind) as disk:
            done = kit.rounds(options, lambda seed: play(bench, disk, seed), long=15)
        say(f"         {len(done)} rounds, {sum(done)} calls acknowledged")
    kit.main(options, {kind: lambda kind=kind: rounds(kind) for kind in ("ext4", "xfs")})


if __name__ == "__main__":
    main()
