# SPDX-License-Identifier: BSD-3-Clause
"""A pool written by hand, from docs/pool-format.md: an independent reading of the format."""

import contextlib
import ctypes
import fcntl
import os
import pathlib
import struct
import subprocess

PAGE = 4096
UNIT = 64

CHECKPOINT_OFFSET = 4096
CHECKPOINT_DISTANCE = 8192
STATE_OFFSET = 8192
STATISTICS_OFFSET = 8256
LAST_WORDS_OFFSET = 11776
SUPERBLOCK_COPY_OFFSET = 12352
SHARED_OFFSET = 81920
SEATS_OFFSET = 86016
CONDUCT_OFFSET = 253952
SEGMENTS_OFFSET = 262144
MIRROR_BUCKETS = 30
# Of locks: where the bytes of lives are, and which one behind these is the mirror's.
LIFE_OFFSET = 1 << 62
MIRROR_BYTE = 517
F_OFD_SETLK = 37

STATE_CLEAN = 0x6E61656C63766E00
STATE_IN_USE = 0x657375206E690000

SEAT_TAKEN, SEAT_REPLAYED, SEAT_UNRESOLVED, SEAT_LEFT = 1, 2, 3, 4  # states of seats
RULE_AUTO, RULE_ALWAYS, RULE_NEVER = 1, 2, 3
DATA, FILE, TRUNCATE, ERASE, SETTLED = 1, 2, 3, 4, 5  # kinds of records
LOGS_OF_SEAT, THROUGH_LOG = 32, 24
LOG, KEPT = 1, 2  # kinds of segments

# Of the first file record that an image writes: in segment 0, behind the segment's header and its own.
FIRST_FILE_RECORD = SEGMENTS_OFFSET + 2 * UNIT

