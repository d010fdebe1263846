#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Pools with their journal on a disk (docs/disk.md): programs as they are say what is durable; then they are killed, and
the machine loses its power. Journal and files lie on one ext4, which is shut down without writing anything more; the
pool's memory is removed. After the recovery all that was said is there.

Each round of `losses` takes a workload of tests/power, and after each death, of the writer alone or of all with the power,
another writer goes on. `self_check` takes operations for acknowledged that nobody has done, and `without_journal` leaves
the recovery out: both must be found.

Exit code 77 where a file system cannot be mounted and shut down."""

import collections
import contextlib
import pathlib
import random
import re
import subprocess
import sys
import time

import kit
from kit import Bench, Failure, check, command, say, until
from kit.disks import PowerDisk, needs_power_failures
from kit.journals import is_used, kill_users, memory_of, remove_memory

POOL_SIZE = "16M"
DISK_SIZE = 400 << 20
# Of tests/power. What the pool's calls wait for, and after what an operation is acknowledged; `behind`: so many of the
# newest operations the program itself may lose (SQLite does not sync the folder after a commit with FULL); `restarts`:
# the checker knows of more than one operation that was under way, so that one writer may follow another.
Workload = collections.namedtuple("Workload", "commit promise rules behind restarts")


def workload(commit="fsync", promise="fsync", rules=("auto", "always"), behind=0, restarts=True):
    return Workload(commit, promise, rules, behind, restarts)


WORKLOADS = {
    **{f"records-{how}": workload() for how in ("fsync", "fdatasync", "dsync", "rwf", "msync", "syncfs")},
    "replace": workload(), "maildir-synced": workload(rules=("auto",)),
    "sqlite-wal": workload(), "sqlite-delete": workload(), "sqlite-full": workload(behind=1),
    "rocksdb": workload(),
    "raw": workload("write", "mirrored"), "names": workload("write", "mirrored", ("auto",), restarts=False),
    "recreate": workload("write", "mirrored", restarts=False), "rotate": workload("write", "mirrored", restarts=False),
}


class Machine:
    """One that has a journal and files on a disk of its own."""

    def __init__(self, bench, disk, options, name, choice):
        self.bench, self.disk, self.options, self.name, self.choice = bench, disk, options, name, choice
        self.kind = WORKLOADS[name]
        self.rule = choice.choice(self.kind.rules)
        self.pool = disk.folder / "pool"
        self.data = disk.folder / "data"
        self.writer = self.sink = self.output = None
        self.lives = self.known = self.found = 0
        for path in (name, *(("common/a", "common/b") if name.startswith("names") else ())):
            (self.data / path).mkdir(parents=True)
        command(bench.nvcache, "create", self.pool, "--size", POOL_SIZE, "--commit", self.kind.commit)
        disk.sync()

    @property
    def memory(self):
        return memory_of(self.pool)

    def agent(self, mode, what):
        return [self.options.agent, mode, self.data, str(self.options.seed), self.kind.promise, what]

    def environment(self):
        return {**kit.without_nvcache(), "FOUND": str(self.bench.folder / "found"), "NVCACHE_NOTICE": "0"}

    def write(self):
        self.lives += 1
        self.output = self.bench.folder / f"acknowledged{self.lives}"
        words = [self.bench.nvcache, "run", "--pool", self.pool, "--dram", "1M", "--required", "--write-back", self.rule,
                 "--", *self.agent("work", self.name)]
        # By a pipe: the program's own writes to a file might wait for the journal.
        with open(self.output, "ab") as output, open(self.bench.folder / "writer.log", "ab") as log:
            self.sink = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=output)
            self.writer = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL,
                                           stdout=self.sink.stdin, stderr=log, env=self.environment())
            self.sink.stdin.close()

    def said(self, what="@acked"):
        """The newest number of this life's writer, in whole lines; 0 if none."""
        lines = self.output.read_text().split("\n")[:-1]
        return next((int(line.split()[2]) for line in reversed(lines) if line.startswith(f"{what} ")), 0)

    def acknowledged(self):
        return max(self.known, self.said())

    def await_more(self, count):
        goal = self.acknowledged() + count
        until(lambda: self.acknowledged() >= goal or self.writer.poll() is not None, "more is acknowledged", 60)
        check(self.acknowledged() >= goal, f"the writer has ended: {self.complaint()}")

    def complaint(self):
        found = re.search(r"^@bad .*", self.output.read_text(), re.MULTILINE)
        log = (self.bench.folder / "writer.log").read_text(errors="replace")
        return found.group(0) if found else f"exit code {self.writer.poll()}: {log[-500:]}"

    def kill(self):
        self.writer.kill()
        self.writer.wait()
        kill_users(self.pool)
        self.sink.wait(30)

    def lose(self):
        """The processes go, and what the file system has not made durable, in any order; and the memory. With msync, which
        is the kernel's own sync, the processes go first: ext4 may say 0 to one that a shutdown meets, and lose what it was
        for (findings/ext4-sync-beside-shutdown.sh)."""
        disk_first = self.choice.random() < 0.5
        if disk_first and self.name != "records-msync":
            self.disk.shut_down()
            self.kill()
        else:
            self.kill()
            self.disk.shut_down()
        memory = self.memory
        check(memory is not None, "the pool has no memory")
        memory.unlink()
        self.disk.again()

    def recover(self):
        done = subprocess.run([self.bench.nvcache, "recover", self.pool], text=True, check=False, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=kit.without_nvcache())
        check(done.returncode == 0, f"recovery: exit code {done.returncode}: {done.stdout}")

    def interrupt_recovery(self):
        """It is killed, and perhaps its machine loses its power again."""
        with subprocess.Popen([self.bench.nvcache, "recover", self.pool], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, env=kit.without_nvcache()) as process:
            time.sleep(self.choice.uniform(0, 0.15))
            process.kill()
            process.wait()
        if self.choice.random() < 0.5:
            self.disk.shut_down()
            if self.memory is not None:
                self.memory.unlink()
            self.disk.again()

    def verify(self, more=0):
        acknowledged = self.acknowledged() + more
        what = f"{self.name}:{max(acknowledged - self.kind.behind, 0)}:{max(self.said('@next'), self.found)}"
        done = subprocess.run([str(word) for word in self.agent("verify", what)], check=False, text=True, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.environment())
        found = re.search(r"^@found \S+ (\d+)$", done.stdout, re.MULTILINE)
        check(done.returncode == 0 and found, f"{self.name}, {acknowledged} acknowledged: {done.stdout}")
        acknowledged -= self.known
        self.known = self.found = int(found.group(1))
        self.disk.sync()  # the checker is a program without NVCache
        return acknowledged


