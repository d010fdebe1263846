# SPDX-License-Identifier: BSD-3-Clause
"""Programs as Debian packages them: how long they take, and that they leave the same."""

import subprocess

from harness import bars, leavings, model, servers, systems, units
from suites import everyday_databases, everyday_tools
from suites.everyday_program import Turn

systems.SYSTEMS |= {"plain": "disk, without NVCache", "unsynced": "disk, its own syncs off"}
# The first one leaves what the others must leave.
SYSTEMS = ("plain", "eatmydata", "tmpfs", "through", "nvcache", "unsynced")
PROGRAMS = (*everyday_tools.PROGRAMS, *everyday_databases.PROGRAMS)
# In the words of a goal.
AGAINST = {"plain": "without NVCache", "unsynced": "without NVCache and without syncs",
           "eatmydata": "libeatmydata"}
EATMYDATA = "libeatmydata.so"
# I15: never slower than without NVCache, beyond a few per cent.
SLOWER = 1.05


def eatmydata_missing():
    done = subprocess.run(["true"], env={"LD_PRELOAD": EATMYDATA}, check=False, stderr=subprocess.PIPE)
    return bool(done.stderr)


def measure(bench, program, system, scale, first):
    """What is timed -> seconds. `first`: what each program has left the first time, by its name."""
    # As users have it, who set nothing.
    settings = {"REQUIRED": 0, **(systems.EXCLUSIVE if system in ("nvcache", "output") else {"WRITE_BACK": "auto"})}
    with bench.place(system, pool=scale.choose(*program.pools), settings=settings) as place:
        user = program.user()
        servers.give(user, place.folder, *([place.pool.parent, place.pool] if place.pool else []))
        with bench.checkpointer(place, user) as checkpointer:
            turn = Turn(bench, place, scale, checkpointer)
            servers.give(user, *place.folder.iterdir())
            turn.check_library(**user)
            seconds, left = program.run(turn)
        if place.pool and program.logged:
            turn.check_log()
    different = leavings.difference(first.setdefault(program.name, left), left)
    if different:
        raise systems.Broken(f"it has left something else than without NVCache: {different}")
    return seconds


class Everyday(model.Suite):
    name = "everyday"
    title = "Everyday programs"
    about = (
        "Programs as Debian packages them: on the disk as they are, with libeatmydata, on tmpfs, and with "
        "NVCache. Each syncs what it syncs by itself. Timed is a program from its start to its end; of a "
        "server, the time of its client. A checkpointer runs beside NVCache, as `nvcache run` leaves one "
        "behind, and brings the log to the disk meanwhile. The disk is synced before each. What a program "
        "leaves behind is compared with what it has left on the disk without NVCache; a difference is a failure. NVCache has the "
        "default rule, and once more all files exclusive: those are cached that a program syncs more than once. PostgreSQL and Redis run without their own syncs as well.")

    def __init__(self, programs=PROGRAMS):
        self.programs = {program.name: program for program in programs}
        # What each has left the first time. All that a suite remembers.
        self.first = {}

    def left_out(self, bench):
        found = {name: program.missing(bench) for name, program in self.programs.items()}
        if eatmydata_missing():
            found[systems.SYSTEMS["eatmydata"]] = "libeatmydata is missing: install libeatmydata1"
        return {name: reason for name, reason in found.items() if reason}

    def cases(self, scale):
        out = {"eatmydata"} if eatmydata_missing() else set()
        for program in self.programs.values():
            # Servers take long to install: a smoke run leaves out what no goal needs.
            few = {"eatmydata", "tmpfs"} if scale.name == "smoke" and program.slow else set()
            no = set() if program.yardstick else {"unsynced"}
            yield model.Case(program.name, tuple(each for each in SYSTEMS if each not in out | few | no),
                             seconds=scale.choose(*program.seconds))

    def run(self, bench, case, system, scale):
        program = self.programs[case.name]
        seconds = measure(bench, program, system, scale, self.first)
        return [model.Outcome(program.titles[name], {"program": case.name}, {"seconds": each})
                for name, each in seconds.items()]

    # -----------------------------------------------------------------------------------------------

    def _rows(self, results, kind=None):
        """Title -> function from a system's name to its Result, or None; and the program."""
        for program in self.programs.values():
            for title in program.titles.values():
                if kind in (None, program.kind) and results.select(self.name, title):
                    yield title, lambda system, title=title: results.find(self.name, title, system), program

    def goals(self, results):
        goals = []
        for program in self.programs.values():
            for name, system, limit in ((name, *each) for name, them in program.goals.items() for each in them):
                title = program.titles[name]
                over, under = (results.find(self.name, title, each) for each in ("through", system))
                if program.added:
                    goals.append(model.difference(f"{title}: more than without NVCache", limit, over, under, "seconds"))
                else:
                    goals.append(model.ratio(f"{title} / {AGAINST[system]}", limit, True, over, under, "seconds"))
        return goals

    def _ratios(self, results):
        for title, find, _ in self._rows(results):
            goal = model.ratio(title, 1, True, find("through"), find("plain"), "seconds")
            if goal.measured is not None:
                yield goal

    def summary(self, results):
        ratios = sorted(self._ratios(results), key=lambda goal: goal.measured)
        if not ratios:
            return None
        least, most = ratios[0], ratios[-1]
        faster = sum(goal.measured < 1 for goal in ratios)
        return (f"NVCache takes from {units.text(least.measured, 'x')} ({least.what}) to "
                f"{units.text(most.measured, 'x')} ({most.what}) of the time without it; less in {faster} of "
                f"{len(ratios)} rows.")

    def remarks(self, results):
        ratios = list(self._ratios(results))
        if not ratios:
            return []
        slower = [f"{goal.what} {units.text(goal.measured, 'x')}" for goal in ratios if goal.measured > SLOWER]
        return [f"slower than without NVCache (more than {units.text(SLOWER, 'x')}): {', '.join(slower) or 'none'}"]

    def figures(self, results):
        figures = []
        for kind, title in (("files", "Everyday programs"), ("databases", "Everyday programs: databases")):
            groups = {row.replace("`", ""): find for row, find, _ in self._rows(results, kind)}
            if groups:
                figures += bars.figure(f"everyday-{kind}", title, "The program's end is included.",
                                       [bars.panel("", groups, SYSTEMS, "seconds")])
        return figures

    def tables(self, results):
        rows = []
        for title, find, program in self._rows(results):
            goal, other = (model.ratio(title, 1, True, find(system), find("plain"), "seconds")
                           for system in ("through", "nvcache"))
            spread = None if goal.low is None else f"{units.digits(goal.low)} to {units.text(goal.high, 'x')}"
            rows.append([title, *(units.text(result.median("seconds"), "s") if result else None
                                  for result in map(find, SYSTEMS)),
                         *(None if each.measured is None else units.text(each.measured, "x") for each in (goal, other)),
                         spread, program.compared])
        head = ["", *(systems.SYSTEMS[system] for system in SYSTEMS), "NVCache / without", "exclusive / without",
                "NVCache, from pair to pair", "compared"]
        return [model.Table("Everyday programs", head, rows)] if rows else []
