#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A program without NVCache and one with it use the same files, and take turns by locks: nothing of what either was told
is lost. Each with the default rule: no lock makes a cached file right for a program without NVCache.

delete, truncate, persist, wal
               two writers of one SQLite database, one of them without NVCache
killed_delete, killed_truncate, killed_persist, killed_wal
               the same, and now and then one or the other is killed and started again
fcntl, ranges, open, flock, lockf, closed
               a counter in a file, which each program raises under a lock of that kind, without a sync: no step is lost
beside         the counter is in another file than the lock, and synced
many_locks     each program holds thousands of locks of a file, and raises one of a thousand counters in another one under a
               lock
many_files     a counter in each of thousands of files, which stay open and are locked one after another
"""

import contextlib
import os
import random
import select
import signal
import subprocess
import sys

import kit
from kit import check

WRITER = """
import os, sqlite3, sys
name, mode, first, rows = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
db = sqlite3.connect("db", timeout=120, isolation_level=None)
db.execute("PRAGMA synchronous=FULL")
db.execute("PRAGMA wal_autocheckpoint=20")
os.write(1, b"ready\\n")
os.read(0, 1)
for row in range(first, first + rows):
    db.execute("INSERT INTO t VALUES(?, ?, ?)", (name, row, "x" * (row * 37 % 3000)))
    os.write(1, b"%d\\n" % row)
"""

COUNTER = """
import fcntl, os, struct, sys
kind, steps = sys.argv[1], int(sys.argv[2])

def opened():
    return os.open("lock", os.O_RDWR)

def posix(fd, command, lock, start):
    fcntl.fcntl(fd, command, struct.pack("hhqqi4x", lock, os.SEEK_SET, start, 8 if start else 0, 0))

at = {"ranges": 4096}.get(kind, 0)
take = {"flock": lambda fd: fcntl.flock(fd, fcntl.LOCK_EX), "closed": lambda fd: fcntl.flock(fd, fcntl.LOCK_EX),
        "open": lambda fd: posix(fd, fcntl.F_OFD_SETLKW, fcntl.F_WRLCK, 0),
        "lockf": lambda fd: (os.lseek(fd, 0, 0), os.lockf(fd, os.F_LOCK, 0)),
        }.get(kind, lambda fd: posix(fd, fcntl.F_SETLKW, fcntl.F_WRLCK, at))
give = {"flock": lambda fd: fcntl.flock(fd, fcntl.LOCK_UN), "closed": os.close,
        "open": lambda fd: posix(fd, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, 0),
        "lockf": lambda fd: (os.lseek(fd, 0, 0), os.lockf(fd, os.F_ULOCK, 0)),
        }.get(kind, lambda fd: posix(fd, fcntl.F_SETLK, fcntl.F_UNLCK, at))

os.write(1, b"ready\\n")
os.read(0, 1)
lock = opened()
data = os.open("data", os.O_RDWR) if kind == "beside" else -1
for step in range(steps):
    if kind == "closed" and step > 0:
        lock = opened()
    take(lock)
    fd = data if kind == "beside" else lock
    count, = struct.unpack("q", os.pread(fd, 8, at))
    os.pwrite(fd, struct.pack("q", count + 1), at)
    if kind == "beside" or step < 3:
        os.fdatasync(fd)
    give(lock)
"""

# Counters of 8 bytes; each step raises one that is drawn.
MANY = """
import fcntl, os, random, resource, struct, sys
kind, steps, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
draw = random.Random(int(sys.argv[4]) + number)
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)

def lock(fd, command, kind, start, length):
    fcntl.fcntl(fd, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))

fds = [os.open(f"many/{name}", os.O_RDWR) for name in sorted(os.listdir("many"), key=int)] if kind == "many_files" else None
if kind == "many_locks":
    file, held = os.open("lock", os.O_RDWR), os.open("data", os.O_RDWR)
    # Each a lock of its own: no two of one process touch.
    for i in range(4000):
        lock(held, fcntl.F_SETLK, fcntl.F_WRLCK, 4 * i + 2 * number, 1)
