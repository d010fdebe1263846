# SPDX-License-Identifier: BSD-3-Clause
"""A control group bounds the memory: pool and page frames take a share of what it has left, and nobody is killed."""

import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

from kit import tool

LIMIT = 128 * tool.MIB
FILE = 200 * tool.MIB
KIB = 1024

# Caches a file, so that it has frames for as much of it as it may, and says what hinders it.
PROGRAM = f"""
import os, sys
fd = os.open("file", os.O_RDWR | os.O_CREAT, 0o644)
block = b"x" * {tool.MIB}
for _ in range(3):
    os.pwrite(fd, b"y", 0)
    os.fsync(fd)
for at in range(0, {FILE}, len(block)):
    os.pwrite(fd, block, at)
for at in range(0, {FILE}, len(block)):
    assert len(os.pread(fd, len(block), at)) == len(block)
print("written", flush=True)
sys.stdin.readline()
"""


def make_group():
    """A folder of a group with the limit, or None."""
    for parent, name in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):
        group = pathlib.Path("/sys/fs/cgroup", parent, f"nvcache-test-{os.getpid()}")
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / name).write_text(str(LIMIT), encoding="ascii")
            swap = group / ("memory.memsw.limit_in_bytes" if parent else "memory.swap.max")
            if swap.exists():
                swap.write_text(str(LIMIT) if parent else "0", encoding="ascii")
            return group
        except OSError:
            group.rmdir()
    return None


class MemoryGroupTest(tool.ToolTest):
    def setUp(self):
        super().setUp()
        self.group = make_group()
        if self.group is None:
            self.skipTest("it takes the right to make a control group of memory")
        self.addCleanup(self.remove_group)

    def remove_group(self):
        self.pool.unlink(missing_ok=True)  # its memory is the group's
        self.until(lambda: not (self.group / "cgroup.procs").read_text(encoding="ascii"), "processes in the group")
        self.group.rmdir()

    def in_group(self, *command):
        return ["sh", "-c", f'echo $$ > {self.group}/cgroup.procs && exec "$@"', "sh", *command]

    def begin(self, *command, **settings):
        process = self.start(self.in_group(*command, sys.executable, "-ISBc", PROGRAM), cwd=self.files,
                             env={**tool.clean_environment(), **settings}, stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), "written\n")
        return process

    def end(self, process):
        _, errors = process.communicate("\n", timeout=60)
        self.assertEqual(process.returncode, 0, errors)
        return errors

    def assert_shares(self):
        """Of the pool and of frames; what the program and the pool leave is not known to the byte."""
        self.assertGreater(self.pool.stat().st_size, LIMIT // 4)
        self.assertLessEqual(self.pool.stat().st_size, LIMIT // 2)
        hindered = self.status()["hindered"]
        self.assertEqual([found["by"] for found in hindered], [["memory"]])
        taken, wanted = re.fullmatch(r"(\d+) of (\d+) KiB of frames", hindered[0]["detail"]).groups()
        self.assertEqual(int(wanted) * KIB, 256 * tool.MIB)
        self.assertGreater(int(taken), 0)
        self.assertLessEqual(int(taken) * KIB, LIMIT // 8)

    def test_with_run(self):
        for required in ([], ["--required"]):
            process = self.begin(tool.COMMAND, "run", "--pool", self.pool, "--size", "1G", "--emulate", *required, "--")
            self.assert_shares()
            errors = self.end(process)
            self.assertEqual(bool(re.search(r"(?m)^nvcache: .* is made with [\d.]+ MiB, not 1 GiB: .*group", errors)),
                             not required, errors)

    def test_with_the_library(self):
        process = self.begin(LD_PRELOAD=str(tool.LIBRARY), **self.settings("1G", NVCACHE_NOTICE="all"))
        self.assert_shares()
        errors = self.end(process)
        self.assertRegex(errors, r"(?m)^nvcache: .* is made with \d+ KiB, not 1048576: .*group")
        self.assertRegex(errors, r"(?m)^nvcache: memory: .*\(\d+ of 262144 KiB of frames\)$")

    def test_huge_pages_of_a_pool_from_outside(self):
        """They count for the group of who makes them: no more than half of what it has, or the program is killed."""
        small = self.pools / "small"
        self.assert_ok(self.nvcache("create", small, "--size", "4M", "--emulate", "--populate"))
        kernel_makes_them = self.json("status", small)["huge"] > 0
        small.unlink()
        self.assert_ok(self.nvcache("create", self.pool, "--size", "512M", "--emulate"))
        process = self.begin(tool.COMMAND, "run", "--pool", self.pool, "--emulate", "--required", "--", NVCACHE_CHECKPOINTER="auto")
        if kernel_makes_them:
            self.until(lambda: self.status()["huge"] > 0, "huge pages")
        huge = -1
        while huge != (huge := self.status()["huge"]):
            time.sleep(0.5)
        self.assertLessEqual(huge, LIMIT // 2)
        self.end(process)

    def test_create_refuses(self):
        result = tool.run(*self.in_group(tool.COMMAND, "create", self.pool, "--size", "1G", "--emulate"))
        self.assert_refused(result, 1, self.pool, "control group")
        self.assertFalse(self.pool.exists())

    def test_a_journal_on_a_disk(self):
        """Its memory is the group's: a new one is made to fit, and one that does not fit is named, and nobody killed."""
        large, made = self.files / "large", self.files / "made"
        result = self.nvcache("create", large, "--size", f"{LIMIT}")
        if result.returncode != 0:
            self.skipTest(f"no journal can lie on this disk: {result.stderr.strip()}")
        run = self.in_group(tool.COMMAND, "run", "--pool", large)
        self.assert_refused(tool.run(*run, "--required", "--", "true"), 125, large, "control group has less", "smaller pool")
        result = tool.run(*run, "--", "echo", "ran")
        self.assertEqual((result.returncode, result.stdout), (0, "ran\n"))
        self.assert_refused(tool.run(*self.in_group(tool.COMMAND, "recover", large)), 1, large, "control group has less")
        self.assert_refused(tool.run(*self.in_group(tool.COMMAND, "status", large)), 1, large, "control group has less")
        self.assertIn("clean", self.assert_ok(self.nvcache("status", large)).stdout)
        result = tool.run(*self.in_group(tool.COMMAND, "run", "--pool", made, "--size", "1G", "--required", "--", "true"))
        self.assert_status(result, 0)
        self.assertRegex(result.stderr, rf"(?m)^nvcache: {made} is made with [\d.]+ MiB, not 1 GiB: .*group")
        report = self.json("status", made)
        self.assertEqual(report["durability"], "disk")
        self.assertTrue(report["journal"]["memory"])
        self.assertLessEqual(report["size"], LIMIT // 2)
        for memory in pathlib.Path("/dev/shm").glob(f"nvcache-{report['uuid'].replace('-', '')}-*"):
            memory.unlink()


if __name__ == "__main__":
    unittest.main()
