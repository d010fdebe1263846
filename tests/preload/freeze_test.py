#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""freeze.c on a file system of its own, without NVCache and with it: the same output, in time."""

import argparse
import fcntl
import json
import os
import subprocess
import sys
import unittest

sys.path.append(sys.path[0] + "/../recovery")

import machine
from machine import tool

FITHAW = 0xC0045878
PATIENCE = 30  # s; it takes less than one

OPTIONS = None


class FreezeTest(machine.MachineTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.thaw)  # before it is unmounted
        self.elsewhere = self.make_folder("/var/tmp")

    def thaw(self):
        """Whoever waits for the end of the freeze cannot even be killed."""
        fd = os.open(self.mounted, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, FITHAW, 0)
        except OSError:
            pass  # as it should be: it is not frozen
        os.close(fd)

    def run_program(self, settings):
        program = subprocess.Popen(
            [OPTIONS.program, self.files, self.elsewhere], env={**tool.clean_environment(), **settings},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            output, _ = program.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.thaw()
            program.kill()
            output, _ = program.communicate()
            self.fail(f"it waits, after {output.splitlines()[-1] if output else 'nothing'}")
        self.assertEqual(program.returncode, 0, output)
        return [line for line in output.splitlines() if not line.startswith("nvcache: ")]

    def test_nothing_waits(self):
        plain = self.run_program({})
        self.assertIn("freeze(by_number, folder) = 0", plain)
        settings = self.settings("16M")
        if not OPTIONS.built_in:
            settings["LD_PRELOAD"] = str(tool.LIBRARY)
        self.assertEqual(self.run_program(settings), plain)
        # The pool was taken anew when it was over.
        self.assertIn('"entries_cleaned": 1', json.dumps(self.status()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="freeze.c, built")
    parser.add_argument("--built-in", action="store_true", help="its libc has the cache")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
