#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""everyday_test.py BUILD: the suite `everyday` runs its cheap programs, and finds what is not the same
with NVCache as without; what cannot be run is left out, and said; servers are ended. Not how fast
anything is."""

import contextlib
import io
import os
import pathlib
import sys
import tempfile
import time
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

# pylint: disable=wrong-import-position
from harness import leavings, model, servers, session, store, systems
from suites import everyday, everyday_databases, everyday_tools
from suites.everyday_program import Turn

BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ROOT / "build").resolve()
SMOKE = model.Scale("smoke", 1)


def bench():
    return systems.Bench(BUILD, BUILD)


def turn_of(place):
    """Without a checkpointer."""
    return Turn(bench(), place, SMOKE, bench().checkpointer(place, {}))


def run(*programs, turns=1):
    """(the suite, all that was found, all that was said)"""
    suite = everyday.Everyday(programs)
    record = store.Record(model.Scale("smoke", turns), {}, model.Results())
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        session.run(record, bench(), [suite])
    return suite, record, said.getvalue()


def tool(name, script, **options):
    # pylint: disable=protected-access
    return everyday_tools._tool(name, name, {"sh": "dash"}, lambda turn: ["sh", "-ec", script],
                                **options)


class Leavings(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "a").mkdir()
        (self.folder / "a/file").write_text("text")
        (self.folder / "link").symlink_to("a/file")
        self.before = leavings.tree(self.folder)

    def differs(self, *words):
        found = leavings.difference(self.before, leavings.tree(self.folder))
        self.assertIsNotNone(found)
        for word in words:
            self.assertIn(word, found)

    def test_the_same_is_no_difference(self):
        (self.folder / "a/file").write_text("other")
        (self.folder / "a/file").write_text("text")
        self.assertIsNone(leavings.difference(self.before, leavings.tree(self.folder)))

    def test_one_byte(self):
        (self.folder / "a/file").write_text("tExt")
        self.differs("a/file: -rw", "sha256")

    def test_a_mode(self):
        (self.folder / "a").chmod(0o700)
        self.differs("a: drwx------")

    def test_a_file_that_is_gone(self):
        (self.folder / "a/file").unlink()
        self.differs("a/file: not there, not -rw")

    def test_a_file_that_nobody_wanted(self):
        (self.folder / ".hidden").touch()
        self.differs(".hidden: -rw", "not not there")

    def test_where_a_link_leads(self):
        (self.folder / "link").unlink()
        (self.folder / "link").symlink_to("a")
        self.differs("link: link to a, not link to a/file")

    def test_a_link_is_not_what_it_leads_to(self):
        (self.folder / "link").unlink()
        (self.folder / "link").write_text("text")
        self.differs("link: -rw")

    def test_what_is_skipped_and_what_has_no_name(self):
        (self.folder / "a/file").write_text("tExt")
        self.assertNotIn("a/file", leavings.tree(self.folder, skip=("a/file",)))
        names_only = leavings.tree(self.folder, contents=False)
        self.assertNotIn("sha256", " ".join(names_only.values()))
        first = leavings.bag(self.folder / "a")
        (self.folder / "a/file").rename(self.folder / "a/other")
        self.assertEqual(first, leavings.bag(self.folder / "a"))
        (self.folder / "a/more").write_text("tExt")
        self.assertIsNotNone(leavings.difference(first, leavings.bag(self.folder / "a")))

    def test_lines(self):
        one, other = leavings.lines("dump", "a\nb\n"), leavings.lines("dump", "a\nc\n")
        self.assertEqual(leavings.difference(one, other), "dump, line 2: c, not b")

    def test_a_message_is_short(self):
        many = {str(i): "x" for i in range(100)}
        self.assertIn("97 more", leavings.difference(many, {}))


class Suite(unittest.TestCase):
    def setUp(self):
        # The bench's other tests make such folders as well, at the same time.
        systems.PREFIX = f"nvcache-test-bench-{os.getpid()}-"
        self.addCleanup(lambda: self.assertEqual(self.left(), set()))

    @staticmethod
    def left():
        return {path for parent in (systems.MEMORY, BUILD) for path in parent.glob(systems.PREFIX + "*")}

    def test_cheap_programs(self):
        _, record, said = run(*everyday_tools.PROGRAMS)
        self.assertEqual(record.failures, [], said)
        entry = record.suites[0]
        self.assertEqual(entry["planned"], entry["done"])
        for system in ("plain", "tmpfs", "through", "nvcache"):
            self.assertTrue(record.results.select("everyday", system=system))

    def test_rows_and_figures(self):
        suite, record, _ = run(tool("one", "echo >file"), turns=3)
        self.assertEqual({len(result.runs) for result in record.results.all}, {3})
        table, = suite.tables(record.results)
        self.assertEqual([len(row) for row in table.rows], [len(table.head)])
        self.assertEqual(table.rows[0][0], "one")
        self.assertIn("×", table.rows[0][-4])
        self.assertIn("×", table.rows[0][-3])
        self.assertEqual(len(suite.figures(record.results)), 1)
        self.assertIn("one", suite.summary(record.results))

    def test_a_yardstick(self):
        _, record, said = run(tool("one", "echo >file", yardstick=True))
        self.assertEqual(record.failures, [], said)
        self.assertTrue(record.results.select("everyday", system="unsynced"))
        _, record, _ = run(tool("one", "echo >file"))
        self.assertFalse(record.results.select("everyday", system="unsynced"))

    def test_goals(self):
        ratio = tool("ratio", "true", goals=(("plain", 2),))
        added = everyday_tools.Short("added", {"added": "added"}, "", {}, goals={"added": (("plain", 0.5),)}, added=True)
        results = model.Results()
        for program in (ratio, added):
            for system, seconds in (("plain", 1.0), ("through", 1.6)):
                results.add("everyday", system, model.Outcome(program.name, {}, {"seconds": seconds}))
        found = [(goal.what, goal.limit, goal.unit, goal.met, round(goal.measured, 9))
                 for goal in everyday.Everyday((ratio, added)).goals(results)]
        self.assertEqual(found, [("ratio / without NVCache", 2, "x", True, 1.6),
                                 ("added: more than without NVCache", 0.5, "s", False, 0.6)])

    def test_what_is_slower_is_said(self):
        programs = [tool(name, "true") for name in ("slow", "same", "fast")]
        results = model.Results()
        for program, seconds in zip(programs, (1.06, 1.04, 0.5)):
            for system, each in (("plain", 1.0), ("through", seconds)):
                results.add("everyday", system, model.Outcome(program.name, {}, {"seconds": each}))
        suite = everyday.Everyday(programs)
        remark, = suite.remarks(results)
        self.assertRegex(remark, r"1\.05.×\): slow 1\.06.×$")
        results = model.Results()
        for system in ("plain", "through"):
            results.add("everyday", system, model.Outcome("same", {}, {"seconds": 1.0}))
        self.assertRegex(suite.remarks(results)[0], ": none$")

    def test_a_program_without_the_library_is_a_failure(self):
        with bench().place("plain") as place:
            turn = turn_of(place)
            turn.check_library()
            place.pool = "a pool"
            self.assertRaisesRegex(systems.Broken, "does not have the library", turn.check_library)
        with bench().place("through", pool="1M") as place:
            turn_of(place).check_library()

    def test_a_difference_is_a_failure(self):
        _, record, said = run(tool("same", "echo >file"),
                              tool("other", 'case "$LD_PRELOAD" in *nvcache*) echo >file ;; *) : >file ;; esac'))
        self.assertEqual([(failure["case"], failure["system"]) for failure in record.failures],
                         [("other", "through"), ("other", "nvcache")])
        message = record.failures[0]["message"]
        self.assertIn("it has left something else than without NVCache: file: -rw", message)
        self.assertNotIn("\n", message)
        self.assertIn("other, through: FAILED", said)

    def test_a_program_that_fails(self):
        _, record, _ = run(tool("fails", "echo so >&2; false"))
        self.assertEqual({failure["message"].partition(":")[2] for failure in record.failures},
                         {" exit status 1: so"})

    def test_nothing_in_the_log_is_a_failure(self):
        # pylint: disable=protected-access
        _, record, _ = run(everyday_tools._tool("idle", "idle", {}, lambda turn: ["true"], logged=True))
        self.assertEqual([(failure["system"], failure["message"]) for failure in record.failures],
                         [("through", "nothing went through the log"), ("nvcache", "nothing went through the log")])

    def test_what_is_not_the_same_from_turn_to_turn_is_a_failure(self):
        _, record, _ = run(tool("random", "cat /proc/sys/kernel/random/uuid >file"), turns=2)
        self.assertLessEqual({"plain", "tmpfs", "through", "nvcache"}, {failure["system"] for failure in record.failures})

    def test_what_is_missing_is_left_out(self):
        # pylint: disable=protected-access
        missing = everyday_tools._tool("gone", "gone", {"no-such-program": "a-package"}, lambda turn: ["true"])
        _, record, said = run(tool("there", "echo >file"), missing)
        reason = "no-such-program is missing: install a-package"
        self.assertEqual(record.failures, [])
        self.assertIn({"case": "gone", "reason": reason}, record.suites[0]["left_out"])
        self.assertIn(f"everyday: gone: left out: {reason}", said)
        _, record, said = run(missing)
        self.assertEqual((record.suites[0]["state"], record.suites[0]["reason"]), ("left out", reason))

    def test_without_libeatmydata(self):
        with unittest.mock.patch.object(everyday, "EATMYDATA", "libnothing-of-this-name.so"):
            _, record, said = run(tool("there", "echo >file"))
        self.assertEqual(record.failures, [])
        self.assertFalse(record.results.select("everyday", system="eatmydata"))
        self.assertIn("libeatmydata is missing: install libeatmydata1", said)

    def test_databases_without_their_programs_are_left_out(self):
        nothing = lambda *_: None  # pylint: disable=unnecessary-lambda-assignment
        with unittest.mock.patch.multiple(everyday_databases, postgres_folder=nothing), \
                unittest.mock.patch("shutil.which", nothing):
            for program in everyday_databases.PROGRAMS:
                self.assertRegex(program.missing(bench()), r"^\S+ is missing: install \S+")

    def test_what_a_killed_program_leaves_in_its_pool_is_recovered(self):
        script = ("import os, signal; file = os.open('file', os.O_WRONLY | os.O_CREAT); "
                  "os.write(file, b'x' * 5000); os.kill(os.getpid(), signal.SIGKILL)")
        with bench().place("nvcache", pool="64M", settings={"BATCH_DELAY": 60000}) as place:
            turn = turn_of(place)
            self.assertRaises(systems.Broken, turn.run, [everyday_tools.PYTHON, "-c", script])
            self.assertNotEqual((turn.work / "file").read_bytes(), b"x" * 5000)
            turn.settle()
            self.assertEqual((turn.work / "file").read_bytes(), b"x" * 5000)


class Servers(unittest.TestCase):
    """A shell stands in for a server: it ends with status 0 at SIGTERM."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.pids = self.folder / "pids"

    def server(self, script, ready=None):
        return servers.Server(["sh", "-c", f"echo $$ >>{self.pids}; {script}"], self.folder / "log",
                              self.folder / "kept", ready or self.pids.exists)

    def check_ended(self):
        """One whose parent is gone may not have been waited for yet."""
        limit = time.monotonic() + 10
        for pid in self.pids.read_text().split():
            while self.runs(pid):
                self.assertLess(time.monotonic(), limit, f"process {pid} still runs")
                time.sleep(0.01)

    @staticmethod
    def runs(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False

    WAITS = "trap 'kill $!; exit 0' TERM; sleep 100 & echo $! >>{}; wait"

    def test_it_ends(self):
        with self.server(self.WAITS.format(self.pids)):
            while len(self.pids.read_text().split()) < 2:
                pass
        self.check_ended()

    def test_it_ends_when_its_client_fails(self):
        for error in (systems.Broken, KeyboardInterrupt):
            with self.assertRaises(error), self.server(self.WAITS.format(self.pids)):
                raise error
            self.check_ended()

    def test_one_that_does_not_listen_is_killed(self):
        with unittest.mock.patch.multiple(servers, END_SECONDS=0.2, GIVE_UP_SECONDS=0.2), \
                self.assertRaisesRegex(systems.Broken, "sh does not end: it was killed"), \
                self.server("trap '' TERM; while :; do sleep 0.1; done"):
            time.sleep(0.2)  # until the trap is set
        self.check_ended()

    def test_one_that_never_answers_is_killed(self):
        with unittest.mock.patch.object(servers, "READY_SECONDS", 0.2), \
                self.assertRaisesRegex(systems.Broken, "sh does not answer after 0.2 s"), \
                self.server(self.WAITS.format(self.pids), ready=lambda: False):
            pass
        self.check_ended()

    def test_one_that_ends_by_itself_says_why(self):
        with self.assertRaisesRegex(systems.Broken, "sh ended with status 3;.*: no luck$"), \
                self.server("echo no luck >&2; exit 3", ready=lambda: False):
            pass
        self.assertEqual((self.folder / "kept").read_text(), "no luck\n")

    def test_one_that_ends_while_its_client_works_says_why(self):
        with self.assertRaisesRegex(systems.Broken, "sh ended with status 4;"), \
                self.server("sleep 0.2; exit 4"):
            raise systems.Broken("connection reset")


if __name__ == "__main__":
    unittest.main()
