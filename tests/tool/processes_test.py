# SPDX-License-Identifier: BSD-3-Clause
"""What status says of the processes in a pool."""

import json
import re
import signal
import time
import unittest

import image
import support
import writers

FIELDS = ("pid", "state", "cached_files", "pending_files", "pending_records", "pending_bytes")


class ProcessesTest(writers.WriterTest):
    def processes(self):
        """By number."""
        result = self.nvcache("status", self.pool, "--json")
        self.assert_ok(result)
        return {process["pid"]: process for process in json.loads(result.stdout)["processes"]}

    def row(self, pid):
        """The line of a process, as people see it."""
        result = self.nvcache("status", self.pool)
        self.assert_ok(result)
        [line] = re.findall(rf"(?m)^ *{pid} .*$", result.stdout)
        return re.split(r" {2,}", line.strip().replace(f"{pid} ", f"{pid}  ").replace(" UTC", " UTC  "))

    def until(self, condition, what):
        end = time.monotonic() + 30
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.01)

    def check(self, process, *wanted):
        found = self.processes()[process.pid]
        self.assertEqual([found[name] for name in FIELDS], [process.pid, *wanted], found)
        return found

    def test_alive_stopped_and_dead(self):
        """A new file has a record of its own, that it is empty, and one for each page."""
        begin = time.time_ns()
        first, second = self.start("a", "b"), self.start("c")
        stopped, killed = self.start("d"), self.start("e", "f", "g")
        self.tell(first, 3)
        self.tell(second, 1)
        self.tell(stopped, 2)
        self.tell(killed, 4)
        # The cleanup thread says since when something is pending.
        self.until(lambda: all(process["oldest_pending_age_ns"] for process in self.processes().values()),
                   "each process has an age")
        self.check(stopped, "alive", 1, 1, 3, 2 * writers.PAGE)
        stopped.send_signal(signal.SIGSTOP)
        self.until(lambda: self.processes()[stopped.pid]["state"] == "stopped", "a process that stops")
        killed.kill()
        killed.wait()

        self.assertEqual(len(self.processes()), 4)
        found = self.check(first, "alive", 2, 2, 8, 6 * writers.PAGE)
        self.assertEqual(found["program"], "python3")
        self.assertTrue(begin < found["since_ns"] < time.time_ns())
        self.assertTrue(0 < found["oldest_pending_age_ns"] < time.time_ns() - begin)
        self.assertGreaterEqual(found["segments"], 1)
        self.check(second, "alive", 1, 1, 2, writers.PAGE)
        self.check(stopped, "stopped", 1, 1, 3, 2 * writers.PAGE)
        # What it had in its cache is nobody's now; what it has written waits.
        self.check(killed, "dead", 0, 3, 15, 12 * writers.PAGE)

        room = f"{64 * found['segments']} KiB"
        row = self.row(first.pid)
        self.assertRegex(row[2], r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$")
        self.assertRegex(row[7], r"^\d+(\.\d)? (ms|s)$")
        self.assertEqual(row[:2] + row[3:7] + row[8:],
                         [str(first.pid), "alive", "2", room, "8", "24 KiB", "python3"])
        self.assertEqual(self.row(stopped.pid)[1], "stopped")
        self.assertEqual(self.row(killed.pid)[1], "dead")

        stopped.send_signal(signal.SIGCONT)
        self.until(lambda: self.processes()[stopped.pid]["state"] == "alive", "a process that goes on")
        # A newcomer brings to the files what the dead one has left.
        newcomer = self.start("h")
        self.assertEqual(set(self.processes()), {first.pid, second.pid, stopped.pid, newcomer.pid})
        self.assertEqual((self.files / "g").stat().st_size, 4 * writers.PAGE)

    def test_files_that_are_closed(self):
        process = self.start("a", "b", settings=writers.SOON)
        self.tell(process, 5)
        self.until(lambda: self.processes()[process.pid]["pending_records"] == 0, "all is written back")
        found = self.check(process, "alive", 2, 0, 0, 0)
        self.assertIsNone(found["oldest_pending_age_ns"])
        self.assertEqual(self.row(process.pid)[7], "-")
        self.tell(process, "close")
        # With its next call, a process lets go of what it has closed.
        self.tell(process, 1)
        self.until(lambda: self.processes()[process.pid]["cached_files"] == 1, "one file is left")

    def test_seats_without_a_process(self):
        self.create()
        for number, state in ((image.SEAT_TAKEN, "dead"), (image.SEAT_REPLAYED, "replayed"),
                              (image.SEAT_UNRESOLVED, "unresolved")):
            with image.Image(self.pool) as pool:
                pool.set_dirty()
                pool.set_seat(0, 2**22 + 1, state=number)
            self.assertEqual(self.processes()[2**22 + 1]["state"], state)


if __name__ == "__main__":
    unittest.main()
