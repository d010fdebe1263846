# SPDX-License-Identifier: BSD-3-Clause
"""What is measured: suites have cases, a case is run on systems, a run has outcomes."""

import dataclasses
import statistics


@dataclasses.dataclass(frozen=True)
class Metric:
    unit: str
    less_is_better: bool
    title: str


# Every metric has one unit, everywhere.
METRICS = {
    "ns": Metric("ns", True, "time per call"),
    "p50": Metric("ns", True, "median latency"),
    "p99": Metric("ns", True, "99th percentile"),
    "p999": Metric("ns", True, "99.9th percentile"),
    "p9999": Metric("ns", True, "99.99th percentile"),
    "seconds": Metric("s", True, "time"),
    "rate": Metric("1/s", False, "operations per second"),
    "bandwidth": Metric("MiB/s", False, "bandwidth"),
    "count": Metric("", False, "number"),
    "bytes": Metric("B", True, "memory"),
    "calls": Metric("", True, "system calls per operation"),
    "faults": Metric("", True, "page faults per operation"),
    "instructions": Metric("", True, "instructions per operation"),
    "disk_writes": Metric("", True, "disk writes per operation"),
    "disk_flushes": Metric("", True, "disk flushes per operation"),
    "percent": Metric("%", True, "share"),
}

