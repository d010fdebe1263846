# SPDX-License-Identifier: BSD-3-Clause
"""recover: what it applies, keeps, exports and discards, on pools written by hand."""

import json
import os
import resource
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
