#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A Java program with channels and mappings: the same files and output with and without NVCache.
Without a JDK the test is skipped."""

import pathlib
import shutil

import kit
from kit import comparison

SOURCE = pathlib.Path(__file__).resolve().parent / "Channels.java"
JAVA = "java -XX:-UsePerfData -XX:TieredStopAtLevel=1"
CASES = {case: [f"{JAVA} {SOURCE} {case}"] for case in ("channels", "mapped")}

if __name__ == "__main__":
    if shutil.which("java") is None or shutil.which("javac") is None:
        kit.skip("there is no JDK", must_run_in_ci=False)
    comparison.main(__doc__, CASES, lambda folder: None, through_the_log=("channels",))
