# SPDX-License-Identifier: BSD-3-Clause
"""recover: what it applies, keeps, exports and discards, on pools written by hand."""

import json
import os
import resource
import signal
import sys
import unittest

from kit import LATE, image, tool


class RecoverTest(tool.ToolTest):
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
        with self.dirty_image({0: self.there, 9: self.gone}) as pool:
            pool.add_write(0, 3, b"first")
            pool.add_write(9, 0, b"A" * 5000)
            pool.add_write(0, 5, b"SECOND")
            pool.add_write(9, 10, b"BBBB")
            pool.add_write(9, 1 << 20, b"CC")
        if lose:
            self.gone.unlink()

    def expected_gone(self):
        content = bytearray(b"A" * 5000)
        content[10:14] = b"BBBB"
        return bytes(content) + bytes((1 << 20) - 5000) + b"CC"

    def recover(self, *options, **more):
        return self.nvcache("recover", self.pool, *options, **more)

    def assert_kept(self, result):
        self.assert_status(result, 3)
        self.assertRegex(result.stderr, r"\Anvcache: pool [^\n]+\n\Z")
        self.assertIn(str(self.pool), result.stderr)
        return result

    def test_clean_pool(self):
        before = tool.checksum(self.pool)
        self.assert_ok(self.recover(), "nothing to recover\n")
        report = json.loads(self.assert_ok(self.recover("--json")).stdout)
        self.assertTrue(report["clean"])
        self.assertFalse(report["was_dirty"])
        self.assertEqual(tool.checksum(self.pool), before)

    def test_everything_applied(self):
        self.make_dirty(lose=False)
        self.assert_ok(self.recover("--emulate"), "recovered 5 records (4.9 KiB) of 2 files\n")
        self.assertEqual(self.there.read_bytes(), b"...fiSECOND")
        self.assertEqual(self.gone.read_bytes(), self.expected_gone())
        self.assertTrue(self.is_clean())
        self.assertEqual(self.recover().stdout, "nothing to recover\n")

    def test_json(self):
        self.make_dirty()
        report = json.loads(self.assert_kept(self.recover("--json")).stdout)
        self.assertEqual(report["pool"], str(self.pool))
        self.assertTrue(report["was_dirty"])
        self.assertFalse(report["clean"])
        self.assertEqual((report["files"], report["records"], report["bytes"]), (1, 2, 11))
        self.assertEqual(report["unresolved_files"], 1)
        self.assertEqual(report["unresolved_records"], 3)
        self.assertEqual(report["unresolved_bytes"], 5006)
        self.assertEqual(report["damaged"], [])
        (file,) = report["unresolved"]
        self.assertEqual(file["file"], 1)
        self.assertEqual((file["path"], file["error"]), (str(self.gone), "ENOENT"))
        self.assertEqual((file["records"], file["bytes"]), (3, 5006))

    def test_unresolved_is_kept(self):
        self.make_dirty()
        result = self.assert_kept(self.recover())
        self.assertIn("recovered 2 records (11 B) of 1 file\n", result.stdout)
        self.assertIn(f"unresolved: {self.gone} ", result.stdout)
        self.assertIn("3 records of 1 file", result.stderr)
        self.assertEqual(self.there.read_bytes(), b"...fiSECOND")
        self.assertFalse(self.is_clean())
        # What was applied is not applied again: the program may have written since.
        self.there.write_bytes(b"newer")
        self.assert_kept(self.recover())
        self.assertEqual(self.there.read_bytes(), b"newer")

    def test_another_file_has_the_name(self):
        self.make_dirty()
        self.gone.write_bytes(b"not the one")
        self.assertIn("another file has its name", self.assert_kept(self.recover()).stdout)
        self.assertEqual(self.gone.read_bytes(), b"not the one")

    def test_dry_run(self):
        self.make_dirty()
        before = tool.checksum(self.pool)
        self.assertIn("would recover 2 records (11 B) of 1 file\n", self.assert_kept(self.recover("--dry-run")).stdout)
        self.assertTrue(json.loads(self.recover("--dry-run", "--json").stdout)["dry_run"])
        # Not even when asked to.
        self.assert_kept(self.recover("--dry-run", "--discard"))
        self.assertEqual(tool.checksum(self.pool), before)
        self.assertEqual(self.there.read_bytes(), b"." * 10)

    def test_dry_run_of_a_clean_pool(self):
        """Not even a damaged record of the checkpoint is repaired."""
        with image.Image(self.pool) as pool:
            pool.flip(image.CHECKPOINT_OFFSET)
        before = tool.checksum(self.pool)
        self.assert_ok(self.recover("--dry-run"))
        self.assertEqual(tool.checksum(self.pool), before)
        self.assert_ok(self.recover())
        self.assertNotEqual(tool.checksum(self.pool), before)

    def run_and_kill(self, code):
        """A Python program with the cache that writes to the file `new`, and kills itself."""
        program = "import os, signal\n" + code + "os.kill(os.getpid(), signal.SIGKILL)\n"
        self.assert_status(self.run_on_pool(sys.executable, "-c", program, env=LATE, cwd=self.files), -signal.SIGKILL)

    WRITE = (
        "os.umask(0)\n"
        "f = os.open('new', os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o604)\n"
        "os.write(f, b'first ' * 1000)\n"
        "os.pwrite(f, b'SECOND', 6)\n"
    )
    WRITTEN = b"first SECOND" + b"first " * 998

    def test_a_program_and_its_file(self):
        self.run_and_kill(self.WRITE)
        new = self.files / "new"
        self.assertEqual(new.read_bytes(), b"")
        self.assert_ok(self.recover())
        self.assertEqual(new.read_bytes(), self.WRITTEN)
        self.assertEqual(new.stat().st_mode & 0o7777, 0o604)
        self.assertTrue(self.is_clean())

    def test_the_library_recovers_it(self):
        """The next program on the pool, before its first file call."""
        self.run_and_kill(self.WRITE)
        self.assertEqual((self.files / "new").read_bytes(), b"")
        self.run_and_kill("assert open('new', 'rb').read() == b'first SECOND' + b'first ' * 998\n")

    def test_a_program_and_its_removed_file(self):
        """The program has synced it or not, alone or with everything else."""
        for sync in ("", "os.fsync(f)", "os.sync()"):
            with self.subTest(sync):
                self.run_and_kill(self.WRITE + f"{sync}\nos.pwrite(f, b'SECOND', 6)\n")
                new = self.files / "new"
                new.unlink()
                result = self.assert_kept(self.recover())
                self.assertIn(f"unresolved: {new} ", result.stdout)
                self.assertIn("No such file or directory", result.stdout)
                self.assertFalse(new.exists())
                self.assert_ok(self.recover("--discard"))

    def test_a_program_and_its_removed_file_without_a_later_record(self):
        self.run_and_kill(self.WRITE + "os.fsync(f)\n")
        new = self.files / "new"
        new.unlink()
        self.assertIn(f"unresolved: {new} ", self.assert_kept(self.recover()).stdout)
        self.assertFalse(new.exists())

    def check_export(self):
        self.assertEqual(sorted(os.listdir(self.export)), ["1.data", "manifest.json"])
        data = self.export / "1.data"
        self.assertEqual(data.read_bytes(), self.expected_gone())
        self.assertLess(data.stat().st_blocks * 512, 1 << 20)
        manifest = json.loads((self.export / "manifest.json").read_text("utf-8"))
        (file,) = manifest["files"]
        self.assertEqual(file["data"], "1.data")
        self.assertEqual(file["path"], str(self.gone))
        self.assertEqual(file["records"], 3)
        self.assertEqual((file["truncated_to"], file["size"], file["erased"]), (None, None, []))
        self.assertEqual(file["extents"], [{"offset": 0, "length": 5000}, {"offset": 1 << 20, "length": 2}])
        return file

    def test_export(self):
        inode = self.gone.stat().st_ino
        self.make_dirty()
        result = self.assert_kept(self.recover("--export", self.export))
        self.assertIn(f"exported 3 records of 1 file to {self.export}\n", result.stdout)
        self.assertEqual(self.check_export()["inode"], inode)
        self.assertEqual(self.export.stat().st_mode & 0o777, 0o700)
        self.assertFalse(self.is_clean())

    def test_export_and_discard(self):
        self.make_dirty()
        result = self.assert_ok(self.recover("--export", self.export, "--discard"))
        self.assertIn("discarded 3 records\n", result.stdout)
        self.check_export()
        self.assertTrue(self.is_clean())
        self.assertEqual(self.recover().stdout, "nothing to recover\n")

    def test_discard(self):
        self.make_dirty()
        report = json.loads(self.assert_ok(self.recover("--discard", "--json")).stdout)
        self.assertEqual(report["discarded_records"], 3)
        self.assertTrue(report["clean"])
        self.assertEqual(self.there.read_bytes(), b"...fiSECOND")

    def test_export_of_many_files(self):
        """More of them than are kept open at a time, in turns."""
        self.pool.unlink()
        self.create("32M")
        count = 100
        paths = [self.files / f"gone{i}" for i in range(count)]
        with self.dirty_image() as pool:
            for i, path in enumerate(paths):
                path.write_bytes(b"")
                pool.add_file(i, path)
            for round_ in range(3):
                for i in range(count):
                    pool.add_write(i, 2 * round_, b"%d." % round_)
        for path in paths:
            path.unlink()
        result = self.assert_ok(self.recover("--export", self.export, "--discard"))
        self.assertIn(f"exported {3 * count} records of {count} files", result.stdout)
        for i in range(count):
            self.assertEqual((self.export / f"{i}.data").read_bytes(), b"0.1.2.")

    def test_export_overwrites_nothing(self):
        self.make_dirty()
        self.export.mkdir()
        (self.export / "1.data").write_bytes(b"precious")
        before = tool.checksum(self.pool)
        for options in ([], ["--discard"]):
            result = self.recover("--export", self.export, *options)
            self.assert_refused(result, 1, self.export, "empty or a new folder")
        self.assertEqual((self.export / "1.data").read_bytes(), b"precious")
        self.assertEqual(tool.checksum(self.pool), before)
        result = self.recover("--export", self.files / "no" / "where", "--discard")
        self.assert_refused(result, 1, "No such file or directory")
        self.assert_refused(self.recover("--export", self.there, "--discard"), 1, self.there)
        self.assertEqual(tool.checksum(self.pool), before)

    def test_failed_export_discards_nothing(self):
        """A file that may not become as large as the records need. Python ignores SIGXFSZ, and the
        command inherits that."""
        self.make_dirty()

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        result = self.recover("--export", self.export, "--discard", preexec_fn=limit, restore_signals=False)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertRegex(result.stderr, r"\Anvcache: --export [^\n]+\n\Z")
        self.assertFalse(self.is_clean())
        again = self.files / "again"
        self.assert_ok(self.recover("--export", again, "--discard"))
        self.assertEqual((again / "1.data").read_bytes(), self.expected_gone())

    def test_file_system_refuses(self):
        """The file is there, but does not take what it is given: nothing is dropped."""
        self.make_dirty(lose=False)

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

        result = self.assert_kept(self.recover(preexec_fn=limit, restore_signals=False))
        self.assertIn(f"refused: {self.gone} ", result.stdout)
        self.assertIn("EFBIG", result.stderr)
        self.assertEqual(self.there.read_bytes(), b"...fiSECOND")
        self.assertFalse(self.is_clean())
        report = json.loads(self.recover("--json", preexec_fn=limit, restore_signals=False).stdout)
        self.assertEqual((report["failed_files"], report["error"]), (1, "EFBIG"))
        self.assertEqual((report["failed_records"], report["failed_bytes"]), (3, 5006))
        self.assert_kept(self.recover("--discard", preexec_fn=limit, restore_signals=False))
        self.assert_ok(self.recover())
        self.assertEqual(self.gone.read_bytes(), self.expected_gone())

    def test_export_applies_truncations_and_erasures(self):
        """What was cut off does not come back, and what was erased is zero."""
        with self.dirty_image({1: self.gone}) as pool:
            pool.add_write(1, 0, b"A" * 5000)
            pool.add_truncation(1, 100)
            pool.add_truncation(1, 6000)
            pool.add_write(1, 5990, b"B" * 5)
            pool.add_erasure(1, 50, 10)
            pool.add_erasure(1, 7000, 10)
        self.gone.unlink()
        result = self.assert_ok(self.recover("--export", self.export, "--discard"))
        self.assertIn(f"exported 6 records of 1 file to {self.export}\n", result.stdout)
        content = b"A" * 50 + bytes(10) + b"A" * 40 + bytes(5890) + b"B" * 5 + bytes(5)
        self.assertEqual((self.export / "0.data").read_bytes(), content)
        (file,) = json.loads((self.export / "manifest.json").read_text("utf-8"))["files"]
        self.assertEqual((file["truncated_to"], file["size"]), (100, 6000))
        self.assertEqual([(e["offset"], e["length"]) for e in file["extents"]],
                         [(0, 50), (60, 40), (5990, 5)])
        self.assertEqual([(e["offset"], e["length"]) for e in file["erased"]],
                         [(50, 10), (7000, 10)])

    def test_truncations_and_erasures(self):
        """In the order of LSNs, over several logs."""
        with self.dirty_image({0: self.there}) as pool:
            pool.add_write(0, 0, b"0123456789abcdef", log=1)
            pool.add_truncation(0, 8, log=2)
            pool.add_write(0, 10, b"XYZ", log=1)
            pool.add_erasure(0, 2, 3, log=3)
            pool.add_truncation(0, 20, log=1)
        self.assert_ok(self.recover(), "recovered 5 records (19 B) of 1 file\n")
        self.assertEqual(self.there.read_bytes(), b"01\0\0\x00567\0\0XYZ" + bytes(7))
        self.assertTrue(self.is_clean())

    def test_kept(self):
        """Kept records count below the checkpoint; void ones do not."""
        with self.dirty_image({0: self.there}) as pool:
            lsns = [pool.lsn_at(*pool.add_write(0, at, b"passed")) for at in (0, 20)]
            newest = pool.add_write(0, 4, b"new")
            pool.keep(lsns[0], 0, 0, b"passed")
            (place,) = pool.keep(lsns[1], 0, 20, b"passed")
            pool.write(pool.unit_offset(place),
                       image.struct.pack("<Q", lsns[1] ^ pool.salt ^ (2**64 - 1)))
            pool.set_checkpoint(pool.lsn_at(*newest))
        self.assert_ok(self.recover(), "recovered 2 records (9 B) of 1 file\n")
        self.assertEqual(self.there.read_bytes(), b"passnew...")

    def test_next_lsns(self):
        """A clean pool's checkpoint is beyond everything that was seen, unfinished groups included."""
        with self.dirty_image({0: self.there}) as pool:
            pool.add_write(0, 0, b"one")
            (place,) = pool.add_write(0, 0, b"two", commit=False)
            newest = pool.lsn_at(place)
        self.assert_ok(self.recover())
        with image.Image(self.pool) as pool:
            self.assertGreater(pool.checkpoint(), newest + 2**31)

    def test_damaged(self):
        with self.dirty_image({0: self.there}) as pool:
            pool.add_write(0, 0, b"one")
            (bad,) = pool.add_write(0, 3, b"two")
            pool.flip(pool.payload_offset(bad))
            (pages,) = pool.add_write(0, 4090, b"y" * 10)
            pool.flip(pool.payload_offset(pages, page=1))
            (lost,) = pool.add_write(0, 8, b"lost")
            pool.flip(pool.unit_offset(lost) + 24)
            pool.add_write(0, 6, b"three")
            texts = [pool.text(place) for place in (bad, pages, lost)]
            lsn = pool.lsn_at(bad)
        dry = self.assert_status(self.recover("--dry-run", "--json"), 4)
        self.assertEqual(
            json.loads(dry.stdout)["damaged"],
            [{"place": text, "lsn": number, "log": 0, "damaged_record": text}
             for text, number in zip(texts, (lsn, lsn + 1, lsn + 2))],
        )
        result = self.assert_status(self.recover(), 4)
        self.assertRegex(result.stderr, r"\Anvcache: [^\n]+3 write calls are damaged[^\n]+\n\Z")
        for text in texts:
            self.assertIn(f"damaged: group at {text}: the record at {text} is not as it was written; "
                          "none of it was applied\n", result.stdout)
        self.assertEqual(self.there.read_bytes(), b"one...three")
        self.assertTrue(self.is_clean())

    def test_lost_header(self):
        """A file record may have been there: nobody knows which file the records behind it mean."""
        with self.dirty_image({0: self.there}) as pool:
            pool.add_write(0, 0, b"one")
            (lost,) = pool.add_write(0, 3, b"two")
            pool.write(pool.unit_offset(lost), bytes(64))
            pool.add_write(0, 6, b"three")
            text = pool.text(lost)
        report = json.loads(self.assert_kept(self.recover("--export", self.export, "--json")).stdout)
        self.assertEqual(report["damaged"],
                         [{"place": text, "lsn": 0, "log": 0, "damaged_record": text}])
        self.assertEqual([(file["file"], file["records"]) for file in report["unresolved"]], [(None, 1)])
        self.assertEqual((self.export / "unknown-0-0.data").read_bytes(), bytes(6) + b"three")
        self.assertEqual(self.there.read_bytes(), b"one.......")

    def test_damaged_segment(self):
        """Both of its headers: what is in it is left out, all else is applied."""
        with self.dirty_image({0: self.there}) as pool:
            pool.add_write(0, 0, b"one")
            second = pool.take()
            pool.add_write(0, 3, b"two")
            for unit in (second * pool.units, (second + 1) * pool.units - 1):
                pool.flip(pool.unit_offset(unit) + 8)
        result = self.assert_status(self.recover(), 4)
        self.assertIn(f"damaged: segment {second}: its headers cannot be read; nothing of it was "
                      "applied\n", result.stdout)
        self.assertEqual(self.there.read_bytes(), b"one.......")

    def test_unfinished(self):
        """What a power failure leaves of a log's last write call is no damage."""
        with self.dirty_image({0: self.there}) as pool:
            pool.add_write(0, 0, b"one")
            pool.add_write(0, 3, b"two", log=1)
            (pages,) = pool.add_write(0, 4090, b"y" * 10)
            pool.write(pool.payload_offset(pages, page=1), bytes(4))
            text, lsn = pool.text(pages), pool.lsn_at(pages)
        dry = json.loads(self.recover("--dry-run", "--json").stdout)
        self.assertEqual((dry["damaged_groups"], dry["unfinished_groups"]), (0, 1))
        self.assertEqual(dry["unfinished"],
                         [{"place": text, "lsn": lsn, "log": 0, "missing_record": text}])
        result = self.assert_ok(self.recover())
        self.assertIn(f"unfinished: group at {text}: the record at {text} is not all "
                      "there; none of it was applied\n", result.stdout)
        self.assertEqual(self.there.read_bytes(), b"onetwo....")
        self.assertTrue(self.is_clean())

    def test_unfinished_over_a_segments_end(self):
        """Of a group whose second half never came."""
        with self.dirty_image({0: self.there}) as pool:
            pool.add_write(0, 0, b"one")
            places = pool.add_write(0, 0, b"y" * 100000)
            self.assertEqual(len(places), 2)
            pool.write(pool.unit_offset(places[1]), bytes(64))
        dry = json.loads(self.recover("--dry-run", "--json").stdout)
        self.assertEqual((dry["damaged_groups"], dry["unfinished_groups"]), (0, 1))
        self.assert_ok(self.recover())
        self.assertEqual(self.there.read_bytes(), b"one.......")

    def test_damaged_record(self):
        """Records whose file's name is lost: kept, and exported without one."""
        self.make_dirty(lose=False)
        with image.Image(self.pool) as pool:
            # The second file record: its group is damaged, and what the later ones mean is not known.
            at = next(at for at in range(image.SEGMENTS_OFFSET, image.SEGMENTS_OFFSET + 65536, image.UNIT)
                      if image.struct.unpack_from("<I", pool.read(at + 40, 4))[0] == 9
                      and image.struct.unpack_from("<H", pool.read(at + 48, 2))[0] == image.FILE)
            pool.flip(at + image.UNIT + 16)
        result = self.assert_status(self.recover("--export", self.export, "--discard"), 4)
        self.assertIn("unresolved: unknown files: the record that names it is damaged; 2 records, 6 B\n",
                      result.stdout)
        content = bytes(10) + b"BBBB" + bytes((1 << 20) - 14) + b"CC"
        self.assertEqual((self.export / "unknown-0-9.data").read_bytes(), content)
        manifest = json.loads((self.export / "manifest.json").read_text("utf-8"))
        self.assertFalse(manifest["files"][0]["record_valid"])
        self.assertNotIn("path", manifest["files"][0])
        self.assertEqual(self.gone.read_bytes(), b"")
        self.assertEqual(self.there.read_bytes(), b"...fiSECOND")


if __name__ == "__main__":
    unittest.main()