@contextlib.contextmanager
def machine_of(options, seed):
    choice = random.Random(seed)
    names = options.workload or [*WORKLOADS]
    name = names[seed % len(names)]
    with Bench(options) as bench, PowerDisk(bench, DISK_SIZE) as disk:
        machine = Machine(bench, disk, options, name, choice)
        try:
            yield machine
        except Failure as failure:
            raise Failure(f"{name}, rule {machine.rule}, life {machine.lives}: {failure}") from None
        finally:
            if machine.writer is not None and machine.writer.poll() is None:
                machine.kill()
            remove_memory(machine.pool)


def losses(options, seed):
    """How many operations were acknowledged."""
    done = 0
    with machine_of(options, seed) as machine:
        for _ in range(3 if machine.kind.restarts else 1):
            machine.write()
            machine.await_more(machine.choice.randrange(1, 60))
            if machine.choice.random() < 0.7:
                machine.lose()
                for _ in range(machine.choice.choice((0, 0, 1, 2))):
                    machine.interrupt_recovery()
            else:
                machine.kill()
            machine.recover()
            done += machine.verify()
    return done


# Threads write more than a batch takes, and nobody waits for that; this one syncs a number, and says it.
BULK = """
import os, random, sys, threading
def write(seed):
    choice, file = random.Random(seed), os.open('bulk', os.O_RDWR | os.O_CREAT)
    while True:
        os.pwrite(file, bytes([choice.randrange(256)]) * (4096 * choice.randrange(1, 31)), choice.randrange(256) * 65536)
for i in range(3):
    threading.Thread(target=write, args=(int(sys.argv[1]) + i,), daemon=True).start()
file, number = os.open('number', os.O_RDWR | os.O_CREAT), 0
while True:
    number += 1
    os.pwrite(file, b'%08d' % number, 0)
    os.fsync(file)
    print(number, flush=True)
"""


