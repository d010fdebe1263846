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


def kept(policy, offset, content=b"n" * SIZE, file_system="ext4"):
    """Which sectors survived of a write that was not flushed, over many failures: for each failure
    that went differently a string with a letter for each sector, x or -."""
    draw = random.Random(SEED)
    found = set()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            device = disk.Disk(pathlib.Path(folder) / "socket", offset + len(content),
                               file_system=file_system)
            device.unflushed.append((offset, content))
            device.power_failure(draw, policy)
            found.add("".join("x" if any(device.durable[at:at + disk.SECTOR]) else "-"
                              for at in range(offset, offset + len(content), disk.SECTOR)))
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
    other_file_systems(anything)


def other_file_systems(anything):
    check("Btrfs", kept("torn", SOMEWHERE, file_system="btrfs"), anything)
    check("superblock of Btrfs", kept("torn", disk.BTRFS_SUPERBLOCKS[0], file_system="btrfs"),
          {"x" * SECTORS, "-" * SECTORS})
    head, tail = SECTORS // 2, SECTORS // 2  # of two blocks, in one write
    wanted = {one * head + other * tail for one in "x-" for other in "x-"}
    end_of_block = SOMEWHERE + disk.XFS_BLOCK - head * disk.SECTOR
    check("XFS", kept("torn", end_of_block, file_system="xfs"), wanted)


main()
