# SPDX-License-Identifier: BSD-3-Clause
"""top: rows and rates of processes that write, as text, as JSON and on a terminal."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

import terminal
import writers
from kit import image, tool

TITLE = ["PID", "STATE", "MODE", "FILES", "ROOM", "RECORDS", "BYTES", "OLDEST", "TO", "DISK", "THROUGH", "PROGRAM"]
QUICK = ("--interval", "0.1")


class TopTest(writers.WriterTest):
    def top(self, *arguments, **options):
        return self.start([tool.COMMAND, "top", self.pool, *arguments], stdin=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, **options)

    def show(self, *arguments, env=None, **options):
        """On a terminal."""
        shown = terminal.Terminal([tool.COMMAND, "top", self.pool, *QUICK, *arguments],
                                  {**tool.clean_environment(), **(env or {})}, **options)
        self.addCleanup(shown.close)
        return shown

    def blocks(self, text):
        """Each look: the lines of the head by their names, and the rows."""
        looks = []
        for look in re.split(r"(?m)^(?=pool  )", text)[1:]:
            head, rows = look.split("\n\n", 1)
            lines = [row.split() for row in rows.splitlines() if row]
            self.assertEqual(lines[0], TITLE)
            looks.append((dict(re.split(r"  +", line, maxsplit=1) for line in head.splitlines()), lines[1:]))
        return looks

    # Plain.

    def test_rates(self):
        """Of several looks together they are what was written, to the byte."""
        writer, idle = self.start_writer("a", settings=writers.SOON), self.start_writer("b", settings=writers.SOON)
        self.tell(writer, 1)
        self.tell(idle, 1)
        top = self.top(*QUICK, "--json")
        end = time.monotonic() + 30
        looks = [json.loads(top.stdout.readline())]
        while looks[-1]["per_second"]["bytes_cleaned"] or looks[-1]["pending_records"]:  # the first pages
            self.assertLess(time.monotonic(), end, looks[-1])
            looks = [json.loads(top.stdout.readline())]
        self.tell(writer, 100)

        def total(find):
            return round(sum(find(look) * look["interval_ns"] / 1e9 for look in looks))

        def written(process):
            def find(look):
                [rate] = [row["bytes_cleaned_per_second"] for row in look["processes"]
                          if row["pid"] == process.pid]
                return rate
            return total(find)

        # The pool hears of each record, the seat of a batch.
        while total(lambda look: look["per_second"]["entries_cleaned"]) < 100 or written(writer) == 0:
            self.assertLess(time.monotonic(), end, looks[-1])
            looks.append(json.loads(top.stdout.readline()))
        looks.append(json.loads(top.stdout.readline()))
        self.assertEqual(total(lambda look: look["per_second"]["entries_cleaned"]), 100)
        self.assertEqual(total(lambda look: look["per_second"]["bytes_cleaned"]), 100 * writers.PAGE)
        self.assertGreaterEqual(total(lambda look: look["per_second"]["batches"]), 1)
        self.assertEqual(written(writer), 100 * writers.PAGE)
        self.assertEqual(written(idle), 0)
        self.assertTrue(all(0.09e9 < look["interval_ns"] < 30e9 for look in looks))
        self.assertEqual([row["state"] for row in looks[-1]["processes"]], ["alive", "alive"])
        self.assertEqual(looks[-1]["pool"], str(self.pool))

    def test_rates_of_write_through(self):
        """A file that two processes use, and one syncs again and again."""
        auto = {"NVCACHE_WRITE_BACK": "auto"}
        writer, other = self.start_writer("a", settings=auto), self.start_writer("a", settings=auto)
        for _ in range(3):
            self.tell(writer, 1)
            self.tell(writer, "sync")
        top = self.top(*QUICK, "--json")
        begin = json.loads(top.stdout.readline())
        self.assertEqual({row["pid"]: row["mode"] for row in begin["processes"]},
                         {writer.pid: "auto", other.pid: "auto"})
        # Whole parts of 16 KiB, of which each is told at once; a part may be begun.
        self.tell(writer, 64)
        written, end = {writer.pid: 0, other.pid: 0}, time.monotonic() + 30
        while round(written[writer.pid]) < 64 * writers.PAGE:  # what was multiplied is no whole number
            self.assertLess(time.monotonic(), end, written)
            look = json.loads(top.stdout.readline())
            for row in look["processes"]:
                written[row["pid"]] += row["through_bytes_per_second"] * look["interval_ns"] / 1e9
        self.assertLessEqual(round(written[writer.pid]), 67 * writers.PAGE)
        self.assertEqual(written[other.pid], 0)
        self.assertIn("checkpoint", look["write_through"])

    def test_text(self):
        process = self.start_writer("a", "b")
        self.tell(process, 3)
        result = None
        # On a busy machine it may not have the time to read all of a log.
        while result is None or "more than" in result.stdout:
            result = self.assert_ok(self.nvcache("top", self.pool, *QUICK, "--count", 2))
        looks = self.blocks(result.stdout)
        self.assertEqual(len(looks), 2)
        for head, [row] in looks:
            self.assertEqual(head["pool"], str(self.pool))
            self.assertEqual(head["size"], "16 MiB, durability process, 1 process")
            self.assertRegex(head["room"], r"^[1-9]\d* of 252 segments taken \(\d+\.\d %\); .* in huge pages$")
            self.assertEqual(head["pending"], "6 records, 24 KiB, of 2 files")
            self.assertRegex(head["to disk"], r"^0 records/s, 0 B/s, 0 batches/s, 0 flushes/s$")
            self.assertEqual(head["through"], "0 B/s; nothing above its checkpoint")
            self.assertEqual(row[:4] + row[6:9] + row[-3:],
                             [str(process.pid), "alive", "always", "2", "6", "24", "KiB", "0", "B/s", "python3"])

    def test_mirrored(self):
        """The waits of each look are those since the one before."""
        self.assert_ok(self.nvcache("create", self.pool, "--size", "1M", "--commit", "write"))
        with image.Image(self.pool) as pool:
            pool.set_dirty()
            pool.set_mirror(state=4, next_lsn=20, mirrored=19, failed=7, waited=100, counts={2: 50})
            result = self.assert_ok(self.nvcache("top", self.pool, *QUICK, "--once"))
            [(head, _)] = self.blocks(result.stdout)
            self.assertEqual(head["mirror"], "leaving, none is running; images lack 1 LSN; 0 waits; 0 failed")
            top = self.top(*QUICK, "--json")
            look = json.loads(top.stdout.readline())["mirror"]
            self.assertEqual((look["commit"], look["state"], look["waits"], look["waits_failed"]),
                             ("write", "leaving", 0, 0))
            with pool.lock(image.MIRROR_BYTE):
                end = time.monotonic() + 30
                for counts, wanted in (({2: 50}, ("mirrored", True, 0, None)),
                                       ({2: 50, 9: 3}, ("mirrored", True, 3, 512))):
                    pool.set_mirror(state=3, next_lsn=20, mirrored=19, failed=7, waited=100, counts=counts)
                    while tuple(look[name] for name in ("state", "alive", "waits", "wait_p99_us")) != wanted:
                        self.assertLess(time.monotonic(), end, look)
                        look = json.loads(top.stdout.readline())["mirror"]

    def test_stopped_and_dead(self):
        stopped, killed = self.start_writer("a"), self.start_writer("b")
        self.tell(stopped, 1)
        self.tell(killed, 1)
        stopped.send_signal(signal.SIGSTOP)
        killed.kill()
        killed.wait()
        top = self.top(*QUICK, "--json")
        wanted = {stopped.pid: "stopped", killed.pid: "dead"}
        for _ in range(100):
            found = {row["pid"]: row["state"] for row in json.loads(top.stdout.readline())["processes"]}
            if found == wanted:
                break
        self.assertEqual(found, wanted)

    def test_ends_by_signals(self):
        """Without a terminal: text, until it is told to end. What it has printed is whole."""
        self.create()
        for number in (signal.SIGINT, signal.SIGTERM):
            top = self.top(*QUICK)
            self.assertRegex(top.stdout.readline(), "^pool  ")
            top.send_signal(number)
            output = top.stdout.read()
            self.assertEqual((top.wait(), top.stderr.read()), (0, ""))
            self.assertTrue(output.endswith("PROGRAM\n"), output)

    def test_takes_nothing(self):
        """No seat, no lock, no byte; and the pool can be recovered meanwhile."""
        self.create()
        with self.dirty_image():
            pass
        before = tool.checksum(self.pool)
        top = self.top(*QUICK, "--json")
        self.assertEqual(json.loads(top.stdout.readline())["processes"], [])
        maps = pathlib.Path(f"/proc/{top.pid}/maps").read_text()
        rights = "".join(re.findall(rf"(?m)^\S+ (\S+) .* {self.pool}$", maps))
        self.assertIn("r", rights)
        self.assertNotIn("w", rights)
        st = os.stat(self.pool)
        place = f"{os.major(st.st_dev):02x}:{os.minor(st.st_dev):02x}:{st.st_ino}"
        locks = pathlib.Path("/proc/locks").read_text()
        self.assertNotIn(f" {place} ", locks)
        self.assertEqual(tool.checksum(self.pool), before)
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertTrue(json.loads(top.stdout.readline()))

    def test_pool_that_goes_away(self):
        def cut():
            os.truncate(self.pool, tool.MIB // 2)

        def replace():
            self.pool.rename(self.pools / "old")
            self.create()

        for act in (cut, replace, self.pool.unlink):
            self.pool.unlink(missing_ok=True)
            (self.pools / "old").unlink(missing_ok=True)
            self.create()
            top = self.top(*QUICK, "--json")
            top.stdout.readline()
            act()
            self.assertEqual(top.wait(30), 1)
            self.assertRegex(top.stderr.read(), rf"\Anvcache: {self.pool}: the pool is gone[^\n]+\n\Z")

    def test_command_line(self):
        self.assert_refused(self.nvcache("top", self.pool), 1, self.pool)
        self.assert_refused(self.nvcache("top", env={"NVCACHE_POOL": str(self.pools / "missing")}), 1, "does not exist")
        for option, value in (("--interval", "0"), ("--interval", "x"), ("--count", "0"), ("--colour", "1")):
            self.assert_refused(self.nvcache("top", self.pool, option, value), 2, "nvcache top --help")
        self.create()
        result = self.assert_ok(self.nvcache("top", "--once", *QUICK, env={"NVCACHE_POOL": str(self.pool)}))
        self.assertEqual(len(self.blocks(result.stdout)), 1)

    # On a terminal.

    def test_screen(self):
        small, large = self.start_writer("a"), self.start_writer("b", "c", "d")
        self.tell(small, 1)
        self.tell(large, 2)
        shown = self.show(columns=105)

        def order(lines):
            """Of the processes in the table."""
            return [int(line.split()[0]) for line in lines[9:-1] if line]

        # The last line is drawn last.
        shown.until(lambda lines: lines[-1].endswith("scroll") and len(order(lines)) == 2, "both processes")
        lines = shown.lines()
        self.assertEqual(lines[8].split(), TITLE)
        self.assertEqual(lines[:2], [f"pool     {self.pool}", "size     16 MiB, durability process, 2 processes"])
        self.assertRegex(lines[-1], "^q: quit   left, right: sort by TO DISK ")
        # By name, then by number: the highest comes first.
        shown.press(terminal.RIGHT)
        shown.until(lambda lines: "sort by THROUGH" in lines[-1], "the next column")
        shown.press(terminal.RIGHT)
        shown.until(lambda lines: "sort by PROGRAM" in lines[-1], "the one after it")
        shown.press(terminal.RIGHT)
        shown.until(lambda lines: "sort by PID" in lines[-1]
                    and order(lines) == sorted([small.pid, large.pid], reverse=True), "by number")
        shown.press(3 * terminal.RIGHT)
        shown.until(lambda lines: "sort by FILES" in lines[-1] and order(lines) == [large.pid, small.pid],
                    "by files")
        shown.press(terminal.LEFT)
        shown.until(lambda lines: "sort by MODE" in lines[-1], "the column before")
        shown.press(terminal.DOWN)
        shown.until(lambda lines: len(order(lines)) == 1, "one line was scrolled away")
        shown.press(terminal.UP)
        shown.until(lambda lines: len(order(lines)) == 2, "and has come back")
        # It is live.
        large.kill()
        large.wait()
        shown.until(lambda lines: any(line.split()[:4] == [str(large.pid), "dead", "always", "0"] for line in lines),
                    "one has died")
        shown.press(b"q")
        self.assertEqual(shown.await_end(), (0, ""))
        self.assertTrue(shown.is_restored())

    def test_narrow(self):
        """What matters least is left out; one can sort by it all the same."""
        process = self.start_writer("a")
        self.tell(process, 1)
        shown = self.show(columns=105)
        for columns, missing in ((105, []), (104, ["RECORDS"]), (97, ["RECORDS"]), (96, ["RECORDS", "OLDEST"]),
                                 (80, ["RECORDS", "OLDEST", "ROOM"])):
            shown.resize(24, columns)
            wanted = [title for title in TITLE if title not in missing]
            shown.until(lambda lines, wanted=wanted: lines[8].split() == wanted and lines[9].endswith(" python3")
                        and len(lines[9].split()) > len(wanted), f"{columns} columns")
        shown.press(5 * terminal.LEFT)
        shown.until(lambda lines: "sort by ROOM" not in lines[-1] and "sort by FILES" in lines[-1], "a column")
        shown.press(terminal.RIGHT)
        shown.until(lambda lines: "sort by ROOM" in lines[-1] and lines[9].startswith(f"{process.pid:>7} "),
                    "one that is not there")
        shown.press(b"q")
        self.assertEqual(shown.await_end(), (0, ""))

    def test_resize(self):
        process = self.start_writer("a")
        self.tell(process, 1)
        shown = self.show()
        for lines, columns in ((24, 80), (12, 60), (40, 100)):
            shown.resize(lines, columns)
            shown.until(lambda lines: lines[-1].startswith("q: quit")
                        and any(line.split()[:1] == [str(process.pid)] for line in lines),
                        f"{columns} columns, {lines} lines")
        shown.resize(5, 30)
        shown.until(lambda lines: lines[0] == "make it 40 x 10" and not any(lines[1:]), "too small")
        shown.press(b"q")
        self.assertEqual(shown.await_end(), (0, ""))

    def test_terminal_is_restored(self):
        """Whatever ends it. xterm has a second screen, and a cursor that can be hidden."""
        endings = {
            "q": lambda shown: shown.press(b"q"),
            "^C": lambda shown: shown.press(b"\3"),
            "SIGTERM": lambda shown: shown.process.terminate(),
            "the pool": lambda shown: self.pool.unlink(),
        }
        self.create()
        for name, end in endings.items():
            with self.subTest(end=name):
                shown = self.show(kind="xterm")
                while b"PROGRAM" not in shown.output:
                    self.assertIsNone(shown.process.poll())
                    shown.read(0.1)
                self.assertFalse(shown.is_restored())
                end(shown)
                status, errors = shown.await_end()
                self.assertEqual(status, 1 if name == "the pool" else 0)
                self.assertEqual("the pool is gone" in errors, name == "the pool")
                self.assertTrue(shown.is_restored())
                self.assertGreater(shown.output.rfind(b"\033[?1049l"), shown.output.rfind(b"PROGRAM"))
                self.assertIn(b"\033[?25h", shown.output[shown.output.rfind(b"PROGRAM"):])

    def test_terminal_that_cannot_be_drawn_on(self):
        self.create()
        for kind in (None, "dumb", "no-such-terminal"):
            with self.subTest(kind=kind):
                shown = self.show(kind=kind)
                status, errors = shown.await_end()
                self.assertEqual(status, 1)
                self.assertRegex(errors, r"\Anvcache: TERM=[^\n]+ --batch [^\n]+\n\Z")
                self.assertTrue(shown.is_restored())
                plain = self.show("--batch", "--count", "1", kind=kind)
                status, errors = plain.await_end()
                self.assertEqual((status, errors), (0, ""))
                self.assertIn(b"PROGRAM", plain.output)


if __name__ == "__main__":
    unittest.main()
