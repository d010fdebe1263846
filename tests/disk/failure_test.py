#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A journal that fails under programs which write and sync (docs/disk.md): from then on syncs are real, in all processes; or,
if nothing can be written to the journal's disk any more, they fail. Then the power fails as well, and what was said to be
durable is there: a recovery does not lay the journal's old bytes over it.

Exit code 77 where file systems cannot be mounted and shut down."""

import os
import pathlib
import signal
import subprocess
import sys

import kit
from kit import MIB, Bench, check, command, until
from kit.disks import FaultyDisk, PowerDisk, needs_mounts, needs_power_failures
from kit.journals import kill_users, memory_of, remove_memory, users_of

WRITERS, SLOTS = 2, 8
# Writes each of its slots over and over, so many times, and says what its sync has made durable; or why it has not. Then it
# waits.
WRITER = """
import os, sys, time
path, slots, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
number = 0
while number < count:
    number += 1
    os.pwrite(file, b'%08d' % number * 64, number % slots * 512)
    try:
        os.fsync(file)
        print(number, flush=True)
    except OSError as error:
        print('error', error.errno, flush=True)
        time.sleep(0.1)
time.sleep(3600)
"""


class Writer:
    def __init__(self, case, name, count=1 << 62):
        self.path, self.log = case.files.folder / name, case.bench.folder / f"{name}.log"
        self.said = case.bench.folder / f"{name}.said"
        words = [case.bench.nvcache, "run", "--pool", case.pool, "--required", "--", sys.executable, "-c", WRITER, self.path,
                 str(SLOTS), str(count)]
        with open(self.said, "wb") as said, open(self.log, "wb") as log:
            self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=said, stderr=log,
                                            env=kit.without_nvcache())

    def lines(self):
        return self.said.read_text().split("\n")[:-1]

    def synced(self):
        return [int(line) for line in self.lines() if not line.startswith("error")]

    def errors(self):
        return [line for line in self.lines() if line.startswith("error")]

    def await_more(self, count):
        goal = len(self.synced()) + count
        until(lambda: len(self.synced()) >= goal or self.process.poll() is not None, f"{count} more syncs", 60)
        check(len(self.synced()) >= goal, f"the writer has ended: {self.log.read_text()[-500:]}")

    def await_error(self):
        until(lambda: self.errors() or self.process.poll() is not None, "a sync that fails", 60)
        check(self.errors(), f"the writer has ended: {self.log.read_text()[-500:]}")

    def verify(self):
        """Each slot has what was synced last, or what came after that."""
        content = self.path.read_bytes()
        newest = {number % SLOTS: number for number in self.synced()}
        for slot, number in newest.items():
            found = content[slot * 512:slot * 512 + 512]
            check(found == found[:8] * 64 and int(found[:8] or b"0") >= number,
                  f"slot {slot} has {found[:8]!r}, and {number} was synced")


class Case:
    """A journal on a disk that obeys, and files on one that can lose its power."""

    def __init__(self, options):
        self.bench = Bench(options)
        self.bad = FaultyDisk(self.bench.folder, options.disk, size=64 * MIB)
        self.files = PowerDisk(self.bench)
        self.pool = self.bad.folder / "pool"
        self.writers, self.idle = [], []

    def __enter__(self):
        command(self.bench.nvcache, "create", self.pool, "--size", "8M")
        self.writers = [Writer(self, f"data{i}") for i in range(WRITERS)]
        self.await_more(20)
        # What it has written is nowhere but in the log and in the kernel's cache.
        idle = Writer(self, "idle", SLOTS)
        idle.await_more(SLOTS)
        self.idle.append(idle)
        return self

    def __exit__(self, kind, value, trace):
        self.bad.tell("ok")
        self.kill()
        remove_memory(self.pool)
        self.files.close()
        self.bad.close()
        self.bench.__exit__(kind, value, trace)

    def await_more(self, count):
        for writer in self.writers:
            writer.await_more(count)

    def kill(self):
        for writer in self.writers + self.idle:
            writer.process.kill()
            writer.process.wait()
        kill_users(self.pool)

    def lose_power(self):
        self.kill()
        self.files.shut_down()
        memory_of(self.pool).unlink()
        self.files.again()
        self.bad.tell("ok")

    def recover(self):
        done = subprocess.run([self.bench.nvcache, "recover", self.pool], text=True, check=False, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=kit.without_nvcache())
        check(done.returncode == 0, f"recovery: exit code {done.returncode}: {done.stdout}")
        return done.stdout

    def verify(self):
        for writer in self.writers + self.idle:
            writer.verify()

    def kill_checkpointer(self):
        found = [pid for pid in users_of(self.pool) if b"checkpointer" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
        check(len(found) == 1, "there is no checkpointer")
        os.kill(found[0], signal.SIGKILL)

    def complaints(self):
        return [line for writer in self.writers for line in writer.log.read_text().splitlines() if "cannot be written" in line]


def one_write_fails(options):
    """Syncs are real, and the journal does not count any more."""
    with Case(options) as case:
        case.bad.tell("write 5 1")
        case.await_more(40)
        check([writer.errors() for writer in case.writers] == [[]] * WRITERS, "a sync has failed")
        check(len(case.complaints()) == 1, f"not one line, but {case.complaints()}")
        status = command(case.bench.nvcache, "status", case.pool)
        check("has failed (EIO), and syncs are real" in status, f"status says {status}")
        case.lose_power()
        said = case.recover()
        check("the journal had failed" in said, f"recovery says: {said}")
        case.verify()


def recovered_in_memory(options):
    """The same, but the kernel lives: another recovery, without the memory, lays nothing over the files."""
    with Case(options) as case:
        case.kill_checkpointer()
        case.bad.tell("write 5 1")
        until(case.complaints, "the journal fails", 60)
        case.kill()
        case.recover()
        case.verify()
        newer = b"%08d" % 10**7 * 64 * SLOTS
        for writer in case.writers:
            writer.path.write_bytes(newer)
        memory_of(case.pool).unlink()
        case.recover()
        check(all(writer.path.read_bytes() == newer for writer in case.writers), "old bytes came back")


def all_writes_fail(options):
    """Syncs fail, for nothing could tell a recovery that the journal is old; and they are real once the disk works again."""
    with Case(options) as case:
        case.bad.tell("write 5")
        for writer in case.writers:
            writer.await_error()
        case.bad.tell("ok")
        case.await_more(40)
        case.lose_power()
        case.recover()
        case.verify()


def fails_with_power(options):
    """The journal's disk refuses all, and then the power fails: the journal has what was said until then."""
    with Case(options) as case:
        case.bad.tell("write 5")
        for writer in case.writers:
            writer.await_error()
        case.lose_power()
        case.recover()
        case.verify()


def nobody_leaves_it(options):
    """Without a checkpointer, syncs fail after ten seconds, and are real when one has come."""
    with Case(options) as case:
        case.kill_checkpointer()
        case.bad.tell("write 5 1")
        for writer in case.writers:
            writer.await_error()
        with subprocess.Popen([case.bench.nvcache, "checkpointer", case.pool], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, env=kit.without_nvcache()) as checkpointer:
            case.await_more(40)
            case.lose_power()
            checkpointer.wait(30)
        case.recover()
        case.verify()


CASES = {"one_write_fails": one_write_fails, "recovered_in_memory": recovered_in_memory, "all_writes_fail": all_writes_fail,
         "fails_with_power": fails_with_power, "nobody_leaves_it": nobody_leaves_it}


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--disk", required=True, type=lambda path: pathlib.Path(path).resolve(), help="faulty_disk")
    options = parser.parse_args()
    needs_mounts()
    needs_power_failures(options)
    kit.main(options, {name: lambda case=case: case(options) for name, case in CASES.items()})


if __name__ == "__main__":
    main()
