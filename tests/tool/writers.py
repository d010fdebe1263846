# SPDX-License-Identifier: BSD-3-Clause
"""Programs that use a pool, write when they are told to, and wait in between."""

import sys

from kit import LATE, tool

PAGE = 4096
SOON = {"NVCACHE_BATCH_DELAY": "1"}

# Opens its files, and answers each line: a number, so many pages to each file, from its beginning;
# "sync", each file; "close", the last one.
PROGRAM = f"""
import os, sys
files = [os.open(name, os.O_RDWR | os.O_CREAT, 0o644) for name in sys.argv[1:]]
print("ready", flush=True)
for line in sys.stdin:
    if line == "close\\n":
        os.close(files.pop())
    elif line == "sync\\n":
        for fd in files:
            os.fsync(fd)
    else:
        for fd in files:
            for page in range(int(line)):
                os.pwrite(fd, b"x" * {PAGE}, {PAGE} * page)
    print("ready", flush=True)
"""


class WriterTest(tool.ToolTest):
    def start_writer(self, *names, settings=None):
        """A process that has these files in its cache."""
        program = [sys.executable, "-ISBc", PROGRAM, *(self.files / name for name in names)]
        process = self.start(self.run_command(*program, size="16M", options=["--required"]),
                             env={**tool.clean_environment(), **(LATE if settings is None else settings)})
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def tell(self, process, line):
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), "ready\n")
