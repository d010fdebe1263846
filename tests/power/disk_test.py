#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the guest's disk keeps at a power failure."""

import pathlib
import random
import tempfile

import disk

BLOCK = 4096
ROUNDS = 200
SEED = 1


def kept(policy, offset):
    """The numbers of sectors that survived of a block that was not flushed, over many failures."""
    draw = random.Random(SEED)
    counts = set()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            device = disk.Disk(pathlib.Path(folder) / "socket", 4 * BLOCK)
            device.unflushed.append((offset, b"n" * BLOCK))
            device.power_failure(draw, policy)
            counts.add(device.durable.count(b"n") // disk.SECTOR)
            assert device.current == device.durable
            device.close()
    return counts


def main():
    sectors = BLOCK // disk.SECTOR
    for offset, policy, wanted in ((BLOCK, "all", {sectors}), (BLOCK, "none", {0}),
                                   (BLOCK, "some", {0, sectors}),
                                   (BLOCK, "torn", set(range(sectors + 1))),
                                   (0, "torn", {0, sectors})):
        found = kept(policy, offset)
        assert found == wanted, f"{policy} at {offset}: sectors kept {found}, wanted {wanted}"


main()
