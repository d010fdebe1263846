# SPDX-License-Identifier: BSD-3-Clause
"""The command under test, folders for its pools and files, and what every test asks of it."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["NVCACHE_BUILD_DIR"]).resolve()
COMMAND = BUILD / "nvcache"
SCRATCH = BUILD / "test-data"

MIB = 1 << 20


def clean_environment():
    """This process's environment without anything that NVCache or the linker would read, but for the
    rule by which each file is cached from its first open for writing, and the one by which no
    checkpointer does anything in the background."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("NVCACHE_") and not name.startswith("LD_")
    }
    return {**kept, "NVCACHE_WRITE_BACK": "always", "NVCACHE_CHECKPOINTER": "never"}


def checksum(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


class ToolTest(unittest.TestCase):
    """Pools lie in self.pools (memory), files in self.files (the build folder's disk)."""

    maxDiff = None

    def setUp(self):
        shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
        SCRATCH.mkdir(exist_ok=True)
        self.pools = pathlib.Path(tempfile.mkdtemp(prefix="nvcache-tool-", dir=shared))
        self.addCleanup(shutil.rmtree, self.pools, ignore_errors=True)
        self.files = pathlib.Path(tempfile.mkdtemp(prefix="tool-", dir=SCRATCH))
        self.addCleanup(shutil.rmtree, self.files, ignore_errors=True)
        self.pool = self.pools / "pool"

    def nvcache(self, *arguments, env=None, **options):
        """Runs the command; its result with text in stdout and stderr."""
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("timeout", 60)
        return subprocess.run(
            [str(COMMAND), *map(str, arguments)],
            env={**clean_environment(), **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            **options,
        )

    def create(self, size="1M", pool=None):
        result = self.nvcache("create", pool or self.pool, "--size", size, "--emulate")
        self.assertEqual(result.returncode, 0, result.stderr)

    def assert_refused(self, result, status, *words):
        """Failed with `status`, and with one line that says so and has these words."""
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        self.assertRegex(result.stderr, r"\Anvcache: [^\n]+\n\Z")
        self.assertEqual(result.stdout, "")
        for word in words:
            self.assertIn(str(word), result.stderr)

    def assert_ok(self, result):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stderr, "")


