#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every pair of calls that change a file, its size, its names or its mode, with the file kept open,
or closed and opened again, or left to another process in between, and a write after them; then the
power fails, as in kill_power.py. What the last write had returned for must be there, and nothing from before it may
come back: no byte that was cut off, no mode that was taken away; and no file is lost that had a
name all the time.

The expectation is a run of the same calls without NVCache: after the power failure each file is as
it was at its last write or fsync, or at a moment after that. Recovery may keep a file's writes
because another file has its name; then that one is moved away, and recovery has to finish.

Exit code 77 where a file system cannot be mounted and shut down."""

import contextlib
import ctypes
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import time

import kit
from kit import KEPT, LATE, check
from kit.disks import PowerDisk, needs_power_failures

OLD = b"o" * 9000
INITIAL = {"absent": None, "old": OLD, "empty": b""}
KEEP_SIZE, PUNCH_HOLE = 1, 2


def punch(fd):
    call = ctypes.CDLL(None, use_errno=True).fallocate64
    check(call(fd, KEEP_SIZE | PUNCH_HOLE, ctypes.c_int64(0), ctypes.c_int64(4096)) == 0,
          f"fallocate: {os.strerror(ctypes.get_errno())}")


# Calls that are noted once, when they are made.
CHANGES = {
    "truncate_0": lambda world: os.truncate(world.path(), 0),
    "truncate_10": lambda world: os.truncate(world.path(), 10),
    "ftruncate_0": lambda world: os.ftruncate(world.need(), 0),
    "ftruncate_10": lambda world: os.ftruncate(world.need(), 10),
    "grow": lambda world: os.ftruncate(world.need(), 12000),
    "punch": lambda world: punch(world.need()),
    "link": lambda world: os.link(world.path(), world.path("f~")),
    "rename": lambda world: os.rename(world.path(), world.path("g")),
    "chmod": lambda world: os.chmod(world.path(), 0o600),
    "fchmod": lambda world: os.fchmod(world.need(), 0o600),
    "stranger_cuts": lambda world: world.stranger("cut"),
    "stranger_appends": lambda world: world.stranger("append"),
}


class World:
    """One file, its other names, and at most one descriptor of it."""

    def __init__(self, folder, writes=0):
        self.folder = pathlib.Path(folder)
        self.fd = None
        self.writes = writes  # so far; each has bytes of its own

    def path(self, name="f"):
        return str(self.folder / name)

    def note(self, settled=None):
        """After each call; `settled`: the descriptor of a file that must survive as it is now."""

    def open(self, flags=0):
        self.fd = os.open(self.path(), os.O_RDWR | os.O_CREAT | flags, 0o644)
        self.note()

    def need(self):
        if self.fd is None:
            self.open()
        return self.fd

    def close(self):
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def bytes(self):
        self.writes += 1
        return b"%c" % (ord("A") + self.writes % 26) * 5

    def write(self):
        os.pwrite(self.need(), self.bytes(), 3)
        self.note(settled=self.fd)

    def append(self):
        fd = os.open(self.path(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.note()
        os.write(fd, self.bytes())
        self.note(settled=fd)
        os.close(fd)

    def fsync(self):
        os.fsync(self.need())
        self.note(settled=self.fd)

    def open_trunc(self):
        before = self.fd
        self.open(os.O_TRUNC)
        if before is not None:
            os.close(before)

    def unlink(self):
        os.unlink(self.path())
        self.note()
        self.close()

    def replace(self):
        fd = os.open(self.path("n"), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self.note()
        os.write(fd, self.bytes() * 2)
        self.note(settled=fd)
        os.rename(self.path("n"), self.path())
        self.note()
        self.close()
        self.fd = fd

    # By another process, without NVCache. What it does to a file that is in a cache is not promised
    # to be seen, so the file is closed, and nothing of it is pending.
    def stranger(self, call):
        self.close()
        folder = os.open(self.folder, os.O_RDONLY)
        ctypes.CDLL(None).syncfs(folder)
        os.close(folder)
        self.outside(call)

    def outside(self, call):
        make_outside(self.folder, call, self.note)

    def make(self, calls):
        for call in calls:
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                if call in CHANGES:
                    CHANGES[call](self)
                    self.note()
                else:
                    getattr(self, call)()


def make_outside(folder, call, note=lambda: None):
    with open(pathlib.Path(folder) / "f", "wb" if call == "cut" else "ab") as file:
        note()
        if call == "append":
            file.write(b"stranger")


CALLS = ("write", "append", "fsync", "open_trunc", "unlink", "replace", *CHANGES)


# -------------------------------------------------------------------------------------------------
# The program: a child for each sequence, so that none finds the files of another in its cache.

class Program(World):
    def outside(self, call):
        kit.say(f"outside {call}")
        sys.stdin.buffer.raw.readline()


def worker():
    for line in iter(sys.stdin.buffer.raw.readline, b""):
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            Program(job["folder"], job["writes"]).make(job["calls"])
            if job["dies"]:
                os.kill(os.getpid(), signal.SIGKILL)
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        kit.say(f"status {status}")
    sys.exit(0)


class Worker(kit.Agent):
    def __init__(self, bench):
        super().__init__(bench.cached([sys.executable, __file__, "--worker"]), bench.folder / "errors", cwd="/",
                         env=dict(os.environ, **LATE))

    def make(self, folder, calls, writes, dies):
        self.tell(json.dumps({"folder": str(folder), "calls": calls, "writes": writes, "dies": dies}))
        while (words := self.answer().split())[0] != "status":
            make_outside(folder, words[1])
            self.tell("go on")
        expected = signal.SIGKILL if dies else 0
        check(int(words[1]) == expected, f"the program ended with status {words[1]}")

    def leave(self):
        self.end()
        self.process.wait()


# -------------------------------------------------------------------------------------------------
# The expectation.

def look(folder):
    """name -> (inode, bytes, mode)"""
    found = {}
    for entry in pathlib.Path(folder).iterdir():
        status = entry.stat()
        found[entry.name] = (status.st_ino, entry.read_bytes(), status.st_mode & 0o7777)
    return found


class Model(World):
    """Makes the calls without NVCache, and remembers how everything was after each."""

    def __init__(self, folder):
        super().__init__(folder)
        self.kept_open = []  # no number of an inode is used again
        self.moments = []
        self.since = {}  # inode -> the first moment that the file system may go back to
        self.note()
        self.since = {inode: 0 for inode, _, _ in self.moments[0].values()}

    def note(self, settled=None):
        self.moments.append(look(self.folder))
        for name in self.moments[-1]:
            self.kept_open.append(os.open(self.path(name), os.O_PATH))
        if settled is not None:
            self.since[os.fstat(settled).st_ino] = len(self.moments) - 1

    def done(self):
        self.close()
        for fd in self.kept_open:
            os.close(fd)

    def check(self, found):
        """`found`: name -> (bytes, mode), after recovery. What is wrong, or None."""
        present = set()
        for name, (data, mode) in found.items():
            owners = self.owners(name.removesuffix(".kept"), data, mode)
            if not owners:
                return f"{name}: {describe(data, mode)}; {self.expected(name)}"
            present |= owners
        for inode, since in self.since.items():
            always = all(any(inode == other for other, _, _ in moment.values())
                         for moment in self.moments[since:])
            if always and inode not in present:
                return f"lost: {self.last(inode)}"
        return None

    def owners(self, name, data, mode):
        """The files that this may be. What was not synced the file system may lose in any order, so
        bytes and mode need not be of the same moment."""
        have_bytes, have_mode, have_name = set(), set(), set()
        for index, moment in enumerate(self.moments):
            if name in moment:
                have_name.add(moment[name][0])
            for inode, expected, expected_mode in moment.values():
                if index < self.since.get(inode, 0):
                    continue
                # That a file became longer, without bytes, is nothing that a write makes durable.
                if data.rstrip(b"\0") == expected.rstrip(b"\0"):
                    have_bytes.add(inode)
                if mode == expected_mode:
                    have_mode.add(inode)
        return have_bytes & have_mode & have_name

    def expected(self, name):
        inodes = {moment[name][0] for moment in self.moments if name in moment}
        return "expected " + ", or ".join(self.last(inode) for inode in sorted(inodes))

    def last(self, inode):
        for moment in reversed(self.moments):
            for name, (other, data, mode) in moment.items():
                if other == inode:
                    return f"{name} with {describe(data, mode)}"
        return "?"


def describe(data, mode):
    runs = [f"{len(list(run))}x{chr(byte) if byte else '0'}" for byte, run in itertools.groupby(data)]
    return f"[{' '.join(runs)}] {mode:o}"


# -------------------------------------------------------------------------------------------------

class Driver:
    def __init__(self, bench, disk):
        self.bench = bench
        self.disk = disk
        self.worker = Worker(bench)
        self.number = 0
        self.kept = 0

    def run(self, initial, calls, alone_until=0):
        """The first `alone_until` calls are another process's, which ends before the rest."""
        self.number += 1
        folder = self.disk.folder / f"s{self.number}"
        plain = pathlib.Path(tempfile.mkdtemp(dir=self.bench.pools))
        folder.mkdir()
        for place in (folder, plain):
            place.chmod(0o755)
            if INITIAL[initial] is not None:
                (place / "f").write_bytes(INITIAL[initial])
                (place / "f").chmod(0o644)
        self.disk.sync()
        model = Model(plain)
        model.make(calls[:alone_until])
        if alone_until > 0:
            model.close()
            self.worker.make(folder, calls[:alone_until], 0, dies=False)
        writes = model.writes
        model.make(calls[alone_until:])
        self.worker.make(folder, calls[alone_until:], writes, dies=True)
        self.disk.fail()
        problem = self.recover() or model.check(
            {name: (data, mode) for name, (_, data, mode) in look(folder).items()})
        if problem is not None:
            self.begin_anew()
        model.done()
        shutil.rmtree(folder)
        shutil.rmtree(plain)
        return problem

    def begin_anew(self):
        self.worker.leave()
        self.bench.pool.unlink(missing_ok=True)
        self.worker = Worker(self.bench)

    def recover(self):
        done = self.bench.run([self.bench.nvcache, "recover", self.bench.pool], False, may_fail=True)
        if "nothing to recover" in done.stdout:
            return "the last write is in no log"
        if done.returncode == KEPT:
            self.kept += 1
            lines = re.findall(r"^unresolved: (.*) \(inode.*\): (.*?);", done.stdout, re.MULTILINE)
            for path, why in lines:
                if why != "another file has its name":
                    return f"recover: {done.stdout}"
                os.rename(path, path + ".kept")
            done = self.bench.run([self.bench.nvcache, "recover", self.bench.pool], False,
                                  may_fail=True)
        if done.returncode != 0:
            return f"recover: exit code {done.returncode}: {done.stdout}{done.stderr}"
        return None


