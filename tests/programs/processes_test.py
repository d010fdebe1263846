#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Two processes, `a` and `b`, with one file and one pool: step by step they see and leave what they
would without NVCache."""

import sys

from kit import comparison

# Each process does what it is told and says what came out.
SCRIPT = r"""
import os, subprocess, sys
PROCESS = '''
import os, sys
names = {"os": os}
for line in sys.stdin:
    exec("result = " + line, names)
    print(names["result"], flush=True)
'''
class Process:
    def __init__(self, name):
        self.name = name
        self.process = subprocess.Popen([sys.executable, "-c", PROCESS], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    def __call__(self, *lines):
        for line in lines:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            print(f"{self.name}: {line}: {self.process.stdout.readline().strip()}", flush=True)
    def end(self):
        self.process.communicate()
    def kill(self):
        self.process.kill()
        self.process.communicate()
a, b = Process("a"), Process("b")
OPEN = 'fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)'
APPEND = 'fd = os.open("f", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)'
SIZE = 'os.fstat(fd).st_size'
FIRST = 'os.pwrite(fd, b"a" * 5000, 0)'
if sys.argv[1] == "reader":
    a(OPEN, FIRST)
    b('fd = os.open("f", os.O_RDONLY)', SIZE, 'os.pread(fd, 4, 4998)')
    a('os.pwrite(fd, b"more", 6000)')
    b(SIZE, 'os.pread(fd, 4, 6000)', 'os.stat("f").st_size')
elif sys.argv[1] == "writers":
    a(OPEN, FIRST, 'os.pread(fd, 4, 200)')
    b(OPEN, 'os.pread(fd, 4, 200)', 'os.pwrite(fd, b"B" * 100, 200)', 'os.fsync(fd)')
    a('os.pread(fd, 4, 200)', 'os.pwrite(fd, b"A" * 100, 400)')
    b('os.pread(fd, 4, 400)', 'os.pwrite(fd, b"end", 9000)')
    a(SIZE, 'os.pread(fd, 4, 9000)')
elif sys.argv[1] == "appenders":
    a(APPEND)
    b(APPEND)
    for i in range(5):
        a(f'os.write(fd, b"a{i} ")', SIZE)
        b(f'os.write(fd, b"b{i} ")', SIZE)
    a('os.pread(fd, 100, 0)')
elif sys.argv[1] == "truncate":
    a(OPEN, FIRST)
    b('fd = os.open("f", os.O_RDWR | os.O_TRUNC)', SIZE, 'os.pwrite(fd, b"short", 0)')
    a(SIZE, 'os.pread(fd, 10, 0)', 'os.pwrite(fd, b"A", 7)')
    b(SIZE, 'os.pread(fd, 10, 0)', 'os.ftruncate(fd, 6)')
    a(SIZE, 'os.pread(fd, 10, 0)')
elif sys.argv[1] == "rename":
    a(OPEN, FIRST)
    b('os.rename("f", "g")', OPEN, 'os.write(fd, b"another")')
    a('os.pwrite(fd, b"A", 5000)', SIZE)
    b('os.stat("g").st_size', 'os.stat("f").st_size', 'os.unlink("g")')
    a('os.pread(fd, 3, 4998)')
elif sys.argv[1] == "killed":
    a(OPEN, FIRST)
    b('own = os.open("own", os.O_WRONLY | os.O_CREAT, 0o644)', 'os.write(own, b"b")', 'os.close(own)')
    a.kill()
    b('fd = os.open("f", os.O_RDONLY)', SIZE, 'os.pread(fd, 3, 4998)')
    # Whoever writes next takes the pool.
    b('own = os.open("own", os.O_WRONLY)', 'os.write(own, b"B")', SIZE)
a.end()
b.end()
"""
CASES = {case: [f"{sys.executable} script.py {case}"]
         for case in ("reader", "writers", "appenders", "truncate", "rename", "killed")}

if __name__ == "__main__":
    comparison.main(__doc__, CASES, lambda folder: (folder / "script.py").write_text(SCRIPT))
