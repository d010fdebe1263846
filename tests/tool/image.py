# SPDX-License-Identifier: BSD-3-Clause
"""A pool written by hand, from docs/pool-format.md: an independent reading of the format."""

import ctypes
import os
import pathlib
import struct
import subprocess

PAGE = 4096
UNIT = 64

TAIL_OFFSET = 4096
TAIL_DISTANCE = 8192
STATE_OFFSET = 8192
STATISTICS_OFFSET = 8256
LAST_WORDS_OFFSET = 11776
SUPERBLOCK_COPY_OFFSET = 12352
FILE_TABLE_OFFSET = 16384
FILE_RECORD_SIZE = 4096

STATE_CLEAN = 0x6E61656C63766E00
STATE_IN_USE = 0x657375206E690000
NAME_NEW = 0x3F77656E

# name, offset, size
SUPERBLOCK_FIELDS = [
    ("magic", 0, 8),
    ("version", 8, 4),
    ("superblock_size", 12, 4),
    ("pool_size", 16, 8),
    ("salt", 24, 8),
    ("uuid", 32, 16),
    ("created", 48, 8),
    ("log_offset", 56, 8),
    ("log_units", 64, 8),
    ("file_slots", 72, 4),
    ("page_size", 76, 4),
    ("unit_size", 80, 4),
    ("crc", 84, 4),
]

_POLYNOMIAL = 0x82F63B78
_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = (_byte >> 1) ^ (_POLYNOMIAL if _byte & 1 else 0)
    _TABLE.append(_byte)


def crc32c(data, seed=0):
    crc = seed ^ 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


def _handle(path):
    """(type, bytes) of name_to_handle_at; (0, b"") where there are none."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(struct.pack("<Ii", 128, 0), 8 + 128)
    mount = ctypes.c_int()
    if libc.name_to_handle_at(-100, os.fsencode(path), buffer, ctypes.byref(mount), 0) != 0:
        return 0, b""
    size, kind = struct.unpack_from("<Ii", buffer.raw)
    return kind, buffer.raw[8 : 8 + size]


def _birth(path):
    """(seconds, nanoseconds) since 1970; (0, 0) where it is not known."""
    text = subprocess.run(
        ["stat", "--format=%W %w", path], check=True, capture_output=True, text=True
    ).stdout.split()
    if text[0] == "0" or text[1] == "-":
        return 0, 0
    return int(text[0]), int(text[2].split(".")[1])


class Image:
    """A pool file, open for changes."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.file = open(path, "r+b", buffering=0)
        self.pool_size = self.field("pool_size")
        self.salt = self.field("salt")
        self.log_offset = self.field("log_offset")
        self.log_units = self.field("log_units")
        self.head = self.log_units  # positions begin with lap 1
        self.durable = None  # position of the newest committed group of this thread

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def read(self, offset, size):
        return os.pread(self.file.fileno(), size, offset)

    def write(self, offset, data):
        os.pwrite(self.file.fileno(), data, offset)

    def flip(self, offset, bit=0):
        self.write(offset, bytes([self.read(offset, 1)[0] ^ (1 << bit)]))

    # The superblock.

    def field(self, name):
        offset, size = next((o, s) for n, o, s in SUPERBLOCK_FIELDS if n == name)
        return int.from_bytes(self.read(offset, size), "little")

    def set_field(self, name, value):
        """Changes a field and makes the checksum right again."""
        offset, size = next((o, s) for n, o, s in SUPERBLOCK_FIELDS if n == name)
        self.write(offset, value.to_bytes(size, "little"))
        self.write(84, struct.pack("<I", crc32c(self.read(0, 84))))

    # State, tail, statistics.

    def set_dirty(self, pid=1):
        self.write(STATE_OFFSET, struct.pack("<QIIQ", STATE_IN_USE, pid, 0, 10**18))

    def is_clean(self):
        return struct.unpack("<Q", self.read(STATE_OFFSET, 8))[0] == STATE_CLEAN

    def set_statistic(self, index, value):
        self.write(STATISTICS_OFFSET + 8 * index, struct.pack("<Q", value))

    # Files and entries.

    def add_file(self, slot, path, incarnation=1, new=False):
        """The record of an existing file; `new`: it was never synced."""
        path = os.path.abspath(path)
        st = os.stat(path)
        seconds, nanoseconds = _birth(path)
        kind, handle = _handle(path)
        name = os.fsencode(path)
        fsid = os.statvfs(path).f_fsid
        record = struct.pack(
            "<QQqIIIIQiI128s",
            st.st_dev,
            st.st_ino,
            seconds,
            nanoseconds,
            st.st_mode,
            st.st_uid,
            st.st_gid,
            fsid & (2**64 - 1),
            kind,
            len(handle),
            handle,
        )
        successor = predecessor = bytes(8)
        number = struct.pack("<I", incarnation)
        length = struct.pack("<I", len(name))
        crc = struct.pack("<I", crc32c(record + length + predecessor + name, crc32c(number)))
        state = struct.pack("<I", NAME_NEW if new else 0)
        offset = FILE_TABLE_OFFSET + slot * FILE_RECORD_SIZE
        self.write(offset, number + crc + record + state + length + successor + predecessor
                   + bytes(8) + name + b"\0")

    def unit_offset(self, position):
        return self.log_offset + position % self.log_units * UNIT

    def add_write(self, slot, offset, data, incarnation=1, commit=True, applied=False):
        """One write call, as a group of entries. Returns the positions of its entries."""
        pieces = []
        while data:
            n = min(len(data), PAGE - offset % PAGE)
            pieces.append((offset, data[:n]))
            offset, data = offset + n, data[n:]
        positions = []
        for index, (place, payload) in enumerate(pieces):
            position = self.head
            word = position ^ self.salt
            if index == 0 and not commit:
                word = 0
            if index == 0 and applied:
                word ^= 2**64 - 1
            back = 0
            if index == 0 and self.durable is not None:
                back = position - self.durable
            header = struct.pack(
                "<QQQIIIIIII",
                position,
                place,
                2**64 - 1,
                slot,
                incarnation,
                len(payload),
                index,
                len(pieces),
                crc32c(payload),
                back,
            )
            crc = crc32c(header, self.salt & 0xFFFFFFFF)
            self.write(
                self.unit_offset(position), struct.pack("<Q", word) + header + struct.pack("<I", crc)
            )
            self.write(self.unit_offset(position + 1), payload)
            positions.append(position)
            self.head += 1 + (len(payload) + UNIT - 1) // UNIT
        if commit:
            self.durable = positions[0]
        return positions
