# SPDX-License-Identifier: BSD-3-Clause
"""Pools with their journal on a disk, which syncs wait for, or outputs alone: programs that sync, beside the same without
NVCache on the same disk."""

import contextlib
import dataclasses
import subprocess

from harness import leavings, model, systems, units
from suites import everyday_databases, everyday_tools, rocksdb
from suites.everyday import eatmydata_missing, measure
from suites.everyday_program import Program

SYSTEMS = ("plain", "disk", "eatmydata", "output")
OWN = SYSTEMS[:2]  # of the programs that are this suite's own
FLOOD = 200  # megabytes a second
COUNTS = (20, 400, 2000)  # of one thread
WAYS = {"1 thread": ("threads", 1), "2 threads": ("threads", 2), "8 threads": ("threads", 8), "8 processes": ("processes", 8)}
TITLES = {"1 thread": "512 bytes appended and synced, by one thread", "2 threads": "two threads in one file",
          "8 threads": "eight threads in one file", "8 processes": "eight processes, each in its file",
          "device": "the disk's own time for one durable block"}
BESIDE = {"beside": f"one thread, beside a program that writes {FLOOD} MB/s"}
COMPARED = "names, modes, contents"
# At most, in terms of the same without NVCache: what is timed -> limit.
LIMITS = {
    "1 thread": 0.9, "2 threads": 0.9, "8 threads": 0.5, "8 processes": 0.6, "beside": 0.3,
    "sqlite3 DELETE": 0.8, "sqlite3 TRUNCATE": 0.8, "sqlite3 PERSIST": 0.8, "sqlite3 WAL": 0.9,
    "rewrite synced": 0.8, "maildir": 0.9, "git": 1, "1 clients": 1, "8 clients": 0.9, "set": 0.95,
    "tar -x": 1.05, "cp -r": 1.05, "make": 1.05,
}
# With the journal on a fast disk before a slow one.
BEFORE_SLOW = dict.fromkeys(
    ("sqlite3 DELETE", "sqlite3 TRUNCATE", "sqlite3 PERSIST", "sqlite3 WAL", "rewrite synced", "maildir", "git", "1 clients",
     "8 clients", "set", "fillsync 1", "fillsync 8"), 0.2)
# Commit at output: in terms of the same without NVCache, and of libeatmydata.
AT_OUTPUT = {
    "sqlite3 DELETE": (0.25, 1.3), "sqlite3 TRUNCATE": (0.25, 1.3), "sqlite3 PERSIST": (0.25, 1.3), "sqlite3 WAL": (0.25, 1.3),
    "rewrite synced": (None, 1.3), "maildir": (None, 1.3), "git": (None, 1.3), "dpkg": (None, 1.3),
    "fillsync 1": (None, 1.3), "fillsync 8": (None, 1.3), "1 clients": (0.9, None), "8 clients": (0.6, None), "set": (0.6, None),
}
# One append, in terms of the disk's own time for a durable block.
DEVICE = 1.25


