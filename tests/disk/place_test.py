#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Where a journal can lie and where it cannot: each is said in one line, which names what to use instead, and nothing is
left there."""

import shutil
import subprocess
import unittest

from kit import MIB, disks, tool
from kit.journals import memory_of

from pools import WRITER


def mount(*words):
    subprocess.run(["mount", *map(str, words)], check=True)


@unittest.skipUnless(disks.own_mounts(), "nothing can be mounted here")
class PlaceTest(tool.ToolTest):
    def setUp(self):
        super().setUp()
        self.folder = self.files / "mounted"
        self.folder.mkdir()
        self.pool = self.folder / "pool"

    def disk(self, kind="ext4", size=400 * MIB):
        disk = disks.Mount(self.files / f"{kind}.image", self.folder, kind, size=size)
        self.addCleanup(disk.close)
        return disk

    def tmpfs(self, folder):
        folder.mkdir(exist_ok=True)
        mount("-t", "tmpfs", "none", folder)
        self.addCleanup(subprocess.run, ["umount", "-l", folder], check=False)
        return folder

    def overlay(self, parts):
        lower, upper, work = (parts / name for name in ("lower", "upper", "work"))
        for folder in (lower, upper, work):
            folder.mkdir()
        mount("-t", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", "none", self.folder)
        self.addCleanup(subprocess.run, ["umount", "-l", self.folder], check=False)

    def create(self, size="1M", pool=None):
        return self.nvcache("create", pool or self.pool, "--size", size)

    def assert_created(self, pool=None):
        result = self.assert_ok(self.create(pool=pool))
        self.assertIn("durability disk", result.stdout)

    def assert_no_place(self, *words):
        """By `create`, and by a program, which runs all the same."""
        self.assert_refused(self.create(), 1, self.pool, *words)
        self.assertEqual([path.name for path in self.folder.iterdir() if path.name != "lost+found"], [])
        result = tool.run(tool.COMMAND, "run", "--pool", self.pool, "--", "echo", "ran")
        self.assertEqual((result.returncode, result.stdout), (0, "ran\n"))
        self.assertRegex(result.stderr, r"\Anvcache: [^\n]+; the program runs without the cache\n\Z")
        for word in words:
            self.assertIn(word, result.stderr)
        self.assertFalse(self.pool.exists())

    def test_ext4(self):
        self.disk()
        self.assert_created()

    def test_xfs(self):
        self.disk("xfs")
        self.assert_created()

    def test_btrfs(self):
        self.disk("btrfs")
        self.assert_no_place("Btrfs", "new place", "ext4 or XFS")

    def test_memory(self):
        self.tmpfs(self.folder)
        self.assert_no_place("not persistent memory", "--emulate")

    def test_an_overlay_on_a_disk(self):
        parts = self.files / "parts"
        parts.mkdir()
        self.overlay(parts)
        self.assert_created()

    def test_an_overlay_in_memory(self):
        """It has O_DIRECT, and says nothing of what it lies on."""
        self.overlay(self.tmpfs(self.files / "parts"))
        self.assert_no_place("where its blocks are", "ext4 or XFS")

    def test_read_only(self):
        self.disk().mount("remount,ro")
        self.assert_no_place("read-only", "mount it for writing")

    def test_full(self):
        """Of `create`, and of the program's own files beside a journal, which has its blocks."""
        self.disk(size=64 * MIB)
        self.assert_refused(self.create("100M"), 1, self.pool, "no room", "smaller size")
        self.assertFalse(self.pool.exists())
        self.assert_created()
        filler = self.folder / "filler"
        subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=1M"], check=False, stderr=subprocess.DEVNULL)
        data = self.files / "data"
        process = self.start([tool.COMMAND, "run", "--pool", self.pool, "--required", "--", "python3", "-c", WRITER, data, 100])
        self.assertEqual(process.stdout.readline(), "done\n")
        process.kill()
        process.wait()
        memory_of(self.pool).unlink()
        self.assert_ok(self.nvcache("recover", self.pool))
        self.assertEqual(len(data.read_bytes().splitlines()), 100)

    def test_a_partition(self):
        """With a file system on it. It is left as it is."""
        image = disks.make_image(self.files / "image", 16 * MIB)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        device = subprocess.run(["losetup", "--find", "--show", image], check=True, stdout=subprocess.PIPE,
                                text=True).stdout.strip()
        self.addCleanup(subprocess.run, ["losetup", "-d", device], check=False)
        before = tool.checksum(image)
        self.assert_refused(self.nvcache("create", device, "--size", "1M"), 1, device, "exists already")
        for command in ("recover", "status"):
            self.assert_refused(self.nvcache(command, device), 1, device, "neither a file nor a devdax device")
        result = tool.run(tool.COMMAND, "run", "--pool", device, "--required", "--", "true")
        self.assert_refused(result, 125, device, "neither a file nor a devdax device")
        subprocess.run(["sync", image], check=True)
        self.assertEqual(tool.checksum(image), before)

    def test_a_copy_in_memory(self):
        """It is no journal there, but what it has is brought to the files."""
        self.disk()
        self.assert_created()
        copy = self.pools / "copy"
        shutil.copyfile(self.pool, copy)
        copy.chmod(0o600)
        result = tool.run(tool.COMMAND, "run", "--pool", copy, "--required", "--", "true")
        self.assert_refused(result, 125, copy, "lies in memory", "nvcache recover")
        self.assert_ok(self.nvcache("recover", copy))

    def test_remounted_read_only(self):
        disk = self.disk()
        self.assert_created()
        disk.mount("remount,ro")
        self.assert_refused(self.nvcache("recover", self.pool), 1, self.pool, "read-only")
        disk.mount("remount,rw")
        self.assert_ok(self.nvcache("recover", self.pool))

    def test_two_on_one_disk(self):
        self.disk()
        other = self.folder / "other"
        writers = []
        for pool in (self.pool, other):
            self.assert_created(pool)
            data = self.files / f"{pool.name}.data"
            process = self.start([tool.COMMAND, "run", "--pool", pool, "--required", "--", "python3", "-c", WRITER, data, 50])
            writers.append((pool, data, process))
        for _, _, process in writers:
            self.assertEqual(process.stdout.readline(), "done\n")
        for pool, data, process in writers:
            process.kill()
            process.wait()
            memory_of(pool).unlink()
            self.assert_ok(self.nvcache("recover", pool))
            self.assertEqual(len(data.read_bytes().splitlines()), 50)


if __name__ == "__main__":
    unittest.main()
