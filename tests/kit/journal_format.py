# SPDX-License-Identifier: BSD-3-Clause
"""Journals as docs/disk.md has them: an independent reading of the format, which makes and checks batches."""

import struct

from .image import crc32c

BLOCK, RING, LINE = 4096, 8192, 64
HEADER = struct.Struct("<8sII16s16sQQQIIIIII")
BATCH = struct.Struct("<8sQQIIIIIIIIII")
PIECE = struct.Struct("<II")
HEADER_MAGIC, BATCH_MAGIC = b"NVCJOUR\n", b"NVCBATCH"
ENDS_ROUND, IS_WHOLE = 1, 2
NAMES = ("magic", "sequence", "bound", "lines", "pieces", "flags", "previous", "life", "zero0", "zero1", "zero2", "body_crc",
         "crc")


class Header:
    def __init__(self, content):
        """The newest whole one."""
        found = []
        for at in (0, BLOCK):
            raw = content[at:at + HEADER.size]
            magic, version, size, uuid, run, pool_size, half_size, first, life, how, write_ns, is_void, zero, crc = HEADER.unpack(raw)
            if magic == HEADER_MAGIC and version == 1 and size == HEADER.size and crc == crc32c(raw[:92]):
                assert zero == 0, "what is zero is not"
                assert at == life % 2 * BLOCK, "a header lies in the other block"
                found.append((life, uuid, run, pool_size, half_size, first, how, write_ns, is_void))
        assert found, "no header is whole"
        self.life, self.uuid, self.run, self.pool_size, self.half_size, self.first, self.how, self.write_ns, self.is_void = \
            max(found)


class Batch:
    """Its fields; `content`: lines by their numbers."""

    def __init__(self, raw, uuid):
        for name, value in zip(NAMES, BATCH.unpack_from(raw)):
            setattr(self, name, value)
        assert self.magic == BATCH_MAGIC, "no batch"
        assert self.crc == crc32c(raw[:60], crc32c(uuid)), "the header is damaged"
        assert (self.zero0, self.zero1, self.zero2) == (0, 0, 0), "what is zero is not"
        self.size = LINE + self.lines * LINE + self.pieces * PIECE.size
        self.blocks = -(-self.size // BLOCK)
        assert self.body_crc == crc32c(raw[LINE:self.size], crc32c(raw[:56])), "the body is damaged"
        assert not any(raw[self.size:self.blocks * BLOCK]), "the rest of its blocks is not zero"
        self.content, at = {}, LINE
        for i in range(self.pieces):
            line, count = PIECE.unpack_from(raw, LINE + self.lines * LINE + i * PIECE.size)
            for number in range(line, line + count):
                self.content[number] = bytes(raw[at:at + LINE])
                at += LINE
        assert at == LINE + self.lines * LINE, "pieces and lines differ"


def make_batch(uuid, body, **fields):
    """The blocks of one, with lines and pieces as they are in `body`."""
    values = {"magic": BATCH_MAGIC, "flags": ENDS_ROUND, "previous": 0, "life": 1, "zero0": 0, "zero1": 0, "zero2": 0,
              "body_crc": 0, "crc": 0, **fields}
    raw = bytearray(BATCH.pack(*(values[name] for name in NAMES)))
    struct.pack_into("<I", raw, 56, crc32c(body, crc32c(raw[:56])))
    struct.pack_into("<I", raw, 60, crc32c(raw[:60], crc32c(uuid)))
    raw += body
    return bytes(raw) + bytes(-len(raw) % BLOCK)
