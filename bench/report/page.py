# SPDX-License-Identifier: BSD-3-Clause
"""report.html: one file, without anything from elsewhere."""

import math
import pathlib
import re

import jinja2
import markupsafe

from harness import model, units
from report import plots, style

OCTAVES = 3  # of the goals' diagrams: from an eighth of the limit to eight times


def prose(text):
    """Escaped, with `code` and **strong**."""
    text = str(markupsafe.escape("–" if text is None else text))
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    return markupsafe.Markup(re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text))


def goal_numbers(goal):
    """(measured, spread, limit) as text."""
    measured = units.text(goal.measured, goal.unit)
    spread = ""
    if goal.low is not None and goal.high is not None and goal.low != goal.high:
        spread = f"{units.digits(goal.low)} to {units.text(goal.high, goal.unit)}"
    return measured, spread, f"{'≤' if goal.at_most else '≥'} {units.text(goal.limit, goal.unit)}"


def _place(goal, value):
    """Where it is in the diagram, 0 to 1: the limit is in the middle, better is to the right."""
    if value <= 0 or goal.limit <= 0:
        better = (goal.limit - value if goal.at_most else value - goal.limit)
        return 0.5 + max(-0.5, min(0.5, math.copysign(0.5, better) if better else 0))
    octaves = math.log2(value / goal.limit) * (-1 if goal.at_most else 1)
    return 0.5 + max(-1, min(1, octaves / OCTAVES)) / 2


def goal_row(suite, goal):
    row = {"suite": suite, "what": goal.what, "note": goal.note, "met": goal.met}
    row["measured"], row["spread"], row["limit"] = goal_numbers(goal)
    if goal.measured is not None:
        row["at"] = _place(goal, goal.measured)
        ends = sorted(_place(goal, v) for v in (goal.low, goal.high) if v is not None)
        row["from"], row["to"] = (ends[0], ends[-1]) if ends else (row["at"], row["at"])
    return row


def default_summary(goals):
    met = [goal.met for goal in goals]
    if not met:
        return None
    return (f"{met.count(True)} of {len(met)} goals are met"
            + (f", {met.count(None)} not measured" if None in met else "") + ".")


def turns(results):
    """How many runs a number is the median of."""
    counts = sorted({len(result.runs) for result in results})
    if not counts:
        return ""
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{number} run{'s' if counts[-1] > 1 else ''} of each"


def is_number(cell):
    return cell is None or bool(re.match(r"^[+−-]?[\d.,]+(\s|\xa0|%|$)", str(cell)))


def suite_part(suite, record, fail):
    """What the page shows of one suite. `fail(message)` takes what cannot be shown."""
    goals = [goal for name, goal in record.goals if name == suite.name]
    part = {"name": suite.name, "title": suite.title, "about": suite.about, "figures": [],
            "tables": [], "summary": None,
            "turns": turns(record.results.select(suite.name))}
    if not record.results.select(suite.name):
        return part
    try:
        part["summary"] = suite.summary(record.results) or default_summary(goals)
        for figure in suite.figures(record.results):
            part["figures"].append({"title": figure.title, "caption": figure.caption,
                                    "name": figure.name, "columns": min(figure.columns, len(figure.panels)),
                                    "panels": [markupsafe.Markup(svg) for svg in plots.inline(figure)]})
        for table in suite.tables(record.results):
            numeric = [all(is_number(row[i]) for row in table.rows) for i in range(len(table.head))]
            part["tables"].append({"title": table.title, "head": table.head, "rows": table.rows,
                                   "caption": table.caption, "numeric": numeric})
    except Exception as error:  # pylint: disable=broad-exception-caught
        fail(f"{type(error).__name__}: {error}")
    return part


def render(record, suites, fail):
    """`fail(suite's name, message)`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent), autoescape=True,
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["prose"] = prose
    parts = [suite_part(suite, record, lambda message, name=suite.name: fail(name, message))
             for suite in suites]
    met = [goal.met for _, goal in record.goals]
    return environment.get_template("page.html").render(
        scale=record.scale, machine=record.machine, failures=record.failures,
        interrupted=record.interrupted, took=units.duration(record.seconds),
        goals=[goal_row(suite, goal) for suite, goal in record.goals],
        met=met.count(True), missed=met.count(False), open=met.count(None),
        parts=[part for part in parts if part["turns"]],
        left_out=[entry for entry in record.suites if entry["state"] != "run"],
        cases_left_out=[(entry["title"], part["case"], part["reason"]) for entry in record.suites
                        if entry["state"] == "run" for part in entry.get("left_out", ())],
        metrics=model.METRICS, variables=style.variables())
