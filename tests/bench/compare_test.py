#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""bench/compare on two results that were made up."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

# pylint: disable=wrong-import-position
from harness import model, store


def write(folder, values, goals):
    results = model.Results()
    for (name, system, metric), runs in values.items():
        for turn, value in enumerate(runs):
            results.add("s", system, model.Outcome(name, {"size": 4096}, {metric: value}), turn)
    folder.mkdir()
    store.write(store.Record(model.Scale("quick", 3), {"Processor": "p"}, results,
                             goals=[("s", model.Goal(what, 2, True, measured))
                                    for what, measured in goals.items()]), folder)


OLD = {("steady", "nvcache", "ns"): [100, 110, 120], ("slower", "nvcache", "ns"): [100, 110, 120],
       ("faster", "tmpfs", "bandwidth"): [100, 110, 120], ("once", "tmpfs", "ns"): [100],
       ("gone", "tmpfs", "ns"): [1]}
NEW = {("steady", "nvcache", "ns"): [119, 121, 130], ("slower", "nvcache", "ns"): [1210, 1100, 2000],
       ("faster", "tmpfs", "bandwidth"): [200, 220, 240], ("once", "tmpfs", "ns"): [900],
       ("added", "tmpfs", "ns"): [1]}


class Compare(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        write(self.folder / "old", OLD, {"lost": 1.5, "won": 3, "kept": 1})
        write(self.folder / "new", NEW, {"lost": 2.5, "won": 1, "kept": 1.1})

    def run_it(self, *arguments):
        return subprocess.run([ROOT / "bench/compare", *arguments], cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)

    def test_numbers(self):
        done = self.run_it("--json", "old", "new/results.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        by_name = {change["name"]: change for change in found["changes"]}
        self.assertEqual([change["name"] for change in found["changes"]],
                         ["slower", "once", "faster", "steady"])
        self.assertEqual((by_name["slower"]["ratio"], by_name["slower"]["beyond_spread"],
                          by_name["slower"]["better"]), (11, True, False))
        self.assertEqual((by_name["faster"]["ratio"], by_name["faster"]["beyond_spread"],
                          by_name["faster"]["better"]), (2, True, True))
        self.assertFalse(by_name["steady"]["beyond_spread"])
        self.assertFalse(by_name["once"]["beyond_spread"], "one run has no spread")
        self.assertEqual([(goal["what"], goal["met"]) for goal in found["goals"]],
                         [("lost", False), ("won", True)])
        self.assertEqual((len(found["only_in_old"]), len(found["only_in_new"])), (1, 1))

    def test_words(self):
        done = self.run_it("old", "new")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = done.stdout.replace("\u00a0", " ")
        for part in ("goal now MISSED: lost: 1.5 × → 2.5 × (≤ 2 ×)", "goal now MET: won",
                     "110 ns →   1.21 µs", "11 ×", "worse", "2 of 4 numbers", "size 4 KiB",
                     "only in OLD: 1", "only in NEW: 1"):
            self.assertIn(part, text)
        self.assertNotIn("steady", text)
        self.assertIn("steady", self.run_it("--all", "old", "new").stdout)

    def test_what_cannot_be_read(self):
        done = self.run_it("old", "nowhere")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1))
        self.assertIn("nowhere", done.stderr)


if __name__ == "__main__":
    unittest.main()
