#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the checker of the workload `raw` takes for right after the loss of a mirrored pool: a write that was under way may
be there in part (docs/mirror.md: What no image has); nothing else may, and with no other promise. The files are made
here, so that they are known to the byte."""

import argparse
import os
import pathlib
import subprocess
import tempfile
import unittest

MASK = (1 << 64) - 1
SEED = 7
NAMES = ("a", "b", "c", "log")
AGENT = None


def mix(x):
    x = (x + 0x9e3779b97f4a7c15) & MASK
    x = ((x ^ x >> 30) * 0xbf58476d1ce4e5b9) & MASK
    x = ((x ^ x >> 27) * 0x94d049bb133111eb) & MASK
    return x ^ x >> 31


class Random:
    """That of tests/kit/random.h."""

    def __init__(self, seed):
        self.state = mix(seed)

    def below(self, n):
        self.state = (self.state + 1) & MASK
        return mix(self.state - 1 & MASK) % n

    def length(self, most):
        bits = most.bit_length()
        return min(1 + self.below(1 << self.below(bits + 1)), most)


def content(number, length):
    seed = mix(script_seed() ^ number << 20)
    return b"".join(mix(seed + i & MASK).to_bytes(8, "little") for i in range(length // 8 + 1))[:length]


def script_seed():
    name = 0
    for letter in b"raw":
        name = mix(name ^ letter)
    return mix(SEED ^ mix(name))


def operation(number, appended):
    """File, offset, and bytes; None: it writes nothing."""
    random = Random(script_seed() ^ number)
    choice = random.below(100)
    if choice < 4:
        return None
    length = random.length(48 << 10)
    if choice < 30 and appended + length <= 512 << 10:
        return 3, appended, content(number, length)
    offset = random.below((160 << 10) - length + 1)
    return random.below(3), offset, content(number, length)


def put(file, offset, data):
    file.extend(bytes(max(offset + len(data) - len(file), 0)))
    file[offset:offset + len(data)] = data


class PartTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "raw").mkdir()

    def files_before(self, wanted):
        """The files, how many operations have made them, and the next one, which is as wanted."""
        files, number = [bytearray() for _ in NAMES], 0
        while True:
            following = operation(number + 1, len(files[3]))
            if number >= 100 and following is not None and len(following[2]) >= 1000 and wanted(following[0]):
                return files, number, following
            number += 1
            if following is not None:
                put(files[following[0]], *following[1:])

    def found(self, files, acknowledged, promise="mirrored"):
        """How many operations the checker finds; None: it says that something is wrong."""
        for name, data in zip(NAMES, files):
            (self.folder / "raw" / name).write_bytes(data)
        done = subprocess.run([AGENT, "verify", self.folder, str(SEED), promise, f"raw:{acknowledged}:{acknowledged}"],
                              check=False, text=True, stdout=subprocess.PIPE,
                              env=dict(os.environ, FOUND=str(self.folder / "found")))
        if done.returncode != 0:
            self.assertIn("@bad raw", done.stdout)
            return None
        return int(done.stdout.split()[2])

    def go_on(self, files, number):
        """The next writer does it again, as a whole."""
        self.assertEqual(self.found(files, number), number)
        with subprocess.Popen([AGENT, "work", self.folder, str(SEED), "mirrored", "raw"], text=True,
                              stdout=subprocess.PIPE, env=dict(os.environ, FOUND=str(self.folder / "found"))) as agent:
            lines = iter(agent.stdout.readline, f"@acked raw {number + 20}\n")
            self.assertTrue(all(line for line in lines), "the writer has ended")
            agent.kill()
            rest = agent.stdout.read().split("\n")[:-1]
        newest = int(rest[-1].split()[2]) if rest else number + 20
        left = [(self.folder / "raw" / name).read_bytes() for name in NAMES]
        self.assertIn(self.found(left, newest), (newest, newest + 1))

    def check_write(self, wanted):
        files, number, (which, offset, data) = self.files_before(wanted)
        self.assertEqual(self.found(files, number, "write"), number)
        half = len(data) // 2
        put(files[which], offset, data[:half])
        self.assertEqual(self.found(files, number), number)
        self.assertIsNone(self.found(files, number, "write"), "a write that is torn")
        self.assertIsNone(self.found(files, number + 1), "it was acknowledged")
        self.go_on(files, number)
        for at in (offset - 1, offset, offset + half - 1):
            files[which][at] ^= 0xff
            self.assertIsNone(self.found(files, number), f"byte {at} is of nobody")
            files[which][at] ^= 0xff
        other = (which + 1) % 3
        files[other][0] ^= 0xff
        self.assertIsNone(self.found(files, number), "another file is wrong as well")
        files[other][0] ^= 0xff
        put(files[which], offset, data)
        self.assertEqual(self.found(files, number), number + 1)

    def test_overwrites(self):
        self.check_write(lambda which: which < 3)

    def test_appends(self):
        self.check_write(lambda which: which == 3)

    def test_only_the_next_one(self):
        files, number, following = self.files_before(lambda which: which < 3)
        which, offset, data = following
        put(files[which], offset, data[:len(data) // 2])
        self.assertIsNone(self.found(files, number - 1), "one more was under way")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", required=True, help="the power_agent to use")
    arguments = parser.parse_args()
    AGENT = arguments.agent
    unittest.main(argv=[parser.prog], verbosity=2)
