# SPDX-License-Identifier: BSD-3-Clause
"""The guest's disk: a server of the NBD protocol, which QEMU speaks. It knows what was made
durable by a flush and what was not, so at a power failure it can lose any part of the rest, in any
order, as a disk with a volatile cache may."""

import pathlib
import socket
import struct
import threading
import time

SECTOR = 512
# File systems count on a disk to write some blocks whole, for each is under one checksum, and a file
# system with half of one is not mounted. Those of ext4: its superblock, the superblock of its journal,
# and the record that commits a transaction there. Of Btrfs: the superblocks. XFS does not say which;
# its recovery believes the number in the first sector of a block.
EXT4_BLOCK = 1024
SUPERBLOCK_END = 4096
BTRFS_SUPERBLOCKS, XFS_BLOCK = (64 << 10, 64 << 20), 4096
JOURNAL_MAGIC, COMMIT, JOURNAL_SUPERBLOCKS = 0xC03B3998, 2, (3, 4)
JOURNAL_WHOLE = tuple(struct.pack(">II", JOURNAL_MAGIC, kind)
                      for kind in (COMMIT, *JOURNAL_SUPERBLOCKS))
POLICIES = ("all", "none", "some", "torn")

MAGIC, OPTION_MAGIC, REPLY_MAGIC = b"NBDMAGIC", b"IHAVEOPT", 0x3E889045565A9
REQUEST_MAGIC, SIMPLE_REPLY_MAGIC = 0x25609513, 0x67446698
FIXED_NEWSTYLE, NO_ZEROES = 1, 2
OPT_ABORT, OPT_INFO, OPT_GO = 2, 6, 7
REP_ACK, REP_INFO, REP_ERR_UNSUP = 1, 3, 2**31 + 1
HAS_FLAGS, SEND_FLUSH = 1, 4
READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
EINVAL = 22


def piece(file_system, place, head):
    """How much survives whole of a write at this place of the disk, of which these bytes are the
    first; None: all of it."""
    if file_system == "xfs":
        return XFS_BLOCK - place % XFS_BLOCK
    if file_system == "btrfs":
        return None if place in BTRFS_SUPERBLOCKS else SECTOR
    if place < SUPERBLOCK_END:
        return None
    whole = place % EXT4_BLOCK == 0 and head.startswith(JOURNAL_WHOLE)
    return EXT4_BLOCK if whole else SECTOR


def pieces(offset, data, torn, file_system):
    """Where each part of a write begins that survives whole or not at all, and where it ends."""
    at = 0
    while at < len(data):
        size = piece(file_system, offset + at, data[at:at + 8]) if torn else None
        end = len(data) if size is None else min(at + size, len(data))
        yield at, end
        at = end


class Closed(Exception):
    """QEMU has gone."""


def receive(connection, size):
    buffer = bytearray(size)
    view, got = memoryview(buffer), 0
    while got < size:
        count = connection.recv_into(view[got:])
        if count == 0:
            raise Closed
        got += count
    return buffer


