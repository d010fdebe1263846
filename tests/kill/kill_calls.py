#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Kills short runs at every boundary of a system call in turn: writers, sqlite3, recovery itself, the
start of a program on a dirty pool, the making of a pool. After each kill the pool is recovered, and
what was acknowledged is there; what was in flight is there whole or not at all.

The short form takes some boundaries of each case, the same number apart; the seed says which.

Examples:
  kill_calls.py --nvcache build/nvcache --tools build --scratch build/test-data
  kill_calls.py ... --kills 0 recover            every boundary of one case
  kill_calls.py ... --at 217 sqlite_wal          one boundary of a failure again"""

import argparse
import json
import mmap
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import time

import kit
from kit import EARLY, KEPT, LATE, check, contents

KILLED = 137
SEGMENTS_OFFSET = 262144  # in a pool
CALLS = {}  # number to name
for line in pathlib.Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").read_text().splitlines():
    definition = re.fullmatch(r"#define __NR_(\w+) (\d+)", line)
    if definition:
        CALLS[int(definition.group(2))] = definition.group(1)


def describe(files):
    return {name: f"{len(data)} bytes" for name, data in files.items()}


def set_for(command, env):
    """The command line of env or kill_at_call that sets variables for the command alone."""
    return [*(f"{name}={value}" for name, value in (env or {}).items()), *map(str, command)]


class Place(kit.Bench):
    """A folder on the disk and a pool, both new."""

    def __init__(self, options, size="2M"):
        super().__init__(options, size=size, dram="256k", timeout=60)
        self.options = options
        self.data = self.folder / "data"
        self.data.mkdir()

    def preload(self, pace):
        return self.settings(NVCACHE_REQUIRED="1", NVCACHE_NOTICE="0", **pace)

    def kill_at(self, number, command, env=None):
        """Boundaries that there were, where it was killed (or None), its exit status, its output."""
        report = self.pools / "report"
        traced = [self.options.kill_at_call, str(report), str(number), *set_for(command, env)]
        done = subprocess.run(traced, cwd=self.data, env=dict(os.environ, LC_ALL="C"),
                              timeout=self.timeout, check=False, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode == kit.SKIPPED:
            kit.skip(done.stderr.decode(), must_run_in_ci=False)
        check(done.returncode == 0, f"kill_at_call: {done.stderr.decode(errors='replace')}")
        boundaries, call, side, status = report.read_text().split()
        name = CALLS.get(int(call), call)
        where = f"{side} of {name}" if int(status) == KILLED else None
        return int(boundaries), where, int(status), done

    def keep_pool(self):
        """As it was found, for whoever looks at a failure."""
        if self.pool.exists():
            shutil.copyfile(self.pool, self.folder / "pool.before")

    def recover(self, status=0):
        if not self.pool.exists() or self.options.plant == "skip":
            return
        self.keep_pool()
        super().recover(status)
        if status == 0:
            check(self.status()["state"] == "clean", "the pool is not clean after recovery")


def drop_last_group(place):
    """A fault that has to be found: the newest committed write call is gone."""
    if not place.pool.exists():
        return
    text = place.run([place.nvcache, "dump", place.pool, "--json"], False, may_fail=True).stdout
    records = [json.loads(line) for line in text.splitlines()]
    first = [record for record in records if record.get("group_index") == 0
             and record["state"] == "pending"]
    if first:
        with open(place.pool, "r+b") as pool:
            pool.seek(56)
            (segment_size,) = struct.unpack("<Q", pool.read(8))
            segment, unit = map(int, first[-1]["place"].split("."))
            pool.seek(SEGMENTS_OFFSET + segment * segment_size + unit * 64)
            pool.write(bytes(64))


# ---------------------------------------------------------------------------------------------
# Each case: begin() once, then one(n) for each boundary: kills there, recovers, looks. It returns
# what kill_at says, so that the number of boundaries is known.

class Case:
    def __init__(self, options):
        self.options = options

    def begin(self):
        pass

    def end(self):
        pass


class Steps(Case):
    """kill_steps, whose files are what they were after the last step that had returned, or after
    the next one."""

    def __init__(self, options, pace, threads=1):
        super().__init__(options)
        self.pace = pace
        self.threads = threads

    def begin(self):
        count = subprocess.run([self.options.kill_steps, ".", "", "1", "0"], check=False).returncode
        self.states = [{}]
        for steps in range(1, count + 1):
            with Place(self.options) as place:
                shared = self.prepare(place)
                place.without(self.options.kill_steps, place.data, shared, self.threads, steps)
                self.states.append(contents(place.data / "0"))
        check(len(self.states) > 20, "hardly any steps")

    def prepare(self, place):
        for thread in range(self.threads):
            (place.data / str(thread)).mkdir()
        shared = place.pools / "shared"
        shared.write_bytes(bytes(mmap.PAGESIZE))
        return shared

    def one(self, number, place):
        shared = self.prepare(place)
        command = [self.options.kill_steps, place.data, shared, self.threads, 1000]
        env = place.preload(self.pace)
        if self.options.plant == "early":
            env["KILL_STEPS_PLANT"] = "early"
        result = place.kill_at(number, command, env)
        check(result[2] in (0, KILLED), f"status {result[2]}: {result[3].stderr.decode()}")
        if self.options.plant == "drop":
            drop_last_group(place)
        place.recover()
        words = struct.unpack_from(f"<{self.threads}Q", shared.read_bytes())
        for thread, done in enumerate(words):
            found = contents(place.data / str(thread))
            allowed = self.states[done:done + 2]
            check(found in allowed, f"thread {thread}: {done} steps are acknowledged; found "
                                    f"{describe(found)}, expected {describe(allowed[0])}")
        return result


class Sqlite(Case):
    """Transactions of sqlite3: sound, all that were acknowledged, at most one more."""
    ROWS = 4

    def __init__(self, options, mode, pace):
        super().__init__(options)
        self.mode = mode
        self.pace = pace

    @staticmethod
    def value(row):
        return f"{row}." * (300 * row)

    def one(self, number, place):
        place.without("sqlite3", "db", f"PRAGMA journal_mode={self.mode}; PRAGMA synchronous=FULL;"
                      "CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT);", cwd=place.data)
        # One lock for a life, or its files are write-through.
        script = "PRAGMA locking_mode=EXCLUSIVE; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=4;" + "".join(
            f"BEGIN; INSERT INTO t VALUES({row}, replace(hex(zeroblob({300 * row})), '00', "
            f"'{row}.')); COMMIT; SELECT writefile('{place.pools}/said{row}', '');"
            for row in range(1, self.ROWS + 1))
        result = place.kill_at(number, ["sqlite3", "-bail", "db", script],
                               place.preload(self.pace))
        done = result[3]
        check(result[2] in (0, KILLED), f"status {result[2]}: {done.stderr.decode()}")
        acknowledged = len(list(place.pools.glob("said*")))
        if self.options.plant == "drop":
            drop_last_group(place)
        place.recover()
        place.check_rows(acknowledged, self.value, cwd=place.data)
        if result[1] is None:
            check(acknowledged == self.ROWS, f"only {acknowledged} rows")
        return result


class Recovery(Case):
    """Recovery, killed twice, of a pool that holds records of a file that had bytes, of new ones, one of them synced by
    the program, and, if `kept`, of one that is gone for good. The files are put back in place before each run, since
    records know them by their inodes."""

    PROGRAM = """
