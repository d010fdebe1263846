#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""bench/own-disk: the disk is what it is called while the command runs, and is gone afterwards."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(sys.argv.pop(1))

# What the command sees. Its own arguments: a folder.
LOOK = """
import json, os, pathlib, sys, time
folder = sys.argv[1]
numbers = os.stat(folder).st_dev
device = pathlib.Path(f"/sys/dev/block/{os.major(numbers)}:{os.minor(numbers)}").resolve().name
journal = pathlib.Path(f"/sys/fs/ext4/{device}/journal_task")
direct = pathlib.Path(f"/sys/block/{device}/loop/dio")
kinds = {line.split()[1]: line.split()[2] for line in open("/proc/mounts")}
file = os.open(f"{folder}/file", os.O_WRONLY | os.O_CREAT)
os.write(file, bytes(4096))
begin = time.monotonic()
os.fsync(file)
print(json.dumps({"kind": kinds[folder], "device": device, "us": (time.monotonic() - begin) * 1e6,
                  "journal": journal.exists() and journal.read_text().strip() != "<none>",
                  "direct": direct.exists() and direct.read_text().strip() == "1"}))
sys.exit(7)
"""


class OwnDisk(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
            self.skipTest("file systems cannot be mounted here")
        temporary = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.addCleanup(temporary.cleanup)
        self.place = pathlib.Path(temporary.name)

    def look(self, *words):
        done = subprocess.run([ROOT / "bench/own-disk", *words, "--build", BUILD, "--in", self.place, "--",
                               sys.executable, "-c", LOOK, "{}"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertEqual(list(self.place.iterdir()), [])
        seen = json.loads(done.stdout)
        self.await_unused(seen["device"])
        return seen

    def await_unused(self, device):
        """The kernel lets go of a loop device a moment after its last use."""
        file = pathlib.Path(f"/sys/block/{device}/loop/backing_file")
        for _ in range(1000):
            if not file.exists() or str(self.place) not in file.read_text(encoding="utf-8"):
                return
            time.sleep(0.01)
        self.fail(f"{device} is in use still")

    def test_ext4_has_a_journal(self):
        seen = self.look("ext4", "--size", "64")
        self.assertEqual(seen["kind"], "ext4")
        self.assertTrue(seen["journal"])
        self.assertTrue(seen["direct"])

    def test_xfs(self):
        seen = self.look("xfs", "--size", "400")
        self.assertEqual(seen["kind"], "xfs")
        self.assertTrue(seen["direct"])

    def test_slow(self):
        seen = self.look("slow", "--size", "64", "--write", "3000", "--flush", "20000")
        self.assertEqual(seen["kind"], "ext4")
        self.assertTrue(seen["journal"])
        self.assertGreater(seen["us"], 23000)  # a write and a flush, at the least

    def test_no_such_disk(self):
        done = subprocess.run([ROOT / "bench/own-disk", "xfs", "--size", "1", "--in", self.place, "--", "true"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("bench/own-disk: ", done.stderr)
        self.assertEqual(list(self.place.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
