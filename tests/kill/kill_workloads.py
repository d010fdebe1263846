#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The workloads of tests/power, on disks of the host: programs that make, rename and remove files to be durable, or
several that change names in the same folders, and never sync these, once they are known. They are killed, one of
several perhaps earlier; the disk loses what it has not made durable, the pool in memory stays, as NVMM would, and the
next boot recovers. What was acknowledged is there, and each workload's own checker finds nothing wrong.

`both-`: two write a database, one of them without NVCache.

`names`: each syncs the files that it changes; `sync`: and all, now and then; `bare`: only those from before the last
recovery. What was made in a known folder is durable without that, as long as nobody takes a process for stopped that
only waits for a processor.

Exit code 77 where a file system cannot be mounted and shut down."""

import random
import shutil
import signal
import time

import kit
from kit import check, packages
from kit.disks import FILE_SYSTEMS, PowerDisk, needs_power_failures

EVERYDAY = ("sqlite-full", "sqlite-truncate", "sqlite-persist", "sqlite-wal", "git", "maildir", "maildir-synced",
            "dpkg", "rocksdb")
# case: what goes on at one time, each in a process of its own.
CASES = {name: (name,) for name in EVERYDAY} | {
    "names": ("names0", "names1", "names2"), "sync": ("names-sync0", "names-sync1", "names-sync2"),
    "bare": ("names-bare0", "names-bare1", "names-bare2")}
BOTH = ("both-wal", "both-delete", "both-truncate", "both-persist")
CASES |= {name: (f"{name}0", f"{name}1") for name in BOTH}
FOLDERS = ("common/a", "common/b")  # of names
POOL = {"size": "256M", "dram": "1M", "write_back": "auto"}
PACKAGES_AHEAD = 40  # of each kill


class Runs:
    """Of workloads on one disk, again and again."""

    def __init__(self, options, bench, disk, workloads):
        self.options, self.bench, self.disk = options, bench, disk
        self.environment = {"FOUND": str(bench.folder / "found"), "PACKAGES": str(bench.folder / "packages"),
                            "HOME": str(bench.folder), "GIT_CONFIG_COUNT": "1",
                            "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        self.acknowledged = dict.fromkeys(workloads, 0)
        for name in (*workloads, *FOLDERS):
            (disk.folder / name).mkdir(parents=True)
        disk.sync()

    def agent(self, mode, workloads):
        return [self.options.agent, mode, self.disk.folder, self.options.seed, "write",
                *(f"{name}:{self.acknowledged[name]}:0" for name in workloads)]

    def hear(self, _, words):
        if words[0] == "@acked":
            self.acknowledged[words[1]] = int(words[2])
            self.heard.add(words[1])

    def play(self, choice):
        if "dpkg" in self.acknowledged:
            packages.build(self.bench.folder / "packages", self.acknowledged["dpkg"] + PACKAGES_AHEAD)
        self.heard = set()
        crowd = kit.Crowd(self.bench, self.disk.folder, [self.agent("work", [name]) for name in self.acknowledged],
                          self.hear, **self.environment)
        crowd.await_words(lambda: len(self.heard) == len(self.acknowledged), "something is acknowledged")
        time.sleep(choice.uniform(0, 1.5))
        if len(crowd.processes) > 1 and choice.random() < 0.5:
            crowd.kill_one(choice.randrange(len(crowd.processes)))
            time.sleep(choice.uniform(0, 0.5))
        ends = crowd.kill()
        # All that were killed, which may take a sync's time.
        for process in crowd.processes:
            kit.until(lambda group=process.pid: not kit.group_lives(group), "the end of what was killed", 60)
        check(set(ends) == {-signal.SIGKILL}, f"they ended with {ends}: {crowd.said()[-2000:]}")
        if choice.random() < 0.8:
            self.disk.fail(self.bench.pool)
        self.bench.recover()
        self.verify()
        self.bench.recover()  # which has nothing to do
        # A checker is a program without NVCache. sqlite3 may have rolled a journal back, and removed it.
        self.disk.sync()

    def verify(self):
        done = self.bench.without(*self.agent("verify", self.acknowledged), env=self.environment, may_fail=True)
        check(done.returncode == 0, f"{self.acknowledged} acknowledged: {done.stdout}{done.stderr}")
        for line in done.stdout.splitlines():
            _, name, found = line.split()
            self.acknowledged[name] = int(found)
        left = [path.name for path in self.disk.folder.rglob(".nvcache-*")]
        check(not left, f"left behind: {left}")


def run(options, case, kind):
    choice = random.Random(f"{options.seed} {case} {kind}")
    size = 4 << 30 if options.long else 400 << 20  # some 30 MiB a round
    with kit.Bench(options, **POOL) as bench, PowerDisk(bench, size, kind) as disk:
        runs = Runs(options, bench, disk, CASES[case])
        for _ in range(options.rounds * (40 if options.long else 1)):
            runs.play(choice)
    kit.say(f"         {sum(runs.acknowledged.values())} acknowledged")


LOST = 20  # operations


def self_check(options, case):
    """What a loss of the newest operations leaves is reported, of each workload: they are said to be acknowledged, and
    nobody has done them. And the disk loses what nobody has synced."""
    with kit.Bench(options, **POOL) as bench, PowerDisk(bench, 400 << 20) as disk:
        runs = Runs(options, bench, disk, CASES[case])
        runs.play(random.Random(options.seed))
        there = dict(runs.acknowledged)
        for name in there:
            runs.acknowledged = {**there, name: there[name] + LOST}
            try:
                runs.verify()
            except kit.Failure as expected:
                check(" acknowledged: " in str(expected), str(expected))
                kit.say(f"as it should be: {expected}")
                continue
            raise kit.Failure(f"{name}: {LOST} operations are lost, and nothing is missing")
        unsynced = disk.folder / "unsynced"
        unsynced.write_text("x")
        disk.fail()
        check(not unsynced.exists(), "the disk loses nothing")


def main():
    parser = kit.arguments(__doc__, rounds=2)
    parser.add_argument("--agent", required=True, help="the power_agent to use")
    parser.add_argument("--kind", action="append", choices=FILE_SYSTEMS)
    parser.add_argument("--self-check", action="store_true", help="whether the test finds what is missing")
    options = parser.parse_args()
    needs_power_failures(options)
    chosen = options.cases or [name for name in EVERYDAY if name != "dpkg" or shutil.which("dpkg-deb")]
    options.cases = []
    if options.self_check:
        kit.main(options, {case: lambda case=case: self_check(options, case) for case in CASES})
    kit.main(options, {f"{kind}, {case}": lambda kind=kind, case=case: run(options, case, kind)
                       for kind in options.kind or FILE_SYSTEMS for case in chosen})


if __name__ == "__main__":
    main()