os.write(1, b"ready\\n")
os.read(0, 1)
for step in range(steps):
    one = draw.randrange(8) if step % 2 else draw.randrange(len(fds) if fds else 1000)  # some are of use to both
    fd, at = (fds[one], 0) if fds else (file, 8 * one)
    lock(fd, fcntl.F_SETLKW, fcntl.F_WRLCK, at, 8)
    count, = struct.unpack("q", os.pread(fd, 8, at))
    os.pwrite(fd, struct.pack("q", count + 1), at)
    if step % 3 == 0:
        os.fdatasync(fd)
    lock(fd, fcntl.F_SETLK, fcntl.F_UNLCK, at, 8)
"""


class Writer:
    """One that says which rows it was told are there, and may be killed."""

    def __init__(self, bench, name, mode, rows, cache):
        self.bench, self.name, self.mode, self.rows, self.cache = bench, name, mode, rows, cache
        self.acknowledged = 0  # rows below
        self.next = 0
        self.start()

    def start(self):
        command = [sys.executable, "-c", WRITER, self.name, self.mode, self.next, self.rows - self.next]
        full = self.bench.cached(command) if self.cache else [str(word) for word in command]
        self.errors = open(self.bench.folder / f"{self.name}.err", "ab")
        # By itself, so that the number is the writer's.
        self.process = subprocess.Popen(full, cwd=self.bench.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors)
        self.process.stdout.readline()
        self.rest = b""

    def go(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def fileno(self):
        return self.process.stdout.fileno()

    def hear(self):
        """Of what it says, all that is there; how many rows, 0 at its end."""
        before = self.acknowledged
        while self.acknowledged == before:
            said = os.read(self.fileno(), 1 << 16)
            if not said:
                return 0
            *lines, self.rest = (self.rest + said).split(b"\n")
            if lines:
                self.acknowledged = int(lines[-1]) + 1
        return self.acknowledged - before

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.end()

    def end(self):
        while self.hear():
            pass
        # The row at which it was killed may be there or not.
        self.next = self.acknowledged + 1
        self.errors.close()
        return self.process.wait(self.bench.timeout)


def make(bench, mode):
    bench.without("sqlite3", "db", f"PRAGMA journal_mode={mode}; CREATE TABLE t(writer TEXT, row INTEGER, v TEXT);"
                  "CREATE INDEX i ON t(row);")


def check_table(bench, writers, lost):
    """`lost`: rows that nobody was told of may be there as well."""
    verdict = bench.without("sqlite3", "db", "PRAGMA integrity_check;", may_fail=True)
    check(verdict.stdout == "ok\n", f"integrity_check: {(verdict.stdout + verdict.stderr)[:500]}")
    for writer in writers:
        text = bench.without("sqlite3", "db", f"SELECT row FROM t NOT INDEXED WHERE writer='{writer.name}';").stdout
        rows = [int(row) for row in text.split()]
        missing = [row for row in range(writer.acknowledged) if row not in lost[writer.name] and row not in set(rows)]
        check(not missing, f"{len(missing)} of {writer.acknowledged} rows that {writer.name} was told of are missing, "
              f"such as {missing[:3]}")
        check(len(rows) == len(set(rows)), f"rows of {writer.name} are there twice")


def both_write(options, mode, rows):
    with kit.Bench(options, size="32M", dram="8M", write_back="auto") as bench:
        make(bench, mode)
        writers = [Writer(bench, "inside", mode, rows, True), Writer(bench, "outside", mode, rows, False)]
        for writer in writers:
            writer.go()
        for writer in writers:
            status = writer.end()
            error = (bench.folder / f"{writer.name}.err").read_text()
            check(status == 0 and writer.acknowledged == rows,
                  f"{writer.name}: {writer.acknowledged} rows, exit code {status}: {error[-500:]}")
        # The other one's bytes are the kernel's as well: nothing is recovered first.
        check_table(bench, writers, {writer.name: set() for writer in writers})
        bench.recover()
        check_table(bench, writers, {writer.name: set() for writer in writers})


def killed(options, mode, rows, kills):
    """Both write so many rows, and about so often one is killed, and the next begins while nobody has recovered the pool."""
    draw = random.Random(options.seed)
    with kit.Bench(options, size="32M", dram="8M", write_back="auto") as bench:
        make(bench, mode)
        writers = [Writer(bench, "inside", mode, 10**9, True), Writer(bench, "outside", mode, 10**9, False)]
        lost = {writer.name: set() for writer in writers}
        for writer in writers:
            writer.go()
        while min(writer.acknowledged for writer in writers) < rows:
            more = draw.randrange(1, 4 * rows // kills)
            while more > 0:
                more -= sum(writer.hear() for writer in select.select(writers, (), ())[0])
            writer = draw.choice(writers)
            writer.kill()
            lost[writer.name].add(writer.acknowledged)
            writer.start()
            writer.go()
        for writer in writers:
            writer.kill()
        check_table(bench, writers, lost)
        bench.recover()
        check_table(bench, writers, lost)
        kit.say(f"{mode}: {', '.join(f'{writer.name} {writer.acknowledged} rows, {len(lost[writer.name])} kills' for writer in writers)}")


def run_both(bench, command):
    """By Python, at the same time: one with NVCache, as number 0, and one without."""
    with contextlib.ExitStack() as stack:
        for number, run in enumerate((bench.cached, list)):
            full = run([sys.executable, "-c", *command(number)])
            process = subprocess.Popen(full, cwd=bench.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            stack.callback(process.kill)
            bench.others.append(process)
        for process in bench.others:
            process.stdout.readline()
        for process in bench.others:
            process.stdin.write("\n")
            process.stdin.flush()
        for process in bench.others:
            _, error = process.communicate(timeout=bench.timeout)
            check(process.returncode == 0, f"exit code {process.returncode}: {error[-500:]}")


def many(options, kind):
    steps = 20000 if options.long else 2000
    with kit.Bench(options, size="32M", dram="8M", write_back="auto") as bench:
        for name in ("lock", "data"):
            (bench.folder / name).write_bytes(bytes(8192))
        (bench.folder / "many").mkdir()
        files = [bench.folder / "many" / str(i) for i in range(3000)] if kind == "many_files" else []
        for file in files:
            file.write_bytes(bytes(8))
        run_both(bench, lambda number: (MANY, kind, str(steps), str(number), str(options.seed)))
        content = b"".join(file.read_bytes() for file in files) or (bench.folder / "lock").read_bytes()
        found = sum(int.from_bytes(content[at:at + 8], "little") for at in range(0, len(content), 8))
        check(found == 2 * steps, f"{2 * steps - found} of {2 * steps} steps are lost")


def count(options, kind):
    steps = 10000 if options.long else 1500
    with kit.Bench(options, size="32M", dram="8M", write_back="auto") as bench:
        for name in ("lock", "data"):
            (bench.folder / name).write_bytes(bytes(8192))
        run_both(bench, lambda _: (COUNTER, kind, str(steps)))
        content = (bench.folder / ("data" if kind == "beside" else "lock")).read_bytes()
        at = 4096 if kind == "ranges" else 0
        found = int.from_bytes(content[at:at + 8], "little")
        check(found == 2 * steps, f"{2 * steps - found} of {2 * steps} steps are lost")


def main():
    options = kit.arguments(__doc__, seed=True).parse_args()
    rows = 10000 if options.long else 400
    modes = ("delete", "truncate", "persist", "wal")
    cases = {mode: lambda mode=mode: both_write(options, mode, rows) for mode in modes}
    cases |= {f"killed_{mode}": lambda mode=mode: killed(options, mode, *((rows, 400) if options.long else (150, 40)))
              for mode in modes}
    for kind in ("fcntl", "ranges", "open", "flock", "lockf", "closed", "beside"):
        cases[kind] = lambda kind=kind: count(options, kind)
    for kind in ("many_locks", "many_files"):
        cases[kind] = lambda kind=kind: many(options, kind)
    kit.main(options, cases)


if __name__ == "__main__":
    main()
