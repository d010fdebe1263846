#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A pool with its journal on a disk (docs/disk.md), and what may be wrong with it: each is refused in one line, or slower,
and nothing is overwritten that is not ours."""

import os
import pathlib
import signal
import struct
import sys
import unittest

from kit import tool

from pools import BLOCK, DiskPoolTest


class JournalTest(DiskPoolTest):
    # ---- That it works

    def test_status(self):
        process = self.write(20)
        report = self.status()
        self.assertEqual(report["durability"], "disk")
        self.assertGreaterEqual(report["journal"]["batches"], 20)
        self.assertGreaterEqual(report["journal"]["waits"], 20)
        self.assertIsNone(report["journal"]["failed"])
        self.assertIsNone(report["mirror"])
        self.assertIn("journal", self.status_text())
        self.assertEqual(self.memory.stat().st_mode & 0o777, 0o600)
        self.kill(process)

    def test_a_sync_is_one_write(self):
        """Not more, whatever it is that was logged."""
        process = self.write(200)
        self.assertLess(self.status()["journal"]["batches"], 230)
        self.kill(process)

    def test_memory_that_is_gone(self):
        self.lose()
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertEqual(self.lines(), [b"%06d" % i for i in range(100)])

    def test_a_program_recovers_as_well(self):
        self.lose()
        self.read(self.under("--"))
        self.assertEqual(len(self.lines()), 100)

    def test_the_library_recovers_as_well(self):
        """Into the same journal, which goes on."""
        self.lose()
        self.read(["env", f"NVCACHE_POOL={self.pool}", f"LD_PRELOAD={tool.LIBRARY}"])
        self.assertEqual(len(self.lines()), 100)
        self.kill(self.write(30))
        self.memory.unlink()
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertEqual(len(self.lines()), 130)

    def test_a_program_recovers_a_dead_one(self):
        """Beside one that uses the pool: the memory stays."""
        other = self.start(self.under("--", "sleep", "1000"), env=tool.clean_environment())
        self.kill(self.write(50))
        self.read(self.under("--"))
        self.assertEqual(len(self.lines()), 50)
        self.kill(other)

    def read(self, under):
        """A program under NVCache does, and the journal goes on."""
        result = tool.run(*under, "cat", self.data, env={**tool.clean_environment(), "NVCACHE_NOTICE": "0"})
        self.assert_status(result, 0)
        self.assertNotIn("journal cannot be written", result.stderr)

    def test_processes_that_die_need_no_journal(self):
        self.kill(self.write(50))
        made = self.memory.stat().st_ino
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertEqual(self.memory.stat().st_ino, made)
        self.assertEqual(len(self.lines()), 50)

    def test_recovered_twice(self):
        self.lose()
        self.assert_ok(self.nvcache("recover", self.pool))
        self.memory.unlink()
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertEqual(len(self.lines()), 100)
        self.kill(self.write(30))
        self.memory.unlink()
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertEqual(len(self.lines()), 130)

    def test_a_child_of_fork_syncs(self):
        code = ("import os, sys\nf = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
                "for i in range(5):\n    os.write(f, b'p\\n'); os.fsync(f)\n"
                "if os.fork() == 0:\n"
                "    for i in range(5):\n        os.write(f, b'c\\n'); os.fsync(f)\n"
                "    os._exit(0)\n"
                "for i in range(5):\n    os.write(f, b'p\\n'); os.fsync(f)\n"
                "os._exit(os.waitstatus_to_exitcode(os.wait()[1]))")
        self.assert_ok(tool.run(*self.under("--", sys.executable, "-c", code, self.data), env=tool.QUIET))
        self.assertEqual(sorted(self.lines()), [b"c"] * 5 + [b"p"] * 10)

    def test_descriptors_that_a_program_closes(self):
        """By calls that nobody sees, it has the numbers for a file of its own."""
        code = ("import ctypes, os, sys\nlibc = ctypes.CDLL(None)\n"
                "f = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
                "for i in range(5):\n    os.write(f, b'x\\n'); os.fsync(f)\n"
                "g = os.open(sys.argv[1] + '2', os.O_RDWR | os.O_CREAT)\n"
                "for fd in range(40, 64):\n    libc.syscall(33, g, fd)\n"
                "for i in range(5):\n"
                "    os.write(f, b'x\\n')\n"
                "    try:\n        os.fsync(f)\n    except OSError:\n        pass\n")
        tool.run(*self.under("--", sys.executable, "-c", code, self.data))
        self.assertEqual(pathlib.Path(f"{self.data}2").read_bytes(), b"")

    # ---- What is wrong with the journal

    def test_damage(self):
        self.lose()
        batches = self.batches()
        self.assertGreater(len(batches), 50)
        self.flip(batches[20] + 100)
        before = tool.checksum(self.pool)
        self.assert_refused(self.nvcache("recover", self.pool), 1, self.pool, "is damaged at byte", batches[20])
        self.assertEqual(tool.checksum(self.pool), before)
        self.assertIsNone(self.memory)
        self.flip(batches[20] + 100)
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertEqual(len(self.lines()), 100)

    def test_a_torn_tail(self):
        """What was not acknowledged: the last batch may be that of the last sync, which was."""
        self.lose()
        last = self.batches()[-1]
        self.flip(last + 70)
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertGreaterEqual(len(self.lines()), 98)

    def test_truncated(self):
        self.lose()
        os.truncate(self.pool, self.pool.stat().st_size - BLOCK)
        self.assert_refused(self.nvcache("recover", self.pool), 1, self.pool, "truncated")

    def test_headers(self):
        self.lose()
        for block in range(2):
            with open(self.pool, "r+b") as file:
                file.seek(block * BLOCK + 8)
                file.write(struct.pack("<I", 99))
        self.assert_refused(self.nvcache("recover", self.pool), 1, self.pool, "another version")

    def test_a_copy_is_another_pool(self):
        process = self.write(40)
        copy = self.files / "copy"
        copy.write_bytes(self.pool.read_bytes())
        copy.chmod(0o600)
        mine = self.memory
        self.kill(process)
        self.assert_ok(self.nvcache("recover", copy))
        self.assertTrue(mine.exists())
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertEqual(len(self.lines()), 40)
        st = copy.stat()
        for memory in pathlib.Path("/dev/shm").glob(f"nvcache-*-{st.st_dev:08x}-{st.st_ino:016x}"):
            memory.unlink()

    # ---- What is wrong with the memory

    def test_memory_that_was_removed_while_in_use(self):
        process = self.write(10)
        os.kill(process.pid, signal.SIGSTOP)
        self.memory.unlink()
        self.assert_refused(self.nvcache("recover", self.pool), 1, self.pool, "memory in /dev/shm was removed")
        self.assertIsNone(self.memory)
        self.kill(process)

    def test_a_file_of_a_stranger(self):
        self.lose()
        self.assert_ok(self.nvcache("recover", self.pool))
        name = self.memory
        name.unlink()
        name.write_bytes(b"precious")
        name.chmod(0o644)
        self.assert_refused(self.nvcache("recover", self.pool), 1, self.pool, "somebody else has made")
        self.assertEqual(name.read_bytes(), b"precious")

    def test_no_room_for_memory(self):
        script = 'mount -t tmpfs -o size=256k small /dev/shm || exit 99; exec "$@"'
        result = tool.run("unshare", "--mount", "sh", "-c", script, "sh", tool.COMMAND, "run", "--pool", self.pool,
                          "--", "true")
        if result.returncode == 99 or result.stderr.startswith("unshare:"):
            self.skipTest("nothing can be mounted here")
        self.assertEqual(result.returncode, 0)
        self.assertIn("/dev/shm has no room", result.stderr)

    # ---- The process

    def test_a_limit_of_file_sizes(self):
        script = 'ulimit -f 1000; exec "$@"'
        result = tool.run("sh", "-c", script, "sh", *self.under("--", "true"))
        self.assert_refused(result, 125, "may write", "ulimit -f")

    def test_no_mirror(self):
        result = self.nvcache("mirror", "--pool", self.pool, "--name", "x", "--etcd", "http://127.0.0.1:1", "--server",
                              "127.0.0.1:1", "--insecure")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("is not for a mirror", result.stderr)

    def test_where_no_journal_can_be(self):
        self.assert_refused(self.nvcache("create", self.pools / "pool", "--size", "1M"), 1, "--emulate")
        self.assertFalse((self.pools / "pool").exists())
        self.assert_refused(self.nvcache("create", self.pool, "--size", "1M"), 1, "exists already")


if __name__ == "__main__":
    unittest.main()
