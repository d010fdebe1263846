#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""recover on a disk that refuses: whichever call is told so, all records of the file stay, those of
the other file are applied, and the next recovery brings the rest. strace plays the disk."""

import shutil
import signal
import sys
import unittest

from kit import LATE, tool

SIZE = 112 * tool.MIB  # so much that recovery waits for the disk in between
PROGRAM = f"""
import os, signal, sys
large, small = (os.open(name, os.O_RDWR | os.O_CREAT, 0o600) for name in ("large", "small"))
for at in range(0, {SIZE}, 1 << 20):
    os.pwrite(large, bytes([97 + (at >> 20) % 26]) * (1 << 20), at)
os.pwrite(small, b"small", 0)
os.fsync(large)
os.kill(os.getpid(), signal.SIGKILL)
"""
EXPECTED = b"".join(bytes([97 + i % 26]) * (1 << 20) for i in range(SIZE >> 20))


@unittest.skipUnless(shutil.which("strace"), "needs strace")
class RecoverErrorsTest(tool.ToolTest):
    def setUp(self):
        super().setUp()
        # The cleanup thread leaves a log alone that is filled to less than a quarter.
        result = self.run_on_pool(sys.executable, "-c", PROGRAM, size="640M", env=LATE, cwd=self.files)
        self.assertEqual(result.returncode, -signal.SIGKILL, result.stderr)

    def recover_with(self, call, error, when):
        result = tool.run("strace", "-f", "-o", self.pools / "trace", "-e", f"trace={call}",
                          "-e", f"inject={call}:error={error}:when={when}", tool.COMMAND, "recover", self.pool)
        if "ptrace" in result.stderr:
            self.skipTest("cannot trace")
        self.assertIn("INJECTED", (self.pools / "trace").read_text())
        return result

    def refuse(self, call, error, when, message):
        result = self.assert_status(self.recover_with(call, error, when), 3)
        self.assertIn(f"large (inode {(self.files / 'large').stat().st_ino}): {message}",
                      result.stdout)
        self.assertEqual((self.files / "small").read_bytes(), b"small")
        (self.files / "large").write_bytes(b"")
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertTrue((self.files / "large").read_bytes() == EXPECTED)

    def test_a_pool_in_use_is_not_lost(self):
        """Its servers are not asked for it, and neither is etcd, which would never answer."""
        program = self.start(self.run_command(*tool.IN_NEED, self.files / "data"))
        self.assertEqual(program.stdout.readline(), "ready\n")
        result = self.nvcache("recover", self.pool, "--mirror", "http://127.0.0.1:1", "--name", "x", "--insecure")
        program.communicate("\n")
        self.assert_status(result, 1)
        self.assertRegex(result.stderr, r"\Anvcache: pool .* is in use, so it is not lost; [^\n]*\n\Z")
        self.assertEqual(program.returncode, 0)

    def test_a_write(self):
        self.refuse("pwritev", "ENOSPC", "40", "No space left on device")

    def test_the_final_sync(self):
        self.refuse("fsync", "EIO", "1", "Input/output error")

    def test_a_wait_for_what_was_written_before(self):
        """Each error is told once: fsync will not tell it again."""
        # The fifth stretch waits for the first, before it is started itself.
        self.refuse("sync_file_range", "EIO", "5", "Input/output error")
        self.assertIn("WAIT_BEFORE) = -1 EIO", (self.pools / "trace").read_text())

    def test_a_start_alone_says_nothing(self):
        """What it did not start, fsync does."""
        self.assert_ok(self.recover_with("sync_file_range", "EIO", "1"))
        self.assertTrue((self.files / "large").read_bytes() == EXPECTED)

    def test_a_kernel_without_it(self):
        self.assert_ok(self.recover_with("sync_file_range", "ENOSYS", "1+"))
        self.assertTrue((self.files / "large").read_bytes() == EXPECTED)


if __name__ == "__main__":
    unittest.main()
