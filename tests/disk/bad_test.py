#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What may be wrong around a journal on a disk: what has become of its file, of its memory, of the machine, of the limits of
a process. Each is refused in one line, or slower; nothing that was synced is missing, and nothing is written that is not ours."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import unittest

from kit import LATE, MIB, disks, tool
from kit.journals import memory_of

from pools import BLOCK, RING, WRITER, DiskPoolTest

PUNCH = 3  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
BOOT = 40  # of the kernel's number in a memory, behind the pool: src/pool/journal_memory.h


def punch(path, at, size):
    with open(path, "r+b") as file:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.fallocate(file.fileno(), PUNCH, ctypes.c_long(at), ctypes.c_long(size)) != 0:
            raise OSError(ctypes.get_errno(), "fallocate")


class FileTest(DiskPoolTest):
    """What has become of the journal."""

    def assert_untouched(self, *words):
        """Every command refuses it, and leaves it."""
        before = tool.checksum(self.pool)
        for command in ("recover", "status", "dump"):
            self.assert_refused(self.nvcache(command, self.pool), 1, self.pool, *words)
        self.assert_refused(tool.run(*self.under("--", "true")), 125, self.pool, *words)
        result = tool.run(tool.COMMAND, "run", "--pool", self.pool, "--", "echo", "ran")
        self.assertEqual((result.returncode, result.stdout), (0, "ran\n"))
        self.assertRegex(result.stderr, r"\Anvcache: [^\n]+; the program runs without the cache\n\Z")
        self.assertEqual(tool.checksum(self.pool), before)
        self.assertIsNone(self.memory)

    def test_punched_in_its_ring(self):
        self.lose()
        batches = self.batches()
        punch(self.pool, batches[30], BLOCK)
        self.assert_untouched(f"damaged at byte {batches[30]}")

    def test_punched_where_nothing_is(self):
        """Blocks that have to be found anew make it slower."""
        size = self.pool.stat().st_size
        punch(self.pool, size // 2, size - size // 2)
        self.lose()
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertEqual(len(self.lines()), 100)

    def test_punched_headers(self):
        """What lies behind them looks like a part of another kind of pool."""
        self.lose()
        punch(self.pool, 0, RING)
        self.assert_untouched("journal whose headers are gone")

    def test_truncated(self):
        for size in (0, 100, BLOCK, RING, RING + BLOCK, self.pool.stat().st_size // 2):
            with self.subTest(size=size):
                os.truncate(self.pool, size)
                for command in ("recover", "status"):
                    self.assert_refused(self.nvcache(command, self.pool), 1, self.pool)
                self.assertEqual(self.pool.stat().st_size, size)

    def test_longer_than_it_was(self):
        """By somebody's `cat >>`: what is behind it is not ours, and stays."""
        self.lose()
        with open(self.pool, "ab") as file:
            file.write(b"precious")
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertEqual(len(self.lines()), 100)
        self.assertEqual(self.pool.read_bytes()[-8:], b"precious")

    def test_a_copy_beside_one_that_is_used(self):
        """It has the same uuid, and memory of its own."""
        process = self.write(20)
        os.kill(process.pid, signal.SIGSTOP)
        copy = self.files / "copy"
        copy.write_bytes(self.pool.read_bytes())
        copy.chmod(0o600)
        before = tool.checksum(self.memory)
        self.assertEqual(self.json("status", copy)["pending_records"], 20)
        self.assert_ok(self.nvcache("recover", copy))
        self.assertEqual(tool.checksum(self.memory), before)
        self.assertNotEqual(memory_of(copy), self.memory)
        memory_of(copy).unlink()
        self.kill(process)

    def test_in_use(self):
        process = self.write(10)
        self.assert_refused(self.nvcache("recover", self.pool), 1, self.pool, f"in use by process {process.pid}")
        self.assert_refused(self.nvcache("create", self.pool, "--size", "1M"), 1, self.pool, "exists already")
        self.kill(process)
        self.assert_ok(self.nvcache("recover", self.pool))

    def test_removed_while_in_use(self):
        """Its user has it until his end, and what he syncs is where he has put it, in the end. The memory goes with him."""
        process = self.write(10)
        memory = self.memory
        self.addCleanup(memory.unlink, missing_ok=True)
        self.pool.unlink()
        process.stdin.close()
        self.assertEqual(process.wait(30), 0)
        self.assertEqual(len(self.lines()), 10)
        self.assertFalse(memory.exists())

    def test_of_another_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give it away")
        os.chown(self.pool, 65534, 65534)
        self.assert_refused(tool.run(*self.under("--", "true")), 125, self.pool, "belongs to the user with the number 65534")
        os.chown(self.pool, 0, 0)
        self.pool.chmod(0o622)
        self.assert_refused(tool.run(*self.under("--", "true")), 125, self.pool, "may be written by other users")


class MemoryTest(DiskPoolTest):
    """What has become of the memory."""

    def test_of_another_run_of_the_kernel(self):
        """A machine that went on from a snapshot of its memory, or /dev/shm that was kept: the journal counts."""
        self.kill(self.write(60))
        memory, size = self.memory, self.status()["size"]
        with open(memory, "r+b") as file:
            file.seek(size + BOOT)
            file.write(bytes(16))
        report = self.status()
        self.assertFalse(report["journal"]["memory"])
        self.assertEqual(report["pending_records"], 60)
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertEqual(len(self.lines()), 60)
        self.assertTrue(self.status()["journal"]["memory"])

    def test_of_an_earlier_life(self):
        """As a snapshot brings it back: it has less than the journal."""
        self.kill(self.write(20))
        old = self.memory.read_bytes()
        name = self.memory
        name.unlink()
        self.assert_ok(self.nvcache("recover", self.pool))
        self.kill(self.write(30))
        name.write_bytes(old)
        name.chmod(0o600)
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertEqual(len(self.lines()), 50)

    def test_removed_while_in_use(self):
        """Its users go on with it, and what they sync is in the journal; nobody makes another one meanwhile."""
        code = WRITER.replace("sys.stdin.read()", "sys.stdin.readline()\nfor i in range(30):\n    os.write(f, b'more\\n')\n"
                              "    os.fsync(f)\nprint('more', flush=True)\nsys.stdin.read()")
        process = self.start(self.under("--", sys.executable, "-c", code, self.data, "10"),
                             env={**tool.clean_environment(), **LATE})
        self.assertEqual(process.stdout.readline(), "done\n")
        self.memory.unlink()
        for arguments in (("recover", self.pool), ("status", self.pool)):
            self.assert_refused(self.nvcache(*arguments), 1, self.pool, "memory in /dev/shm was removed", "end them first")
        self.assert_refused(tool.run(*self.under("--", "true")), 125, self.pool, "memory in /dev/shm was removed")
        process.stdin.write("\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), "more\n")
        self.kill(process)
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertEqual(self.data.read_bytes().count(b"more\n"), 30)
        self.assertEqual(len(self.lines()), 40)

    def test_what_others_have_put_there(self):
        """A symbolic link, a folder, a pipe, a file that others may write: none is followed, opened or replaced."""
        self.lose(10)
        self.assert_ok(self.nvcache("recover", self.pool))
        name = self.memory
        precious = self.pools / "precious"
        precious.write_bytes(b"precious" * 1000)
        before = tool.checksum(self.pool)

        def link():
            name.symlink_to(precious)

        def shared():
            name.write_bytes(b"precious" * 1000)
            name.chmod(0o666)

        def hidden():
            name.mkdir()
            (name / "file").write_bytes(b"precious")

        for put in (link, shared, hidden, lambda: os.mkfifo(name)):
            name.unlink()
            put()
            for command in ("recover", "status"):
                self.assert_refused(self.nvcache(command, self.pool), 1, self.pool)
            self.assert_refused(tool.run(*self.under("--", "true")), 125, self.pool)
            self.assertTrue(name.is_symlink() or name.exists())
            if name.is_dir() and not name.is_symlink():
                (name / "file").unlink()
                name.rmdir()
                name.touch()
        self.assertEqual(precious.read_bytes(), b"precious" * 1000)
        self.assertEqual(tool.checksum(self.pool), before)
        name.unlink()
        self.assert_ok(self.nvcache("recover", self.pool))

    def test_in_the_way_of_a_new_one(self):
        """What a process has left that died making it is replaced; what cannot be is named."""
        self.lose(10)
        header_name = self.make_name()
        new = header_name.with_name(header_name.name + ".new")
        new.mkdir()
        self.assert_refused(self.nvcache("recover", self.pool), 1, self.pool, "/dev/shm")
        new.rmdir()
        new.write_bytes(b"left")
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertFalse(new.exists())
        self.assertEqual(len(self.lines()), 10)

    def make_name(self):
        """Where its memory will be."""
        copy = self.files / "as it was"
        copy.write_bytes(self.pool.read_bytes())
        self.assert_ok(self.nvcache("recover", self.pool))
        name = self.memory
        name.unlink()
        self.data.write_bytes(b"")
        self.pool.write_bytes(copy.read_bytes())
        return name


class ProcessTest(DiskPoolTest):
    """What a process may not, or does not."""

    def test_never_waits(self):
        """A program that syncs nothing and is killed: what it wrote may be there or not, and the pool is right."""
        code = "import os, sys\nf = open(sys.argv[1], 'ab', 0)\nwhile True:\n    f.write(b'%06d\\n' % 1)\n"
        process = self.start(self.under("--", sys.executable, "-c", code, self.data), env=tool.clean_environment())
        self.until(lambda: self.status()["segments_used"] > 3, "that it has written")
        self.kill(process)
        if self.memory is not None:
            self.memory.unlink()
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertEqual(set(self.lines()) - {b"000001"}, set())
        self.assertEqual(self.data.stat().st_size % 7, 0)
        self.kill(self.write(20))
        self.memory.unlink()
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertEqual(self.lines()[-1], b"000019")

    def test_a_limit_that_comes_later(self):
        """A process lowers its own limit of file sizes below the journal's: it is not killed, and its sync does not lie."""
        code = ("import os, resource, signal, sys\n"
                "f = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
                "for i in range(5):\n    os.write(f, b'x\\n')\n    os.fsync(f)\n"
                "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
                "os.write(f, b'y\\n')\n"
                "try:\n    os.fsync(f)\n    print('synced')\n"
                "except OSError as error:\n    print('refused')\n"
                "sys.stdout.flush()\nos.kill(os.getpid(), signal.SIGKILL)\n")
        result = tool.run(*self.under("--", sys.executable, "-c", code, self.data), env=LATE)
        self.assertEqual(result.returncode, -9, result.stderr)
        self.memory.unlink()
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertEqual(self.lines()[:5], [b"x"] * 5)
        if "synced" in result.stdout:
            self.assertEqual(self.lines(), [b"x"] * 5 + [b"y"])

    def test_a_limit_below_the_memory(self):
        """The memory is a file as well."""
        self.lose(10)
        before = tool.checksum(self.pool)
        limit = self.pool.stat().st_size - 1

        def lower():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        result = subprocess.run([tool.COMMAND, "recover", self.pool], env=tool.clean_environment(), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, check=False, preexec_fn=lower)
        self.assert_refused(result, 1, self.pool, "ulimit -f")
        self.assertEqual(tool.checksum(self.pool), before)

    def test_create_within_a_limit(self):
        other = self.files / "other"

        def lower():
            resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))

        result = subprocess.run([tool.COMMAND, "create", other, "--size", "1M"], env=tool.clean_environment(),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, preexec_fn=lower)
        self.assert_refused(result, 1, other, "ulimit -f")
        self.assertFalse(other.exists())


@unittest.skipUnless(disks.own_mounts(), "nothing can be mounted here")
class MachineTest(tool.ToolTest):
    """The disk is put into another machine."""

    def test_elsewhere(self):
        folder = self.files / "mounted"
        disk = disks.Mount(self.files / "image", folder, size=80 * MIB)
        self.addCleanup(disk.close)
        pool, data = folder / "pool", folder / "data"
        self.assert_ok(self.nvcache("create", pool, "--size", "1M"))
        process = self.start([tool.COMMAND, "run", "--pool", pool, "--required", "--", sys.executable, "-c", WRITER, data, 50],
                             env={**tool.clean_environment(), **LATE})
        self.assertEqual(process.stdout.readline(), "done\n")
        process.kill()
        process.wait()
        device, memory = folder.stat().st_dev, memory_of(pool)
        disk.unmount_unused()
        # Its device has another number there, and the memory stays where it was.
        other = disks.make_image(self.files / "other", MIB)
        for _ in range(5):
            loop = subprocess.run(["losetup", "--find", "--show", other], check=True, stdout=subprocess.PIPE, text=True)
            self.addCleanup(subprocess.run, ["losetup", "-d", loop.stdout.strip()], check=False)
            disk.mount()
            if folder.stat().st_dev != device:
                break
            disk.unmount_unused()
        self.assertNotEqual(folder.stat().st_dev, device)
        self.assertIsNone(memory_of(pool))
        self.assertEqual(self.json("status", pool)["pending_records"], 50)
        self.assertLess(len(data.read_bytes().splitlines()), 50)
        self.assert_ok(self.nvcache("recover", pool))
        self.assertEqual(data.read_bytes().splitlines(), [b"%06d" % i for i in range(50)])
        self.assertTrue(memory.exists())


if __name__ == "__main__":
    unittest.main()
