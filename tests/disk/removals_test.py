#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Removals in a folder whose names are in the log, on a pool with its journal on a disk (docs/disk.md#removals). The file
system has each of them, as if it had committed by itself, and the journal has only what it was given by then. So the
program makes no sync after the removal, and is killed; the memory is gone."""

import os
import time
import unittest

from pools import KnownFolderTest, without_privilege

CASES = {
    "replaced": "put('name', b'first'); put('name.new', b'second'); os.rename('name.new', 'name')",
    "replaced_unsynced": "put('name', b'first'); put('name.new', b'second', False); os.rename('name.new', 'name')",
    "replaced_old": "put('name.new', b'second'); os.rename('name.new', 'old')",
    "replaced_link": "os.symlink('a', 'link'); os.symlink('b', 'l'); os.fsync(folder); os.rename('l', 'link')",
    "moved": "put('name.new', b'second'); os.rename('name.new', 'name')",
    "removed": "put('name', b'first'); os.unlink('name')",
    "replaced_again": "put('name', b'first'); put('name.new', b'second'); os.rename('name.new', 'name'); put('name.new', b'x', False)",
    "removed_again": "put('name', b'first'); os.unlink('name'); put('name', b'second', False)",
    "removed_old_again": "os.unlink('old'); put('old', b'x', False)",
    "moved_again": "put('name.new', b'second'); os.rename('name.new', 'name'); put('name.new', b'x', False)",
    "removed_old": "os.unlink('old')",
    "replaced_twice": "put('name', b'first'); put('a.new', b'second'); put('b.new', b'third'); os.rename('a.new', 'name'); os.rename('b.new', 'name')",
    "moved_from_it": "put('name', b'first'); put('name.new', b'second'); os.rename('name', 'name.old'); os.rename('name.new', 'name')",
    "moved_elsewhere": "os.mkdir('f'); put('f/x', b'x'); put('name.new', b'second'); os.rename('name.new', 'f/name')",
    "moved_far": "put('name.new', b'second'); os.rename('name.new', '../far/name')",
    "written": "os.write(old, b'!'); os.fsync(old)",
    "old_moved": "os.rename('old', 'name')",
    "old_moved_and_replaced": "put('name.new', b'second'); os.rename('old', 'name'); os.rename('name.new', 'name')",
    "old_replaced_and_moved_on": "put('name.new', b'second'); os.rename('name.new', 'old'); os.rename('old', 'name')",
    "unknown_moved_and_removed": "os.rename('cold', 'name'); put('new', b'x'); os.unlink('name')",
    "unknown_moved_after_a_removal": "put('name', b'first'); os.unlink('name'); os.rename('cold', 'name')",
    "folder_removed": "os.mkdir('f'); put('f/x', b'x'); os.fsync(folder); os.unlink('f/x'); os.rmdir('f')",
}


OLD = b"before is known newer"
COLD = {"cold": b""}
CHECKPOINT = 4  # seconds: the next one comes no sooner after the first record


class RemovalsTest(KnownFolderTest):
    before_recovery = None

    def lose(self, name):
        """All but the journal: of what is new, the file system has names alone. But where that took so long that a checkpoint may
        have synced the file system, it has the bytes as well."""
        begin = time.monotonic()
        process = self.begin(CASES[name] + "\nsay('done')\n")
        self.assertEqual(self.go_on(process), "done\n")
        self.kill(process)
        self.memory.unlink()
        if time.monotonic() - begin < CHECKPOINT and (self.data / "name").exists():
            os.truncate(self.data / "name", 0)

    def recover(self, name):
        self.lose(name)
        result = self.nvcache("recover", self.pool, preexec_fn=self.before_recovery)
        self.assert_ok(result)
        self.assertNotIn("unresolved", result.stdout + result.stderr)
        return {path.name: path.read_bytes() for path in self.data.iterdir() if path.is_file() and path.name not in "abc"}

    def batches_while(self, code):
        """How many the journal gets, in a folder that is known."""
        process = self.begin(f"{code}\nsay('begun')\n{code}\nsay('done')\n")
        self.assertEqual(self.go_on(process), "begun\n")
        before = self.status()["journal"]["batches"]
        self.assertEqual(self.go_on(process), "done\n")
        after = self.status()["journal"]["batches"]
        self.kill(process)
        return after - before

    # ---- What the file system has before the journal

    def test_a_file_replaced(self):
        self.assertEqual(self.recover("replaced"), {"name": b"second", "old": OLD, **COLD})

    def test_a_file_replaced_twice(self):
        self.assertEqual(self.recover("replaced_twice")["name"], b"third")

    def test_a_file_replaced_that_was_moved_away(self):
        self.assertEqual(self.recover("moved_from_it"), {"name": b"second", "name.old": b"first", "old": OLD, **COLD})

    def test_a_file_replaced_by_one_without_a_sync(self):
        self.assertIn(self.recover("replaced_unsynced")["name"], (b"first", b"second"))

    def test_an_old_file_replaced(self):
        found = self.recover("replaced_old")
        self.assertEqual(found["old"], b"second")

    def test_a_link_replaced(self):
        self.recover("replaced_link")
        self.assertIn(os.readlink(self.data / "link"), "ab")

    def test_a_file_moved(self):
        """Whose bytes were promised: whatever its name is, it has them."""
        self.assertEqual(self.recover("moved"), {"name": b"second", "old": OLD, **COLD})

    def test_a_file_moved_into_another_folder(self):
        self.assertEqual(self.recover("moved_elsewhere"), {"old": OLD, **COLD})
        self.assertEqual((self.data / "f" / "name").read_bytes(), b"second")

    def test_a_file_moved_into_a_folder_that_no_log_knows(self):
        """Such a call is in no log: the kernel brings it to the disk, with all that was before. Where the file cannot be looked
        up by its handle, it may be made again, with all of its bytes; it is not taken for removed."""
        (self.files / "far").mkdir()
        found = self.recover("moved_far")
        self.assertIn(found.pop("name.new", None), (None, b"second") if self.before_recovery else (None,))
        self.assertEqual(found, {"old": OLD, **COLD})
        self.assertEqual((self.files / "far" / "name").read_bytes(), b"second")

    def test_an_old_file_moved(self):
        """Whose bytes no log has all: the journal is told of its name before, and finds it there without a handle."""
        process = self.begin(CASES["old_moved"] + "\nsay('done')\n")
        self.assertEqual(self.go_on(process), "done\n")
        self.kill(process)
        self.memory.unlink()
        result = self.nvcache("recover", self.pool, preexec_fn=self.before_recovery)
        self.assert_ok(result)
        self.assertEqual((self.data / "name").read_bytes(), OLD)
        self.assertFalse((self.data / "old").exists())

    def test_an_old_file_moved_and_replaced(self):
        self.assertEqual(self.recover("old_moved_and_replaced"), {"name": b"second", **COLD})

    def test_an_old_file_replaced_by_one_that_is_moved_on(self):
        self.assertEqual(self.recover("old_replaced_and_moved_on"), {"name": b"second", **COLD})

    def test_a_file_removed_of_which_there_are_names_alone(self):
        found = self.recover("unknown_moved_and_removed")
        self.assertEqual(found, {"new": b"x", "old": OLD})

    def test_an_older_file_that_has_the_name_of_a_removed_one(self):
        found = self.recover("unknown_moved_after_a_removal")
        self.assertEqual(found, {"name": b"", "old": OLD})

    def test_a_file_removed(self):
        self.assertIn(self.recover("removed").get("name"), (None, b"first"))

    def test_an_old_file_removed(self):
        self.assertNotIn("old", self.recover("removed_old"))

    def test_a_folder_removed(self):
        self.recover("folder_removed")

    def test_a_disk_that_is_too_old(self):
        """It has a folder without a file that the log has bytes of, and nobody has announced a removal. Once more changes
        nothing, though the first recovery has changed the folder."""
        self.lose("written")
        (self.data / "old").unlink()
        for _ in range(2):
            result = self.nvcache("recover", self.pool, preexec_fn=self.before_recovery)
            self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
            self.assertIn("old", result.stdout + result.stderr)
        self.assert_ok(self.nvcache("recover", "--discard", self.pool))

    # ---- And what came after it

    def test_a_file_replaced_and_another_one_begun(self):
        found = self.recover("replaced_again")
        self.assertIn((found["name"], found.get("name.new")), ((b"first", b"second"), (b"second", b"x")))

    def test_a_file_moved_and_another_one_begun(self):
        self.assertEqual(self.recover("moved_again")["name"], b"second")

    def test_a_file_made_again(self):
        self.assertIn("name", self.recover("removed_again"))

    def test_an_old_file_made_again(self):
        self.assertIn("old", self.recover("removed_old_again"))

    # ---- What it costs

    def assert_batches(self, each, code):
        """Each turn has so many, and a checkpoint that comes in between a few."""
        turns = 50
        count = self.batches_while(f"for i in range({turns}): {code}")
        self.assertIn(count - each * turns, range(turns // 2), code)

    def test_what_many_files_cost(self):
        """That are made first, and get their names afterwards, as dpkg does it."""
        each = "for i in range(300): "
        code = each + "put('t%d' % i, b'', False)\n" + each + "os.rename('t%d' % i, 'u%d' % i)\n" + each + "os.unlink('u%d' % i)"
        self.assertLess(self.batches_while(code), 30)

    def test_what_an_upgrade_costs(self):
        """Older files are replaced, and kept by another name until that is done: only the new ones' syncs."""
        for i in range(100):
            (self.data / f"cold{i}").write_bytes(b"old")
        code = """turns = globals().get('turns') or iter(range(100))
for k in range(50):
    name = 'cold%d' % next(turns)
    os.link(name, 'kept')
    put('new', b'x')
    os.rename('new', name)
    os.unlink('kept')"""
        self.assertIn(self.batches_while(code), range(50, 75))

    def test_what_a_removal_costs(self):
        """No more than the syncs themselves, but where recovery could not tell what has happened."""
        self.assert_batches(0, "put('t%d' % i, b'x', False); os.unlink('t%d' % i)")
        self.assert_batches(0, "put('t', b'x', False); os.rename('t', 'u'); os.unlink('u')")
        self.assert_batches(0, "os.rename('cold', 't'); os.rename('t', 'cold')")
        self.assert_batches(2, "os.rename('old', 't'); os.rename('t', 'old')")
        self.assert_batches(0, "os.mkdir('d'); os.rename('d', 'e'); os.rmdir('e')")
        self.assert_batches(0, "os.mkdir('d'); put('d/x', b'x', False); os.unlink('d/x'); os.rmdir('d')")
        self.assert_batches(1, "put('t', b'x'); os.unlink('t')")
        self.assert_batches(1, "put('new', b'x'); os.rename('new', 'name')")
        self.assert_batches(2, "put('new', b'x'); os.rename('new', 'name'); os.fsync(folder)")
        self.assert_batches(1, "put('new', b'x', False); os.rename('new', 'name')")


class WithoutPrivilegeTest(RemovalsTest):
    before_recovery = staticmethod(without_privilege)
    test_what_a_removal_costs = test_what_many_files_cost = test_what_an_upgrade_costs = None


if __name__ == "__main__":
    unittest.main()
