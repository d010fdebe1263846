# SPDX-License-Identifier: BSD-3-Clause
"""status and dump, on pools written by hand and on one in use."""

import json
import os
import struct
import time
import unittest

from kit import image, tool

COLUMNS = ["LSN", "LOG", "PLACE", "KIND", "FILE", "OFFSET", "LENGTH", "GROUP", "STATE", "PATH"]


class InspectTest(tool.ToolTest):
    def dump(self):
        """The dump's lines, from JSON."""
        lines = self.assert_ok(self.nvcache("dump", self.pool, "--json")).stdout.splitlines()
        return [json.loads(line) for line in lines]

    def rows(self):
        """The dump's lines, from text."""
        text = self.assert_ok(self.nvcache("dump", self.pool)).stdout
        lines = [line.replace("on disk", "on-disk").split() for line in text.splitlines()]
        self.assertEqual(lines[0], COLUMNS)
        return lines[1:]

    def make_file(self, name, content=b""):
        path = self.files / name
        path.write_bytes(content)
        return path

    def test_status_of_new_pool(self):
        self.create("2M")
        status = self.status()
        self.assertEqual(status["pool"], str(self.pool))
        self.assertEqual(status["state"], "clean")
        self.assertIsNone(status["owner"])
        self.assertEqual(status["durability"], "process")
        self.assertEqual(status["size"], 2 * tool.MIB)
        self.assertEqual(status["used"], 0)
        self.assertEqual((status["segments"], status["segment_size"]), (28, 65536))
        self.assertEqual(status["segments_used"], 0)
        self.assertEqual(status["pending_records"], 0)
        self.assertEqual(status["pending_kept_records"], 0)
        self.assertIsNone(status["oldest_pending_age_ns"])
        self.assertIsNone(status["last_error"])
        self.assertEqual(status["files"], [])
        self.assertIsNone(status["last_words"])
        self.assertEqual(set(status["statistics"].values()), {0})
        self.assertLess(abs(time.time() - status["created_ns"] / 1e9), 60)

    def test_status_of_pool_in_huge_pages(self):
        """All but what is less than one; a kernel before 6.1 refuses, and create says so."""
        created = self.assert_ok(self.nvcache("create", self.pool, "--size", "5M", "--emulate", "--populate"))
        expected = 0 if "4 MiB of it stay in small pages" in created.stderr else 4 << 20
        self.assertEqual(self.status()["huge"], expected)
        self.assertRegex(self.status_text(), r"huge pages +[04][. MiB]* of it")

    def test_status_of_dirty_pool(self):
        self.create()
        first, second = self.make_file("first"), self.make_file("second")
        with image.Image(self.pool) as pool:
            pool.add_file(0, first)
            pool.add_file(7, second)
            pool.add_write(0, 100, b"a" * 50)
            pool.add_write(7, 4000, b"b" * 5000, log=3)
            pool.add_write(0, 0, b"c" * 4096)
            pool.add_truncation(7, 9000, log=3)
            pool.add_erasure(0, 10, 5)
            pool.set_dirty(pid=2**22 + 1)  # beyond what the kernel gives out
            pool.set_seat(0, 2**22 + 1, time.time_ns() - 5 * 10**9)
            pool.set_statistic(6, 42)
            pool.set_statistic(19, 7 + 1)  # failing_file, failing_error, failing_since
            pool.set_statistic(35, 5)
            pool.set_statistic(51, time.time_ns() - 3 * 10**9)
            pool.set_statistic(12, 2)
            pool.set_statistic(13, 28)
            pool.set_statistic(14, time.time_ns())
        before = tool.checksum(self.pool)
        status = self.status()
        self.assertEqual(status["state"], "dirty")
        self.assertEqual(status["owner"]["pid"], 2**22 + 1)
        self.assertFalse(status["owner"]["alive"])
        self.assertEqual(status["pending_records"], 5)
        self.assertEqual(status["pending_bytes"], 50 + 5000 + 4096)
        [process] = status["processes"]
        self.assertEqual([process[name] for name in ("pid", "program", "state", "pending_files", "pending_records")],
                         [2**22 + 1, "program", "dead", 2, 5])
        files = sum(1 + image.units_of(192 + len(os.fsencode(path)) + 1) for path in (first, second))
        self.assertEqual(status["used"], 64 * (files + 2 + (1 + 1 + 2 + 64 + 13) + 65 + 1 + 1))
        self.assertEqual(status["segments_used"], 2)
        self.assertEqual(status["statistics"]["segments_taken"], 42)
        self.assertEqual(status["statistics"]["write_back_errors"], 2)
        self.assertEqual(status["last_error"], "ENOSPC")
        self.assertTrue(4e9 < status["oldest_pending_age_ns"] < 60e9)
        self.assertEqual([(f["file"], f["path"], f["records"], f["bytes"], f["error"]) for f in status["files"]],
                         [(0, str(first), 3, 4146, None), (1, str(second), 2, 5000, "EIO")])
        text = self.status_text()
        self.assertRegex(text, r"(?m)^state +dirty, left by process 4194305")
        self.assertRegex(text, r"(?m)^pending +5 records, 8.9 KiB, of 2 files; the oldest for 5")
        self.assertRegex(text, r"(?m)^errors +2 write-back errors, the last one ENOSPC ")
        self.assertRegex(text, rf"(?m)^ +0 +3 +4\.0 KiB  {first}$")
        self.assertRegex(text, rf"(?m)^ +1 +2 +4\.9 KiB  {second} \(EIO for 3\.\d s\)$")
        self.assertRegex(text, r"(?m)^used +\d.* KiB, in 2 of the segments \(16\.7 %\)$")
        self.assertEqual(tool.checksum(self.pool), before)

    def test_status_of_write_through(self):
        """Of two processes that have ended: what is above the checkpoint, and not settled."""
        self.create()
        first, second = self.make_file("first"), self.make_file("second")
        one, two = image.THROUGH_LOG, image.LOGS_OF_SEAT + image.THROUGH_LOG
        with image.Image(self.pool) as pool:
            pool.add_file(0, first)
            pool.add_file(7, second)
            pool.add_write(0, 0, b"a" * 50)
            pool.add_write(0, 0, b"b" * 100, log=one)
            pool.add_write(0, 0, b"c" * 200, log=two)
            pool.add_settled(0, pool.lsn, log=two)  # of both; the first is not of write-through
            pool.add_write(0, 0, b"d" * 300, log=one)
            pool.add_settled(0, pool.lsn - 1, log=two)  # that one is not below it
            pool.add_write(7, 0, b"e" * 400, log=two)
            pool.set_dirty(this_boot=True)
            pool.set_seat(0, 2**22 + 1, state=image.SEAT_LEFT)
            pool.set_seat(1, 2**22 + 2)
            now = time.time_ns()
            pool.set_conduct(0, now - 90 * 10**9, image.RULE_AUTO)
            pool.set_conduct(1, now - 20 * 10**9, image.RULE_NEVER)
            pool.set_through(moved=now - 40 * 10**9)
        status = self.status()
        through = status["write_through"]
        self.assertEqual([through[name] for name in ("pending_files", "pending_records", "pending_bytes", "error")],
                         [2, 2, 700, None])
        self.assertTrue(40e9 <= through["checkpoint_age_ns"] < 80e9)
        self.assertEqual((status["pending_records"], status["pending_bytes"]), (3, 750))
        left, dead = status["processes"]
        names = ("state", "mode", "pending_records", "through_files", "through_records", "through_bytes")
        self.assertEqual([left[name] for name in names], ["left", "auto", 2, 1, 1, 300])
        self.assertEqual([dead[name] for name in names], ["dead", "never", 1, 1, 1, 400])
        # What is above the checkpoint came after it was moved.
        self.assertTrue(40e9 <= left["oldest_pending_age_ns"] < 80e9)
        self.assertTrue(20e9 <= dead["oldest_pending_age_ns"] < 40e9)
        text = self.status_text()
        self.assertRegex(text, r"(?m)^through +2 records, 700 B, of 2 files above its checkpoint, "
                               r"which moved 4\d\.\d s ago$")
        self.assertRegex(text, r"(?m)^ +4194305 left +auto .* 300 B of 1 file ")

        with image.Image(self.pool) as pool:
            pool.set_through(moved=now, error=5, failed_at=now - 3 * 10**9)
        status = self.status()
        self.assertEqual(status["write_through"]["error"], "EIO")
        self.assertEqual(status["write_through"]["error_since_ns"], now - 3 * 10**9)
        text = self.status_text()
        self.assertRegex(text, r"(?m)^through .*; a sync failed \d+\.\d s ago \(EIO\), .* 'nvcache recover'$")
        self.assertRegex(text, r"(?m)^errors +a failed sync of write-through, above$")
        # What is shared says nothing of another run of the kernel.
        with self.dirty_image():
            pass
        status = self.status()
        self.assertIsNone(status["write_through"]["error"])
        self.assertEqual(status["write_through"]["pending_records"], 2)

    def test_status_of_mirrored_pool(self):
        """Each state, with a mirror and without; what was counted."""
        self.assert_ok(self.nvcache("create", self.pool, "--size", "1M", "--commit", "fsync"))
        status = self.status()
        self.assertEqual(status["mirror"], {
            "commit": "fsync", "state": "none", "alive": False, "lacking_lsns": 0, "waits": 0, "waits_failed": 0,
            "waited_us": 0, "wait_median_us": None, "wait_p99_us": None})
        self.assertRegex(self.status_text(), r"(?m)^waits +0 waits; 0 failed$")
        with image.Image(self.pool) as pool:
            pool.set_dirty()
            pool.set_mirror(state=3, next_lsn=1000, mirrored=990, failed=3, waited=123456,
                            counts={6: 97, 10: 1, 20: 1, 29: 1})
        mirror = self.status()["mirror"]
        self.assertEqual(mirror, {
            "commit": "fsync", "state": "mirrored", "alive": False, "lacking_lsns": 10, "waits": 100,
            "waits_failed": 3, "waited_us": 123456, "wait_median_us": 64, "wait_p99_us": 2**20})
        text = self.status_text()
        self.assertRegex(text, r"(?m)^images +lack 10 LSNs$")
        self.assertRegex(text, r"(?m)^waits +100 waits, half of them up to 64 us, 99 % up to 1\.0 s; 3 failed$")
        self.assertRegex(text, r"(?m)^mirror +mirrored: .*; no mirror is running, and none .*'nvcache mirror' is$")

        states = {0: "none", 1: "real", 2: "joining", 3: "mirrored", 4: "leaving", 5: "failing", 6: "fenced",
                  7: "unknown"}
        waits = {0, 2, 3, 4}
        for state, name in states.items():
            with image.Image(self.pool) as pool:
                pool.set_mirror(state=state, next_lsn=990, mirrored=1000)
                self.assertRegex(self.status_text(), rf"(?m)^mirror +{name}: a sync .*; no mirror is running"
                                                     + (",.*" if state in waits else "") + "$")
                with pool.lock(image.MIRROR_BYTE):
                    self.assertRegex(self.status_text(), rf"(?m)^mirror +{name}: a sync [^;]*$")
                    mirror = self.status()["mirror"]
                    self.assertEqual((mirror["state"], mirror["alive"], mirror["lacking_lsns"]), (name, True, 0))

    def test_status_of_other_pools_tells_of_no_mirror(self):
        self.create()
        self.assertIsNone(self.status()["mirror"])
        self.assertNotRegex(self.status_text(), r"(?m)^(mirror|images|waits) ")

    def test_status_of_last_words(self):
        """Whatever stands there: a process was about to stop."""
        self.create()
        now = time.time_ns()
        for text, shown in ((b"a == b at c.cc:1\0rest", "a == b at c.cc:1"), (b"x" * 496, "x" * 495)):
            with image.Image(self.pool) as pool:
                pool.write(image.LAST_WORDS_OFFSET, struct.pack("<QQ496s", now, 4321, text))
            status = self.status()
            self.assertEqual(status["last_words"], {"pid": 4321, "time_ns": now, "text": shown})
            plain = self.status_text()
            self.assertIn("last words", plain)
            self.assertIn(f": {shown}\n", plain)

    def test_status_of_pool_in_use(self):
        """A program that really runs on the pool."""
        program = self.start(self.run_command(*tool.IN_NEED, self.files / "data"))
        self.assertEqual(program.stdout.readline(), "ready\n")
        status = self.status()
        self.assert_ok(self.nvcache("dump", self.pool))
        program.communicate("\n")
        self.assertEqual(status["state"], "in use")
        self.assertEqual(status["owner"]["pid"], program.pid)
        self.assertTrue(status["owner"]["alive"])
        self.assertEqual(status["owner"]["program"], "sh")
        self.assertEqual(program.returncode, 0)
        self.assertEqual(self.status()["state"], "clean")

    def test_status_of_kept_records(self):
        """They count below the checkpoint, and once where the group itself is still there."""
        self.create()
        path = self.make_file("data")
        with self.dirty_image({0: path}) as pool:
            old = pool.lsn_at(*pool.add_write(0, 0, b"x" * 64))
            new = pool.lsn_at(*pool.add_write(0, 64, b"y" * 64))
            pool.keep(old, 0, 0, b"x" * 64)
            pool.keep(new, 0, 64, b"y" * 64)
            pool.set_checkpoint(new)
        status = self.status()
        self.assertEqual((status["pending_records"], status["pending_bytes"]), (2, 128))
        record = 1 + image.units_of(192 + len(os.fsencode(path)) + 1)
        self.assertEqual(status["pending_kept_records"], 2)
        self.assertEqual(status["pending_kept_bytes"], 64 * (record + 2 + 2))
        self.assertEqual(status["segments_used"], 2)
        text = self.status_text()
        self.assertIn("; kept, because a disk refuses: 2 records\n", text)
        self.assertEqual([row[-2] for row in self.rows() if row[3] == "data"],
                         ["kept", "pending", "kept"])
        self.assertEqual([line["kept"] for line in self.dump() if line["kind"] == "data"],
                         [True, False, True])

    def test_dump(self):
        self.create()
        path = self.make_file("data")
        with self.dirty_image({2: path}) as pool:
            void = pool.add_write(2, 0, b"x" * 64, void=True)
            whole = pool.add_write(2, 4090, b"y" * 10)
            unknown = pool.add_write(5, 1 << 40, b"w" * 4096)
            cut = pool.add_truncation(2, 4095)
            hole = pool.add_erasure(2, 5, 4000)
            bad_payload = pool.add_write(2, 20, b"damaged")
            pool.flip(pool.payload_offset(*bad_payload))
            bad_header = pool.add_write(2, 30, b"damaged")
            pool.flip(pool.unit_offset(*bad_header) + 24)
            pool.add_write(2, 0, b"last")
            pool.add_file(3, path)
            unfinished = pool.add_write(3, 30, b"unfinished", log=1)
            pool.flip(pool.payload_offset(*unfinished))
            torn = pool.add_write(3, 8192, b"z", commit=False, log=2)
            text, lsn = pool.text, pool.lsn_at
            size = 192 + len(os.fsencode(path)) + 1
            file_unit, torn_file = text(1), text(torn[0] - 1 - image.units_of(size))
            unfinished_file = text(unfinished[0] - 1 - image.units_of(size))
            last = text(bad_header[0] + 2)
            lsns = [lsn(*place) for place in (void, whole, unknown, cut, hole, bad_payload)]
        before = tool.checksum(self.pool)
        rows = self.rows()
        expected = [
            [lsns[0], 0, file_unit, "file", 0, 0, size, "1/2", "void", path],
            [lsns[0], 0, text(*void), "data", 0, 0, 64, "2/2", "void", path],
            [lsns[1], 0, text(*whole), "data", 0, 4090, 10, "1/1", "pending", path],
            [lsns[2], 0, text(*unknown), "data", "?", 1 << 40, 4096, "1/1", "pending", "?"],
            [lsns[3], 0, text(*cut), "truncate", 0, 4095, 0, "1/1", "pending", path],
            [lsns[4], 0, text(*hole), "erase", 0, 5, 4000, "1/1", "pending", path],
            [lsns[5], 0, text(*bad_payload), "?", "?", "?", "?", "1/1", "damaged", "?"],
            [lsns[5] + 1, 0, text(*bad_header), "?", "?", "?", "?", "?", "damaged", "?"],
            [lsns[5] + 2, 0, last, "data", 0, 0, 4, "1/1", "pending", path],
            [lsns[5] + 4, 1, unfinished_file, "?", "?", "?", "?", "1/2", "unfinished", "?"],
            [lsns[5] + 6, 2, torn_file, "?", "?", "?", "?", "1/2", "unfinished", "?"],
        ]
        self.assertEqual(rows, [[str(cell) for cell in row] for row in expected])
        lines = self.dump()
        self.assertEqual([line["place"] for line in lines], [row[2] for row in expected])
        self.assertEqual([line["state"] for line in lines], [row[8] for row in expected])
        self.assertEqual([line.get("kind", "?") for line in lines], [row[3] for row in expected])
        self.assertEqual([line.get("path") for line in lines[2:4]], [str(path), None])
        self.assertEqual([line["damaged_record"] for line in lines if "damaged_record" in line],
                         [text(*place) for place in (bad_payload, bad_header, unfinished)] + [torn_file])
        self.assertEqual(tool.checksum(self.pool), before)
        status = self.status()
        self.assertEqual(status["pending_records"], 5)
        self.assertEqual(status["unfinished_groups"], 2)
        self.assertEqual(status["damaged_groups"], 2)

    def test_dump_of_damaged_segments(self):
        """One header is enough; with both gone, what is in the segment is reported."""
        self.create()
        path = self.make_file("data")
        with image.Image(self.pool) as pool:
            pool.add_file(0, path)
            pool.add_write(0, 0, b"one")
            second = pool.take()
            pool.add_write(0, 3, b"two")
            pool.set_dirty()
            first, copy = (pool.unit_offset(unit) for unit in (second * pool.units,
                                                               (second + 1) * pool.units - 1))
            for places, states in (((first,), ["pending"] * 4), ((copy,), ["pending"] * 4),
                                   ((first, copy), ["damaged"] + ["pending"] * 2)):
                for place in places:
                    pool.flip(place + 8)
                self.assertEqual([row[-2] for row in self.rows()], states)
                self.assertEqual(self.status()["damaged_groups"],
                                 states.count("damaged"))
                for place in places:
                    pool.flip(place + 8)

    def test_dump_of_what_is_on_disk(self):
        """Below the checkpoint: with --all."""
        self.create()
        path = self.make_file("data")
        with self.dirty_image({0: path}) as pool:
            pool.add_write(0, 0, b"old")
            new = pool.add_write(0, 0, b"new")
            pool.set_checkpoint(pool.lsn_at(*new))
        self.assertEqual([row[-2] for row in self.rows()], ["pending"])
        result = self.assert_ok(self.nvcache("dump", self.pool, "--all"))
        states = [line.split("  ")[-2].strip() for line in result.stdout.splitlines()[1:]]
        self.assertEqual([state.split()[-1] for state in states], ["disk", "disk", "pending"])

    def test_dump_of_a_damaged_pool(self):
        """Whose checkpoint or state is damaged: what it holds can be read, and saved."""
        self.create()
        paths = [self.make_file(name) for name in ("one", "two")]
        with image.Image(self.pool) as pool:
            for number, path in enumerate(paths):
                pool.add_file(number, path)
            pool.add_write(0, 0, b"old and cut off")
            pool.add_write(1, 4090, b"a" * 20)
            pool.add_truncation(0, 3)
            pool.add_write(0, 1, b"LD.")
            pool.add_erasure(1, 4092, 3)
            pool.add_truncation(1, 4108)
            pool.add_write(0, 0, b"never", commit=False)
            pool.set_dirty()
            good = pool.read(0, image.SEGMENTS_OFFSET)
        second = image.CHECKPOINT_OFFSET + image.CHECKPOINT_DISTANCE
        damages = {
            "checkpoints": (image.CHECKPOINT_OFFSET, second),
            "checkpoints and state": (image.STATE_OFFSET, image.CHECKPOINT_OFFSET, second),
            "all, and a superblock": (0, image.CHECKPOINT_OFFSET, image.STATE_OFFSET, second),
            "nothing": (),
        }
        for number, (name, places) in enumerate(damages.items()):
            with self.subTest(damage=name), image.Image(self.pool) as pool:
                for place in places:
                    pool.flip(place)
                before = tool.checksum(self.pool)
                if places:
                    self.assert_refused(self.nvcache("dump", self.pool), 1, self.pool, "dump --all --export DIR")
                export = self.files / f"export{number}"
                result = self.assert_ok(self.nvcache("dump", self.pool, "--all", "--json", "--export", export))
                lines = [json.loads(line) for line in result.stdout.splitlines()]
                records = [(line.get("file"), line["state"]) for line in lines
                           if line.get("kind") != "file"]
                self.assertEqual(records, [(0, "pending"), (1, "pending"), (0, "pending"), (0, "pending"),
                                           (1, "pending"), (1, "pending"), (None, "unfinished")])
                self.assertEqual((export / "0.data").read_bytes(), b"oLD.")
                self.assertEqual((export / "1.data").read_bytes(),
                                 bytes(4090) + b"aa" + bytes(3) + b"a" * 13)
                manifest = json.loads((export / "manifest.json").read_text("utf-8"))
                one, two = manifest["files"]
                self.assertEqual([one["path"], two["path"]], [str(path) for path in paths])
                self.assertEqual((one["truncated_to"], one["size"], one["erased"]), (3, 4, []))
                self.assertEqual(one["extents"], [{"offset": 0, "length": 4}])
                self.assertEqual((two["truncated_to"], two["size"]), (4108, 4108))
                self.assertEqual(two["erased"], [{"offset": 4092, "length": 3}])
                self.assertEqual(two["extents"], [{"offset": 4090, "length": 2},
                                                  {"offset": 4095, "length": 13}])
                self.assertEqual(tool.checksum(self.pool), before)
                pool.write(0, good)
        for path in paths:
            self.assertEqual(path.read_bytes(), b"")

    def test_dump_over_the_end_of_a_segment(self):
        """A group goes on in its log's next one, and that is another log's neighbour."""
        self.create()
        path = self.make_file("data")
        with self.dirty_image({0: path}) as pool:
            pool.add_write(0, 0, b"other log", log=1)
            payload = os.urandom(100000)
            places = pool.add_write(0, 4000, payload)
            pool.add_write(0, 4096, b"next")
            self.assertGreater(len(places), 1)
            texts = [pool.text(place) for place in places]
        lines = [line for line in self.dump() if line["kind"] == "data"]
        self.assertEqual([line["place"] for line in lines][1:-1], texts)
        self.assertEqual({line["state"] for line in lines}, {"pending"})
        self.assertEqual(sum(line["length"] for line in lines), 9 + len(payload) + 4)
        export = self.files / "export"
        self.assert_ok(self.nvcache("dump", self.pool, "--export", export))
        payload = payload[:96] + b"next" + payload[100:]
        self.assertEqual((export / "0.data").read_bytes(), b"other log" + bytes(3991) + payload)

    def test_dump_many(self):
        self.create("8M")
        path = self.make_file("data")
        count = 20000
        with self.dirty_image({0: path}) as pool:
            for i in range(count):
                pool.add_write(0, i, b"x")
        lines = [line for line in self.dump() if line["kind"] == "data"]
        self.assertEqual([line["offset"] for line in lines], list(range(count)))
        self.assertEqual(self.status()["pending_records"], count)

    def test_strange_path(self):
        """Names that are not text, or would play tricks on a terminal."""
        self.create()
        name = os.fsencode(self.files) + b"/\xff\n\x1b[31m"
        with open(name, "wb"):
            pass
        with self.dirty_image({0: name}) as pool:
            pool.add_write(0, 0, b"x")
        printable = str(self.files) + r"/\xff\x0a\x1b[31m"
        for item in (self.dump()[0], self.status()["files"][0]):
            self.assertEqual(item["path"], printable)
            self.assertEqual(bytes.fromhex(item["path_hex"]), name)
        self.assertIn(printable, self.status_text())
        self.assertIn(printable, self.nvcache("dump", self.pool).stdout)


if __name__ == "__main__":
    unittest.main()
