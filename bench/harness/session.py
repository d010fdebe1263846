# SPDX-License-Identifier: BSD-3-Clause
"""Runs the cases of suites in turns over their systems: A B C A B C."""

import traceback

from harness import model, progress, systems


def _message(error):
    """One line. An unexpected error says where it comes from."""
    if isinstance(error, systems.Broken):
        return str(error)
    text = " ".join(str(error).split())
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text} ({frame.filename.rsplit('/', 1)[-1]}:{frame.lineno})"


def _turns(case, scale, repetitions):
    return repetitions or case.repetitions or scale.repetitions


def plan(suite, cases, scale, repetitions):
    """(key, seconds) of every run."""
    for number, case in enumerate(cases):
        for system in case.systems:
            yield from [((suite.name, number, system), case.seconds)] * _turns(
                case, scale, repetitions)


def _run_case(record, bench, suite, number, case, shown, repetitions):
    """One case: all its turns; yields after each run that has not failed. A case that has failed
    once on a system is not run on it again."""
    turns = _turns(case, record.scale, repetitions)
    broken = set()
    for turn in range(turns):
        for system in case.systems:
            if system in broken:
                continue
            key = (suite.name, number, system)
            shown.begin(f"{suite.name}: {case.name}, turn {turn + 1} of {turns}",
                        systems.SYSTEMS.get(system, system))
            try:
                outcomes = suite.run(bench, case, system, record.scale)
                if not outcomes:
                    raise systems.Broken("nothing was measured")
                for outcome in outcomes:
                    unknown = set(outcome.metrics) - set(model.METRICS)
                    if unknown:
                        raise systems.Broken(f"no such metric: {', '.join(sorted(unknown))}")
                for outcome in outcomes:
                    record.results.add(suite.name, system, outcome, turn)
                yield
            except Exception as error:  # pylint: disable=broad-exception-caught
                broken.add(system)
                failure = {"suite": suite.name, "case": case.name, "system": system,
                           "message": _message(error)}
                record.failures.append(failure)
                shown.say(f"{suite.name}: {case.name}, {system}: FAILED: {failure['message']}")
            shown.done(key)
            if system in broken:
                shown.remaining.drop(key)


def run(record, bench, suites, repetitions=None):
    """Fills the record. Ctrl-C ends it early; the results until then are there."""
    chosen = []
    for suite in suites:
        entry = {"name": suite.name, "title": suite.title, "state": "run", "reason": "",
                 "planned": 0, "done": 0}
        record.suites.append(entry)
        try:
            reason = suite.missing(bench)
            left_out = {} if reason else suite.left_out(bench)
            entry["left_out"] = [{"case": case, "reason": why} for case, why in left_out.items()]
            cases = [] if reason else [case for case in suite.cases(record.scale) if case.name not in left_out]
            if left_out and not cases:
                reason = next(iter(left_out.values()))
        except Exception as error:  # pylint: disable=broad-exception-caught
            reason, cases = _message(error), []
            record.failures.append({"suite": suite.name, "case": "", "system": "",
                                    "message": reason})
        if reason:
            entry |= {"state": "left out", "reason": reason}
        else:
            chosen.append((suite, cases))
            entry["planned"] = len(list(plan(suite, cases, record.scale, repetitions)))
    whole = [step for suite, cases in chosen
             for step in plan(suite, cases, record.scale, repetitions)]
    with progress.Progress(whole) as shown:
        for entry in record.suites:
            if entry["reason"]:
                shown.say(f"{entry['name']}: left out: {entry['reason']}")
            for part in [] if entry["reason"] else entry["left_out"]:
                shown.say(f"{entry['name']}: {part['case']}: left out: {part['reason']}")
        try:
            for suite, cases in chosen:
                entry = next(e for e in record.suites if e["name"] == suite.name)
                for number, case in enumerate(cases):
                    for _ in _run_case(record, bench, suite, number, case, shown, repetitions):
                        entry["done"] += 1
        except KeyboardInterrupt:
            record.interrupted = True
            shown.say("interrupted: what was measured until now is written")


def evaluate(record, suites):
    """Goals of what was measured; a goal that cannot be computed is a failure of its suite."""
    record.goals = []
    for suite in suites:
        try:
            record.goals += [(suite.name, goal) for goal in suite.goals(record.results)]
        except Exception as error:  # pylint: disable=broad-exception-caught
            record.failures.append({"suite": suite.name, "case": "goals", "system": "",
                                    "message": _message(error)})