# The figure's parameters: {"size": 4096, "threads": 2}. Values are numbers, strings or booleans.
Parameters = dict


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much is run. Suites choose sizes and times by it."""
    name: str  # smoke: that it works, seconds for each suite; quick: minutes in all; full
    repetitions: int

    def choose(self, smoke, quick, full):
        return {"smoke": smoke, "quick": quick, "full": full}[self.name]


@dataclasses.dataclass
class Case:
    """Something that is run in turns on several systems."""
    name: str  # within its suite
    systems: tuple  # names in systems.SYSTEMS, or a suite's own
    parameters: Parameters = dataclasses.field(default_factory=dict)
    seconds: float = 1.0  # that one run on one system takes, about: for the remaining time
    repetitions: int | None = None  # other than the scale's


@dataclasses.dataclass
class Outcome:
    """One number or several of one run. A run may have many: a driver measures several sizes."""
    name: str  # what was measured; the case's name as a rule
    parameters: Parameters
    metrics: dict  # metric -> number
    # Over time: metric -> [[seconds since the start, number], ...]
    series: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Result:
    """All runs of one thing on one system."""
    suite: str
    name: str
    parameters: Parameters
    system: str
    runs: list  # of {"metrics": ..., "series": ..., "turn": ...}

    def values(self, metric):
        return [run["metrics"][metric] for run in self.runs if metric in run["metrics"]]

    def median(self, metric):
        return statistics.median(self.values(metric))

    def spread(self, metric):
        """The lowest and the highest."""
        values = self.values(metric)
        return min(values), max(values)

    def by_turn(self, metric):
        return {run["turn"]: run["metrics"][metric] for run in self.runs if metric in run["metrics"]}


class Results:
    """The results of all suites; `find` is how goals and figures get at them."""

    def __init__(self, results=()):
        self.all = list(results)

    def add(self, suite, system, outcome, turn=None):
        """`turn`: which of the rounds over the systems; runs of one turn are compared in pairs."""
        for result in self.all:
            if (result.suite, result.name, result.system, result.parameters) == (
                    suite, outcome.name, system, outcome.parameters):
                break
        else:
            result = Result(suite, outcome.name, outcome.parameters, system, [])
            self.all.append(result)
        result.runs.append({"turn": len(result.runs) if turn is None else turn,
                            "metrics": outcome.metrics, "series": outcome.series})

    def select(self, suite, name=None, system=None, **parameters):
        """All that fit, in the order in which they were measured."""
        return [r for r in self.all
                if r.suite == suite and name in (None, r.name) and system in (None, r.system)
                and all(r.parameters.get(k) == v for k, v in parameters.items())]

    def find(self, suite, name, system, **parameters):
        """The first that fits, or None: it was not run."""
        found = self.select(suite, name, system, **parameters)
        return found[0] if found else None


@dataclasses.dataclass
class Goal:
    """A line of the table of goals: `measured` against `limit`, both as ratios or numbers."""
    what: str
    limit: float
    at_most: bool  # or at least
    measured: float | None  # None: was not run
    low: float | None = None  # of the runs, paired in the order in which they were taken
    high: float | None = None
    unit: str = "x"
    note: str = ""

    @property
    def met(self):
        if self.measured is None:
            return None
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit


def ratio(what, limit, at_most, over, under, metric, note=""):
    """A goal: the median of `over` in terms of the median of `under` (Result or None)."""
    if not (over and under and over.values(metric) and under.values(metric)):
        return Goal(what, limit, at_most, None, note=note)
    others = under.by_turn(metric)
    pairs = [a / others[turn] for turn, a in over.by_turn(metric).items() if turn in others]
    return Goal(what, limit, at_most, over.median(metric) / under.median(metric),
                min(pairs, default=None), max(pairs, default=None), note=note)


def difference(what, limit, over, under, metric, note=""):
    """A goal: by how much the median of `over` may be above the median of `under`."""
    unit = METRICS[metric].unit
    if not (over and under and over.values(metric) and under.values(metric)):
        return Goal(what, limit, True, None, unit=unit, note=note)
    others = under.by_turn(metric)
    pairs = [a - others[turn] for turn, a in over.by_turn(metric).items() if turn in others]
    return Goal(what, limit, True, over.median(metric) - under.median(metric),
                min(pairs, default=None), max(pairs, default=None), unit=unit, note=note)


@dataclasses.dataclass
class Line:
    label: str
    x: list
    y: list
    low: list | None = None  # spread: one for each y
    high: list | None = None
    system: str | None = None  # gives the colour; without it the label does, if it names a system


def line(label, results, parameter, metric, system=None):
    """A line over a parameter of the results: medians with their spread."""
    found = [r for r in results if r.values(metric)]
    spread = [r.spread(metric) for r in found]
    return Line(label, [r.parameters[parameter] for r in found], [r.median(metric) for r in found],
                [low for low, _ in spread], [high for _, high in spread],
                system or (found[0].system if found else None))


@dataclasses.dataclass
class Panel:
    """One diagram: lines over x, or bars (x: names of groups; a line: the bars of one system)."""
    title: str
    x_title: str
    y_title: str
    lines: list  # of Line
    bars: bool = False
    log_x: bool = False
    log_y: bool = False
    x_unit: str = ""  # as of a Metric: how the numbers of the axis are written
    y_unit: str = ""


@dataclasses.dataclass
class Figure:
    """What is drawn as one picture: panels side by side."""
    name: str  # of its files
    title: str
    caption: str  # what can be seen, and where the idea is from (thesis, figure 3.10)
    panels: list
    columns: int = 2  # panels in one row


@dataclasses.dataclass
class Table:
    """Rows of text; the first column names the row. Cells may be None."""
    title: str
    head: list
    rows: list
    caption: str = ""


class Suite:
    """A group of questions. Stateless: measurements come back as Results."""
    name = ""  # as in `bench/run --only NAME`
    title = ""
    about = ""  # a few sentences for the report: what is measured, and how
    systems = {}  # titles of the suite's own
    document = "benchmarks.md"  # in docs/, has the tables

    def missing(self, bench):
        """A sentence on what must be installed first, or None."""

    def left_out(self, bench):  # pylint: disable=unused-argument
        """Cases that cannot be run here: name -> a sentence on what must be installed first."""
        return {}

    def cases(self, scale):
        """The cases, in the order in which they are run."""
        raise NotImplementedError

    def run(self, bench, case, system, scale):
        """Runs the case once on that system. Returns its outcomes. `bench` is systems.Bench."""
        raise NotImplementedError

    def goals(self, results):
        return []

    def summary(self, results):  # pylint: disable=unused-argument
        """One sentence for the report, or None: how many goals are met."""
        return None

    def remarks(self, results):  # pylint: disable=unused-argument
        """Lines with which `bench/run` ends."""
        return []

    def figures(self, results):
        return []

    def tables(self, results):
        return []
