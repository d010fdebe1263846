#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Takes the power from a guest with an NVDIMM and a disk, again and again, while programs write
under NVCache at level `power`. After each recovery, what was acknowledged is there, and the rest is
a clean prefix. README.md says more.

Exit code 77 where there is no QEMU or no kernel for the guest, except in CI (CI=true)."""

import argparse
import collections
import json
import os
import pathlib
import random
import sys
import tempfile
import time

import guest_image
import machine
from life import POSTGRES, Failure, Life, Plan, Start, draw_start, save_state

SKIP = 77

NAMES = ("names0", "names1", "turns")
# With which rule, and what. `always` leaves names to the file system, so they are not in the log. Of level `disk`, too: the
# pool's commit point, what an operation waits for, and whether one writer may follow another, for that the checkers must know
# of more than one operation that was under way.
Row = collections.namedtuple("Row", "write_back workloads commit promise restarts", defaults=("", "write", True))
WORKLOADS = (
    Row("auto", NAMES),
    Row("auto", ("names0", "turns", "sqlite-delete")),
    Row("auto", ("git", "maildir")),
    Row("auto", ("dpkg", "names0")),
    Row("always", ("raw0", "raw1", "cut")),
    Row("always", ("sqlite-wal", "replace", "rotate")),
    Row("always", ("rocksdb",)),
    Row("always", ("recreate", "cut", "raw0")),
    Row("always", ("sqlite-delete", "recreate", "replace")),
    Row("auto", ("both-wal0", "both-wal1")),
    Row("auto", ("both-delete0", "both-delete1")),
    Row("auto", ("both-truncate0", "both-truncate1")),
    Row("auto", ("both-persist0", "both-persist1")),
)
SYNCED, EACH_CALL, HEARD = ("fsync", "fsync"), ("write", "mirrored"), ("output", "fsync")
ON_DISK = (
    Row("auto", ("records-fsync", "records-fdatasync", "records-dsync"), *SYNCED),
    Row("always", ("raw0", "raw1", "raw2"), *EACH_CALL),
    Row("auto", ("replace", "maildir-synced", "sqlite-wal"), *SYNCED),
    Row("always", ("records-rwf", "records-msync", "records-syncfs"), *SYNCED),
    Row("auto", NAMES, *EACH_CALL, restarts=False),
    Row("always", ("sqlite-delete", "rocksdb", "replace"), *SYNCED),
    Row("auto", ("git", "dpkg", "records-fsync"), *SYNCED),
    Row("always", ("recreate", "rotate", "sqlite-wal"), *EACH_CALL, restarts=False),
    Row("auto", ("sqlite-truncate", "sqlite-persist", "sqlite-delete"), *SYNCED),
    Row("auto", ("maildir", "git", "raw0"), *EACH_CALL),
    Row("always", ("cut", "raw0"), *EACH_CALL, restarts=False),
    Row("auto", ("both-wal0", "both-wal1"), *SYNCED),
    Row("auto", ("both-delete0", "both-delete1"), *SYNCED),
    Row("auto", ("both-truncate0", "both-truncate1"), *SYNCED),
    Row("auto", ("both-persist0", "both-persist1"), *SYNCED),
    # What is said on the serial line has left the program. (Not records: more of their lines are on their way to the host than
    # their checker looks at.)
    Row("auto", ("replace", "maildir-synced", "sqlite-wal"), *HEARD),
    Row("always", ("sqlite-delete", "sqlite-persist"), *HEARD),
    Row("always", ("sqlite-wal", "replace"), *HEARD),
    Row("auto", ("both-delete0", "both-delete1"), *HEARD),
)
# A server starts slowly under an emulated processor, so this is for --workload alone.
ASKED_FOR = (Row("auto", (POSTGRES,)),)
# A MiB is 12 segments. Where several processes cannot have one each, a write goes past the log, and is
# durable after `fsync`.
POOL_SIZES = {"always": ("1M", "4M", "16M"), "auto": ("4M", "16M")}
# Power failures at work, after which the log must have had names that were not on the disk: of all file systems, and of
# each. A sync brings all names to an XFS, so of some programs few are left to the log there.
ENOUGH, ENOUGH_OF_EACH = 5, 20
MEDIA = ("fsdax", "devdax")
FAULTS = ("error", "flakey", "delay", "blocks")
MOUNTS = {
    "ext4": ("rw", "commit=300", "data=writeback,commit=300", "nodelalloc"),
    "xfs": ("rw", "logbsize=32k"),
    "btrfs": ("rw", "commit=300", "notreelog,commit=300"),
}


# A journal cannot lie on Btrfs.
FILE_SYSTEMS = {"power": tuple(MOUNTS), "disk": ("ext4", "xfs")}


def say(text):
    print(text, flush=True)


class Bench:
    """What all lives share. `with Bench(...)` cleans up."""

    def __init__(self, options):
        build = pathlib.Path(options.build).resolve()
        self.scratch = build / "test-data"
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.cases = build / "power-cases"
        self.cases.mkdir(exist_ok=True)
        cache = build / "power-guest"
        self.folder = tempfile.TemporaryDirectory(prefix="power-image-", dir=self.scratch)
        name = self.folder.name
        self.image = guest_image.Image(cache, name, build, build / "power_agent",
                                       postgres=wants_postgres(options))
        self.accelerator = machine.accelerator(self.image, pathlib.Path(name), cache)
        # A guest that KVM runs boots in a second.
        self.state = (save_state(self.image, pathlib.Path(name)) if self.accelerator == "tcg"
                      else None)
        say(f"guest: {self.image.version}, {self.accelerator}")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.folder.cleanup()


def wants_postgres(options):
    if options.case:
        return POSTGRES in json.loads((pathlib.Path(options.case) / "case.json").read_text())["acknowledged"]
    return options.workload == POSTGRES


def groups(workload, level):
    """Of workloads, with their rule: those that have this one, or one whose name begins so."""
    rows = ON_DISK if level == "disk" else WORKLOADS
    if workload is None:
        return rows
    asked_for = ASKED_FOR if rows is WORKLOADS else ()
    return [row for row in (*rows, *asked_for) if any(name.startswith(workload) for name in row.workloads)]


def draw_plan(draw, number, rows, file_systems):
    """In turn all workloads; and each of them, in turn, on all file systems and media. On the disk, three are threads of
    one process, or processes, but for those that have processes anyway."""
    turn, place = divmod(number, len(rows))
    row = rows[place]
    file_system = file_systems[(place + turn) % len(file_systems)]
    on_disk = row.commit != ""
    return Plan(seed=draw.randrange(1, 10**9), workloads=row.workloads, write_back=row.write_back,
                media="disk" if on_disk else MEDIA[(place + turn) % len(MEDIA)],
                pool_size=draw.choice(POOL_SIZES["auto" if on_disk else row.write_back]),
                commit=row.commit, promise=row.promise, restarts=row.restarts,
                apart=on_disk and draw.random() < 0.5,
                file_system=file_system, mount=draw.choice(MOUNTS[file_system]))


def failed(life, problem):
    folder = life.save(str(problem))
    for _, text in life.logs[-1][1][-8:]:
        say(f"  guest: {text}")
    say(f"  {life.plan}\n"
        f"  saved; verify it again with:\n"
        f"  {sys.argv[0]} --build {life.bench.scratch.parent} --case {folder}\n"
        f"FAILED at {life.logs[-1][0]}: {problem}")


# ---------------------------------------------------------------------------------------------

class Totals:
    """Of all lives."""

    def __init__(self):
        self.lives = self.starts = self.verified = self.recovered = self.kept = 0
        self.disk = collections.Counter()
        self.killed = collections.Counter()  # on which file system
        self.naming = collections.Counter()  # at work, with names in the log
        self.names = collections.Counter()  # that recovery had from the log, there

    def kills(self):
        return sum(self.killed.values())

    def add_kill(self, plan, start):
        self.killed[plan.file_system] += 1
        self.naming[plan.file_system] += plan.changes_names() and start.kill == "work"

    def add_life(self, life):
        self.lives += 1
        self.starts += life.starts
        self.verified += life.verified
        self.recovered += life.recovered
        self.kept += life.kept
        self.disk.update(life.disk.counts)
        self.names[life.plan.file_system] += life.names

    def without_names(self):
        if self.naming.total() >= ENOUGH and self.names.total() == 0:
            return [*self.naming]
        return [name for name, count in self.naming.items()
                if count >= ENOUGH_OF_EACH and self.names[name] == 0]

    def text(self):
        on = ", ".join(f"{name} {count}" for name, count in self.killed.items())
        had = ", ".join(f"{name} {count}" for name, count in self.names.items())
        return (f"{self.kills()} power failures ({on}) in {self.lives} lives, {self.starts} starts, "
                f"{self.verified} verifications; the disk had {self.disk['writes']} writes and "
                f"{self.disk['flushes']} flushes, and lost {self.disk['lost']} writes or sectors; "
                f"{self.recovered} recoveries had something from the log, {self.kept} kept some of it; "
                f"recovered names: {had}")


def cycles(bench, options):
    """Lives of a few power failures each, until there were enough, or the time is over."""
    seed = options.seed
    say(f"seed {seed} (give it back with --seed)")
    begin = time.monotonic()
    totals = Totals()

    def enough():
        return ((options.kills and totals.kills() >= options.kills) or
                (options.seconds and time.monotonic() - begin > options.seconds))

    while not enough():
        draw = random.Random(f"{seed}.{totals.lives}")
        plan = draw_plan(draw, totals.lives, groups(options.workload, options.level),
                         options.file_system or FILE_SYSTEMS[options.level])
        say(f"life {totals.lives}: {' '.join(plan.workloads)}; {plan.media}{', apart' if plan.apart else ''}, "
            f"pool {plan.pool_size}{plan.commit and f', commit {plan.commit}'}, {plan.file_system}, mount {plan.mount}")
        with Life(bench, plan, draw) as life:
            try:
                life.begin()
                for cycle in range(options.kills_per_life):
                    if life.worked and not plan.restarts:
                        break
                    start = draw_start(draw, plan, first=cycle == 0)
                    life.run(start)
                    totals.add_kill(plan, start)
                    say(f"  {time.monotonic() - begin:6.1f} s, kill {totals.kills()}: "
                        f"{start.moment()}, batches {start.batch}, disk keeps {start.policy}; "
                        + ", ".join(f"{k} {v}" for k, v in life.acknowledged.items()))
                life.run(Start(recovery=draw.choice(("recover", "run", "library"))))
            except Failure as problem:
                failed(life, problem)
                return 1
            totals.add_life(life)
    say(totals.text())
    if totals.kills() >= ENOUGH and totals.recovered == 0:
        say("FAILED: there was nothing to recover")
        return 1
    if without := totals.without_names():
        say(f"FAILED: no names were in the log on {', '.join(without)}")
    return 1 if without else 0


def verify_case(bench, options):
    life, start = Life.load(bench, options.case, random.Random(0))
    with life:
        try:
            life.run(start)
        except Failure as problem:
            say("\n".join(text for _, text in life.logs[-1][1]))
            say(f"FAILED {problem}")
            return 1
    say("what was acknowledged is there: " + str(life.acknowledged))
    return 0


# ---------------------------------------------------------------------------------------------
# Failing disks.

def mapper(bench, options):
    """Every fault, and every way in which it goes on."""
    seed = options.seed
    say(f"seed {seed} (give it back with --seed)")
    for number, fault in enumerate(options.faults or FAULTS):
        draw = random.Random(f"{seed}.{fault}")
        plan = Plan(seed=draw.randrange(1, 10**9), workloads=("raw0", "raw1"), mapped=True,
                    media=MEDIA[number % len(MEDIA)], pool_size=draw.choice(("4M", "16M")))
        with Life(bench, plan, draw) as life:
            try:
                life.begin()
                # Files that are there, so that a fault can be in their blocks.
                life.run(Start("work", 1, batch="default"))
                for then in ("mend", "restart", "power"):
                    power = "fault" if then == "power" else ""
                    life.run(Start(kill=power, delay=draw.uniform(0, 1), fault=fault, then=then,
                                   batch=draw.choice(("default", "eager")), dram="1M",
                                   policy=draw.choice(plan.policies)))
                    say(f"  {fault}, then {then}: {life.errors} errors; "
                        + ", ".join(f"{k} {v}" for k, v in life.acknowledged.items()))
                life.run(Start())
                if fault != "delay" and life.errors == 0:
                    raise Failure(f"{fault}: the file system has refused nothing")
            except Failure as problem:
                failed(life, problem)
                return 1
    return 0


# ---------------------------------------------------------------------------------------------
# Whether this test can fail.

FILES = ("raw0", "cut", "replace", "recreate", "rotate", *NAMES, "maildir")
DATABASES = ("sqlite-wal", "sqlite-delete", "rocksdb")
LOSING = dict(cached=False, promise="nothing", mount="commit=300", policies=("none",))
JOURNAL = dict(media="disk", commit="fsync", promise="fsync")
CHECKS = {
    # What it is about; whether a loss must be found, of each of the workloads; how.
    "files without NVCache and without fsync": (True, dict(workloads=FILES, **LOSING)),
    "databases without NVCache and without fsync": (True, dict(workloads=DATABASES, **LOSING)),
    "without NVCache, everything synced": (False, dict(
        workloads=("replace", "rotate", "sqlite-wal", "sqlite-delete"), cached=False,
        promise="fsync")),
    "NVCache without names in the log": (True, dict(
        workloads=(*NAMES, "maildir"), write_back="auto", names="never", mount="commit=300", policies=("none",))),
    "NVCache, not recovered": (True, dict(
        workloads=("raw0", "sqlite-wal"), recovers=False, batches=("late",))),
    "NVCache, on a disk that ignores flushes": (True, dict(
        workloads=("raw0",), disk_lies=True, policies=("none",), batches=("eager",))),
    "a journal, not read": (True, dict(
        workloads=("records-fsync", "sqlite-wal"), **JOURNAL, recovers=False, policies=("none",), batches=("late",))),
    "a journal whose writes are nowhere when they have returned": (True, dict(
        workloads=("records-fsync", "sqlite-wal"), **JOURNAL, disk_lies=True, policies=("none",), batches=("late",))),
    "PostgreSQL without NVCache and with fsync=off": (True, dict(workloads=(POSTGRES,), **LOSING)),
    "PostgreSQL without NVCache": (False, dict(workloads=(POSTGRES,), cached=False, promise="fsync")),
    "PostgreSQL with NVCache, not recovered": (True, dict(
        workloads=(POSTGRES,), write_back="auto", recovers=False, policies=("none",), batches=("late",))),
}
# What was lost is not always what was acknowledged. Of a file that is cut again and again it is in
# five of eight lives of its own; of one that is removed and made again in fewer, for a file that is
# not there may have been removed a moment ago.
MOST_LIVES = 30


def checks(workload, level):
    """Those of this level, and of this workload; without one, all but those of what has to be asked for."""
    asked_for = {name for row in ASKED_FOR for name in row.workloads}
    return {name: check for name, check in CHECKS.items()
            if (check[1].get("media") == "disk") == (level == "disk") and
            (workload in check[1]["workloads"] if workload else
             asked_for.isdisjoint(check[1]["workloads"]))}


def self_check(bench, options):
    seed = options.seed
    say(f"seed {seed} (give it back with --seed)")
    wrong = 0
    for name, (must_fail, choices) in checks(options.workload, options.level).items():
        draw = random.Random(f"{seed}.{name}")
        missed = set(choices["workloads"])
        for _ in range(MOST_LIVES):
            plan = Plan(seed=draw.randrange(1, 10**9), **choices)
            found = short_life(bench, plan, draw, must_fail)
            missed -= {part.split()[0] for part in found.split("; ") if part}
            if must_fail:  # those of which no loss was found yet have the next life to themselves
                choices = {**choices, "workloads": tuple(sorted(missed))}
            say(f"  {name}: {found or 'nothing is lost'}")
            if not must_fail or not missed:
                break
        as_wanted = not missed if must_fail else not found
        wrong += not as_wanted
        say(f"[ {'OK  ' if as_wanted else 'FAIL'} ] {name}"
            + (f": no loss is found of {', '.join(missed)}" if must_fail and missed else ""))
    return 1 if wrong else 0


LOST = 20  # operations
# A file that was cut short may be again what it is now, some operations later. Hardly each time.
ATTEMPTS = 4


def lost(bench, options):
    """What a loss of the newest operations leaves is reported of each workload: they are said to be acknowledged, and
    nobody has done them."""
    for write_back, workloads in (("always", (*FILES[:5], *DATABASES)), ("auto", (*NAMES, "maildir"))):
        draw = random.Random(f"{options.seed}.{write_back}")
        plan = Plan(seed=draw.randrange(1, 10**9), workloads=workloads, write_back=write_back, pool_size="16M")
        with Life(bench, plan, draw) as life:
            try:
                life.begin()
                silent = set(workloads)
                for _ in range(ATTEMPTS):
                    if not silent:
                        break
                    life.run(Start("work", draw.uniform(2, 3), policy=draw.choice(plan.policies)))
                    life.run(Start())
                    there = dict(life.acknowledged)
                    found = silent
                    while silent and found:  # processes that share their names report one after the other
                        life.acknowledged = there | {name: there[name] + LOST for name in silent}
                        found = reported(life, silent)
                        silent = silent - found
                    life.acknowledged = there
                if silent:
                    raise Failure(f"{', '.join(sorted(silent))}: {LOST} operations are lost, and nothing is missing")
            except Failure as problem:
                failed(life, problem)
                return 1
    return 0


def reported(life, names):
    """Those of which a loss is reported."""
    try:
        life.run(Start())
    except Failure as expected:
        found = names & {part.split()[0] for part in str(expected).split("; ")}
        if not found:
            raise
        say(f"  as it should be: {expected}")
        return found
    return set()


def short_life(bench, plan, draw, must_fail):
    """What is found to be lost after a power failure or two."""
    with Life(bench, plan, draw) as life:
        try:
            life.begin()
            if plan.on_disk():  # it has the pool, and is honest so far
                life.disk.ignores_flush = False
                life.run(Start())
                life.disk.ignores_flush = plan.disk_lies
            for _ in range(1 if must_fail else 2):
                life.run(Start("work", draw.uniform(2, 3), policy=draw.choice(plan.policies),
                               batch=plan.batches[0]))
            life.run(Start())
        except Failure as problem:
            if not must_fail:
                failed(life, problem)
            elif not plan.recovers and not check_case(bench, life, problem):
                return ""
            return str(problem)
    return ""


def check_case(bench, life, found):
    """A saved case can be loaded. This one is no loss any more when it is recovered."""
    folder = life.save(str(found))
    again, start = Life.load(bench, folder, random.Random(0))
    with again:
        try:
            again.run(start)
            problem = "a saved case that must fail does not"
        except Failure as failure:
            problem = None if str(failure) == str(found) else f"not the same: {failure}"
    recovered, start = Life.load(bench, folder, random.Random(0))
    with recovered:
        recovered.plan.recovers = True
        try:
            recovered.run(start)
        except Failure as failure:
            problem = f"recovery does not bring it back: {failure}"
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    say(f"  saved, loaded, and recovered: {problem or 'there again'}")
    return problem is None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True, help="the build folder")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9,
                        help="repeats the random choices of a run")
    parser.add_argument("--kills", type=int, default=0, help="stop after so many power failures")
    parser.add_argument("--seconds", type=float, default=0, help="stop after this time")
    parser.add_argument("--kills-per-life", type=int, default=5,
                        help="power failures of the same NVDIMM and disk")
    parser.add_argument("--file-system", action="append", choices=MOUNTS,
                        help="of the disk; can be given several times; otherwise each in turn")
    parser.add_argument("--workload", choices=sorted({"both", *(name for row in (*WORKLOADS, *ON_DISK, *ASKED_FOR)
                                                                for name in row.workloads)}),
                        help="those that have this one; with --self-check its own checks")
    parser.add_argument("--level", choices=FILE_SYSTEMS, default="power", help="of the pool; disk: its journal is on the disk")
    parser.add_argument("--mapper", action="store_true",
                        help="disks that fail, by device-mapper in the guest")
    parser.add_argument("faults", nargs="*", help=f"of these only: {' '.join(FAULTS)}")
    parser.add_argument("--self-check", action="store_true", help="show that a loss is found")
    parser.add_argument("--lost", action="store_true", help="the same of a loss that is certain")
    parser.add_argument("--case", help="verify a saved failure again")
    options = parser.parse_args()
    try:
        bench = Bench(options)
    except guest_image.Missing as problem:
        say(f"there is no guest: {problem}")
        return 1 if os.environ.get("CI") else SKIP
    with bench:
        if options.case:
            return verify_case(bench, options)
        if options.self_check:
            return self_check(bench, options)
        if options.lost:
            return lost(bench, options)
        if options.mapper:
            return mapper(bench, options)
        return cycles(bench, options)


if __name__ == "__main__":
    sys.exit(main())
