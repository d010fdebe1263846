# SPDX-License-Identifier: BSD-3-Clause
"""What status says of the processes in a pool."""

import ctypes
import os
import re
import signal
import time
import unittest

import writers
from kit import LATE, image

PTRACE_ATTACH, PTRACE_DETACH = 16, 17

FIELDS = ("pid", "state", "cached_files", "pending_files", "pending_records", "pending_bytes")


class ProcessesTest(writers.WriterTest):
    def processes(self):
        """By number."""
        return {process["pid"]: process for process in self.status()["processes"]}

    def row(self, pid):
        """The line of a process, as people see it."""
        [line] = re.findall(rf"(?m)^ *{pid} .*$", self.status_text())
        return re.split(r" {2,}", line.strip().replace(f"{pid} ", f"{pid}  ").replace(" UTC", " UTC  "))

    def check(self, process, *wanted):
        found = self.processes()[process.pid]
        self.assertEqual([found[name] for name in FIELDS], [process.pid, *wanted], found)
        return found

    def test_alive_stopped_and_dead(self):
        """A file has a record for each page that is written."""
        begin = time.time_ns()
        first, second = self.start_writer("a", "b"), self.start_writer("c")
        stopped, killed = self.start_writer("d"), self.start_writer("e", "f", "g")
        self.tell(first, 3)
        self.tell(second, 1)
        self.tell(stopped, 2)
        self.tell(killed, 4)
        # The cleanup thread says since when something is pending.
        self.until(lambda: all(process["oldest_pending_age_ns"] for process in self.processes().values()),
                   "each process has an age")
        self.check(stopped, "alive", 1, 1, 2, 2 * writers.PAGE)
        stopped.send_signal(signal.SIGSTOP)
        self.until(lambda: self.processes()[stopped.pid]["state"] == "stopped", "a process that stops")
        killed.kill()
        killed.wait()

        self.assertEqual(len(self.processes()), 4)
        found = self.check(first, "alive", 2, 2, 6, 6 * writers.PAGE)
        self.assertEqual(found["program"], "python3")
        self.assertTrue(begin < found["since_ns"] < time.time_ns())
        self.assertTrue(0 < found["oldest_pending_age_ns"] < time.time_ns() - begin)
        self.assertGreaterEqual(found["segments"], 1)
        self.check(second, "alive", 1, 1, 1, writers.PAGE)
        self.check(stopped, "stopped", 1, 1, 2, 2 * writers.PAGE)
        # What it had in its cache is nobody's now; what it has written waits.
        self.check(killed, "dead", 0, 3, 12, 12 * writers.PAGE)

        room = f"{64 * found['segments']} KiB"
        row = self.row(first.pid)
        self.assertRegex(row[3], r"^\d+(\.\d)? (ms|s)$")
        self.assertRegex(row[9], r"^\d+(\.\d)? (ms|s)$")
        self.assertEqual(row[:3] + row[4:9] + row[10:],
                         [str(first.pid), "alive", "always", "2", room, "6", "24 KiB", "-", "python3"])
        self.assertTrue(0 < found["age_ns"] < time.time_ns() - begin)
        self.assertEqual(self.row(stopped.pid)[1], "stopped")
        self.assertEqual(self.row(killed.pid)[1], "dead")

        stopped.send_signal(signal.SIGCONT)
        self.until(lambda: self.processes()[stopped.pid]["state"] == "alive", "a process that goes on")
        # A newcomer brings to the files what the dead one has left.
        newcomer = self.start_writer("h")
        self.assertEqual(set(self.processes()), {first.pid, second.pid, stopped.pid, newcomer.pid})
        self.assertEqual((self.files / "g").stat().st_size, 4 * writers.PAGE)

    def test_files_that_are_closed(self):
        process = self.start_writer("a", "b", settings=writers.SOON)
        self.tell(process, 5)
        self.until(lambda: self.processes()[process.pid]["pending_records"] == 0, "all is written back")
        found = self.check(process, "alive", 2, 0, 0, 0)
        self.assertIsNone(found["oldest_pending_age_ns"])
        self.assertEqual(self.row(process.pid)[9], "-")
        self.tell(process, "close")
        # With its next call, a process lets go of what it has closed.
        self.tell(process, 1)
        self.until(lambda: self.processes()[process.pid]["cached_files"] == 1, "one file is left")

    def test_in_a_debugger(self):
        libc = ctypes.CDLL(None, use_errno=True)
        process = self.start_writer("a")
        self.tell(process, 1)
        if libc.ptrace(PTRACE_ATTACH, process.pid, None, None) != 0:
            self.skipTest(os.strerror(ctypes.get_errno()))
        self.until(lambda: self.processes()[process.pid]["state"] == "stopped", "a process that is looked at")
        os.waitpid(process.pid, os.WUNTRACED)
        libc.ptrace(PTRACE_DETACH, process.pid, None, None)
        self.until(lambda: self.processes()[process.pid]["state"] == "alive", "a process that goes on")

    def test_modes(self):
        processes = {rule: self.start_writer("a" + rule, settings={**LATE, "NVCACHE_WRITE_BACK": rule})
                     for rule in ("auto", "always", "never")}
        found = self.processes()
        for rule, process in processes.items():
            self.assertEqual(found[process.pid]["mode"], rule)
            self.assertEqual(self.row(process.pid)[2], rule)

    def test_write_through(self):
        """A file that two processes use, and one syncs again and again."""
        auto = {"NVCACHE_WRITE_BACK": "auto"}
        writer, other = self.start_writer("a", settings=auto), self.start_writer("a", settings=auto)
        for _ in range(3):
            self.tell(writer, 1)
            self.tell(writer, "sync")
        begin = time.time_ns()

        def pending():
            """The checkpoint may move in between."""
            self.tell(writer, 3)
            self.found = self.status()
            return self.found["write_through"]["pending_records"] >= 3

        self.until(pending, "groups of write-through")
        through = self.found["write_through"]
        self.assertEqual(through["pending_files"], 1)
        self.assertEqual(through["pending_bytes"], through["pending_records"] * writers.PAGE)
        self.assertIsNone(through["error"])
        self.assertGreater(through["checkpoint"], 0)
        processes = {process["pid"]: process for process in self.found["processes"]}
        found = processes[writer.pid]
        self.assertEqual([found[name] for name in ("cached_files", "through_files", "through_records", "through_bytes",
                                                   "pending_records")],
                         [0, 1, through["pending_records"], through["pending_bytes"], through["pending_records"]])
        self.assertTrue(0 < found["oldest_pending_age_ns"] < time.time_ns() - begin + 10**9, found)
        self.assertEqual(processes[other.pid]["through_records"], 0)
        text = self.status_text()
        self.assertRegex(text, r"(?m)^through +\d+ records?, \d+ KiB, of 1 file above its checkpoint")
        self.assertRegex(self.row(writer.pid)[8], r"^\d+ KiB of 1 file$")
        self.assertEqual(self.row(other.pid)[8], "-")
        # It moves by itself.
        self.until(lambda: self.status()["write_through"]["pending_records"] == 0, "the checkpoint has moved")
        self.assertLess(self.status()["write_through"]["checkpoint_age_ns"], time.time_ns() - begin)
        self.assertRegex(self.status_text(),
                         r"(?m)^through +nothing above its checkpoint, which moved \d+(\.\d)? (ms|s) ago$")

    def test_seats_without_a_process(self):
        self.create()
        for number, state in ((image.SEAT_TAKEN, "dead"), (image.SEAT_REPLAYED, "replayed"),
                              (image.SEAT_UNRESOLVED, "unresolved"), (image.SEAT_LEFT, "left")):
            with self.dirty_image() as pool:
                pool.set_seat(0, 2**22 + 1, state=number)
            self.assertEqual(self.processes()[2**22 + 1]["state"], state)


if __name__ == "__main__":
    unittest.main()