import os, signal
def new(name): return os.open(name, os.O_RDWR | os.O_CREAT, 0o640)
there, fresh, other, synced, gone = (new(name) for name in NAMES)
for i in range(6):
    for fd in there, fresh, other, synced, gone:
        os.pwrite(fd, bytes([97 + i]) * 7000, 3000 * i + fd)
    if i == 0:
        os.fsync(synced)
        os.fsync(gone)
os.pwrite(there, b'the last word', 100)
os.kill(os.getpid(), signal.SIGKILL)
"""
    NAMES = ("there", "fresh", "other", "synced", "gone")
    BEFORE = {"there": b"." * 20000}

    def __init__(self, options, command, kept):
        super().__init__(options)
        self.command = command
        self.kept = kept
        self.place = None

    def begin(self):
        self.place = Place(self.options)
        place = self.place
        program = f"NAMES = {self.NAMES}{self.PROGRAM}"
        (place.data / "there").write_bytes(self.BEFORE["there"])
        done = place.run(["env", *set_for([sys.executable, "-c", program], place.preload(LATE))],
                         False, cwd=place.data, may_fail=True)
        check(done.returncode == -9, f"exit code {done.returncode}: {done.stderr}")
        check(place.pending() > 30, "nothing is pending")
        self.pool = place.pool.read_bytes()
        self.expected = self.without_cache(program)
        if self.kept:
            (place.data / "gone").unlink()
            del self.expected["gone"]

    def without_cache(self, program):
        with Place(self.options) as plain:
            (plain.data / "there").write_bytes(self.BEFORE["there"])
            plain.run([sys.executable, "-c", program], False, cwd=plain.data, may_fail=True)
            return contents(plain.data)

    def end(self):
        if self.place is not None:
            self.place.__exit__(None, None, None)

    def restore(self):
        with open(self.place.pool, "r+b") as pool:
            pool.write(self.pool)
        for path in self.place.data.iterdir():
            with open(path, "r+b") as file:
                file.truncate(0)
                file.write(self.BEFORE.get(path.name, b""))

    def one(self, number, _):
        place = self.place
        self.restore()
        result = place.kill_at(number, self.command(place))
        if number > 0:  # and the next try somewhere else
            place.kill_at(1 + number * 7919 % result[0], self.command(place))
        place.recover(KEPT if self.kept else 0)
        found = contents(place.data)
        check(sorted(found) == sorted(self.expected), f"files {sorted(found)}")
        for name, data in self.expected.items():
            check(found[name] == data, f"{name}: {len(found[name])} bytes, expected {len(data)}")
        if self.kept:
            pending = place.pending()
            check(0 < pending < 20, f"{pending} records are kept")
        return result


class Creation(Case):
    """A pool that is there is whole; one that is not can be made. Nothing else is left."""

    def one(self, number, place):
        create = [place.nvcache, "create", place.pool, "--size", place.size, "--emulate"]
        result = place.kill_at(number, create)
        names = {path.name for path in place.pools.iterdir()} - {"report"}
        check(names <= {"pool"}, f"left behind: {names}")
        if not place.pool.exists():
            check(result[1] is not None, "no pool was made")
            place.without(*create)
        check(place.status()["state"] == "clean", "the new pool is not clean")
        place.with_cache("sh", "-c", "echo works > data/file")
        check((place.data / "file").read_text() == "works\n", "the new pool does not work")
        return result


def cases(options):
    def recover(place):
        return [place.nvcache, "recover", place.pool]

    def run(place):
        return place.cached(["true"])

    return {
        "steps_late": lambda: Steps(options, LATE),
        "steps_early": lambda: Steps(options, EARLY),
        "steps_threads": lambda: Steps(options, EARLY, threads=3),
        "sqlite_wal": lambda: Sqlite(options, "wal", LATE),
        "sqlite_delete": lambda: Sqlite(options, "delete", EARLY),
        "sqlite_truncate": lambda: Sqlite(options, "truncate", LATE),
        "recover": lambda: Recovery(options, recover, kept=False),
        "recover_kept": lambda: Recovery(options, recover, kept=True),
        "run": lambda: Recovery(options, run, kept=False),
        "create": lambda: Creation(options),
    }


# ---------------------------------------------------------------------------------------------

def one(options, name, case, number):
    """Kills at one boundary; a failure leaves everything for who looks at it."""
    with Place(options) as place:
        here = getattr(case, "place", None) or place
        try:
            return case.one(number, place)
        except (kit.Failure, subprocess.TimeoutExpired) as problem:
            if options.plant is None:
                for thing in (place, here):
                    thing.keep = True
                kept = f"\n  kept: {here.folder} (pool.before: before recovery) and {here.pools}"
            else:
                kept = ""
            raise kit.Failure(f"at boundary {number}: {problem}{kept}\n"
                                  f"  again: --seed {options.seed} --at {number} {name}") from problem


def storm(options, draw, name, total):
    case = cases(options)[name]()
    try:
        case.begin()
        if options.at:
            _, where, _, _ = one(options, name, case, options.at)
            kit.say(f"         killed at {options.at}: {where}")
            return
        boundaries, where, _, _ = one(options, name, case, 0)
        check(where is None and boundaries > 20, f"a whole run has {boundaries} boundaries")
        stride = max(1, boundaries // options.kills) if options.kills else 1
        first = draw.randrange(stride) + 1
        kills = 0
        calls = set()
        for number in range(first, boundaries + 1, stride):
            _, where, _, _ = one(options, name, case, number)
            kills += where is not None
            calls.add(where)
        total[0] += kills
        kit.say(f"         {boundaries} boundaries; {kills} kills, at {first}, {first + stride}"
                    f", ...; {len(calls)} different")
        check(kills * stride > boundaries // 2, "most runs were over before the kill")
    finally:
        case.end()


def self_check(options):
    """Faults that are planted must be found. Some show at few boundaries, most of them late ones: so all are tried,
    from the last one on, and the first that shows it ends it."""
    for plant, name in (("early", "steps_late"), ("skip", "steps_late"), ("drop", "steps_late"),
                        ("skip", "sqlite_wal"), ("drop", "sqlite_wal"), ("skip", "recover")):
        case = cases(options)[name]()
        try:
            options.plant = None
            case.begin()
            boundaries, _, _, _ = one(options, name, case, 0)
            options.plant = plant
            for number in range(boundaries, 0, -1):
                one(options, name, case, number)
            kit.say(f"{plant:6} {name}: NOT FOUND")
            sys.exit(1)
        except kit.Failure as problem:
            kit.check(options.plant is not None and isinstance(problem.__cause__, kit.Failure), str(problem))
            kit.say(f"{plant:6} {name}: found {str(problem).splitlines()[0][:120]}")
        finally:
            case.end()


def main():
    parser = kit.arguments(__doc__, seed=True)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--tools", required=True, type=pathlib.Path,
                        help="the folder of kill_at_call, kill_steps and libnvcache.so")
    parser.add_argument("--kills", type=int, default=40, help="of each case; 0: at every boundary")
    parser.add_argument("--at", type=int, default=0, help="one boundary only")
    parser.add_argument("--self-check", action="store_true", help="are planted faults found?")
    options = parser.parse_args()
    options.plant = None
    tools = options.tools.resolve()
    options.kill_at_call = str(tools / "kill_at_call")
    options.kill_steps = str(tools / "kill_steps")
    draw = random.Random(options.seed)
    if options.self_check:
        self_check(options)
        return
    total = [0]
    begin = time.monotonic()
    try:
        kit.main(options, {name: lambda name=name: storm(options, draw, name, total) for name in cases(options)})
    finally:
        kit.say(f"{total[0]} kills in {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
