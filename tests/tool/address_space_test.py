# SPDX-License-Identifier: BSD-3-Clause
"""A program may have no address space for page frames: then its files are write-through, and it says that; or not even for
its pool, and then it has none of it any more."""

import sys
import unittest

from kit import tool

POOL = 64 * tool.MIB

# May have so many bytes more than it has, then syncs a file often. Says by how many bytes its address space has grown.
PROGRAM = """
import os, resource, sys
def size():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
fd = os.open("file", os.O_RDWR | os.O_CREAT, 0o644)
before = size()
resource.setrlimit(resource.RLIMIT_AS, (before + int(sys.argv[1]), resource.RLIM_INFINITY))
for i in range(80):
    os.pwrite(fd, b"x", i)
    os.fsync(fd)
print(size() - before)
"""


class AddressSpaceTest(tool.ToolTest):
    def grow_within(self, room, **settings):
        return tool.run(sys.executable, "-ISBc", PROGRAM, room, cwd=self.files,
                        env={"LD_PRELOAD": str(tool.LIBRARY), **self.settings("64M"), "NVCACHE_WRITE_BACK": "auto",
                             **settings})

    def test_for_a_log_and_no_frames(self):
        result = self.grow_within(POOL + 100 * tool.MIB, NVCACHE_NOTICE="0")
        self.assert_status(result, 0)
        self.assertRegex(result.stderr, r"\Anvcache: not enough memory[^\n]*; no file is cached[^\n]*write-through\n\Z")
        self.assertGreater(int(result.stdout), POOL)
        self.assertLess(int(result.stdout), POOL + 26 * tool.MIB)

    def test_for_nothing(self):
        for room in (POOL // 2, POOL + 10 * tool.MIB):
            result = self.grow_within(room, NVCACHE_NOTICE="0")
            self.assert_status(result, 0)
            self.assertRegex(result.stderr, r"\Anvcache: [^\n]*(the program runs without the cache|cannot be mapped)[^\n]*\n\Z")
            self.assertLess(int(result.stdout), 10 * tool.MIB)


if __name__ == "__main__":
    unittest.main()
