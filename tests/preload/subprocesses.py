#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Children as Python's subprocess makes them, by vfork where it can, and GNU make: what they write to
files that their parent writes as well."""

import os
import shutil
import subprocess
import sys

MAKEFILE = """all: a b c
%: ; @echo making $@ > $@; cat $@ >> all.log; sync $@; sync $@
"""


def main():
    os.chdir(sys.argv[1])
    with open("log", "w+", encoding="utf-8") as log:
        log.write("parent\n")
        log.flush()
        for i in range(20):
            subprocess.run(["sh", "-c", f"echo program {i}"], stdout=log, check=True)
            log.seek(0, os.SEEK_END)
            log.write(f"parent {i}\n")
            log.flush()
            if i % 5 == 4:
                os.fsync(log.fileno())
                os.fsync(log.fileno())
    with open("log", "rb") as log:
        print(subprocess.run(["cat"], stdin=log, stdout=subprocess.PIPE, check=True))
    print(subprocess.run("cat log | wc -l; exit 3", shell=True, stdout=subprocess.PIPE, check=False))
    try:
        subprocess.run(["no such program"], check=True)
    except FileNotFoundError as error:
        print(error)
    with open("kept", "w+b") as kept:
        kept.write(b"parent ")
        kept.flush()
        subprocess.run(["sh", "-c", f"echo program >&{kept.fileno()}"], pass_fds=[kept.fileno()],
                       check=True)
        os.fsync(kept.fileno())
        os.fsync(kept.fileno())
        kept.seek(0)
        print(kept.read())
    with subprocess.Popen(["sleep", "100"]) as child:
        child.kill()
        print(child.wait())
    if shutil.which("make"):
        with open("Makefile", "w", encoding="utf-8") as makefile:
            makefile.write(MAKEFILE)
        print(subprocess.run(["make", "-s"], stdout=subprocess.PIPE, check=True))
        with open("all.log", encoding="utf-8") as made:
            print(made.read().split("\n"))


if __name__ == "__main__":
    main()
