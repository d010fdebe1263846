# SPDX-License-Identifier: BSD-3-Clause
"""A pool with its journal on the disk of the build folder, and programs that use it."""

import ctypes
import os
import sys

from kit import LATE, journal_format, tool
from kit.image import crc32c
from kit.journals import memory_of, remove_memory

RING, BLOCK = journal_format.RING, journal_format.BLOCK
MAGIC = journal_format.BATCH_MAGIC
# Appends lines and syncs them, says how many, and waits.
WRITER = """import os, sys
f = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for i in range(int(sys.argv[2])):
    os.write(f, b'%06d\\n' % i)
    os.fsync(f)
print('done', flush=True)
sys.stdin.read()
"""

# The folder is known after two syncs; `old` is older than the log, which has bytes of it; `cold`, of which it has none, as well.
NAMING = """import os, sys
os.chdir(sys.argv[1])
folder = os.open('.', os.O_RDONLY)
def put(name, what, sync=True, flags=os.O_CREAT | os.O_TRUNC):
    file = os.open(name, os.O_WRONLY | flags, 0o644)
    os.write(file, what)
    if sync:
        os.fsync(file)
    os.close(file)
for name in ('a', 'b', 'c'):
    put(name, b'begin')
    os.fsync(folder)
old = os.open('old', os.O_WRONLY | os.O_APPEND)
for what in (b'is ', b'known ', b'newer'):
    os.write(old, what)
    os.fsync(old)
def say(what):
    print(what, flush=True)
    return sys.stdin.readline()
say('known')
"""
PR_CAPBSET_DROP, CAP_DAC_READ_SEARCH = 24, 2


def without_privilege():
    """A file is found by its names alone then."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_READ_SEARCH)


class DiskPoolTest(tool.ToolTest):
    def setUp(self):
        super().setUp()
        self.pool = self.files / "pool"
        self.data = self.files / "data"
        result = self.created = self.nvcache("create", self.pool, "--size", "1M")
        if result.returncode != 0:
            self.skipTest(f"no journal can lie on this disk: {result.stderr.strip()}")
        self.assertIn("durability disk", result.stdout)
        self.addCleanup(remove_memory, self.pool)

    @property
    def memory(self):
        return memory_of(self.pool)

    def under(self, *program):
        return [tool.COMMAND, "run", "--pool", self.pool, "--required", *program]

    def write(self, lines, pool=None):
        """A program that has written so many, and waits. It is not the last that uses the pool, or it is killed."""
        command = [tool.COMMAND, "run", "--pool", pool or self.pool, "--required", "--", sys.executable, "-c", WRITER, self.data,
                   lines]
        # Nothing but the log has them.
        process = self.start(command, env={**tool.clean_environment(), **LATE})
        self.assertEqual(process.stdout.readline(), "done\n")
        return process

    def kill(self, process):
        process.kill()
        process.wait()

    def lines(self):
        return self.data.read_bytes().splitlines()

    def batches(self):
        """Where each begins that is there."""
        content = self.pool.read_bytes()
        return [at for at in range(RING, len(content), BLOCK) if content[at:at + len(MAGIC)] == MAGIC]

    def flip(self, at):
        with open(self.pool, "r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 0x55]))

    def lose(self, lines=100):
        """A writer is killed, and the memory, which alone has what it has written, is gone."""
        self.kill(self.write(lines))
        self.assertLess(len(self.lines()), lines)
        self.memory.unlink()

    def lower_bound(self, at, by):
        """Of the batch that begins there."""
        with open(self.pool, "r+b") as file:
            content = file.read()
            uuid = journal_format.Header(content).uuid
            batch = journal_format.Batch(content[at:at + journal_format.BLOCK], uuid)
            fields = {name: getattr(batch, name) for name in journal_format.NAMES}
            fields["bound"] -= by
            file.seek(at)
            file.write(journal_format.make_batch(uuid, content[at + journal_format.LINE:at + batch.size], **fields))

    def make_void(self):
        """As a checkpointer does when a write has failed: in the block of the header before."""
        with open(self.pool, "r+b") as file:
            content = file.read(RING)
            life = journal_format.Header(content).life
            raw = bytearray(content[life % 2 * BLOCK:][:journal_format.HEADER.size])
            raw[72:76], raw[84:88] = (life + 1).to_bytes(4, "little"), (1).to_bytes(4, "little")
            raw[92:] = crc32c(raw[:92]).to_bytes(4, "little")
            file.seek((life + 1) % 2 * BLOCK)
            file.write(raw)


class KnownFolderTest(DiskPoolTest):
    """A program changes names in a folder whose names are in the log."""

    def setUp(self):
        super().setUp()
        self.data.mkdir()
        (self.data / "old").write_bytes(b"before ")
        (self.data / "cold").write_bytes(b"")
        os.sync()

    def begin(self, code):
        command = [tool.COMMAND, "run", "--pool", self.pool, "--required", "--", sys.executable, "-c", NAMING + code, self.data]
        process = self.start(command, env={**tool.clean_environment(), **LATE, "NVCACHE_WRITE_BACK": "auto"})
        self.assertEqual(process.stdout.readline(), "known\n")
        return process

    def go_on(self, process):
        process.stdin.write("\n")
        process.stdin.flush()
        return process.stdout.readline()
