#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The frame of the benchmarks: statistics, units, the order of runs, what becomes of failures, files,
the tables of the documentation."""

import io
import pathlib
import re
import sys
import tempfile
import unittest
import unittest.mock
from contextlib import redirect_stderr

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

# pylint: disable=wrong-import-position
from harness import machine, model, progress, series, session, store, systems, units
from report import docs, page
import suites


def results_of(values, name="write", metric="ns"):
    """system -> values, as turns."""
    results = model.Results()
    for system, each in values.items():
        for turn, value in enumerate(each):
            if value is not None:
                results.add("s", system, model.Outcome(name, {"size": 64}, {metric: value}), turn)
    return results


class Statistics(unittest.TestCase):
    def test_runs_of_the_same_thing_are_one_result(self):
        results = results_of({"nvcache": [3, 1, 2], "tmpfs": [5]})
        self.assertEqual(len(results.all), 2)
        found = results.find("s", "write", "nvcache", size=64)
        self.assertEqual((found.median("ns"), found.spread("ns")), (2, (1, 3)))
        self.assertIsNone(results.find("s", "write", "nvcache", size=65))

    def test_ratio_compares_runs_of_one_turn(self):
        results = results_of({"nvcache": [10, 20, 60], "tmpfs": [10, 10, 20]})
        goal = model.ratio("g", 2, True, results.find("s", "write", "nvcache"),
                           results.find("s", "write", "tmpfs"), "ns")
        self.assertEqual((goal.measured, goal.low, goal.high, goal.met), (2, 1, 3, True))

    def test_a_run_that_failed_does_not_shift_the_pairs(self):
        results = results_of({"nvcache": [10, 20, 60], "tmpfs": [10, None, 20]})
        goal = model.ratio("g", 2, False, results.find("s", "write", "nvcache"),
                           results.find("s", "write", "tmpfs"), "ns")
        self.assertEqual((goal.low, goal.high), (1, 3))

    def test_what_was_not_run_is_neither_met_nor_missed(self):
        results = results_of({"nvcache": [1]})
        result = results.find("s", "write", "nvcache")
        self.assertIsNone(model.ratio("g", 1, True, result, None, "ns").met)
        self.assertIsNone(model.ratio("g", 1, True, result, result, "p99").met)

    def test_limits_are_inclusive(self):
        for at_most, measured, met in ((True, 2, True), (True, 2.1, False), (False, 2, True),
                                       (False, 1.9, False)):
            self.assertEqual(model.Goal("g", 2, at_most, measured).met, met)

    def test_line_over_a_parameter(self):
        results = model.Results()
        for size, values in ((64, (1, 3, 2)), (512, (7, 5, 6))):
            for value in values:
                results.add("s", "nvcache", model.Outcome("w", {"size": size}, {"ns": value}))
        line = model.line("NVCache", results.select("s"), "size", "ns")
        self.assertEqual((line.x, line.y, line.low, line.high, line.system),
                         ([64, 512], [2, 6], [1, 5], [3, 7], "nvcache"))


class Series(unittest.TestCase):
    def test_rate_after_a_time_counts_windows_by_their_length(self):
        self.assertAlmostEqual(series.after([[1, 100], [2, 10], [4, 40]], 1.5), (5 + 80) / 2.5)

    def test_progress_and_time_per_block(self):
        windows = [[0.5, 2], [1.5, 0], [2, 4]]
        self.assertEqual(series.progress(windows), [[0.5, 2**20], [1.5, 2**20], [2, 3 * 2**20]])
        self.assertEqual(series.time_per_block(2**20)(windows), [[0.5, 5e8], [2, 2.5e8]])

    def test_median_of_runs_of_different_length(self):
        result = model.Result("s", "w", {}, "nvcache", [
            {"metrics": {}, "series": {"bandwidth": windows}, "turn": 0}
            for windows in ([[1, 10], [2, 20]], [[1, 30], [2, 40]], [[1, 50], [2, 60], [3, 70]])])
        line = series.line("x", result, "bandwidth")
        self.assertEqual((line.x, line.y, line.low, line.high),
                         ([1, 2], [30, 40], [10, 20], [50, 60]))


class Units(unittest.TestCase):
    def test_numbers_as_people_read_them(self):
        for number, unit, text in (
                (0, "ns", "0 ns"), (999.7, "ns", "1 µs"), (1462, "ns", "1.46 µs"), (0.0123, "s", "12.3 ms"),
                (512 << 20, "B", "512 MiB"), (1536, "MiB/s", "1.5 GiB/s"), (123456, "1/s", "123 k/s"),
                (1.456, "x", "1.46 ×"), (12345, "", "12,345"), (None, "ns", "–"), (7, "pages", "7 pages")):
            self.assertEqual(units.text(number, unit).replace("\u00a0", " "), text)
        self.assertEqual([units.duration(s) for s in (5, 150, 3900)], ["5 s", "2 min", "1 h 5 min"])


class Suite(model.Suite):
    name, title, about = "fake", "A suite", "Nothing."

    def __init__(self, fails=(), stops_at=None):
        self.fails, self.stops_at, self.order = fails, stops_at, []

    def cases(self, scale):
        return [model.Case("one", ("a", "b", "c")), model.Case("two", ("a",), repetitions=1)]

    def run(self, bench, case, system, scale):
        self.order.append(case.name + system)
        if len(self.order) == self.stops_at:
            raise KeyboardInterrupt
        if system in self.fails:
            raise systems.Broken("no luck")
        return [model.Outcome(case.name, {}, {"ns": len(self.order)})]

    def goals(self, results):
        return [model.ratio("b in a", 2, True, results.find("fake", "one", "b"),
                            results.find("fake", "one", "a"), "ns")]

    def tables(self, results):
        return [model.Table("T", ["what", "a|b"], [["`x`", units.text(1500, "ns")], ["y", None]])]


def run(suite, turns=2):
    record = store.Record(model.Scale("smoke", turns), {"Processor": "p"}, model.Results())
    with redirect_stderr(io.StringIO()):
        session.run(record, None, [suite])
    session.evaluate(record, [suite])
    return record


class Session(unittest.TestCase):
    def test_systems_take_turns(self):
        suite = Suite()
        record = run(suite)
        self.assertEqual(suite.order, ["onea", "oneb", "onec"] * 2 + ["twoa"])
        self.assertEqual((record.suites[0]["planned"], record.suites[0]["done"]), (7, 7))
        self.assertTrue(record.goals[0][1].met)

    def test_the_others_go_on_when_one_fails(self):
        suite = Suite(fails="b")
        record = run(suite)
        self.assertEqual(suite.order, ["onea", "oneb", "onec", "onea", "onec", "twoa"])
        self.assertEqual([(f["case"], f["system"], f["message"]) for f in record.failures],
                         [("one", "b", "no luck")])
        self.assertIsNone(record.goals[0][1].met)

    def test_an_interrupt_leaves_what_there_is(self):
        record = run(Suite(stops_at=5))
        self.assertTrue(record.interrupted)
        self.assertEqual(len(record.results.find("fake", "one", "a").runs), 2)
        self.assertEqual(len(record.results.find("fake", "one", "b").runs), 1)

    def test_remaining_time_learns_from_what_was_measured(self):
        left = progress.Remaining([("a", 1.0), ("b", 1.0), ("a", 1.0), ("b", 1.0)])
        self.assertEqual(left.seconds(), 4)
        left.done("a", 3)
        self.assertEqual(left.seconds(), 9)
        left.drop("b")
        self.assertEqual(left.seconds(), 3)


class Joined(unittest.TestCase):
    def record(self, name, processor="p", turns=2):
        return store.Record(model.Scale("smoke", turns), {"Processor": processor, "Versions": f"{name} 1, libc 2"},
                            results_of({"nvcache": [1]}, name), [{"name": name}], [], [name], 1.5)

    def test_several_results_are_one_record(self):
        whole = store.joined([self.record("a"), self.record("b"), self.record("c")])
        self.assertEqual([suite["name"] for suite in whole.suites], ["a", "b", "c"])
        self.assertEqual([result.name for result in whole.results.all], ["a", "b", "c"])
        self.assertEqual((whole.failures, whole.seconds), (["a", "b", "c"], 4.5))
        self.assertEqual(whole.machine, {"Processor": "p", "Versions": "a 1, libc 2, b 1, c 1"})

    def test_what_does_not_fit_is_refused(self):
        for other in (self.record("a"), self.record("b", "q"), self.record("b", turns=3)):
            self.assertRaises(store.Unreadable, store.joined, [self.record("a"), other])


class Files(unittest.TestCase):
    def test_results_come_back_as_they_were_written(self):
        record = run(Suite(fails="c"))
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            store.write(record, folder)
            again = store.read(folder)
            self.assertEqual(again.results.all, store.read(folder / "results.json").results.all)
            self.assertEqual((again.results.all, again.goals, again.suites, again.failures),
                             (record.results.all, record.goals, record.suites, record.failures))
            rows = (folder / "results.csv").read_text().splitlines()
            self.assertEqual(len(rows), 1 + 5)
            for damage in ("", "[]", '{"format": "nvcache-bench", "version": 99}',
                           '{"format": "nvcache-bench", "version": 1}'):
                (folder / "results.json").write_text(damage)
                self.assertRaises(store.Unreadable, store.read, folder)
        self.assertRaises(store.Unreadable, store.read, folder)


class Documentation(unittest.TestCase):
    def test_between_the_markers(self):
        text = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb <!-- y: begin --><!-- y: end -->"
        self.assertEqual(docs.replace(text, "x", r"\1 new"),
                         text.replace("old", r"\1 new"))
        self.assertRaises(docs.NoMarkers, docs.replace, text, "z", "")
        self.assertRaises(docs.NoMarkers, docs.replace, text + text, "x", "")

    def test_tables(self):
        record = run(Suite())
        found = docs.sections(record, [Suite()], False)
        self.assertEqual(list(found), ["fake"])
        self.assertTrue(found["fake"].startswith(
            "| what | a\\|b |\n|---|---:|\n| `x` | 1.5 µs |\n| y | – |\n"))
        self.assertIn("| b in a | ≤ 2 × |", docs.markdown(docs.goals(record)))

    def test_each_document_gets_the_suites_that_name_it(self):
        class Other(Suite):
            name, document = "other", "own.md"
        record = run(Suite())
        record.machine = dict.fromkeys(("Processor", "Cores", "Memory", "Kernel", "Disk", "Pool"), "m")
        record.results.all += [model.Result("other", "one", {}, "a", [{"turn": 0, "metrics": {}}])]
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            both = {"benchmarks.md": "<!-- fake: begin --><!-- fake: end -->",
                    "own.md": "<!-- other: begin --><!-- other: end -->"}
            for name, text in both.items():
                (folder / name).write_text(text)
            docs.update(folder, record, [Suite(), Other()], False)
            found = {name: (folder / name).read_text() for name in both}
            self.assertTrue(all("| `x` | 1.5 µs |" in text for text in found.values()))
            self.assertIn("On m, m cores", found["own.md"])
            self.assertNotIn("On m, m cores", found["benchmarks.md"])
            (folder / "own.md").write_text("")
            (folder / "benchmarks.md").write_text(both["benchmarks.md"])
            with self.assertRaisesRegex(docs.NoMarkers, "own.md: <!-- other"):
                docs.update(folder, record, [Suite(), Other()], False)
            self.assertEqual((folder / "benchmarks.md").read_text(), both["benchmarks.md"])

    def test_the_documents_have_a_place_for_every_suite(self):
        known = suites.discover()
        names = [suite.name for suite in known]
        self.assertTrue(set(names) >= {"fio", "overhead", "frontends", "recovery"})
        self.assertEqual(len(names), len(set(names)))
        places = [(model.Suite.document, "machine"), (model.Suite.document, "goals"),
                  *((suite.document, suite.name) for suite in known)]
        for document in {document for document, _ in places}:
            text = (ROOT / "docs" / document).read_text(encoding="utf-8")
            for name in (name for where, name in places if where == document):
                docs.replace(text, name, "")
            markers = re.findall(r"<!-- (\w+): (begin|end) -->", text)
            self.assertEqual(markers[::2], [(name, "begin") for name, _ in markers[::2]])
            self.assertEqual(markers[1::2], [(name, "end") for name, _ in markers[::2]])

    def test_a_goals_diagram_has_better_on_the_right(self):
        for at_most, measured in ((True, 1.5), (False, 3)):
            self.assertGreater(page.goal_row("s", model.Goal("g", 2, at_most, measured))["at"], 0.5)
        for at_most, measured in ((True, 3), (False, 1.5), (False, 0)):
            self.assertLess(page.goal_row("s", model.Goal("g", 2, at_most, measured))["at"], 0.5)
        self.assertEqual(page.goal_row("s", model.Goal("g", 2, True, 2))["at"], 0.5)
        self.assertEqual(page.goal_row("s", model.Goal("g", 2, True, 2000))["at"], 0)

    def test_text_cannot_be_markup(self):
        self.assertEqual(str(page.prose("a < `b` **c**")),
                         "a &lt; <code>b</code> <strong>c</strong>")


class Machine(unittest.TestCase):
    def test_the_last_of_what_is_mounted_in_one_place_counts(self):
        with unittest.mock.patch.object(machine, "_output", lambda *_: "ext4\ntmpfs"):
            self.assertEqual(machine.file_system("/"), "tmpfs")
        with unittest.mock.patch.object(machine, "_output", lambda *_: ""):
            self.assertEqual(machine.file_system("/"), "unknown")


if __name__ == "__main__":
    unittest.main()
