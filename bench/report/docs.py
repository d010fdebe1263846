# SPDX-License-Identifier: BSD-3-Clause
"""Tables in documentation, between `<!-- NAME: begin -->` and `<!-- NAME: end -->`."""

import re

from harness import machine, model, store
from report import page


class NoMarkers(Exception):
    """One line: which are missing."""


def _cell(text):
    return "–" if text is None else str(text).replace("|", "\\|").replace("\u00a0", " ")


def markdown(table):
    """Columns whose cells are all numbers are on the right."""
    numeric = [i > 0 and all(page.is_number(row[i]) for row in table.rows)
               for i in range(len(table.head))]
    lines = ["| " + " | ".join(map(_cell, table.head)) + " |",
             "|" + "|".join("---:" if right else "---" for right in numeric) + "|"]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in table.rows]
    return "\n".join(lines) + (f"\n\n{_cell(table.caption)}" if table.caption else "")


def goals(record):
    rows = []
    for _, goal in record.goals:
        measured, spread, limit = page.goal_numbers(goal)
        rows.append([goal.what, limit, measured, spread or None,
                     {True: "met", False: "**missed**", None: "not measured"}[goal.met]])
    return model.Table("Goals", ["what", "goal", "measured", "from pair to pair", ""], rows)


def replace(text, name, new):
    """The text with what is between the markers of that name replaced. NoMarkers if there are none."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    found = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.S)
    if len(found.findall(text)) != 1:
        raise NoMarkers(f"{begin} … {end} is not there exactly once")
    return found.sub(lambda _: f"{begin}\n{new}\n{end}", text)


def sections(record, suites, complete):
    """Name of the markers -> text, of what was measured. `complete`: these are all suites; else goals
    and machine stay those of the last complete run."""
    found = {}
    if complete:
        found["machine"] = machine.line(record.machine)
        if record.goals:
            found["goals"] = markdown(goals(record))
    for suite in suites:
        results = record.results.select(suite.name)
        tables = suite.tables(record.results) if results else []
        if tables:
            # A document of its own has no other place that names the machine.
            where = ("" if suite.document == model.Suite.document
                     else f" On {machine.line(record.machine)}")
            found[suite.name] = "\n\n".join(
                [f"**{table.title}**\n\n{markdown(table)}" if len(tables) > 1 else markdown(table)
                 for table in tables] + [f"Medians of {page.turns(results)}, in turns.{where}"])
    return found


def update(folder, record, suites, complete):
    """Rewrites the documents in that folder, each of them whole, or none."""
    documents = {suite.name: suite.document for suite in suites}
    texts = {}
    for name, new in sections(record, suites, complete).items():
        path = folder / documents.get(name, model.Suite.document)
        text = texts[path] if path in texts else path.read_text(encoding="utf-8")
        try:
            texts[path] = replace(text, name, new)
        except NoMarkers as error:
            raise NoMarkers(f"{path}: {error}") from None
    for path, text in texts.items():
        store.replace(path, text)
