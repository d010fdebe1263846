# SPDX-License-Identifier: BSD-3-Clause
"""What NVCache costs where it has nothing to do, and where nobody asks for durability."""

import contextlib
import os
import shutil
import sqlite3
import statistics
import time

from harness import model, systems, units

EXECS = 50
CALLS = ("read", "write", "pread", "lseek")
INSERTS = 200
# What a program does that never syncs: by the driver's argument, the names that it prints.
UNSYNCED = {"truncate": ("truncate",), "short": ("short",),
            "children": ("fork", "vfork", "posix_spawn", "posix_spawn_plain")}
TITLES = {
    "truncate": "`ftruncate` to 1,000 bytes, `pwrite` of 4 KiB",
    "short": "create, write 4 KiB, close, unlink",
    "fork": "`fork` with 100 open files that were written",
    "vfork": "`vfork`, likewise",
    "posix_spawn": "`posix_spawn`, likewise",
    "posix_spawn_plain": "`posix_spawn`, likewise, of a program without NVCache",
    "sqlite": "sqlite3, one insert, `synchronous=OFF`, default journal",
}
GOAL = 1.1


def _exec_seconds(program, environment):
    """From fork to the end of a program that does nothing. Spawned from here, so that both kinds pay
    the same for Python."""
    begin = time.perf_counter()
    os.waitpid(os.posix_spawn(program, [program], environment), 0)
    return time.perf_counter() - begin


class Overhead(model.Suite):
    name = "overhead"
    title = "Where NVCache has nothing to do"
    about = ("A program that opens no file for writing, from its start to its end, and calls on "
             "descriptors that are not cached; without and with the library. And programs that write "
             "and never sync, which have nothing to gain: the sqlite3 of the machine from its start to "
             "its end, and one process that does the same thing again and again.")

    def cases(self, scale):
        turns = scale.choose(1, 20, 60)
        yield model.Case("overhead", ("pagecache", "passthrough"), seconds=0.3, repetitions=turns)
        for case in UNSYNCED:
            yield model.Case(case, ("pagecache", "nvcache"), seconds=0.5)
        if shutil.which("sqlite3"):
            yield model.Case("sqlite", ("pagecache", "nvcache"),
                             {"inserts": scale.choose(20, INSERTS, 1000)}, seconds=1)

    def run(self, bench, case, system, scale):
        program = str(bench.program("nvcache_overhead"))
        if case.name in UNSYNCED:
            return self._unsynced(bench, program, case.name, system)
        if case.name == "sqlite":
            return self._sqlite(bench, case.parameters, system)
        with bench.place(system, pool="64M") as place:
            execs = [_exec_seconds(program, place.environment)
                     for _ in range(scale.choose(5, EXECS, EXECS))]
            calls = dict(line.split() for line in place.run([program, "calls"]).splitlines())
        return [model.Outcome("exec", {}, {"seconds": statistics.median(execs)})] + [
            model.Outcome("call", {"call": name}, {"ns": float(calls[name])}) for name in CALLS]

    @staticmethod
    def _unsynced(bench, program, case, system):
        # The children of the last case cannot have the pool that their parent uses.
        with bench.place(system, pool="64M", settings={"REQUIRED": 0}) as place:
            target = place.folder if case == "children" else place.folder / "file"
            lines = place.run([program, case, target]).splitlines()
            times = {name: float(ns) for name, ns in map(str.split, lines)}
            if set(times) != set(UNSYNCED[case]):
                raise systems.Broken(f"{program} {case} printed {sorted(times)}")
            if case == "truncate" and (place.folder / "file").stat().st_size != 1000 + 4096:
                raise systems.Broken("the file does not have its size")
            Overhead._check_log(bench, place)
        return [model.Outcome("unsynced", {"what": name}, {"ns": ns}) for name, ns in times.items()]

    @staticmethod
    def _sqlite(bench, parameters, system):
        inserts = parameters["inserts"]
        script = ("PRAGMA synchronous=OFF; CREATE TABLE t(x);"
                  + "INSERT INTO t VALUES(hex(randomblob(50)));" * inserts)
        with bench.place(system, pool="64M") as place:
            database = place.folder / "database"
            begin = time.perf_counter()
            place.run(["sqlite3", database, script])
            seconds = time.perf_counter() - begin
            with contextlib.closing(sqlite3.connect(database)) as found:
                if found.execute("SELECT count(*) FROM t").fetchone() != (inserts,):
                    raise systems.Broken("the database does not have its rows")
            Overhead._check_log(bench, place)
        return [model.Outcome("unsynced", {"what": "sqlite"}, {"ns": seconds * 1e9 / inserts})]

    @staticmethod
    def _check_log(bench, place):
        if place.pool and bench.counters(place)["statistics"]["entries_cleaned"] == 0:
            raise systems.Broken("nothing went through the log")

    def _unsynced_pairs(self, results):
        for what, title in TITLES.items():
            pair = [results.find(self.name, "unsynced", system, what=what)
                    for system in ("nvcache", "pagecache")]
            if all(pair):
                yield title, *pair

    def goals(self, results):
        return [model.ratio(f"{title} / without NVCache", GOAL, True, with_it, without, "ns")
                for title, with_it, without in self._unsynced_pairs(results)]

    def _pairs(self, results):
        for name, metric, parameters in (("exec", "seconds", {}),
                                         *(("call", "ns", {"call": call}) for call in CALLS)):
            pair = [results.find(self.name, name, system, **parameters)
                    for system in ("pagecache", "passthrough")]
            if all(pair):
                what = "start and end of a program" if name == "exec" else f"`{parameters['call']}`"
                yield what, metric, *pair

    def summary(self, results):
        found = {what: (metric, with_it.median(metric) - without.median(metric))
                 for what, metric, without, with_it in self._pairs(results)}
        if len(found) < 1 + len(CALLS):
            return None
        metric, first = found.pop("start and end of a program")
        most = max(more for _, more in found.values())
        return (f"A program takes {units.text(first, model.METRICS[metric].unit)} longer to start and "
                f"end, and a call on a file that is not cached at most {units.text(most, 'ns')}.")

    def tables(self, results):
        rows = []
        for what, metric, without, with_it in self._pairs(results):
            unit = model.METRICS[metric].unit
            more = with_it.median(metric) - without.median(metric)
            rows.append([what, *(units.text(r.median(metric), unit) for r in (without, with_it)),
                         f"{'+' if more >= 0 else '−'}{units.text(abs(more), unit)}"])
        unsynced = []
        for title, with_it, without in self._unsynced_pairs(results):
            ratio = with_it.median("ns") / without.median("ns")
            unsynced.append([title, *(units.text(r.median("ns"), "ns") for r in (without, with_it)),
                             f"{ratio:.2f}x"])
        tables = [model.Table("Where NVCache has nothing to do",
                              ["", "without", "with", "more"], rows)]
        if unsynced:
            tables.append(model.Table("Where nobody syncs", ["", "without", "with", "ratio"], unsynced))
        return tables
