#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs that make, rename and remove files to be durable: sqlite3's journals, git, a maildir, dpkg; they are the
workloads of tests/power. They are killed, the disk loses what it has not made durable, the pool in memory stays, as
NVMM would, and the next boot recovers. What a program has acknowledged is there, and its own checker finds nothing
wrong.

Exit code 77 where a file system cannot be mounted and shut down."""

import random
import shutil
import signal
import time

import kit
from kit import check, packages
from kit.disks import FILE_SYSTEMS, PowerDisk, needs_power_failures

WORKLOADS = ("sqlite-full", "sqlite-truncate", "sqlite-persist", "sqlite-wal", "git", "maildir", "maildir-synced",
             "dpkg", "rocksdb")
POOL = {"size": "256M", "dram": "1M", "write_back": "auto"}
PACKAGES_AHEAD = 40  # of each kill


class Runs:
    """Of one workload on one disk, again and again."""

    def __init__(self, options, bench, disk, workload):
        self.bench, self.disk, self.workload = bench, disk, workload
        self.command = [options.agent, disk.folder, options.seed, "write"]
        self.environment = {"FOUND": str(bench.folder / "found"), "PACKAGES": str(bench.folder / "packages"),
                            "HOME": str(bench.folder), "GIT_CONFIG_COUNT": "1",
                            "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        self.acknowledged = 0
        (disk.folder / workload).mkdir()
        disk.sync()

    def agent(self, mode):
        program, *words = self.command
        return [program, mode, *words, f"{self.workload}:{self.acknowledged}:0"]

    def hear(self, _, words):
        if words[0] == "@acked":
            self.acknowledged = int(words[2])
            self.heard = True

    def play(self, choice, recovers=True):
        if self.workload == "dpkg":
            packages.build(self.bench.folder / "packages", self.acknowledged + PACKAGES_AHEAD)
        self.heard = False
        crowd = kit.Crowd(self.bench, self.disk.folder, [self.agent("work")], self.hear, **self.environment)
        crowd.await_words(lambda: self.heard, "something is acknowledged")
        time.sleep(choice.uniform(0, 1.5))
        status, = crowd.kill()
        # All that were killed, which may take a sync's time.
        group = crowd.processes[0].pid
        kit.until(lambda: not kit.group_lives(group), "the end of what was killed", 60)
        check(status == -signal.SIGKILL, f"it ended with {status}: {crowd.said()[-2000:]}")
        if choice.random() < 0.8 or not recovers:
            self.disk.fail(self.bench.pool)
        if recovers:
            self.bench.recover()
        done = self.bench.without(*self.agent("verify"), env=self.environment, may_fail=True)
        check(done.returncode == 0, f"{self.acknowledged} acknowledged: {done.stdout}{done.stderr}")
        self.acknowledged = int(done.stdout.split()[-1])
        # A checker is a program without NVCache. sqlite3 may have rolled a journal back, and removed it.
        self.disk.sync()


def run(options, workload, kind):
    choice = random.Random(f"{options.seed} {workload} {kind}")
    size = 4 << 30 if options.long else 400 << 20  # some 30 MiB a round
    with kit.Bench(options, **POOL) as bench, PowerDisk(bench, size, kind) as disk:
        runs = Runs(options, bench, disk, workload)
        for _ in range(options.rounds * (40 if options.long else 1)):
            runs.play(choice)
    kit.say(f"         {runs.acknowledged} acknowledged")


def self_check(options):
    """Without recovery something is missing, or the test sees nothing. (Not where the kill comes early: the disk has
    what was synced before the names were in the log.)"""
    choice = random.Random(options.seed)
    for _ in range(10):
        with kit.Bench(options, **POOL) as bench, PowerDisk(bench, 400 << 20) as disk:
            try:
                Runs(options, bench, disk, "maildir-synced").play(choice, recovers=False)
            except kit.Failure as expected:
                kit.say(f"as it should be: {expected}")
                return
    raise kit.Failure("nothing is missing")


def main():
    parser = kit.arguments(__doc__, rounds=2)
    parser.add_argument("--agent", required=True, help="the power_agent to use")
    parser.add_argument("--kind", action="append", choices=FILE_SYSTEMS)
    parser.add_argument("--self-check", action="store_true", help="whether the test finds what is missing")
    options = parser.parse_args()
    needs_power_failures(options)
    chosen = options.cases or [name for name in WORKLOADS if name != "dpkg" or shutil.which("dpkg-deb")]
    options.cases = []
    if options.self_check:
        kit.main(options, {"self_check": lambda: self_check(options)})
    kit.main(options, {f"{kind}, {name}": lambda kind=kind, name=name: run(options, name, kind)
                       for kind in options.kind or FILE_SYSTEMS for name in chosen})


if __name__ == "__main__":
    main()