class Disk:
    """Of `size` bytes in memory. `ignores_flush` makes it a disk that lies."""

    def __init__(self, socket_path, size, ignores_flush=False, file_system="ext4"):
        self.path = str(socket_path)
        self.file_system = file_system
        self.durable = bytearray(size)
        self.current = bytearray(size)
        self.unflushed = []  # (offset, bytes) in the order in which they came
        self.undo = []  # (offset, bytes): what was durable when the guest was started
        self.ignores_flush = ignores_flush
        self.flush_seconds = 0.0  # how long it takes
        self.counts = {"writes": 0, "flushes": 0, "lost": 0}
        self.marks = []  # the counts whenever the guest has read the last sector, and it alone
        self.flushes_left = 0  # until the disk stops; 0: it does not
        self.stopped = threading.Event()
        self.power_is_gone = threading.Event()
        self.idle = threading.Event()
        self.idle.set()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(1)
        self.server = threading.Thread(target=self._listen, daemon=True)
        self.server.start()

    def close(self):
        # The thread must be gone before somebody else's socket may have the number of this one.
        self.power_is_gone.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.server.join()
        self.listener.close()
        pathlib.Path(self.path).unlink(missing_ok=True)

    def load(self, path):
        """The content of an image; what is zero is left alone, and takes no memory."""
        chunk = 1 << 16
        with open(path, "rb") as image:
            offset = 0
            while data := image.read(chunk):
                if data.strip(b"\0"):
                    self.durable[offset:offset + len(data)] = data
                    self.current[offset:offset + len(data)] = data
                offset += len(data)

    def save(self, path):
        """What was durable when the guest was started, as a sparse image."""
        content = bytearray(self.durable)
        for offset, data in reversed(self.undo):
            content[offset:offset + len(data)] = data
        chunk = 1 << 16
        with open(path, "wb") as image:
            for offset in range(0, len(content), chunk):
                data = bytes(content[offset:offset + chunk])
                if data.strip(b"\0"):
                    image.seek(offset)
                    image.write(data)
            image.truncate(len(content))

    def start(self):
        """A guest is being started, and will connect."""
        self.undo = []
        self.flushes_left = 0
        self.stopped.clear()
        self.power_is_gone.clear()

    def stop_at_flush(self, number):
        """The disk does not answer that flush any more, counted from now, nor what comes after."""
        self.flushes_left = number

    def _keep(self, offset, data):
        self.undo.append((offset, self.durable[offset:offset + len(data)]))
        self.durable[offset:offset + len(data)] = data

    def power_failure(self, draw, policy):
        """To be called when QEMU is dead. What was not flushed is lost: nothing of it, all, any of
        the writes, or any of their sectors, but of blocks that the file system wants whole. Later writes win
        over earlier ones, if both survive."""
        self.power_is_gone.set()
        if not self.idle.wait(30):
            raise TimeoutError("QEMU is dead, and still connected")
        chance = draw.random()
        for offset, data in self.unflushed:
            for begin, end in pieces(offset, data, policy == "torn", self.file_system):
                if policy == "all" or (policy != "none" and draw.random() < chance):
                    self._keep(offset + begin, data[begin:end])
                else:
                    self.counts["lost"] += 1
        for offset, data in self.unflushed:
            self.current[offset:offset + len(data)] = self.durable[offset:offset + len(data)]
        self.unflushed = []

    def _listen(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.idle.clear()
            with connection:
                try:
                    self._negotiate(connection)
                    self._serve(connection)
                except (Closed, OSError):
                    pass
            self.idle.set()

    def _negotiate(self, connection):
        connection.sendall(MAGIC + OPTION_MAGIC + struct.pack(">H", FIXED_NEWSTYLE | NO_ZEROES))
        receive(connection, 4)
        while True:
            _, option, length = struct.unpack(">8sII", receive(connection, 16))
            receive(connection, length)

            def reply(kind, data=b"", to=option):
                connection.sendall(struct.pack(">QIII", REPLY_MAGIC, to, kind, len(data)) + data)

            if option in (OPT_INFO, OPT_GO):
                reply(REP_INFO, struct.pack(">HQH", 0, len(self.current), HAS_FLAGS | SEND_FLUSH))
                reply(REP_ACK)
                if option == OPT_GO:
                    return
            elif option == OPT_ABORT:
                reply(REP_ACK)
                raise Closed
            else:
                reply(REP_ERR_UNSUP)

    def _serve(self, connection):
        """One request after the other: a flush makes durable every write that came before."""
        while True:
            header = receive(connection, 28)
            _, _, kind, handle, offset, length = struct.unpack(">IHHQQI", header)
            error, data = 0, b""
            if kind == READ:
                data = self.current[offset:offset + length]
                if (offset, length) == (len(self.current) - SECTOR, SECTOR):
                    self.marks.append(dict(self.counts))
            elif kind == WRITE:
                content = receive(connection, length)
                self.current[offset:offset + length] = content
                self.unflushed.append((offset, content))
                self.counts["writes"] += 1
            elif kind == FLUSH:
                self._before_flush()
                self._flush()
            elif kind == DISCONNECT:
                return
            else:
                error = EINVAL
            connection.sendall(struct.pack(">IIQ", SIMPLE_REPLY_MAGIC, error, handle) + data)

    def _before_flush(self):
        time.sleep(self.flush_seconds)
        if self.flushes_left > 0:
            self.flushes_left -= 1
            if self.flushes_left == 0:
                self.stopped.set()
                self.power_is_gone.wait()
                raise Closed

    def _flush(self):
        self.counts["flushes"] += 1
        if self.ignores_flush:
            return
        for offset, data in self.unflushed:
            self._keep(offset, data)
        self.unflushed = []