def _append(turn, way, name, count, number):
    driver = turn.bench.program("nvcache_appends")
    turn.quiet()
    return float(turn.run([driver, way, turn.work / name, max(count // number, 1), number]))


@dataclasses.dataclass(frozen=True)
class Appends(Program):
    def run(self, turn):
        count = turn.scale.choose(*COUNTS)
        seconds = {name: _append(turn, way, name.replace(" ", "-"), count, number) for name, (way, number) in WAYS.items()}
        turn.settle()
        left = leavings.tree(turn.work)
        if turn.place.system == "plain":
            turn.quiet()
            place = turn.place.folder / "device"
            seconds["device"] = float(turn.run([turn.bench.program("nvcache_appends"), "device", place, count]))
        return seconds, left


@dataclasses.dataclass(frozen=True)
class Beside(Program):
    def run(self, turn):
        driver = turn.bench.program("nvcache_appends")
        turn.quiet()
        with subprocess.Popen([driver, "flood", turn.place.folder / "flood", str(FLOOD)], env=turn.plain) as flood:
            try:
                count = turn.scale.choose(*COUNTS) // 4
                seconds = float(turn.run([driver, "threads", turn.work / "file", count, 1]))
                if flood.poll() is not None:
                    raise systems.Broken("the program beside has ended")
            finally:
                with contextlib.suppress(ProcessLookupError):
                    flood.kill()
        turn.settle()
        return {"beside": seconds}, leavings.tree(turn.work)


@dataclasses.dataclass(frozen=True)
class FillSync(Program):
    """RocksDB's db_bench: keys in random order, each write synced."""

    def run(self, turn):
        seconds, left = {}, {}
        for name in self.titles:
            threads = int(name.split()[1])
            count = turn.scale.choose(200, 2000, 10000) // threads
            command = ["db_bench", f"--db={turn.work / name.replace(' ', '-')}", f"--num={count}", "--key_size=16", "--value_size=100",
                       "--compression_type=none", "--seed=301"]
            turn.quiet()
            said = turn.run([*command, "--benchmarks=fillrandom", f"--threads={threads}", "--sync=1"])
            operations, metrics, _ = rocksdb.parse(said)["fillrandom"]
            seconds[name] = operations / metrics["rate"]
            turn.settle()
            said = turn.without([*command, "--benchmarks=readseq", "--use_existing_db=1"])
            left[name] = f"{operations} writes, {rocksdb.parse(said)['readseq'][0]} keys"
        return seconds, left


# More than in `everyday`: what a program's start and end cost is not the question here.
TRANSACTIONS = (10, 1500, 1500)
REPLACEMENTS = (10, 1000, 1000)
BY_NAME = {each.name: each for each in (*everyday_tools.PROGRAMS, *everyday_databases.PROGRAMS)}
OTHERS = (*(everyday_tools.sqlite(f"sqlite3 {journal}", journal, journal, counts=TRANSACTIONS) for journal in everyday_tools.SQLITE_JOURNALS),
          everyday_tools.replaced(REPLACEMENTS),
          *(BY_NAME[name] for name in ("maildir", "git", "dpkg", "PostgreSQL", "Redis", "tar -x", "cp -r", "make")))
PROGRAMS = (Appends("appends", TITLES, COMPARED, {}, logged=True, seconds=(0.5, 2, 10)),
            Beside("beside", BESIDE, COMPARED, {}, logged=True, seconds=(0.5, 2, 10)),
            *OTHERS,
            FillSync("RocksDB", {"fillsync 1": "RocksDB's `fillsync`, one thread", "fillsync 8": "the same, eight threads"}, "how many writes and keys",
                     {"db_bench": "rocksdb-tools"}, kind="databases", logged=True, seconds=(1, 2, 10)))


class Disk(model.Suite):
    name = "disk"
    title = "A journal on the disk"
    about = (
        "A pool with its journal on the disk, so that a power failure takes nothing that was synced, beside the same program without "
        "NVCache on that disk, with libeatmydata, and with a pool whose syncs return at once while outputs wait, with all files exclusive. "
        "Programs sync what they sync by themselves; else the default rule. With `--pools` on another disk than "
        "`--folder`, the journal is there: a fast disk before a slow one. What a program leaves behind is compared with what it has left "
        "without NVCache; a difference is a failure.")

    def __init__(self):
        self.programs = {program.name: program for program in PROGRAMS}
        self.first = {}

    def left_out(self, bench):
        found = {name: program.missing(bench) for name, program in self.programs.items()}
        return {name: reason for name, reason in found.items() if reason}

    def cases(self, scale):
        for program in self.programs.values():
            if not (scale.name == "smoke" and program.slow):
                yield model.Case(program.name, self._systems(program), seconds=scale.choose(*program.seconds))

    @staticmethod
    def _systems(program):
        some = OWN if isinstance(program, (Appends, Beside)) else SYSTEMS
        return tuple(each for each in some if each != "eatmydata" or not eatmydata_missing())

    def run(self, bench, case, system, scale):
        program = self.programs[case.name]
        seconds = measure(bench, program, system, scale, self.first)
        parameters = {"program": case.name, "apart": bench.is_journal_apart()}
        return [model.Outcome(program.titles[name], parameters, {"seconds": each})
                for name, each in seconds.items()]

    # -----------------------------------------------------------------------------------------------

    def _rows(self, results):
        """What is timed, its title, and its Result on each system, or None."""
        for program in self.programs.values():
            for name, title in program.titles.items():
                found = [results.find(self.name, title, system) for system in SYSTEMS]
                if any(found):
                    yield (name, title, *found)

    def goals(self, results):
        goals = []
        for name, title, plain, ours, unsynced, output in self._rows(results):
            limits = BEFORE_SLOW if plain and plain.parameters["apart"] else LIMITS
            of_plain, of_unsynced = AT_OUTPUT.get(name, (None, None))
            for what, limit, over, under in (
                    ("journal on the disk / without NVCache", limits.get(name), ours, plain),
                    ("commit at output / without NVCache", of_plain, output, plain),
                    ("commit at output / libeatmydata", of_unsynced, output, unsynced)):
                if limit is not None:
                    goals.append(model.ratio(f"{title}: {what}", limit, True, over, under, "seconds"))
        one, device = (results.find(self.name, TITLES[name], system) for name, system in (("1 thread", "disk"), ("device", "plain")))
        goals.append(model.ratio("an append and its sync / the disk's own time for a block", DEVICE, True, one, device, "seconds"))
        return goals

    def tables(self, results):
        rows = []
        for _, title, *found in self._rows(results):
            plain, ours, unsynced, output = found
            ratios = [model.ratio(title, 1, True, over, under, "seconds")
                      for over, under in ((ours, plain), (output, plain), (output, unsynced))]
            rows.append([title, *(units.text(each.median("seconds"), "s") if each else None for each in found),
                         *(None if goal.measured is None else units.text(goal.measured, "x") for goal in ratios)])
        head = ["", *(systems.SYSTEMS[system] for system in SYSTEMS), "journal / without NVCache", "output / without NVCache",
                "output / libeatmydata"]
        return [model.Table("Programs with their journal on the disk", head, rows)] if rows else []
