#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The engine that is shipped has nothing of the recorder; the recorded one has.
    not_shipped_test.py ENGINE RECORDED"""

import subprocess
import sys


def records(archive):
    names = subprocess.run(["nm", "-C", archive], capture_output=True, text=True, check=True).stdout
    return "pmem::record::" in names or "nvcache::crash" in names


def main():
    shipped, recorded = sys.argv[1:]
    assert not records(shipped), f"{shipped} has parts of the recorder; build it without NVCACHE_RECORD"
    assert records(recorded), f"{recorded} does not record"
    print("the shipped engine does not record")


if __name__ == "__main__":
    sys.exit(main())