# name, offset, size
SUPERBLOCK_FIELDS = [
    ("magic", 0, 8),
    ("version", 8, 4),
    ("superblock_size", 12, 4),
    ("pool_size", 16, 8),
    ("salt", 24, 8),
    ("uuid", 32, 16),
    ("created", 48, 8),
    ("segment_size", 56, 8),
    ("segment_count", 64, 4),
    ("page_size", 68, 4),
    ("unit_size", 72, 4),
    ("commit", 76, 4),
    ("zero", 80, 4),
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
    text = subprocess.run(["stat", "--format=%W %w", path], check=True, capture_output=True,
                          text=True).stdout.split()
    if text[0] == "0" or text[1] == "-":
        return 0, 0
    return int(text[0]), int(text[2].split(".")[1])


def units_of(size):
    return (size + UNIT - 1) // UNIT


def pieces_of(offset, data):
    """What of `data` lies in each page of the file."""
    while data:
        n = min(len(data), PAGE - offset % PAGE)
        yield data[:n]
        offset, data = offset + n, data[n:]


def data_payload(offset, data):
    """What lies behind the header of a data record: links, if there are several pages, and their
    bytes."""
    pieces = list(pieces_of(offset, data))
    links = units_of(8 * len(pieces)) * UNIT if len(pieces) > 1 else 0
    return bytes(links) + b"".join(piece.ljust(units_of(len(piece)) * UNIT, b"\0") for piece in pieces)


class Log:
    """Where one of the image's logs has come to."""

    def __init__(self):
        self.segment = None
        self.unit = 0  # of its next record
        self.generation = 0
        self.last = 0  # LSN of its newest committed group
        self.named = set()  # numbers of files that its segment explains


class Image:
    """A pool file, open for changes. What it adds begins in segment 0, from the checkpoint on."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.file = open(path, "r+b", buffering=0)
        self.pool_size = self.field("pool_size")
        self.salt = self.field("salt")
        self.segment_size = self.field("segment_size")
        self.segment_count = self.field("segment_count")
        self.units = self.segment_size // UNIT
        self.lsn = self.checkpoint()  # the next one
        self.free = 0  # the next segment that is taken
        self.logs = {}
        self.generations = {}  # of the segments that were taken
        self.names = {}  # by number: identity, path

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

    # State, checkpoint, statistics.

    def checkpoint(self):
        """The higher one of the two records that are whole; 1 if none is."""
        found = [1]
        for i in range(2):
            record = self.read(CHECKPOINT_OFFSET + i * CHECKPOINT_DISTANCE, 16)
            if struct.unpack_from("<I", record, 12)[0] == crc32c(record[:12], self.salt & 0xFFFFFFFF):
                found.append(struct.unpack_from("<Q", record)[0])
        return max(found)

    def set_checkpoint(self, lsn):
        record = struct.pack("<QI", lsn, 0)
        record += struct.pack("<I", crc32c(record, self.salt & 0xFFFFFFFF))
        for i in range(2):
            self.write(CHECKPOINT_OFFSET + i * CHECKPOINT_DISTANCE, record)

    def set_dirty(self, pid=1, this_boot=False):
        boot = bytes(16)
        if this_boot:
            boot = bytes.fromhex(pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", ""))
        self.write(STATE_OFFSET, struct.pack("<QIIQ16s", STATE_IN_USE, pid, 0, 10**18, boot))

    def set_through(self, moved=0, error=0, failed_at=0):
        """What is shared of write-through, which has been used."""
        self.write(SHARED_OFFSET + 80, struct.pack("<IIQ", error, 0, 1))
        self.write(SHARED_OFFSET + 112, struct.pack("<QQ", moved, failed_at))

    def set_mirror(self, state, next_lsn, mirrored, failed=0, waited=0, counts=None):
        """The mirror's words, and how many waits each bucket has."""
        self.write(SHARED_OFFSET, struct.pack("<Q", next_lsn))
        self.write(SHARED_OFFSET + 128, struct.pack("<IIQ", state, 0, mirrored))
        counts = [(counts or {}).get(i, 0) for i in range(MIRROR_BUCKETS)]
        self.write(SHARED_OFFSET + 192, struct.pack(f"<{2 + MIRROR_BUCKETS}Q", failed, waited, *counts))

    @contextlib.contextmanager
    def lock(self, byte):
        """As a process has it that lives, on an open file of its own."""
        with open(self.path, "r+b", buffering=0) as file:
            # struct flock: type, whence, start, length, pid
            fcntl.fcntl(file, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, LIFE_OFFSET + byte, 1, 0))
            yield

    def set_conduct(self, seat, through_since=0, rule=0, through_written=0):
        self.write(CONDUCT_OFFSET + 16 * seat, struct.pack("<QII", through_since, rule, through_written))

    def set_seat(self, seat, pid, oldest_pending=0, program=b"program", state=SEAT_TAKEN):
        """A process that has left it; seats from 0 on."""
        self.write(SHARED_OFFSET + 64, struct.pack("<I", seat + 1))
        taken = struct.pack("<IIQQQII16sII", state, pid, 10**18, oldest_pending, 0, 1, 0, program, 0, 0)
        self.write(SEATS_OFFSET + 64 * seat, taken)

    def is_clean(self):
        return struct.unpack("<Q", self.read(STATE_OFFSET, 8))[0] == STATE_CLEAN

    def set_statistic(self, index, value):
        self.write(STATISTICS_OFFSET + 8 * index, struct.pack("<Q", value))

    # Files and records.

    def add_file(self, number, path, name=None, mode=None, uid=None, gid=None):
        """From now on `number` is this file, which exists. The record may say another name, mode or
        owner. It is written when the first record of the file is."""
        path = os.path.abspath(path)
        st = os.stat(path)
        seconds, nanoseconds = _birth(path)
        kind, handle = _handle(path)
        mode, uid, gid = (found if given is None else given for found, given in (
            (st.st_mode, mode), (st.st_uid, uid), (st.st_gid, gid)))
        identity = struct.pack("<QQqIIIIQiI128s", st.st_dev, st.st_ino, seconds, nanoseconds, mode, uid, gid,
                               os.statvfs(path).f_fsid & (2**64 - 1), kind, len(handle), handle)
        self.names[number] = (identity, os.fsencode(path if name is None else name))
        for log in self.logs.values():
            log.named.discard(number)

    def unit_offset(self, place):
        """Of a place's unit, in the pool's file."""
        return SEGMENTS_OFFSET + place * UNIT

    def payload_offset(self, place, page=0):
        """Of a data record's bytes in the nth page that it touches."""
        header = self.read(self.unit_offset(place), UNIT)
        offset, length = struct.unpack_from("<QQ", header, 24)
        pieces = [len(piece) for piece in pieces_of(offset, bytes(length))]
        links = units_of(8 * len(pieces)) if len(pieces) > 1 else 0
        return self.unit_offset(place + 1 + links + sum(map(units_of, pieces[:page])))

    def text(self, place):
        """A place as the command writes it."""
        return f"{place // self.units}.{place % self.units}"

    def take(self, log=0, kind=LOG):
        """The log goes on in the next segment, which is filled with zeros before."""
        state = self.logs.setdefault(log, Log())
        number, self.free = self.free, self.free + 1
        assert number < self.segment_count, "the pool is full"
        generation, self.lsn = self.lsn, self.lsn + 1
        chained = state.segment is not None and kind == LOG
        before = (state.generation, state.last, state.segment) if chained else (0, 0, 0)
        header = struct.pack("<QQQQIIIII", generation, self.checkpoint(), *before, number,
                             0 if kind == KEPT else log, kind, 0)
        word = generation ^ self.salt ^ 1 << 62
        header = struct.pack("<Q", word) + header
        header += struct.pack("<I", crc32c(header[8:], self.salt & 0xFFFFFFFF))
        at = self.unit_offset(number * self.units)
        self.write(at, header + bytes(self.segment_size - 2 * UNIT) + header)
        state.segment, state.unit, state.generation = number, 1, generation
        state.named = set()
        self.generations[number] = generation
        return number

    def _room(self, state):
        return 0 if state.segment is None else self.units - 1 - state.unit

    def _file_record(self, number):
        identity, name = self.names[number]
        return identity + struct.pack("<II", 0, len(name)) + name + b"\0"

    def _lay(self, log, segment_kind, number, kind, offset, data):
        """Where the records of a group go: (place, kind, offset, data) of each; a file record's data is
        for its length alone."""
        state, records = self.logs[log], []
        while True:
            declares = number in self.names and number not in state.named
            record = self._file_record(number) if declares else b""
            room = self._room(state) - (1 + units_of(len(record)) if declares else 0)
            part = len(data)
            if kind == DATA:
                part = next((n for n in self._cuts(offset, len(data))
                             if 1 + len(data_payload(offset, data[:n])) // UNIT <= room), 0)
            if room < 1 or (kind == DATA and part == 0):
                self.take(log, segment_kind)
                continue
            if declares:
                records.append((self._pass(state, record), FILE, 0, record))
                state.named.add(number)
            payload = data_payload(offset, data[:part]) if kind == DATA else b""
            records.append((self._pass(state, payload), kind, offset, data[:part]))
            if kind != DATA or part == len(data):
                return records
            offset, data = offset + part, data[part:]

    @staticmethod
    def _cuts(offset, length):
        """How long the first part of a data record can be, the longest first."""
        yield length
        end = (offset + length - 1) // PAGE * PAGE
        while end > offset:
            yield end - offset
            end -= PAGE

    def _pass(self, state, payload):
        place = state.segment * self.units + state.unit
        state.unit += 1 + units_of(len(payload))
        return place

    def _add(self, number, kind, offset, length, data=b"", commit=True, void=False, log=0, lsn=None):
        segment_kind = LOG if lsn is None else KEPT
        state = self.logs.setdefault(log, Log())
        if state.segment is None:
            self.take(log, segment_kind)
        before = (state.segment, state.unit, set(state.named))
        records = self._lay(log, segment_kind, number, kind, offset, data)
        if lsn is None:
            lsn, self.lsn = self.lsn, self.lsn + 1
        self._write(records, number, length, lsn, commit, void)
        if commit:
            state.last = lsn
        elif state.segment == before[0]:  # the next group is written over it
            _, state.unit, state.named = before
        return [record[0] for record in records if record[1] != FILE]

    def _write(self, records, number, length, lsn, commit, void):
        for index, (place, kind, offset, data) in enumerate(records):
            word = lsn ^ self.salt
            if index == 0 and void:
                word ^= 2**64 - 1
            if index == 0 and not commit:
                word = 0
            payload = data
            if kind == FILE:
                payload = data = self._file_record(number)
            elif kind == DATA:
                payload = data_payload(offset, data)
            generation = self.generations[place // self.units]
            header = struct.pack("<QQQIIHHHHI", lsn, offset, len(data) if data else length, number,
                                 crc32c(data) if data else 0, kind, index, len(records), 0,
                                 generation & 0xFFFFFFFF)
            crc = crc32c(struct.pack("<QQ", place, generation) + header, self.salt & 0xFFFFFFFF)
            self.write(self.unit_offset(place), struct.pack("<QQ", word, 0) + header
                       + struct.pack("<I", crc) + payload)

    def add_write(self, number, offset, data, **how):
        """One write call. `commit` False: it did not return; `void`: it counts no more; `log`: which.
        Returns the places of its data records, more than one only over a segment's end."""
        return self._add(number, DATA, offset, len(data), data, **how)

    def add_truncation(self, number, size, **how):
        return self._add(number, TRUNCATE, size, 0, **how)

    def add_erasure(self, number, offset, length, **how):
        return self._add(number, ERASE, offset, length, **how)

    def add_settled(self, number, bound, **how):
        """In a log of write-through: what is below it there counts no more."""
        return self._add(number, SETTLED, bound, 0, **how)

    def keep(self, lsn, number, offset, data):
        """A copy of a write call in a kept segment, because a disk refuses the file."""
        return self._add(number, DATA, offset, len(data), data, log="kept", lsn=lsn)

    def lsn_at(self, place):
        return struct.unpack("<Q", self.read(self.unit_offset(place) + 16, 8))[0]
