# SPDX-License-Identifier: BSD-3-Clause
"""status and dump, on pools written by hand and on one in use."""

import json
import os
import struct
import subprocess
import time
import unittest

import image
import support

COLUMNS = ["INDEX", "FILE", "OFFSET", "LENGTH", "GROUP", "COMMITTED", "ON DISK", "PATH"]


class InspectTest(support.ToolTest):
    def json(self, *arguments):
        result = self.nvcache(*arguments, "--json")
        self.assert_ok(result)
        return json.loads(result.stdout)

    def dump(self):
        """The dump's lines, from JSON."""
        result = self.nvcache("dump", self.pool, "--json")
        self.assert_ok(result)
        return [json.loads(line) for line in result.stdout.splitlines()]

    def rows(self):
        """The dump's lines, from text."""
        result = self.nvcache("dump", self.pool)
        self.assert_ok(result)
        lines = [line.split() for line in result.stdout.splitlines()]
        self.assertEqual(" ".join(lines[0]), " ".join(COLUMNS))
        return lines[1:]

    def make_file(self, name, content=b""):
        path = self.files / name
        path.write_bytes(content)
        return path

    def test_status_of_new_pool(self):
        self.create("2M")
        status = self.json("status", self.pool)
        self.assertEqual(status["pool"], str(self.pool))
        self.assertEqual(status["state"], "clean")
        self.assertIsNone(status["owner"])
        self.assertEqual(status["durability"], "process")
        self.assertEqual(status["size"], 2 * support.MIB)
        self.assertEqual(status["used"], 0)
        self.assertEqual(status["pending_entries"], 0)
        self.assertIsNone(status["oldest_pending_age_ns"])
        self.assertIsNone(status["last_error"])
        self.assertEqual(status["files"], [])
        self.assertIsNone(status["last_words"])
        self.assertEqual(set(status["statistics"].values()), {0})
        self.assertLess(abs(time.time() - status["created_ns"] / 1e9), 60)

    def test_status_of_dirty_pool(self):
        self.create()
        first, second = self.make_file("first"), self.make_file("second")
        with image.Image(self.pool) as pool:
            pool.add_file(0, first)
            pool.add_file(7, second, incarnation=3)
            pool.add_write(0, 100, b"a" * 50)
            pool.add_write(7, 4000, b"b" * 5000, incarnation=3)
            pool.add_write(0, 0, b"c" * 4096)
            pool.set_dirty(pid=2**22 + 1)  # beyond what the kernel gives out
            pool.set_statistic(1, time.time_ns() - 5 * 10**9)
            pool.set_statistic(7, 42)
            pool.set_statistic(13, 2)
            pool.set_statistic(14, 28)
            pool.set_statistic(15, time.time_ns())
        before = support.checksum(self.pool)
        status = self.json("status", self.pool)
        self.assertEqual(status["state"], "dirty")
        self.assertEqual(status["owner"]["pid"], 2**22 + 1)
        self.assertFalse(status["owner"]["alive"])
        self.assertEqual(status["pending_entries"], 5)
        self.assertEqual(status["pending_bytes"], 50 + 5000 + 4096)
        self.assertEqual(status["used"], 64 * (1 + 1 + 1 + 2 + 1 + 64 + 1 + 13 + 1 + 64))
        self.assertEqual(status["statistics"]["wraps"], 42)
        self.assertEqual(status["statistics"]["write_back_errors"], 2)
        self.assertEqual(status["last_error"], "ENOSPC")
        self.assertTrue(4e9 < status["oldest_pending_age_ns"] < 60e9)
        self.assertEqual(
            [(f["slot"], f["incarnation"], f["path"], f["entries"], f["bytes"]) for f in status["files"]],
            [(0, 1, str(first), 2, 4146), (7, 3, str(second), 3, 5000)],
        )
        text = self.nvcache("status", self.pool)
        self.assert_ok(text)
        self.assertRegex(text.stdout, r"(?m)^state +dirty, left by process 4194305")
        self.assertRegex(text.stdout, r"(?m)^pending +5 entries, 8.9 KiB, of 2 files; the oldest for 5")
        self.assertRegex(text.stdout, r"(?m)^errors +2 write-back errors, the last one ENOSPC ")
        self.assertRegex(text.stdout, rf"(?m)^ +0\.1 +2 +4\.0 KiB  {first}$")
        self.assertEqual(support.checksum(self.pool), before)

    def test_status_of_last_words(self):
        """Whatever stands there: a process was about to stop."""
        self.create()
        now = time.time_ns()
        for text, shown in ((b"a == b at c.cc:1\0rest", "a == b at c.cc:1"), (b"x" * 496, "x" * 495)):
            with image.Image(self.pool) as pool:
                pool.write(image.LAST_WORDS_OFFSET, struct.pack("<QQ496s", now, 4321, text))
            status = self.json("status", self.pool)
            self.assertEqual(status["last_words"], {"pid": 4321, "time_ns": now, "text": shown})
            plain = self.nvcache("status", self.pool).stdout
            self.assertIn("last words", plain)
            self.assertIn(f": {shown}\n", plain)

    def test_status_of_pool_in_use(self):
        """A program that really runs on the pool."""
        command = [support.COMMAND, "run", "--pool", self.pool, "--size", "1M", "--emulate"]
        script = 'exec 3>"$0"; echo x >&3; echo ready; read line'
        with subprocess.Popen(
            [*command, "--", "sh", "-c", script, self.files / "data"],
            env=support.clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as program:
            self.assertEqual(program.stdout.readline(), b"ready\n")
            status = self.json("status", self.pool)
            self.assert_ok(self.nvcache("dump", self.pool))
            program.communicate(b"\n")
        self.assertEqual(status["state"], "in use")
        self.assertEqual(status["owner"]["pid"], program.pid)
        self.assertTrue(status["owner"]["alive"])
        self.assertEqual(status["owner"]["program"], "sh")
        self.assertEqual(program.returncode, 0)
        self.assertEqual(self.json("status", self.pool)["state"], "clean")

    def test_dump(self):
        self.create()
        path = self.make_file("data")
        with image.Image(self.pool) as pool:
            pool.add_file(2, path)
            applied = pool.add_write(2, 0, b"x" * 64, applied=True)
            whole = pool.add_write(2, 4090, b"y" * 10)
            pool.head += 3  # a hole
            torn = pool.add_write(2, 8192, b"z", commit=False)
            unknown = pool.add_write(5, 1 << 40, b"w" * 4096)
            bad_payload = pool.add_write(2, 20, b"damaged")
            pool.flip(pool.unit_offset(bad_payload[0] + 1))
            unfinished = pool.add_write(2, 30, b"unfinished")
            pool.flip(pool.unit_offset(unfinished[0] + 1))
            bad_header = pool.add_write(2, 30, b"damaged")
            pool.flip(pool.unit_offset(bad_header[0]) + 16)
            pool.set_dirty()
        before = support.checksum(self.pool)
        rows = self.rows()
        expected = [
            [applied[0], "2.1", 0, 64, "1/1", "yes", "yes", path],
            [whole[0], "2.1", 4090, 6, "1/2", "yes", "no", path],
            [whole[1], "2.1", 4096, 4, "2/2", "yes", "no", path],
            [torn[0], "2.1", 8192, 1, "1/1", "no", "no", path],
            [unknown[0], "5.1", 1 << 40, 4096, "1/1", "yes", "no", "?"],
            [bad_payload[0], "2.1", 20, 7, "1/1", "damaged", "no", path],
            [unfinished[0], "2.1", 30, 10, "1/1", "unfinished", "no", path],
            [bad_header[0], "?", "?", "?", "?", "damaged", "no", "?"],
        ]
        self.assertEqual(rows, [[str(cell) for cell in row] for row in expected])
        lines = self.dump()
        self.assertEqual([line["index"] for line in lines], [row[0] for row in expected])
        self.assertEqual([line["on_disk"] for line in lines], [True] + [False] * 7)
        self.assertEqual([line["damaged"] for line in lines], [False] * 5 + [True, False, True])
        self.assertEqual(
            [line["committed"] for line in lines],
            [True, True, True, False, True, True, False, True],
        )
        self.assertEqual(
            [line.get("unfinished") for line in lines], [False] * 6 + [True] + [None]
        )
        self.assertEqual([line.get("path") for line in lines[3:5]], [str(path), None])
        self.assertEqual(support.checksum(self.pool), before)
        status = self.json("status", self.pool)
        self.assertEqual(status["pending_entries"], 3)
        self.assertEqual(status["in_flight_entries"], 1)
        self.assertEqual(status["unfinished_groups"], 1)
        self.assertEqual(status["damaged_groups"], 2)

    def test_dump_of_a_damaged_pool(self):
        """Whose tail or state is damaged: what it holds can be read, and saved."""
        self.create()
        paths = [self.make_file(name) for name in ("one", "two")]
        with image.Image(self.pool) as pool:
            for slot, path in enumerate(paths):
                pool.add_file(slot, path)
            pool.add_write(0, 0, b"old")
            pool.add_write(1, 4090, b"a" * 20)
            pool.add_write(0, 1, b"LD.")
            pool.add_write(0, 0, b"never", commit=False)
            pool.set_dirty()
            good = pool.read(0, image.FILE_TABLE_OFFSET)
        damages = {
            "tails": (image.TAIL_OFFSET, image.TAIL_OFFSET + image.TAIL_DISTANCE),
            "tail and state": (image.STATE_OFFSET, image.TAIL_OFFSET),
            "all, and a superblock": (0, image.TAIL_OFFSET, image.STATE_OFFSET,
                                      image.TAIL_OFFSET + image.TAIL_DISTANCE),
            "nothing": (),
        }
        for number, (name, places) in enumerate(damages.items()):
            with self.subTest(damage=name), image.Image(self.pool) as pool:
                for place in places:
                    pool.flip(place)
                before = support.checksum(self.pool)
                if places:
                    result = self.nvcache("dump", self.pool)
                    self.assert_refused(result, 1, self.pool, "dump --all --export DIR")
                export = self.files / f"export{number}"
                result = self.nvcache("dump", self.pool, "--all", "--json", "--export", export)
                self.assert_ok(result)
                lines = [json.loads(line) for line in result.stdout.splitlines()]
                self.assertEqual([(line["slot"], line["committed"]) for line in lines],
                                 [(0, True), (1, True), (1, True), (0, True), (0, False)])
                self.assertEqual((export / "0-1.data").read_bytes(), b"oLD.")
                self.assertEqual((export / "1-1.data").read_bytes(), bytes(4090) + b"a" * 20)
                manifest = json.loads((export / "manifest.json").read_text("utf-8"))
                self.assertEqual([file["path"] for file in manifest["files"]],
                                 [str(path) for path in paths])
                self.assertEqual(support.checksum(self.pool), before)
                pool.write(0, good)
        for path in paths:
            self.assertEqual(path.read_bytes(), b"")

    def test_dump_wraps(self):
        """Entries that go over the end of the log, their payload as well."""
        self.create()
        path = self.make_file("data")
        with image.Image(self.pool) as pool:
            pool.add_file(0, path)
            pool.head = 2 * pool.log_units - 3
            # As if the log had come so far: both records of the tail.
            for sequence in (2, 3):
                record = image.struct.pack("<QQI", pool.head, sequence, 0)
                crc = image.crc32c(record, pool.salt & 0xFFFFFFFF)
                pool.write(
                    image.TAIL_OFFSET + image.TAIL_DISTANCE * (sequence % 2),
                    record + image.struct.pack("<I", crc),
                )
            payload = os.urandom(4096)
            head = payload[: 2 * 64]
            position = pool.add_write(0, 0, payload)[0]
            # add_write wrote straight on; the rest belongs at the log's beginning.
            pool.write(pool.log_offset, payload[len(head) :])
            pool.add_write(0, 4096, b"next")
            pool.set_dirty()
        lines = self.dump()
        self.assertEqual([(line["index"], line["damaged"]) for line in lines],
                         [(position, False), (position + 65, False)])

    def test_dump_many(self):
        self.create("8M")
        path = self.make_file("data")
        count = 20000
        with image.Image(self.pool) as pool:
            pool.add_file(0, path)
            for i in range(count):
                pool.add_write(0, i, b"x")
            pool.set_dirty()
        lines = self.dump()
        self.assertEqual([line["offset"] for line in lines], list(range(count)))
        self.assertEqual(self.json("status", self.pool)["pending_entries"], count)

    def test_strange_path(self):
        """Names that are not text, or would play tricks on a terminal."""
        self.create()
        name = os.fsencode(self.files) + b"/\xff\n\x1b[31m"
        with open(name, "wb"):
            pass
        with image.Image(self.pool) as pool:
            pool.add_file(0, name)
            pool.add_write(0, 0, b"x")
            pool.set_dirty()
        printable = str(self.files) + r"/\xff\x0a\x1b[31m"
        for item in (self.dump()[0], self.json("status", self.pool)["files"][0]):
            self.assertEqual(item["path"], printable)
            self.assertEqual(bytes.fromhex(item["path_hex"]), name)
        self.assertIn(printable, self.nvcache("status", self.pool).stdout)
        self.assertIn(printable, self.nvcache("dump", self.pool).stdout)


if __name__ == "__main__":
    unittest.main()
