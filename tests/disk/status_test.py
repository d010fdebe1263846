#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What `nvcache` says of a pool with its journal on a disk, whether anybody uses it or not, and nothing is changed by that;
and the metrics of pools of all levels."""

import contextlib
import fcntl
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import unittest

from kit import LATE, image, tool

from pools import BLOCK, DiskPoolTest

SAMPLE = re.compile(r"(nvcache_pool_\w+)\{((?:\w+=\"(?:[^\"\\\n]|\\[\\\"n])*\",?)*)\} ([0-9.e+-]+)")


def parse(text):
    """{name: {labels: value}} of a whole text; each name has its help and its kind before it, once."""
    samples, kinds, name = {}, {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split()[2]
            assert name not in kinds, f"{name} twice"
        elif line.startswith("# TYPE "):
            assert line.split()[2] == name, line
            kinds[name] = line.split()[3]
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            bare = re.sub(r"_(bucket|sum|count)$", "", found[1]) if kinds[name] == "histogram" else found[1]
            assert bare == name, line
            labels = dict(re.findall(r"(\w+)=\"((?:[^\"\\]|\\.)*)\"", found[2]))
            samples.setdefault(found[1], {})[tuple(sorted(labels.items()))] = float(found[3])
    assert text.endswith("\n")
    for name, kind in kinds.items():
        assert name.endswith("_total") == (kind == "counter"), name
    return samples


class StatusTest(DiskPoolTest):
    def metrics(self, pool=None):
        return parse(self.assert_ok(self.nvcache("status", pool or self.pool, "--metrics")).stdout)

    def one(self, metrics, name):
        """Of the only sample of this name, its labels and its value."""
        (labels, value), = metrics[f"nvcache_pool_{name}"].items()
        return dict(labels), value

    def nothing_changes(self, *arguments):
        """And what is printed, of a command."""
        before, there = tool.checksum(self.pool), sorted(os.listdir("/dev/shm"))
        result = self.assert_ok(self.nvcache(*arguments))
        self.assertEqual(tool.checksum(self.pool), before)
        self.assertEqual(sorted(os.listdir("/dev/shm")), there)
        return result.stdout

    def device(self):
        return subprocess.run(["findmnt", "-n", "-o", "SOURCE,FSTYPE", "-T", self.pool], check=True, stdout=subprocess.PIPE,
                              text=True).stdout.split()

    def test_create_says_what_it_has_found(self):
        device, kind = self.device()
        self.assertRegex(self.created.stdout, r"\Acreated [^\n]+ of " + re.escape(f"{device} ({kind})") +
                         r", written with (RWF_DSYNC|a flush after each write), [\d.]+ (ns|µs|us|ms|s) each when it was made\n\Z")
        journal = self.status()["journal"]
        self.assertEqual((journal["device"], journal["file_system"]), (device, kind))
        self.assertEqual(journal["file_size"], self.pool.stat().st_size)
        self.assertEqual(journal["write"], "dsync" if "RWF_DSYNC" in self.created.stdout else "flush")

    def test_before_its_first_use(self):
        text = self.nothing_changes("status", self.pool)
        self.assertIn("clean", text)
        self.assertIn("disk: ", text)
        self.assertIn("has no memory now", text)
        report = self.status()
        self.assertEqual((report["state"], report["pending_records"]), ("clean", 0))
        self.assertFalse(report["journal"]["memory"])
        self.assertIsNone(report["mirror"])

    def test_without_memory(self):
        """What has to be recovered is said, and is what is recovered."""
        self.lose(100)
        text = self.nothing_changes("status", self.pool)
        self.assertIn("100 records, 700 B, of 1 file", text)
        self.assertIn(str(self.data), text)
        self.assertIn("'nvcache recover'", text)
        report = json.loads(self.nothing_changes("status", self.pool, "--json"))
        self.assertEqual((report["state"], report["durability"]), ("dirty", "disk"))
        self.assertEqual((report["pending_records"], report["pending_bytes"]), (100, 700))
        self.assertEqual([(file["path"], file["records"]) for file in report["files"]], [(str(self.data), 100)])
        self.assertEqual(report["processes"], [])
        records = [json.loads(line) for line in self.nothing_changes("dump", self.pool, "--json").splitlines()]
        self.assertEqual(sum(record.get("length") == 7 for record in records), 100)
        self.assertIn("journal  the pool has no memory now", self.nothing_changes("top", self.pool, "--once", "--interval", "0.1"))
        result = self.assert_ok(self.nvcache("recover", self.pool))
        self.assertIn("100 records (700 B)", result.stdout)
        self.assertTrue(self.status()["journal"]["memory"])

    def test_what_is_not_of_one_moment_is_not_pending(self):
        """Groups from the last batch's bound on lack what they rely on, perhaps: a recovery drops them."""
        self.lose(100)
        last = self.batches()[-1]
        self.lower_bound(last, 10)
        pending = self.status()["pending_records"]
        self.assertIn(pending, range(90, 100))
        self.assertIn(f"recovered {pending} records", self.assert_ok(self.nvcache("recover", self.pool)).stdout)
        self.assertEqual(len(self.lines()), pending)

    def test_a_journal_that_is_void(self):
        """It had failed, and the files have all it promised: what is in its ring is not pending."""
        self.lose(20)
        self.make_void()
        for command in ("status", "dump", "top"):
            self.assert_refused(self.nvcache(command, self.pool), 1, self.pool, "has failed as a journal", "make the pool anew")

    def test_what_cannot_be_said(self):
        self.lose(100)
        at = self.batches()[20]
        self.flip(at + 100)
        for command in ("status", "dump", "top"):
            self.assert_refused(self.nvcache(command, self.pool), 1, self.pool, f"damaged at byte {at}")
        self.flip(at + 100)
        os.truncate(self.pool, self.pool.stat().st_size - BLOCK)
        self.assert_refused(self.nvcache("status", self.pool), 1, self.pool)

    def test_memory_that_was_removed_while_in_use(self):
        process = self.write(10)
        process.send_signal(signal.SIGSTOP)  # it would see that, and bring all to the disk
        self.memory.unlink()
        self.assert_refused(self.nvcache("status", self.pool), 1, self.pool, "memory in /dev/shm was removed")
        self.kill(process)
        self.assertEqual(self.status()["pending_records"], 10)

    def test_memory_that_is_being_made(self):
        """Who makes it has the lock of those who use it. He may die."""
        self.lose(10)
        with open(self.pool, "r+b") as maker:
            for byte in (1, 2):  # kUsersByte, kMakerByte: src/pool/byte_locks.h
                lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, image.LIFE_OFFSET + byte, 1, 0)
                fcntl.fcntl(maker, image.F_OFD_SETLK, lock)
            process = self.start([tool.COMMAND, "status", self.pool, "--json"], stderr=subprocess.PIPE)

            def looks():
                with contextlib.suppress(FileNotFoundError):
                    return str(self.pool) in map(os.readlink, pathlib.Path(f"/proc/{process.pid}/fd").iterdir())

            self.until(lambda: process.poll() is not None or looks(), "that it looks")
        output, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, errors), (0, ""))
        self.assertEqual(json.loads(output)["pending_records"], 10)

    def test_top_sees_memory_that_is_made(self):
        top = self.start([tool.COMMAND, "top", self.pool, "--interval", "0.1", "--json"])
        self.assertFalse(json.loads(top.stdout.readline())["journal"]["memory"])
        process = self.write(30)
        line = {"journal": {"memory": False}}
        while not line["journal"]["memory"] or line["pending_records"] < 30:
            line = json.loads(top.stdout.readline())
        self.assertEqual(line["durability"], "disk")
        self.assertEqual([process["state"] for process in line["processes"]], ["alive"])
        self.kill(process)

    def test_top_counts(self):
        process = self.write(20)
        before = self.status()["journal"]
        top = self.start([tool.COMMAND, "top", self.pool, "--interval", "0.1"])
        for line in top.stdout:
            if line.startswith("journal  "):
                break
        self.assertRegex(line, r"\Ajournal  0 writes/s, 0 B/s; 0 B ahead of it; 0 waits; 0 failed\n\Z")
        self.assertGreaterEqual(before["waits"], 20)
        self.assertEqual(before["bytes_ahead"], 0)
        self.kill(process)

    def test_bytes_ahead(self):
        """A program that waits for nothing is ahead of the journal."""
        code = "import sys\nf = open(sys.argv[1], 'wb', 0)\nf.write(b'x' * 20000)\nprint('done', flush=True)\nsys.stdin.read()"
        process = self.start(self.under("--", sys.executable, "-c", code, self.data), env={**tool.clean_environment(), **LATE})
        self.assertEqual(process.stdout.readline(), "done\n")
        self.assertGreaterEqual(self.status()["journal"]["bytes_ahead"], 20000)
        self.assertGreaterEqual(self.one(self.metrics(), "journal_ahead_bytes")[1], 20000)
        self.kill(process)

    def test_metrics(self):
        process = self.write(50)
        report, metrics = self.status(), self.metrics()
        journal = report["journal"]
        device, kind = self.device()
        self.assertEqual(self.one(metrics, "info"), ({"pool": str(self.pool), "level": "disk", "device": device, "file_system": kind,
                                                      "write": journal["write"]}, 1))
        for name, value in (("size_bytes", 1 << 20), ("processes", 1), ("pending_records", 50), ("pending_bytes", 350),
                            ("journal_batches_total", journal["batches"]), ("journal_rounds_total", journal["rounds"]),
                            ("journal_bytes_total", journal["bytes"]), ("journal_failed", 0), ("journal_has_memory", 1),
                            ("wait_seconds_count", journal["waits"]), ("waits_failed_total", 0)):
            self.assertEqual(self.one(metrics, name), ({"pool": str(self.pool)}, value), name)
        self.assertGreaterEqual(journal["waits"], 50)
        self.assertAlmostEqual(self.one(metrics, "wait_seconds_sum")[1] * 1e6, journal["waited_us"], delta=1)
        buckets = [(dict(labels)["le"], value) for labels, value in metrics["nvcache_pool_wait_seconds_bucket"].items()]
        self.assertEqual([value for _, value in buckets], sorted(value for _, value in buckets))
        self.assertEqual(buckets[-1], ("+Inf", journal["waits"]))
        states = {dict(labels)["state"]: value for labels, value in metrics["nvcache_pool_state"].items()}
        self.assertEqual(states, {"clean": 0, "in use": 1, "dirty": 0})
        for name, value in report["statistics"].items():
            self.assertEqual(self.one(metrics, f"{name}_total")[1], value)
        self.kill(process)

    def test_metrics_of_other_levels(self):
        for level, options in (("process", ["--emulate"]), ("mirrored", ["--commit", "fsync"])):
            pool = self.pools / f"odd \"name\\\n{level}"
            self.assert_ok(self.nvcache("create", pool, "--size", "1M", *options))
            metrics = self.metrics(pool)
            labels, _ = self.one(metrics, "info")
            self.assertEqual(labels["level"], level)
            self.assertNotIn("device", labels)
            self.assertEqual("nvcache_pool_wait_seconds_count" in metrics, level == "mirrored")
            self.assertNotIn("nvcache_pool_journal_failed", metrics)
        self.assert_refused(self.nvcache("status", self.pool, "--metrics", "--json"), 2, "--metrics")

    def test_metrics_are_documented(self):
        """Each, and no other one."""
        text = (pathlib.Path(__file__).resolve().parents[2] / "docs/settings.md").read_text(encoding="utf-8")
        table = text.split("\n## Metrics\n")[1].split("\n## ")[0]
        documented = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if line[:3] == "| `")))
        mirrored = self.pools / "mirrored"
        self.assert_ok(self.nvcache("create", mirrored, "--size", "1M", "--commit", "fsync"))
        names = {re.sub("_(bucket|sum|count)$", "", name.removeprefix("nvcache_pool_"))
                 for pool in (self.pool, mirrored) for name in self.metrics(pool)}
        counters = {f"{name}_total" for name in self.status()["statistics"]}
        self.assertEqual(documented, names - counters)
        self.assertLess(counters, names)

    def test_the_pool_of_the_environment(self):
        result = self.assert_ok(self.nvcache("status", env={"NVCACHE_POOL": str(self.pool)}))
        self.assertIn(str(self.pool), result.stdout)
        missing = pathlib.Path("/var/lib/nvcache/pool")
        if os.geteuid() == 0 and not missing.exists():
            self.assert_refused(self.nvcache("status"), 1, missing, "does not exist")


if __name__ == "__main__":
    unittest.main()
