# SPDX-License-Identifier: BSD-3-Clause
"""The ways in which a program gets NVCache: what each covers, and what it costs."""

import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

from harness import model, systems, units

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = 4096
POOL, POOL_SMOKE = 512 << 20, 128 << 20
# The cleanup thread waits until a quarter of the log is full: a round writes less.
HELD_BACK = {"BATCH_MIN": 1 << 20, "BATCH_MAX": 1 << 20, "BATCH_DELAY": 60000}
CALLS, CALLS_SMOKE = 24576, 2048
# Reads that the driver cannot have without loading a page: each page of its two files once.
MISSES = 16384 + 256
EXECS = 50

# Front end -> the same program and libc without it.
PLAIN = {"preload": "glibc", "musl": "musl_plain", "musl_static": "musl_static_plain", "api": "glibc"}
PROGRAMS = {
    "preload": "nvcache_front_end",
    "glibc": "nvcache_front_end",
    "api": "nvcache_front_end_api",
    "musl": "musl-programs/front_end_musl",
    "musl_plain": "musl-programs/front_end_musl",
    "musl_static": "musl-programs/front_end_musl_static",
    "musl_static_plain": "musl-programs/front_end_musl_static_plain",
}
# Has the engine without a pool, too. The modified musl does not load it then.
ALWAYS_THERE = ("preload", "musl_static", "api")
CALL_NAMES = ("pwrite", "pread", "uncached")


def _count(path, pattern):
    return len(re.findall(pattern, (ROOT / path).read_text(encoding="utf-8"), re.M))


def _covered(bench, system):
    """How many calls, from the sources; the C API's are what its library exports."""
    if system == "api":
        names = subprocess.run(["nm", "-D", "--defined-only", bench.program("libnvcache-api.so")],
                               check=True, text=True, stdout=subprocess.PIPE).stdout
        return len(re.findall(r" T nvcache_", names))
    if system == "preload":
        return _count("libc-shim/preload/wrapped.def", r"^NVCACHE_(WRAP|OPTIONAL|ALIAS)\(")
    return _count("libc-shim/calls/by_number.cc", r"^ +NVCACHE_ON\(SYS_")


def _stripped_size(path):
    with tempfile.NamedTemporaryFile(prefix=systems.PREFIX) as copy:
        subprocess.run(["strip", "-o", copy.name, path], check=True)
        return os.stat(copy.name).st_size


def _library_size(bench, system):
    """Of a static program, what it is larger than the same program without the engine."""
    if system == "musl_static":
        return (_stripped_size(bench.program(PROGRAMS[system]))
                - _stripped_size(bench.program(PROGRAMS[PLAIN[system]])))
    return _stripped_size(bench.program({
        "preload": "libnvcache.so", "musl": "musl/lib/libnvcache-musl.so",
        "api": "libnvcache-api.so"}[system]))


def _spawn(environment, *command):
    _, status = os.waitpid(os.posix_spawn(command[0], command, environment), 0)
    if status != 0:
        raise systems.Broken(f"{' '.join(command)}: wait status {status}")


def _seconds(times, environment, *command):
    """The median, from fork to the end of the program."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        _spawn(environment, *command)
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


@contextlib.contextmanager
def _place(bench, system, scale):
    """Only glibc's front end is preloaded."""
    where = "nvcache" if system in PLAIN else "pagecache"
    with bench.place(where, pool=str(scale.choose(POOL_SMOKE, POOL, POOL)),
                     settings=HELD_BACK) as place:
        place.system = system
        if system != "preload":
            place.environment.pop("LD_PRELOAD", None)
        yield place


