# SPDX-License-Identifier: BSD-3-Clause
"""recover: what it applies, keeps, exports and discards, on pools written by hand."""

import json
import os
import resource
import signal
import sys
import unittest

import image
import support


class RecoverTest(support.ToolTest):
    def setUp(self):
        super().setUp()
        self.create()
        self.there = self.files / "there"
        self.there.write_bytes(b"." * 10)
        self.gone = self.files / "gone"
        self.gone.write_bytes(b"")
        self.export = self.files / "export"

    def make_dirty(self, lose=True):
        """Two writes to a file that is there, three to one that is not."""
        with image.Image(self.pool) as pool:
            pool.add_file(0, self.there)
            pool.add_file(1, self.gone, incarnation=9)
            pool.add_write(0, 3, b"first")
            pool.add_write(1, 0, b"A" * 5000, incarnation=9)
            pool.add_write(0, 5, b"SECOND")
            pool.add_write(1, 10, b"BBBB", incarnation=9)
            pool.add_write(1, 1 << 20, b"CC", incarnation=9)
            pool.set_dirty()
        if lose:
            self.gone.unlink()

    def expected_gone(self):
        content = bytearray(b"A" * 5000)
        content[10:14] = b"BBBB"
        return bytes(content) + bytes((1 << 20) - 5000) + b"CC"

    def recover(self, *options, **more):
        return self.nvcache("recover", self.pool, *options, **more)

    def is_clean(self):
        with image.Image(self.pool) as pool:
            return pool.is_clean()

    def assert_kept(self, result):
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        self.assertRegex(result.stderr, r"\Anvcache: pool [^\n]+\n\Z")
        self.assertIn(str(self.pool), result.stderr)

    def test_clean_pool(self):
        before = support.checksum(self.pool)
        result = self.recover()
        self.assert_ok(result)
        self.assertEqual(result.stdout, "nothing to recover\n")
        result = self.recover("--json")
        self.assert_ok(result)
        report = json.loads(result.stdout)
        self.assertTrue(report["clean"])
        self.assertFalse(report["was_dirty"])
        self.assertEqual(support.checksum(self.pool), before)

    def test_everything_applied(self):
        self.make_dirty(lose=False)
        result = self.recover("--emulate")
        self.assert_ok(result)
        self.assertEqual(result.stdout, "recovered 6 entries (4.9 KiB) of 2 files\n")
        self.assertEqual(self.there.read_bytes(), b"...fiSECOND")
        self.assertEqual(self.gone.read_bytes(), self.expected_gone())
        self.assertTrue(self.is_clean())
        self.assertEqual(self.recover().stdout, "nothing to recover\n")

    def test_json(self):
        self.make_dirty()
        result = self.recover("--json")
        self.assert_kept(result)
        report = json.loads(result.stdout)
        self.assertEqual(report["pool"], str(self.pool))
        self.assertTrue(report["was_dirty"])
        self.assertFalse(report["clean"])
        self.assertEqual((report["files"], report["entries"], report["bytes"]), (1, 2, 11))
        self.assertEqual(report["unresolved_files"], 1)
        self.assertEqual(report["unresolved_entries"], 4)
        self.assertEqual(report["unresolved_bytes"], 5006)
        self.assertEqual(report["damaged"], [])
        (file,) = report["unresolved"]
        self.assertEqual((file["slot"], file["incarnation"]), (1, 9))
        self.assertEqual((file["path"], file["error"]), (str(self.gone), "ENOENT"))
        self.assertEqual((file["entries"], file["bytes"]), (4, 5006))

    def test_unresolved_is_kept(self):
        self.make_dirty()
        result = self.recover()
        self.assert_kept(result)
        self.assertIn("recovered 2 entries (11 B) of 1 file\n", result.stdout)
        self.assertIn(f"unresolved: {self.gone} ", result.stdout)
        self.assertIn("4 entries of 1 file", result.stderr)
        self.assertEqual(self.there.read_bytes(), b"...fiSECOND")
        self.assertFalse(self.is_clean())
        # What was applied is not applied again: the program may have written since.
        self.there.write_bytes(b"newer")
        self.assert_kept(self.recover())
        self.assertEqual(self.there.read_bytes(), b"newer")

    def test_another_file_has_the_name(self):
        self.make_dirty()
        self.gone.write_bytes(b"not the one")
        result = self.recover()
        self.assert_kept(result)
        self.assertIn("another file has its name", result.stdout)
        self.assertEqual(self.gone.read_bytes(), b"not the one")

    def test_dry_run(self):
        self.make_dirty()
        before = support.checksum(self.pool)
        result = self.recover("--dry-run")
        self.assert_kept(result)
        self.assertIn("would recover 2 entries (11 B) of 1 file\n", result.stdout)
        self.assertTrue(json.loads(self.recover("--dry-run", "--json").stdout)["dry_run"])
        # Not even when asked to.
        self.assert_kept(self.recover("--dry-run", "--discard"))
        self.assertEqual(support.checksum(self.pool), before)
        self.assertEqual(self.there.read_bytes(), b"." * 10)

    def test_dry_run_of_a_clean_pool(self):
        """Not even a damaged record of the tail is repaired."""
        with image.Image(self.pool) as pool:
            pool.flip(image.TAIL_OFFSET)
        before = support.checksum(self.pool)
        self.assert_ok(self.recover("--dry-run"))
        self.assertEqual(support.checksum(self.pool), before)
        self.assert_ok(self.recover())
        self.assertNotEqual(support.checksum(self.pool), before)

    def lose_new(self):
        """A file that was never synced, and is gone."""
        with image.Image(self.pool) as pool:
            pool.add_file(0, self.there)
            pool.add_file(1, self.gone, incarnation=9, new=True)
            pool.add_write(1, 3, b"found", incarnation=9)
            pool.add_write(0, 0, b"there")
            pool.set_dirty()
        self.gone.unlink()

    def test_lost_file(self):
        self.gone.chmod(0o640)
        self.lose_new()
        before = support.checksum(self.pool)
        result = self.recover("--dry-run")
        self.assert_ok(result)
        self.assertEqual(
            result.stdout,
            "would recover 2 entries (10 B) of 2 files, 1 of them created again\n"
            f"would create again: {self.gone}\n",
        )
        self.assertEqual(os.listdir(self.files), ["there"])
        self.assertEqual(support.checksum(self.pool), before)
        result = self.nvcache("status", self.pool)
        self.assertIn(f"{self.gone} (new)\n", result.stdout)
        files = json.loads(self.nvcache("status", self.pool, "--json").stdout)["files"]
        self.assertEqual([file["new"] for file in files], [False, True])
        result = self.recover("--json")
        self.assert_ok(result)
        report = json.loads(result.stdout)
        self.assertEqual((report["files"], report["recreated_files"]), (2, 1))
        self.assertEqual(
            report["recreated"], [{"slot": 1, "incarnation": 9, "path": str(self.gone)}]
        )
        self.assertEqual(self.gone.read_bytes(), b"\0\0\0found")
        self.assertEqual(self.gone.stat().st_mode & 0o7777, 0o640)
        self.assertTrue(self.is_clean())

    def test_lost_file_cannot_be_created(self):
        self.gone = self.files / "folder" / "gone"
        self.gone.parent.mkdir()
        self.gone.write_bytes(b"")
        self.lose_new()
        self.gone.parent.rename(self.files / "elsewhere")
        for options in ([], ["--dry-run"]):
            result = self.recover(*options)
            self.assert_kept(result)
            self.assertIn("it is lost, and its folder too; 1 entry, 5 B\n", result.stdout)
        self.gone.parent.symlink_to("elsewhere")
        result = self.recover()
        self.assert_kept(result)
        self.assertIn("leads through a symbolic link now", result.stdout)
        self.assertEqual(os.listdir(self.files / "elsewhere"), [])

    def run_and_kill(self, code):
        """A Python program with the cache that writes to the file `new`, and kills itself."""
        program = "import os, signal\n" + code + "os.kill(os.getpid(), signal.SIGKILL)\n"
        result = self.nvcache(
            "run", "--pool", self.pool, "--emulate", "--batch-delay", "60000", "--batch-min",
            "1000", "--batch-max", "1000", "--", sys.executable, "-c", program, cwd=self.files,
        )
        self.assertEqual(result.returncode, -signal.SIGKILL, result.stderr)

    WRITE = (
        "os.umask(0)\n"
        "f = os.open('new', os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o604)\n"
        "os.write(f, b'first ' * 1000)\n"
        "os.pwrite(f, b'SECOND', 6)\n"
    )
    WRITTEN = b"first SECOND" + b"first " * 998

    def test_a_program_and_its_lost_file(self):
        self.run_and_kill(self.WRITE)
        new = self.files / "new"
        new.unlink()
        result = self.recover()
        self.assert_ok(result)
        self.assertIn(f"created again: {new}\n", result.stdout)
        self.assertEqual(new.read_bytes(), self.WRITTEN)
        self.assertEqual(new.stat().st_mode & 0o7777, 0o604)
        self.assertTrue(self.is_clean())

    def test_the_library_creates_it_again(self):
        """The next program on the pool, before its first file call."""
        self.run_and_kill(self.WRITE)
        (self.files / "new").unlink()
        self.run_and_kill("assert open('new', 'rb').read() == b'first SECOND' + b'first ' * 998\n")

    def test_a_program_and_its_removed_file(self):
        """Removed, not lost: it was synced."""
        for sync in ("os.fsync(f)\n", "os.sync()\nos.pwrite(f, b'SECOND', 6)\n"):
            self.run_and_kill(self.WRITE + sync)
            new = self.files / "new"
            new.unlink()
            result = self.recover()
            self.assert_kept(result)
            self.assertIn(f"unresolved: {new} ", result.stdout)
            self.assertIn("No such file or directory", result.stdout)
            self.assertFalse(new.exists())
            self.assert_ok(self.recover("--discard"))

    def check_export(self):
        self.assertEqual(sorted(os.listdir(self.export)), ["1-9.data", "manifest.json"])
        data = self.export / "1-9.data"
        self.assertEqual(data.read_bytes(), self.expected_gone())
        self.assertLess(data.stat().st_blocks * 512, 1 << 20)
        manifest = json.loads((self.export / "manifest.json").read_text("utf-8"))
        (file,) = manifest["files"]
        self.assertEqual(file["data"], "1-9.data")
        self.assertEqual((file["slot"], file["incarnation"]), (1, 9))
        self.assertEqual(file["path"], str(self.gone))
        self.assertEqual(file["entries"], 4)
        self.assertEqual(
            file["extents"], [{"offset": 0, "length": 5000}, {"offset": 1 << 20, "length": 2}]
        )
        return file

    def test_export(self):
        inode = self.gone.stat().st_ino
        self.make_dirty()
        result = self.recover("--export", self.export)
        self.assert_kept(result)
        self.assertIn(f"exported 4 entries of 1 file to {self.export}\n", result.stdout)
        self.assertEqual(self.check_export()["inode"], inode)
        self.assertEqual(self.export.stat().st_mode & 0o777, 0o700)
        self.assertFalse(self.is_clean())

    def test_export_and_discard(self):
        self.make_dirty()
        result = self.recover("--export", self.export, "--discard")
        self.assert_ok(result)
        self.assertIn("discarded 4 entries\n", result.stdout)
        self.check_export()
        self.assertTrue(self.is_clean())
        self.assertEqual(self.recover().stdout, "nothing to recover\n")

    def test_discard(self):
        self.make_dirty()
        result = self.recover("--discard", "--json")
        self.assert_ok(result)
        report = json.loads(result.stdout)
        self.assertEqual(report["discarded_entries"], 4)
        self.assertTrue(report["clean"])
        self.assertEqual(self.there.read_bytes(), b"...fiSECOND")

    def test_export_of_many_files(self):
        """More of them than are kept open at a time, in turns."""
        self.pool.unlink()
        self.create("32M")
        count = 100
        paths = [self.files / f"gone{i}" for i in range(count)]
        with image.Image(self.pool) as pool:
            for i, path in enumerate(paths):
                path.write_bytes(b"")
                pool.add_file(i, path)
            for round_ in range(3):
                for i in range(count):
                    pool.add_write(i, 2 * round_, b"%d." % round_)
            pool.set_dirty()
        for path in paths:
            path.unlink()
        result = self.recover("--export", self.export, "--discard")
        self.assert_ok(result)
        self.assertIn(f"exported {3 * count} entries of {count} files", result.stdout)
        for i in range(count):
            self.assertEqual((self.export / f"{i}-1.data").read_bytes(), b"0.1.2.")

    def test_export_overwrites_nothing(self):
        self.make_dirty()
        self.export.mkdir()
        (self.export / "1-9.data").write_bytes(b"precious")
        before = support.checksum(self.pool)
        for options in ([], ["--discard"]):
            result = self.recover("--export", self.export, *options)
            self.assert_refused(result, 1, self.export, "empty or a new folder")
        self.assertEqual((self.export / "1-9.data").read_bytes(), b"precious")
        self.assertEqual(support.checksum(self.pool), before)
        result = self.recover("--export", self.files / "no" / "where", "--discard")
        self.assert_refused(result, 1, "No such file or directory")
        result = self.recover("--export", self.there, "--discard")
        self.assert_refused(result, 1, self.there)
        self.assertEqual(support.checksum(self.pool), before)

    def test_failed_export_discards_nothing(self):
        """A file that may not become as large as the entries need. Python ignores SIGXFSZ, and the
        command inherits that."""
        self.make_dirty()

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        result = self.recover(
            "--export", self.export, "--discard", preexec_fn=limit, restore_signals=False
        )
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertRegex(result.stderr, r"\Anvcache: --export [^\n]+\n\Z")
        self.assertFalse(self.is_clean())
        again = self.files / "again"
        result = self.recover("--export", again, "--discard")
        self.assert_ok(result)
        self.assertEqual((again / "1-9.data").read_bytes(), self.expected_gone())

    def test_file_system_refuses(self):
        """The file is there, but does not take what it is given: nothing is dropped."""
        self.make_dirty(lose=False)

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

        result = self.recover(preexec_fn=limit, restore_signals=False)
        self.assert_kept(result)
        self.assertIn(f"refused: {self.gone} ", result.stdout)
        self.assertIn("EFBIG", result.stderr)
        self.assertEqual(self.there.read_bytes(), b"...fiSECOND")
        self.assertFalse(self.is_clean())
        report = json.loads(
            self.recover("--json", preexec_fn=limit, restore_signals=False).stdout
        )
        self.assertEqual((report["failed_files"], report["error"]), (1, "EFBIG"))
        self.assertEqual((report["failed_entries"], report["failed_bytes"]), (4, 5006))
        self.assert_kept(self.recover("--discard", preexec_fn=limit, restore_signals=False))
        self.assert_ok(self.recover())
        self.assertEqual(self.gone.read_bytes(), self.expected_gone())

    def test_damaged(self):
        with image.Image(self.pool) as pool:
            pool.add_file(0, self.there)
            pool.add_write(0, 0, b"one")
            (bad,) = pool.add_write(0, 3, b"two")
            pool.flip(pool.unit_offset(bad + 1))
            group = pool.add_write(0, 4090, b"y" * 10)
            pool.flip(pool.unit_offset(group[1] + 1))
            pool.add_write(0, 6, b"three")
            pool.set_dirty()
        dry = self.recover("--dry-run", "--json")
        self.assertEqual(dry.returncode, 4)
        self.assertEqual(
            json.loads(dry.stdout)["damaged"],
            [
                {"index": bad, "damaged_entry": bad},
                {"index": group[0], "damaged_entry": group[1]},
            ],
        )
        result = self.recover()
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertRegex(result.stderr, r"\Anvcache: [^\n]+2 write calls are damaged[^\n]+\n\Z")
        self.assertIn(f"damaged: write call at index {bad}: ", result.stdout)
        self.assertIn(f"the checksum of entry {group[1]} is wrong", result.stdout)
        self.assertEqual(self.there.read_bytes(), b"one...three")
        self.assertTrue(self.is_clean())

    def test_unfinished(self):
        """What a power failure leaves of a thread's last write call is no damage."""
        with image.Image(self.pool) as pool:
            pool.add_file(0, self.there)
            pool.add_write(0, 0, b"one")
            group = pool.add_write(0, 4090, b"y" * 10)
            pool.write(pool.unit_offset(group[1]), bytes(64))
            pool.set_dirty()
        dry = json.loads(self.recover("--dry-run", "--json").stdout)
        self.assertEqual((dry["damaged_groups"], dry["unfinished_groups"]), (0, 1))
        self.assertEqual(dry["unfinished"], [{"index": group[0], "missing_entry": group[1]}])
        result = self.recover()
        self.assert_ok(result)
        self.assertIn(f"unfinished: write call at index {group[0]}: entry {group[1]} is not all "
                      "there; none of it was applied\n", result.stdout)
        self.assertEqual(self.there.read_bytes(), b"one.......")
        self.assertTrue(self.is_clean())

    def test_damaged_record(self):
        """Entries whose file's name is lost: kept, and exported without one."""
        self.make_dirty(lose=False)
        with image.Image(self.pool) as pool:
            pool.flip(image.FILE_TABLE_OFFSET + image.FILE_RECORD_SIZE + 16)
        result = self.recover("--export", self.export, "--discard")
        self.assert_ok(result)
        self.assertIn("its record in the pool is damaged", result.stdout)
        self.assertEqual((self.export / "1-9.data").read_bytes(), self.expected_gone())
        manifest = json.loads((self.export / "manifest.json").read_text("utf-8"))
        self.assertFalse(manifest["files"][0]["record_valid"])
        self.assertNotIn("path", manifest["files"][0])
        self.assertEqual(self.gone.read_bytes(), b"")


if __name__ == "__main__":
    unittest.main()
