# SPDX-License-Identifier: BSD-3-Clause
"""What the command says about itself."""

import re
import subprocess
import unittest

from kit import tool

OPTIONS = {
    "create": ["POOL", "--size", "--emulate", "--commit"],
    "run": ["--pool", "--size", "--emulate", "--dram", "--frames", "--include", "--exclude", "--exclusive", "--write-back",
            "--required", "--no-drain", "--names", "--checkpointer", "--wait", "--batch-min", "--batch-max",
            "--batch-delay", "--library", "-- PROGRAM"],
    "checkpointer": ["POOL", "--stay"],
    "recover": ["POOL", "--list", "--user", "--dry-run", "--json", "--export", "--discard"],
    "status": ["POOL", "--json", "--metrics", "--mirror"],
    "top": ["POOL", "--interval", "--batch", "--count", "--once", "--json"],
    "dump": ["POOL", "--all", "--export", "--json"],
    "mirror": ["--pool", "--name", "--etcd", "--keys", "--insecure", "--server", "--below-quorum", "--patience",
               "--take-over", "--metrics"],
    "serve": ["--listen", "--keys", "--insecure", "--limit", "--memory", "--spill"],
}


class HelpTest(tool.ToolTest):
    def test_overview(self):
        result = self.assert_ok(self.nvcache("--help"))
        for command in OPTIONS:
            self.assertRegex(result.stdout, rf"(?m)^  {command} ")
        self.assertIn("Example", result.stdout)

    def test_each_command(self):
        for command, options in OPTIONS.items():
            with self.subTest(command=command):
                result = self.assert_ok(self.nvcache(command, "--help"))
                self.assertIn(f"Usage: nvcache {command} ", result.stdout)
                self.assertRegex(result.stdout, rf"Examples?:\n  nvcache {command} ")
                for option in options:
                    self.assertIn(option, result.stdout)

    def test_version(self):
        result = self.assert_ok(self.nvcache("--version"))
        self.assertTrue(re.fullmatch(r"nvcache \d+\.\d+\.\d+\n", result.stdout), result.stdout)

    def test_output_that_cannot_be_written(self):
        self.create()
        with open("/dev/full", "w", encoding="ascii") as full:
            result = subprocess.run([tool.COMMAND, "status", self.pool], env=tool.clean_environment(), stdout=full,
                                    stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"\Anvcache: the output cannot be written[^\n]+\n\Z")


if __name__ == "__main__":
    unittest.main()
