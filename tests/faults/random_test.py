#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Disks that fail at random, under a writer with a model of what was acknowledged
(faults_writer.cc), which is killed, recovered and started again.

A round is a schedule, made from its seed alone: pauses, and what is done to the disks and the writer.
A round that fails leaves its schedule, with which it can be repeated (--replay), the pool, the models
and what the programs said in a folder below the scratch folder."""

import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import time

import kit
from kit import KEPT, MIB, check, say
from kit.disks import FaultyDisk, needs_mounts
from kit.faults import prepare

BAD = ("bad", "worse")
SMALL, LARGE = 48 << 10, 3 * MIB  # of a file on a bad disk, on the good one
EXIT_PATIENCE = 60
MODEL = struct.Struct("5Q")  # the head of a Model of faults_writer.cc
AT_ONCE = [0, "kill_and_fail", "bad", "write 5"]  # before the writer has made its pool, most likely


def schedule(seed):
    """[milliseconds, what, on which disk, with what]; the last thing is that all work again."""
    choose = random.Random(seed)
    steps = []
    for _ in range(choose.randrange(4, 14)):
        what = choose.choice(("tell",) * 6 + ("ok",) * 2 + ("kill", "stop", "kill_and_fail"))
        line = choose.choice(("write 5", "write 28", "flush 5", "write 5 %d" % choose.randrange(1, 40),
                              "flush 5 %d" % choose.randrange(1, 4), "delay %d" % choose.choice(
                                  (200, 2000, 20000)), "write 5 from %d" % choose.randrange(32 * MIB)))
        steps.append([choose.randrange(0, 400), what, choose.choice(BAD), line])
    environment = {"NVCACHE_BATCH_DELAY": choose.choice(("1", "20", "200")),
                   "NVCACHE_BATCH_MIN": choose.choice(("1", "100", "1000"))}
    return {"seed": seed, "environment": environment, "steps": steps,
            "pool": choose.choice(("1M", "2M", "4M")), "dram": choose.choice(("64k", "1M"))}


class Round:
    def __init__(self, options, plan):
        self.options, self.plan = options, plan
        self.bench = kit.Bench(options, plan["pool"], plan["dram"], timeout=EXIT_PATIENCE)
        self.models = self.bench.pools / "models"
        self.models.mkdir()
        self.errors = self.bench.folder / "stderr"
        self.process = None
        self.starts = 0
        self.output = []

    def __enter__(self):
        self.disks = {name: FaultyDisk(self.bench.folder, self.options.disk, name) for name in BAD}
        self.good = self.bench.folder / "good"
        self.good.mkdir()
        self.files = [(self.disks[name].folder / f"{i}", SMALL) for name in BAD for i in range(2)]
        for path, size in self.files:
            prepare(path, size)
        self.files += [(self.good / f"{i}", LARGE) for i in range(2)]
        return self

    def __exit__(self, kind, value, trace):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if kind is not None:
            self.save(value)
        for disk in self.disks.values():
            disk.close()
        self.bench.__exit__(kind, value, trace)

    def save(self, problem):
        folder = pathlib.Path(self.options.scratch) / f"faults-failed-{self.plan['seed']}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "schedule.json").write_text(json.dumps(self.plan, indent=1))
        (folder / "problem").write_text(f"{problem}\n")
        for path in (self.errors, self.bench.pool, *self.models.iterdir()):
            if path.exists():
                shutil.copy(path, folder)
        say(f"saved: {folder}; again with --replay {folder / 'schedule.json'}")

    def command(self, seed):
        words = [self.options.writer, str(seed), str(self.models)]
        for path, size in self.files:
            words += [str(path), str(size)]
        return words

    def start(self):
        self.starts += 1
        with open(self.errors, "a", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                self.bench.cached(self.command(self.plan["seed"] * 1000 + self.starts)),
                env=dict(os.environ, **self.plan["environment"]), stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=errors, text=True)

    def finish(self, kill):
        """Ends the writer, which may be busy with a disk that fails."""
        if self.process is None:
            return
        if kill:
            self.process.kill()
        try:
            output, _ = self.process.communicate(timeout=EXIT_PATIENCE)
        except subprocess.TimeoutExpired:
            check(False, "the writer does not end")
        code = self.process.returncode
        check(code == 0 or kill and code == -9, f"the writer: exit code {code}: {self.said()}")
        self.output.append(output.strip())
        self.process = None

    def said(self):
        return self.errors.read_text(encoding="utf-8")[-2000:]

    def has_begun(self):
        """Whether a writer has begun to write: the first write is counted before it is made."""
        for path in self.models.iterdir():
            head = path.read_bytes()[:MODEL.size].ljust(MODEL.size, b"\0")
            _, _, _, count, _ = MODEL.unpack(head)
            if count != 0:
                return True
        return False

    def recover(self, works):
        if not self.bench.pool.exists():  # killed before it made one
            check(not self.has_begun(), "the pool is gone")
            return
        done = self.bench.without(self.bench.nvcache, "recover", self.bench.pool, may_fail=True)
        allowed = (0,) if works else (0, KEPT)
        check(done.returncode in allowed, f"recover: exit code {done.returncode}: {done.stdout}{done.stderr}")

    def finish_and_recover(self, kill, fail_first=False):
        self.finish(kill)
        if fail_first:
            self.recover(False)
        for disk in self.disks.values():
            disk.tell("ok")
            disk.again()
        self.recover(True)

    def run(self):
        self.start()
        for pause, what, name, line in self.plan["steps"]:
            time.sleep(pause / 1000)
            code = self.process.poll()
            check(code is None, f"the writer ended: {code}: {self.said()}")
            if what == "tell":
                self.disks[name].tell(line)
            elif what == "ok":
                self.disks[name].tell("ok")
            else:
                self.finish_and_recover(what != "stop", what == "kill_and_fail")
                self.start()
        self.finish_and_recover(kill=False)
        for disk in self.disks.values():
            disk.again()
        kit.command(*self.command(0), timeout=EXIT_PATIENCE)


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--disk", required=True, help="the faulty_disk to use")
    parser.add_argument("--writer", required=True, help="the faults_writer to use")
    parser.add_argument("--seconds", type=float, default=20, help="begin no further round after")
    parser.add_argument("--seed", type=int, help="of the first round; by default from the clock")
    parser.add_argument("--replay", help="a schedule that was saved, again and again")
    options = parser.parse_args()
    needs_mounts()
    seed = int(time.time()) if options.seed is None else options.seed
    say(f"seed {seed}")
    end = time.monotonic() + options.seconds
    rounds, writes = 0, 0
    while rounds == 0 or time.monotonic() < end:
        plan = schedule(seed + rounds)
        if rounds == 0:
            plan["steps"].insert(0, AT_ONCE)
        if options.replay:
            plan = json.loads(pathlib.Path(options.replay).read_text(encoding="utf-8"))
        try:
            with Round(options, plan) as running:
                running.run()
        except (kit.Failure, subprocess.TimeoutExpired) as problem:
            say(f"[ FAIL ] seed {plan['seed']}: {problem}")
            sys.exit(1)
        rounds += 1
        writes += sum(int(line.split()[0]) for line in running.output if line)
    say(f"{rounds} rounds, more than {writes} writes")


if __name__ == "__main__":
    main()
