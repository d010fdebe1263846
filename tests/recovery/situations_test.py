# SPDX-License-Identifier: BSD-3-Clause
"""What may have happened to the files of a program between its death and the recovery. Each case as
root on a pool of its own, as root on a user's pool, and as that user: who finds the file, who does
not, and that records are kept and no other file is written to."""

import os
import shutil
import unittest

import machine
from machine import STRANGER, TEAM, USER, image, run

ROOT, ROOT_FOR_USER, BY_USER = "root", "root for a user", "the user"
OLD, NEW = b"old content", b"NEW content"


def each_way(test):
    """Runs the test once for each way to recover, on a machine of its own."""

    def all_ways(self):
        for number, way in enumerate((ROOT, ROOT_FOR_USER, BY_USER)):
            with self.subTest(way=way):
                if number > 0:
                    self.doCleanups()
                    self.setUp()
                self.begin(way)
                test(self)

    all_ways.__doc__ = test.__doc__
    return all_ways


class SituationTest(machine.MachineTest):
    def begin(self, way):
        self.way = way
        self.owner = 0 if way == ROOT else USER
        self.runner = USER if way == BY_USER else 0
        self.make_pool(self.owner)
        os.chown(self.files, self.owner, -1)
        self.data = self.make_file(self.files / "data", OLD, self.owner)
        self.fill(self.data, b"NEW")

    def recover(self, *options):
        return self.as_user(self.runner, "recover", self.pool, *options)

    def assert_recovered(self, path=None):
        self.assert_ok(self.recover())
        self.assertEqual((path or self.data).read_bytes(), NEW)
        self.assertTrue(self.is_clean())
        self.assertEqual(self.recover().stdout, "nothing to recover\n")

    def assert_kept(self, *words):
        """Twice, for nothing is lost the first time; and the data can be saved."""
        for _ in range(2):
            result = self.assert_status(self.recover(), 3)
            self.assertRegex(result.stderr, r"\Anvcache: pool [^\n]+ keeps [^\n]+\n\Z")
            for word in words:
                self.assertIn(word, result.stdout)
            self.assertFalse(self.is_clean())
        export = self.pools / "export"
        self.pools.chmod(0o777)
        result = self.recover("--export", export)
        self.pools.chmod(0o755)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertEqual((export / "0.data").read_bytes(), b"NEW")
        self.assertEqual((export / "0.data").stat().st_uid, self.runner)
        shutil.rmtree(export)

    @each_way
    def test_untouched(self):
        self.assert_recovered()

    @each_way
    def test_renamed(self):
        """Root finds it by its handle, in a folder that the user may enter or not."""
        elsewhere = self.mounted / "elsewhere"
        elsewhere.mkdir(mode=0o700)
        moved = self.data.rename(elsewhere / "moved")
        if self.way == BY_USER:
            self.assert_kept("No such file")
            moved.rename(self.data)
            moved = self.data
        self.assert_recovered(moved)

    @each_way
    def test_renamed_and_replaced(self):
        moved = self.data.rename(self.files / "moved")
        other = self.make_file(self.data, b"another", self.owner)
        if self.way == BY_USER:
            self.assert_kept("another file has its name")
            self.assertEqual(moved.read_bytes(), OLD)
        else:
            self.assert_recovered(moved)
        self.assertEqual(other.read_bytes(), b"another")

    @each_way
    def test_replaced(self):
        """By another file, a folder, a fifo, a symbolic link, a hard link."""
        self.data.unlink()
        other = self.make_file(self.files / "other", b"another", self.owner)
        shutil.copy2(other, self.data)
        self.assert_kept("another file has its name")
        self.data.unlink()
        for make in (self.data.mkdir, lambda: os.mkfifo(self.data),
                     lambda: self.data.symlink_to(other), lambda: os.link(other, self.data)):
            make()
            self.assert_kept("another file has its name")
            self.data.rmdir() if self.data.is_dir() else self.data.unlink()
        self.assertEqual(other.read_bytes(), b"another")

    @each_way
    def test_deleted(self):
        """Synced once, so that somebody has removed it: it does not come back."""
        self.data.unlink()
        self.assert_kept("No such file")
        self.assertEqual(os.listdir(self.files), [])

    @each_way
    def test_deleted_with_its_folder(self):
        shutil.rmtree(self.files)
        self.assert_kept("No such file")
        self.assertFalse(self.files.exists())

    @each_way
    def test_copied_to_another_file_system(self):
        copy = self.pools / "data"
        shutil.move(self.data, copy)
        self.data.symlink_to(copy)
        self.assert_kept("another file has its name")
        self.assertEqual(copy.read_bytes(), OLD)

    @each_way
    def test_mounted_elsewhere(self):
        new = self.base / "moved"
        new.mkdir()
        run("mount", "--move", self.mounted, new)
        try:
            if self.way == BY_USER:
                self.assert_kept("No such file")
            else:
                self.assert_recovered(new / "files" / "data")
        finally:
            run("mount", "--move", new, self.mounted)
        if self.way == BY_USER:
            self.assert_recovered()

    @each_way
    def test_not_mounted(self):
        """And what lies under the mount point is not written to."""
        run("umount", self.mounted)
        self.files.mkdir(mode=0o777)
        other = self.make_file(self.data, b"another", self.owner, mode=0o666)
        self.assert_kept("another file has its name")
        self.assertEqual(other.read_bytes(), b"another")
        self.disk.mount(self.mounted)
        self.assert_recovered()

    @each_way
    def test_read_only_mode(self):
        """The owner may write to it all the same, and its mode stays."""
        for mode in (0o444, 0o400, 0):
            self.data.chmod(mode)
            self.assert_recovered()
            self.assertEqual(self.data.stat().st_mode & 0o7777, mode)
            self.data.write_bytes(OLD)
            self.pool.unlink()
            self.make_pool(self.owner)
            self.fill(self.data, b"NEW")

    @each_way
    def test_read_only_for_the_group(self):
        """A file of somebody else, that the program wrote to by its group."""
        os.chown(self.data, STRANGER, TEAM)
        self.data.chmod(0o640)
        if self.way == ROOT:
            self.assert_recovered()
            return
        self.assert_kept("Permission denied")
        self.assertEqual(self.data.read_bytes(), OLD)
        self.data.chmod(0o660)
        self.assert_ok(self.as_user(self.runner, "recover", self.pool, groups=(TEAM,)))
        self.assertEqual(self.data.read_bytes(), NEW)

    @each_way
    def test_immutable(self):
        run("chattr", "+i", self.data)
        try:
            self.assert_kept("Operation not permitted")
        finally:
            run("chattr", "-i", self.data)
        self.assertEqual(self.data.read_bytes(), OLD)
        self.assert_recovered()

    @each_way
    def test_read_only_file_system(self):
        run("mount", "-o", "remount,ro", self.mounted)
        self.assert_kept("Read-only file system")
        run("mount", "-o", "remount,rw", self.mounted)
        self.assert_recovered()

    @each_way
    def test_read_only_mount(self):
        """The file system can be written to, but not at this place."""
        run("mount", "--bind", self.mounted, self.mounted)
        run("mount", "-o", "remount,bind,ro", self.mounted)
        try:
            if self.way == BY_USER:
                self.assert_kept("Read-only file system")
                self.assertEqual(self.data.read_bytes(), OLD)
        finally:
            run("umount", self.mounted)
        self.assert_recovered()

    @each_way
    def test_another_machine(self):
        """The pool was copied to a machine with the same paths, inode numbers and file system id;
        then even with the same birth times, where the handles are left to tell the files apart."""
        inode = self.data.stat().st_ino
        run("umount", self.mounted)
        crtime = [line.split()[1] for line in
                  run("debugfs", "-R", f"stat <{inode}>", self.disk.file).stdout.splitlines()
                  if line.strip().startswith("crtime")][0]
        seconds, extra = crtime.split(":")
        other = machine.Disk(self.base / "other.img")
        other.mount(self.mounted)
        self.files.mkdir()
        os.chown(self.files, self.owner, -1)
        self.make_file(self.data, b"other data", self.owner)
        self.assertEqual(self.data.stat().st_ino, inode, "the same number, or it proves nothing")
        self.assert_kept("another file has its name")
        run("umount", self.mounted)
        for field, value in (("crtime", "0x" + seconds[2:]), ("crtime_extra", "0x" + extra)):
            changed = run("debugfs", "-w", "-R", f"set_inode_field <{inode}> {field} {value}",
                          other.file)
            self.assertNotIn("rror", changed.stderr.split("\n", 1)[-1])
        other.mount(self.mounted)
        with image.Image(self.pool) as pool:
            recorded = pool.read(image.FIRST_FILE_RECORD + 16, 12)
        seconds, nanoseconds = image._birth(self.data)  # pylint: disable=protected-access
        self.assertEqual(recorded, image.struct.pack("<qI", seconds, nanoseconds))
        self.assert_kept("another file has its name")
        self.assertEqual(self.data.read_bytes(), b"other data")
        run("umount", self.mounted)
        self.disk.mount(self.mounted)
        self.assert_recovered()


if __name__ == "__main__":
    unittest.main()
