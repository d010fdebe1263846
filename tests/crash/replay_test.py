#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A failing case is saved, and each replay of it fails in the same way; also one of a trace that
several threads made. Wrong uses are refused with one line."""

import argparse
import pathlib
import subprocess
import sys
import tempfile


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--explorer", required=True)
    parser.add_argument("--scratch", required=True)
    arguments = parser.parse_args()
    pathlib.Path(arguments.scratch).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as folder:
        for mutant, scenario in (("committed", "tiny"), ("payload", "threads"),
                                 ("successor", "known")):
            found = run(arguments.explorer, "--mutant", mutant, "--scenario", scenario,
                        "--seed", "7", "--scratch", folder, "--save", folder)
            cases = list(pathlib.Path(folder).glob(f"crash-{scenario}-7-mutant.case"))
            assert found.returncode == 0 and len(cases) == 1, (found.stdout, found.stderr)
            first, second = (run(arguments.explorer, "--replay", str(cases[0])) for _ in range(2))
            assert first.returncode == 1, (first.stdout, first.stderr)
            assert first.stdout == second.stdout, (first.stdout, second.stdout)
            saved, now = (line.split(": ", 1)[1] for line in first.stdout.splitlines()
                          if line.startswith(("saved as: ", "now: ")))
            assert saved == now, first.stdout
        for wrong in (["--replay", "/nonexistent"], ["--scenario", "no"], ["--unknown"]):
            refused = run(arguments.explorer, *wrong)
            assert refused.returncode == 2 and refused.stderr, (wrong, refused)
    print("saved cases are repeated")


if __name__ == "__main__":
    sys.exit(main())
