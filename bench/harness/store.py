# SPDX-License-Identifier: BSD-3-Clause
"""results.json and results.csv. bench/README.md has their description."""

import csv
import dataclasses
import json
import os
import pathlib

from harness import model, systems

FORMAT = "nvcache-bench"
VERSION = 1


class Unreadable(Exception):
    """One line: which file, and what is wrong with it."""


@dataclasses.dataclass
class Record:
    """All that one call of bench/run has found."""
    scale: model.Scale
    machine: dict  # title -> text
    results: model.Results
    suites: list = dataclasses.field(default_factory=list)  # of {"name", "title", "state", "reason"}
    goals: list = dataclasses.field(default_factory=list)  # of (suite's name, Goal)
    failures: list = dataclasses.field(default_factory=list)  # of {"suite", "case", "system", "message"}
    seconds: float = 0  # that it took
    interrupted: bool = False


def replace(path, text):
    """At no time is there half a file."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def write(record, folder):
    document = {
        "format": FORMAT, "version": VERSION,
        "scale": dataclasses.asdict(record.scale),
        "seconds": round(record.seconds, 1), "interrupted": record.interrupted,
        "machine": record.machine,
        "metrics": {name: dataclasses.asdict(metric) for name, metric in model.METRICS.items()},
        "systems": systems.SYSTEMS,
        "suites": record.suites,
        "goals": [{"suite": suite, **dataclasses.asdict(goal), "met": goal.met}
                  for suite, goal in record.goals],
        "failures": record.failures,
        "results": [dataclasses.asdict(result) for result in record.results.all],
    }
    replace(folder / "results.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    with open(folder / "results.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("suite", "name", "parameters", "system", "turn", "metric", "value", "unit"))
        for result in record.results.all:
            parameters = " ".join(f"{k}={v}" for k, v in result.parameters.items())
            for run in result.runs:
                for metric, value in run["metrics"].items():
                    rows.writerow((result.suite, result.name, parameters, result.system,
                                   run["turn"], metric, value, model.METRICS[metric].unit))


def read(path):
    """Of a folder or a results.json. Unreadable, if it is none."""
    path = pathlib.Path(path)
    if path.is_dir():
        path = path / "results.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise Unreadable(f"{path}: is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise Unreadable(f"{path}: is not a result of bench/run")
    if document.get("version") != VERSION:
        raise Unreadable(f"{path}: has version {document.get('version')} of the format, "
                         f"this program reads version {VERSION}")
    try:
        goals = []
        for goal in document["goals"]:
            goal.pop("met")
            goals.append((goal.pop("suite"), model.Goal(**goal)))
        return Record(
            model.Scale(**document["scale"]), document["machine"],
            model.Results(model.Result(**result) for result in document["results"]),
            document["suites"], goals, document["failures"], document["seconds"],
            document["interrupted"])
    except (KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"{path}: is damaged: {error}") from error


def joined(records):
    """One of several, each of other suites, which were measured on the same machine."""
    whole, *others = records
    for other in others:
        for name in {suite["name"] for suite in whole.suites} & {suite["name"] for suite in other.suites}:
            raise Unreadable(f"the suite {name} is in more than one of these results: name each once")
        for fact in ("Processor", "Cores", "Memory", "Kernel", "Pool"):
            one, two = whole.machine.get(fact), other.machine.get(fact)
            if one != two:
                raise Unreadable(f"these results are of different machines: {one}, {two}")
        if whole.scale != other.scale:
            raise Unreadable(f"these results are of different scales: {whole.scale}, {other.scale}")
        whole.suites += other.suites
        whole.results.all += other.results.all
        whole.failures += other.failures
        whole.seconds += other.seconds
        whole.interrupted |= other.interrupted
        versions = whole.machine.get("Versions", "").split(", ")
        versions += [each for each in other.machine.get("Versions", "").split(", ") if each not in versions]
        whole.machine["Versions"] = ", ".join(filter(None, versions))
    return whole
