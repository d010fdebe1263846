#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The man pages are sound, and say what the command's help and docs/settings.md say."""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = {page.name: page for page in (ROOT / "packaging/man").iterdir()}
COMMANDS = ("create", "run", "checkpointer", "recover", "status", "top", "dump", "serve", "mirror")
wrong = []


def check(ok, text):
    if not ok:
        wrong.append(text)


def options_of(tool, command):
    text = subprocess.run([tool, command, "--help"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    return set(re.findall(r"^ +(?:-h,)?--([a-z-]+)", text, re.MULTILINE)) - {"help"}


def section(page, title):
    """Of an mdoc page: the lines of one subsection."""
    found = re.search(rf"^\.Ss {re.escape(title)}\n(.*?)(?=^\.S[sh] )", page, re.M | re.S)
    return found[1] if found else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True, type=pathlib.Path)
    tool = parser.parse_args().build / "nvcache"

    check(set(PAGES) == {"nvcache.1", "libnvcache.7", "nvcache-pool.5"}, f"pages: {set(PAGES)}")
    for page in PAGES.values():
        lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        check(lint.returncode == 0, lint.stdout)

    page = PAGES["nvcache.1"].read_text()
    for command in COMMANDS:
        documented = set(re.findall(r"Fl -([a-z-]+)", section(page, f"nvcache {command}")))
        documented -= {"emulate"} - options_of(tool, command)
        check(options_of(tool, command) <= documented,
              f"nvcache.1: options of {command} are missing: {options_of(tool, command) - documented}")

    settings = (ROOT / "docs/settings.md").read_text()
    variables = set(re.findall(r"^\| `(NVCACHE_[A-Z_]+)`", settings, re.MULTILINE))
    page = PAGES["libnvcache.7"].read_text()
    documented = set(re.findall(r"NVCACHE_[A-Z_]+[A-Z]", "\n".join(
        line for line in page.splitlines() if line.startswith(".It Ev"))))
    check(variables and variables == documented,
          f"libnvcache.7 and docs/settings.md differ: {variables ^ documented}")

    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


main()
