#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the guest's disk keeps at a power failure."""

import itertools
import pathlib
import random
import struct
import tempfile

import disk

SIZE = 2 * disk.EXT4_BLOCK  # of the write
SECTORS = SIZE // disk.SECTOR
SOMEWHERE = disk.SUPERBLOCK_END
ROUNDS = 400
SEED = 1


def kept(policy, offset, content=b"n" * SIZE):
    """Which sectors survived of a write that was not flushed, over many failures: for each failure
    that went differently a string with a letter for each sector, x or -."""
    draw = random.Random(SEED)
    found = set()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            device = disk.Disk(pathlib.Path(folder) / "socket", SOMEWHERE + SIZE)
            device.unflushed.append((offset, content))
            device.power_failure(draw, policy)
            found.add("".join("x" if any(device.durable[at:at + disk.SECTOR]) else "-"
                              for at in range(offset, offset + SIZE, disk.SECTOR)))
            assert device.current == device.durable
            device.close()
    return found


def check(what, found, wanted):
    assert found == wanted, f"{what}: kept {sorted(found)}, wanted {sorted(wanted)}"


def main():
    all_of_it, nothing = "x" * SECTORS, "-" * SECTORS
    check("all", kept("all", SOMEWHERE), {all_of_it})
    check("none", kept("none", SOMEWHERE), {nothing})
    check("some", kept("some", SOMEWHERE), {all_of_it, nothing})
    check("superblock", kept("torn", 0), {all_of_it, nothing})
    anything = {"".join(letters) for letters in itertools.product("-x", repeat=SECTORS)}
    check("torn", kept("torn", SOMEWHERE), anything)
    block = disk.EXT4_BLOCK // disk.SECTOR
    for kind in range(1, 6):
        head = struct.pack(">II", disk.JOURNAL_MAGIC, kind)
        whole = kind == disk.COMMIT or kind in disk.JOURNAL_SUPERBLOCKS
        wanted = {one for one in anything if not whole or len(set(one[block:])) == 1}
        content = b"n" * disk.EXT4_BLOCK + head + b"n" * (disk.EXT4_BLOCK - len(head))
        check(f"journal block of kind {kind}", kept("torn", SOMEWHERE, content), wanted)


main()
