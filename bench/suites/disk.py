# SPDX-License-Identifier: BSD-3-Clause
"""Pools with their journal on a disk: programs that sync, beside the same without NVCache on the same disk."""

import contextlib
import dataclasses
import subprocess

from harness import leavings, model, systems, units
from suites import everyday_databases, everyday_tools
from suites.everyday import measure
from suites.everyday_program import Program

SYSTEMS = ("plain", "disk")
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


OTHERS = ("sqlite3 DELETE", "sqlite3 TRUNCATE", "sqlite3 PERSIST", "sqlite3 WAL", "rewrite synced", "maildir", "git", "PostgreSQL",
          "Redis", "tar -x", "cp -r", "make")
BY_NAME = {each.name: each for each in (*everyday_tools.PROGRAMS, *everyday_databases.PROGRAMS)}
PROGRAMS = (Appends("appends", TITLES, COMPARED, {}, logged=True, seconds=(0.5, 2, 10)),
            Beside("beside", BESIDE, COMPARED, {}, logged=True, seconds=(0.5, 2, 10)),
            *(BY_NAME[name] for name in OTHERS))


class Disk(model.Suite):
    name = "disk"
    title = "A journal on the disk"
    about = (
        "A pool with its journal on the disk, so that a power failure takes nothing that was synced, beside the same program without "
        "NVCache on that disk. Programs sync what they sync by themselves; the default rule. With `--pools` on another disk than "
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
                yield model.Case(program.name, SYSTEMS, seconds=scale.choose(*program.seconds))

    def run(self, bench, case, system, scale):
        program = self.programs[case.name]
        seconds = measure(bench, program, system, scale, self.first)
        return [model.Outcome(program.titles[name], {"program": case.name}, {"seconds": each})
                for name, each in seconds.items()]

    # -----------------------------------------------------------------------------------------------

    def _rows(self, results):
        """What is timed, its title, its Result without NVCache and with."""
        for program in self.programs.values():
            for name, title in program.titles.items():
                found = [results.find(self.name, title, system) for system in SYSTEMS]
                if any(found):
                    yield (name, title, *found)

    def goals(self, results):
        goals = [model.ratio(f"{title}: journal on the disk / without NVCache", LIMITS[name], True, ours, plain, "seconds")
                 for name, title, plain, ours in self._rows(results) if name in LIMITS]
        one, device = (results.find(self.name, TITLES[name], system) for name, system in (("1 thread", "disk"), ("device", "plain")))
        goals.append(model.ratio("an append and its sync / the disk's own time for a block", DEVICE, True, one, device, "seconds"))
        return goals

    def tables(self, results):
        rows = []
        for _, title, plain, ours in self._rows(results):
            goal = model.ratio(title, 1, True, ours, plain, "seconds")
            spread = None if goal.low is None else f"{units.digits(goal.low)} to {units.text(goal.high, 'x')}"
            rows.append([title, *(units.text(each.median("seconds"), "s") if each else None for each in (plain, ours)),
                         None if goal.measured is None else units.text(goal.measured, "x"), spread])
        head = ["", *(systems.SYSTEMS[system] for system in SYSTEMS), "with / without", "from pair to pair"]
        return [model.Table("Programs with their journal on the disk", head, rows)] if rows else []