def bulk(options, seed):
    """Rounds of many batches, of which the last one of a life has no end, in a ring that goes round: in so many lives of one
    memory after the other."""
    choice = random.Random(seed)
    with Bench(options) as bench, PowerDisk(bench, 600 << 20) as disk:
        pool, said = disk.folder / "pool", bench.folder / "said"
        command(bench.nvcache, "create", pool, "--size", "32M")
        for life in range(8):
            words = [bench.nvcache, "run", "--pool", pool, "--required", "--write-back", "always", "--", sys.executable, "-c",
                     BULK, str(seed * 100 + life)]
            with open(said, "wb") as output:
                writer = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=output, cwd=disk.folder,
                                          stderr=subprocess.DEVNULL, env=kit.without_nvcache())
            goal = choice.randrange(2, 40)
            until(lambda goal=goal, writer=writer: said.read_bytes().count(b"\n") >= goal or writer.poll() is not None,
                  f"{goal} syncs", 60)
            writer.kill()
            writer.wait()
            kill_users(pool)
            until(lambda: not is_used(pool), "nobody has the journal")
            memory_of(pool).unlink()
            done = subprocess.run([bench.nvcache, "recover", pool], text=True, check=False, timeout=120, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, env=kit.without_nvcache())
            check(done.returncode == 0, f"life {life}: recovery: exit code {done.returncode}: {done.stdout}")
            last = int(said.read_text().split("\n")[-2])
            found = int((disk.folder / "number").read_bytes())
            check(found >= last, f"life {life}: {found} is there, and {last} was synced")
        remove_memory(pool)
    return last


def finds_loss(options, seed, recovers, more):
    """In up to ten lives: on a busy machine the file system may have committed all of one."""
    options.workload = ["records-fsync"]
    for life in range(10):
        with machine_of(options, seed + life) as machine:
            machine.write()
            machine.await_more(20)
            machine.lose()
            if recovers:
                machine.recover()
            try:
                machine.verify(more=more)
            except Failure:
                return
    raise Failure("nothing is missing in ten lives")


def self_check(options, seed):
    """Operations that nobody has done are missing."""
    finds_loss(options, seed, recovers=True, more=50)


def without_journal(options, seed):
    """What the test would find if the journal had nothing: the memory is gone, and so is what only that had."""
    finds_loss(options, seed, recovers=False, more=0)


def main():
    parser = kit.arguments(__doc__, rounds=len(WORKLOADS), seed=True)
    parser.add_argument("--agent", required=True, type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="of these; else of all, by turns")
    options = parser.parse_args()
    needs_power_failures(options)

    def play(case):
        done = kit.rounds(options, lambda seed: case(options, seed), long=15)
        say(f"         {len(done)} rounds, {sum(done)} acknowledged")

    def once(case):
        case(options, options.seed)

    kit.main(options, {"losses": lambda: play(losses), "bulk": lambda: play(bulk), "self_check": lambda: once(self_check),
                       "without_journal": lambda: once(without_journal)})


if __name__ == "__main__":
    main()
