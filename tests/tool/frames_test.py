# SPDX-License-Identifier: BSD-3-Clause
"""Page frames in the pool: --frames pool:SIZE."""

import os
import random
import signal
import sys
import unittest

from kit import tool

SIZE = 4 * tool.MIB  # 63 segments of 64 KiB
FRAMES = "pool:512k"  # 10 of them
SEED = int(os.environ.get("NVCACHE_TEST_SEED", "1"))

# Reads and writes FILE at random, then ends as it is told. COPY becomes a copy of the pool, which is in
# use: what is read of it is what a log looks like.
PROGRAM = """
import os, random, signal, sys
path, copy, pool, seed, end = sys.argv[1:]
choose = random.Random(int(seed))
file = os.open(path, os.O_RDWR)
size = os.fstat(file).st_size
content = bytearray(os.pread(file, size, 0))
copied = os.open(copy, os.O_RDWR | os.O_CREAT)
for i in range(3000):
    offset, length = choose.randrange(size - 5000), choose.randrange(1, 5000)
    if i % 2:
        content[offset:offset + length] = written = choose.randbytes(length)
        os.pwrite(file, written, offset)
    elif os.pread(file, length, offset) != content[offset:offset + length]:
        sys.exit(f"wrong bytes at {offset}")
    if i % 1000 == 999:
        with open(pool, "rb") as live:
            os.pwrite(copied, live.read(), 0)
        for page in range(0, os.fstat(copied).st_size, 4096):
            os.pread(copied, 4096, page)
if end == "wait":
    print("ready", flush=True)
    sys.stdin.readline()
elif end == "die":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def model(content, seed):
    """What PROGRAM makes of it."""
    choose = random.Random(seed)
    content = bytearray(content)
    for i in range(3000):
        offset, length = choose.randrange(len(content) - 5000), choose.randrange(1, 5000)
        if i % 2:
            content[offset:offset + length] = choose.randbytes(length)
    return bytes(content)


class FramesTest(tool.ToolTest):
    def setUp(self):
        super().setUp()
        self.data = self.files / "data"
        self.copy = self.files / "copy"
        self.content = random.Random(SEED).randbytes(tool.MIB)
        self.data.write_bytes(self.content)

    def command(self, end, frames=FRAMES, options=()):
        program = [sys.executable, "-c", PROGRAM, self.data, self.copy, self.pool, SEED, end]
        return self.run_command(*program, size=SIZE, options=["--required", "--frames", frames, *options])

    def run_program(self, end, **more):
        return tool.run(*self.command(end, **more))

    def assert_content(self, seed=SEED):
        self.assertTrue(self.data.read_bytes() == model(self.content, seed), f"seed {seed}: wrong bytes")

    def test_reads_and_writes(self):
        self.assert_status(self.run_program("end"), 0)
        self.assert_content()
        status = self.status()
        self.assertEqual((status["state"], status["segments_of_frames"]), ("clean", 0))
        self.assertGreater(status["statistics"]["evictions"], 0)

    def test_status(self):
        program = self.start(self.command("wait"))
        self.assertEqual(program.stdout.readline(), "ready\n")
        status, text = self.status(), self.status_text()
        program.communicate("\n")
        self.assertEqual(program.returncode, 0)
        self.assertEqual((status["segments"], status["segments_of_frames"]), (60, 10))
        self.assertEqual(status["damaged_groups"], 0)
        self.assertRegex(text, r"(?m)^page frames +in 10 of the segments, 640 KiB$")

    def test_killed(self):
        """What the frames held is nothing: the log has the bytes."""
        for delay in ("1", "60000"):
            with self.subTest(batch_delay=delay):
                self.data.write_bytes(self.content)
                self.assert_status(self.run_program("die", options=["--batch-delay", delay]), -signal.SIGKILL)
                self.assertEqual(self.status()["damaged_groups"], 0)
                self.assertEqual(self.json("recover", self.pool)["damaged_groups"], 0)
                self.assert_content()
        # A use of the pool without frames has all of it.
        self.data.write_bytes(self.content)
        self.assert_status(self.run_program("end", frames="dram:512k"), 0)
        self.assert_content()
        self.assertEqual(self.status()["state"], "clean")

    def test_more_than_the_pool_has(self):
        words = (self.pool, "has room for 2688k of page frames", "NVCACHE_FRAMES")
        too_many = ["--frames", "pool:2689k"]
        result = self.run_on_pool("cp", self.data, self.copy, size=SIZE, options=too_many)
        self.assert_refused(result, 0, *words, "; the program runs without the cache")
        self.assertEqual(self.copy.read_bytes(), self.content)
        result = self.run_on_pool("touch", self.files / "started", size=SIZE, options=[*too_many, "--required"])
        self.assert_refused(result, 125, *words)
        self.assertFalse((self.files / "started").exists())
        for required, status in (("0", 0), ("1", 125)):
            result = tool.run("cp", self.data, self.copy, env=self.settings(
                LD_PRELOAD=str(tool.LIBRARY), NVCACHE_FRAMES="pool:2689k", NVCACHE_REQUIRED=required, **tool.QUIET))
            self.assert_refused(result, status, *words)
        self.assertEqual(self.status()["state"], "clean")

    def test_an_option_wins_over_both_variables(self):
        script = 'echo "$NVCACHE_DRAM,$NVCACHE_FRAMES"'
        for options, variable, value, seen in (
            (["--frames", "pool:64k"], "NVCACHE_DRAM", "2M", ",pool:64k"),
            (["--dram", "1M"], "NVCACHE_FRAMES", "pool:64k", "1M,"),
            ([], "NVCACHE_FRAMES", "pool:64k", ",pool:64k"),
        ):
            result = self.run_on_pool("sh", "-c", script, size=SIZE, options=options, env={variable: value})
            self.assertEqual((result.returncode, result.stdout.strip()), (0, seen), result.stderr)


if __name__ == "__main__":
    unittest.main()