class Frontends(model.Suite):
    name = "frontends"
    title = "Front ends"
    document = "front-ends.md"
    systems = {
        "preload": "LD_PRELOAD, glibc",
        "musl": "musl, dynamic",
        "musl_static": "musl, static",
        "api": "C API",
        "glibc": "glibc, without NVCache",
        "musl_plain": "modified musl, without a pool",
        "musl_static_plain": "modified musl, static, linked without the engine",
    }
    about = (
        "One program of C, built for glibc, for the modified musl (dynamic and static) and for the C "
        "API, times its own calls: pwrite of 4 KiB at random pages of a file of 64 MiB that are not in "
        "DRAM, hot pread of 4 KiB within 1 MiB, and pread of one byte of a file that is only read and "
        "so not cached. One lap of the log was written before; the log is emptied before each round of "
        "24,576 calls, which is less than what wakes the cleanup thread. Every byte is read again, "
        "and the pool must have counted all that was written. The time of a program is from its "
        "posix_spawn to its end.")

    def missing(self, bench):
        if all((bench.build / program).exists() for program in PROGRAMS.values()):
            return None
        return "the modified musl is not built: configure with -DNVCACHE_MUSL=ON"

    def cases(self, scale):
        return [model.Case("library", tuple(PLAIN), seconds=0.1, repetitions=1),
                model.Case("calls", tuple(PROGRAMS), seconds=scale.choose(0.3, 2.5, 2.5)),
                model.Case("exec", tuple(PROGRAMS), seconds=scale.choose(0.2, 0.6, 0.6))]

    def run(self, bench, case, system, scale):
        return getattr(self, f"_{case.name}")(bench, system, scale)

    @staticmethod
    def _library(bench, system, _):
        return [model.Outcome("covered", {}, {"count": _covered(bench, system)}),
                model.Outcome("size", {}, {"bytes": _library_size(bench, system)})]

    @staticmethod
    def _calls(bench, system, scale):
        with _place(bench, system, scale) as place:
            warm = scale.choose(POOL_SMOKE, POOL, POOL) if place.pool else 0
            found = json.loads(place.run([
                bench.program(PROGRAMS[system]), "calls", place.folder,
                scale.choose(CALLS_SMOKE, CALLS, CALLS), warm]))
            if place.pool:
                status = bench.counters(place)
                counters = status["statistics"]
                for counter, expected in (("bytes_cleaned", found["written"]), ("misses", MISSES),
                                          ("full_waits", 0)):
                    if counters[counter] != expected:
                        raise systems.Broken(f"{system}: {counter} of the pool is "
                                             f"{counters[counter]}, not {expected}")
                if not systems.went_round(status):
                    raise systems.Broken("the log was not warm: it was never written as a whole")
        return [model.Outcome(name, {}, {"ns": found[name]}) for name in CALL_NAMES]

    @staticmethod
    def _exec(bench, system, scale):
        times = scale.choose(5, EXECS, EXECS)
        program = str(bench.program(PROGRAMS[system]))
        with _place(bench, system, scale) as place:
            # Which has the engine started at once, not with the first file.
            place.environment.pop("NVCACHE_REQUIRED", None)
            file = str(place.folder / "file")
            _spawn(place.environment, program, "open", file, "1")
            if place.pool and bench.counters(place)["statistics"]["bytes_cleaned"] != PAGE:
                raise systems.Broken(f"{system}: the pool was not in use")
            found = {"exec": _seconds(times, place.environment, program),
                     "exec, open": _seconds(times, place.environment, program, "open", file, "0")}
            if system in ALWAYS_THERE:
                without = {k: v for k, v in place.environment.items()
                           if not k.startswith("NVCACHE_")}
                found["exec, no pool"] = _seconds(times, without, program)
        return [model.Outcome(name, {}, {"seconds": value}) for name, value in found.items()]

    # -----------------------------------------------------------------------------------------------

    def _against_preload(self, results, system):
        return model.ratio(
            f"4 KiB pwrite, {self.systems[system]} / LD_PRELOAD", 1.05, True,
            results.find(self.name, "pwrite", system), results.find(self.name, "pwrite", "preload"),
            "ns")

    def goals(self, results):
        return [self._against_preload(results, system) for system in ("musl", "musl_static")]

    def summary(self, results):
        goals = self.goals(results)
        if any(goal.measured is None for goal in goals):
            return None
        return ("A 4 KiB pwrite of the modified musl takes "
                + " and ".join(f"{goal.measured:.2f}" for goal in goals)
                + " times (dynamic, static) what it takes under LD_PRELOAD on glibc.")

    def _time(self, results, name, system, metric="ns"):
        found = results.find(self.name, name, system)
        if not found:
            return None
        return self._with_spread(found.median(metric), *found.spread(metric), metric)

    def _added(self, results, name, without, system):
        """Seconds that the front end adds: the difference of medians, and those of the turns."""
        ours = results.find(self.name, name, system)
        plain = results.find(self.name, without, PLAIN[system])
        if not (ours and plain):
            return None
        others = plain.by_turn("seconds")
        pairs = [value - others[turn] for turn, value in ours.by_turn("seconds").items()
                 if turn in others]
        added = ours.median("seconds") - plain.median("seconds")
        return self._with_spread(added, min(pairs), max(pairs), "seconds") if pairs else None

    @staticmethod
    def _with_spread(median, low, high, metric):
        unit = model.METRICS[metric].unit
        factor, _ = units.step(median, unit)
        return (f"{units.text(median, unit)} ({units.digits(low / factor)} to "
                f"{units.digits(high / factor)})")

    def tables(self, results):
        front_ends = tuple(PLAIN)
        covered = {system: results.find(self.name, "covered", system) for system in front_ends}
        what = {"preload": "names of glibc", "api": "functions"}
        size = {system: results.find(self.name, "size", system) for system in front_ends}
        ratios = {system: self._against_preload(results, system) for system in front_ends}

        def row(name, cell):
            return [name, *(cell(system) for system in front_ends)]

        rows = [
            row("calls covered", lambda s: covered[s] and (
                f"{covered[s].median('count'):.0f} {what.get(s, 'system calls')}")),
            row("**4 KiB pwrite**, durable", lambda s: self._time(results, "pwrite", s)),
            row("*in terms of LD_PRELOAD's*", lambda s: ratios[s].measured and (
                units.text(ratios[s].measured, "x"))),
            row("the same without NVCache, not durable",
                lambda s: self._time(results, "pwrite", PLAIN[s])),
            row("**hot 4 KiB pread**", lambda s: self._time(results, "pread", s)),
            row("the same without NVCache", lambda s: self._time(results, "pread", PLAIN[s])),
            row("1-byte pread, file not cached", lambda s: self._time(results, "uncached", s)),
            row("the same without NVCache", lambda s: self._time(results, "uncached", PLAIN[s])),
            row("**added to an exec**, program does nothing",
                lambda s: self._added(results, "exec", "exec", s)),
            row("added, no pool named", lambda s: self._added(results, "exec, no pool", "exec", s)),
            row("added, program opens a file for writing",
                lambda s: self._added(results, "exec, open", "exec, open", s)),
            row("the whole exec without NVCache, program does nothing",
                lambda s: self._time(results, "exec", PLAIN[s], "seconds")),
            row("**size of the library**, stripped",
                lambda s: size[s] and units.text(size[s].median("bytes"), "B")),
        ]
        return [model.Table(self.title, ["", *(self.systems[s] for s in front_ends)], rows)]
