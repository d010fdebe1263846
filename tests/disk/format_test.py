#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The format of docs/disk.md: its example, and the journal that programs have written, by another reading of the page
(kit/journal_format.py) than the engine's."""

import pathlib
import re
import unittest

from kit import journal_format
from kit.journal_format import BLOCK, LINE, RING, Batch, Header

from pools import DiskPoolTest

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "disk.md"


class FormatTest(DiskPoolTest):
    def test_the_example(self):
        """It shows each line's first 16 bytes."""
        shown = {int(at, 16): bytes.fromhex(line) for at, line in
                 re.findall(r"(?m)^    ([0-9a-f]{4})  ((?:[0-9a-f]{2} {0,2}){16})", PAGE.read_text(encoding="utf-8"))}
        body = (b"A" * LINE + b"B" * LINE + b"C" * LINE + journal_format.PIECE.pack(64, 2) + journal_format.PIECE.pack(128, 1))
        uuid = bytes(range(16))
        raw = journal_format.make_batch(uuid, body, sequence=7, bound=42, lines=3, pieces=2, previous=0x12345678)
        self.assertEqual(sorted(shown), [*range(0, LINE, 16), *range(LINE, 5 * LINE, LINE)])
        for at, line in shown.items():
            self.assertEqual(line.hex(" "), raw[at:at + 16].hex(" "), f"at {at:04x}")
        self.assertEqual(len(raw), BLOCK)
        batch = Batch(raw, uuid)
        self.assertEqual(batch.content, {64: b"A" * LINE, 65: b"B" * LINE, 128: b"C" * LINE})

    def test_what_programs_write(self):
        """All that a dead program has synced is in the batches, which are whole, and in a row."""
        self.kill(self.write(100))
        content, memory = self.pool.read_bytes(), self.memory.read_bytes()
        header = Header(content)
        self.assertEqual((header.pool_size, len(content)), (1 << 20, RING + 2 * header.half_size))
        self.assertEqual(header.uuid, memory[32:48])
        self.assertIn(header.how, (0, 1))
        self.assertGreater(header.write_ns, 0)
        self.assertEqual(header.is_void, 0)
        pool, at, before, bounds = bytearray(header.pool_size), RING, None, []
        while content[at:at + 8] == journal_format.BATCH_MAGIC:
            batch = Batch(content[at:at + (1 << 20)], header.uuid)
            if before is not None:
                self.assertEqual((batch.sequence, batch.previous), (before.sequence + 1, before.body_crc))
                self.assertGreaterEqual(batch.life, before.life)
            for line, value in batch.content.items():
                pool[line * LINE:(line + 1) * LINE] = value
            at, before = at + batch.blocks * BLOCK, batch
            bounds.append(batch.bound)
        self.assertGreater(len(bounds), 100)
        self.assertEqual(bounds, sorted(bounds))
        self.assertEqual(before.life, header.life)
        self.assertTrue(before.flags & journal_format.ENDS_ROUND)
        self.assertEqual(pool[:88], memory[:88])
        for i in range(100):
            self.assertIn(b"%06d\n" % i, pool)
            self.assertIn(b"%06d\n" % i, memory)


if __name__ == "__main__":
    unittest.main()