# -------------------------------------------------------------------------------------------------

def sequences(first, long):
    """(initial, calls, alone_until) of all that begin with this call."""
    if not long:
        for second in CALLS:
            yield "old", [first, "close", second, "close", "write"], 0
        for second in ("link", "unlink", "rename", "replace", "chmod", "fchmod"):
            yield "old", [first, second, "write"], 0
            yield "absent", [first, second, "append"], 0
        yield "old", [first, "append"], 1
        return
    for initial, second, end in itertools.product(INITIAL, CALLS, ("write", "append")):
        yield initial, [first, "close", second, "close", end], 0
        yield initial, [first, second, end], 0
        # One process, and another one.
        yield initial, [first, second, end], 1


def random_sequences(seed):
    choices = random.Random(seed)
    while True:
        calls = []
        for _ in range(choices.randint(3, 7)):
            calls += [choices.choice(CALLS)] + ["close"] * choices.randint(0, 1)
        calls.append(choices.choice(("write", "append")))
        alone = choices.choice((0, 0, choices.randrange(len(calls))))
        yield choices.choice(list(INITIAL)), calls, alone


def run(options, what):
    failures = count = 0
    with kit.Bench(options, size="4M", dram="1M") as bench, PowerDisk(bench) as disk:
        driver = Driver(bench, disk)
        for initial, calls, alone in what:
            count += 1
            problem = driver.run(initial, calls, alone)
            if problem is None:
                continue
            failures += 1
            split = f" (the first {alone} in another process)" if alone else ""
            kit.say(f"{initial}: {', '.join(calls)}{split}: {problem}")
        driver.worker.leave()
    check(count > 0, "nothing was run")
    check(failures == 0, f"{failures} of {count} sequences went wrong")
    kit.say(f"{count} sequences; in {driver.kept} of them recovery kept writes at first")


def for_seconds(what, seconds):
    end = time.monotonic() + seconds
    return itertools.takewhile(lambda _: time.monotonic() < end, what)


def main():
    parser = kit.arguments(__doc__, seed=True)
    parser.add_argument("--random", type=int, default=0, metavar="SECONDS",
                        help="longer sequences at random, for so long")
    parser.add_argument("--sequence", metavar="INITIAL:CALL,CALL...[:ALONE]", help="this one alone")
    options = parser.parse_args()
    needs_power_failures(options)
    cases = {call: lambda call=call: run(options, sequences(call, options.long)) for call in CALLS}
    if options.sequence is not None:
        initial, calls, *alone = options.sequence.split(":")
        one = (initial, calls.split(","), int(alone[0]) if alone else 0)
        cases = {"sequence": lambda: run(options, [one])}
    if options.random > 0:
        cases = {"random": lambda: run(options, for_seconds(random_sequences(options.seed),
                                                            options.random))}
    kit.main(options, cases)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker()
    main()
