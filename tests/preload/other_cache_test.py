#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Who caches no file himself sees the newest size of one that another process caches: by its path, and by a descriptor
that was opened for no reading (O_PATH), of which the owner has not heard."""

import os
import subprocess
import sys

import kit
from kit import LATE, Failure, check, say

SIZE = 5000
OWNER = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
for _ in range(2):
    os.write(fd, b"x")
    os.fsync(fd)
os.pwrite(fd, b"x" * int(sys.argv[2]), 0)
print("written", flush=True)
sys.stdin.read()
"""
LOOKER = """
import os, sys
print(getattr(os, sys.argv[2])(sys.argv[1]) if sys.argv[2] == "stat" else os.fstat(os.open(sys.argv[1], os.O_PATH)))
"""


def main():
    options = kit.arguments(__doc__).parse_args()
    for way in ("stat", "fstat"):
        with kit.Bench(options, size="16M", dram="1M", write_back="exclusive") as bench:
            file = bench.folder / "file"
            settings = {**os.environ, **bench.settings(NVCACHE_NOTICE="0"), **LATE}
            by_default = {name: value for name, value in settings.items() if name != "NVCACHE_EXCLUSIVE"}
            with subprocess.Popen([sys.executable, "-c", OWNER, file, str(SIZE)], env=settings, text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
                check(owner.stdout.readline() == "written\n", "the owner has not written")
                check(file.stat().st_size < SIZE, "the kernel has it all: nothing is tested")
                seen = subprocess.run([sys.executable, "-c", LOOKER, file, way], env=by_default, text=True, check=True,
                                      stdout=subprocess.PIPE).stdout
                check(f"st_size={SIZE}," in seen, f"{way}: {seen.strip()}, and not {SIZE} bytes")
                say(f"{way}: {SIZE} bytes")
                owner.stdin.close()
            bench.recover()


try:
    main()
except Failure as failure:
    sys.exit(str(failure))
