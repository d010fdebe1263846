# SPDX-License-Identifier: BSD-3-Clause
"""The command under test, folders for its pools and files, and what every test asks of it. As `kit`, but of unittest's
kind: NVCACHE_BUILD_DIR says what is tested."""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

from . import image
from .basics import MIB, without_nvcache  # noqa: F401, for those who import this

BUILD = pathlib.Path(os.environ["NVCACHE_BUILD_DIR"]).resolve()
COMMAND = BUILD / "nvcache"
LIBRARY = BUILD / "libnvcache.so"
SCRATCH = BUILD / "test-data"
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
QUIET = {"NVCACHE_NOTICE": "0"}
IN_NEED = ["sh", "-c", 'exec 3>"$0"; echo x >&3; echo ready; read line']  # uses the pool for a file, and waits


def clean_environment():
    """Without anything of NVCache's or the linker's, but for the rule by which each file is cached from its first open for writing, and the one by which no
    checkpointer does anything in the background."""
    return {**without_nvcache(), "NVCACHE_WRITE_BACK": "always", "NVCACHE_CHECKPOINTER": "never"}


def checksum(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def run(*command, env=None, clean=clean_environment, **options):
    """To its end; its result with text in stdout and stderr."""
    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("timeout", 120)
    return subprocess.run([str(word) for word in command], env={**clean(), **(env or {})}, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False, **options)


def run_well(*command, **options):
    """What it prints."""
    result = run(*command, clean=without_nvcache, **{"timeout": 600, **options})
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


class FolderTest(unittest.TestCase):
    """Pools lie in self.pools (memory), files in self.files (the build folder's disk)."""

    maxDiff = None

    def setUp(self):
        self.pools = self.make_folder(MEMORY)
        self.files = self.make_folder(SCRATCH)
        self.pool = self.pools / "pool"

    def make_folder(self, parent):
        if parent is not None:
            pathlib.Path(parent).mkdir(exist_ok=True)
        folder = pathlib.Path(tempfile.mkdtemp(prefix="nvcache-test-", dir=parent))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def settings(self, size="1M", **more):
        """Of a program that has the cache by itself."""
        return {"NVCACHE_POOL": str(self.pool), "NVCACHE_SIZE": size, "NVCACHE_EMULATE": "1", **more}

    def until(self, condition, what, patience=30):
        end = time.monotonic() + patience
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.01)


class ToolTest(FolderTest):
    def nvcache(self, *arguments, **options):
        return run(COMMAND, *arguments, **options)

    def run_command(self, *program, size="1M", options=()):
        """The command line."""
        return [COMMAND, "run", "--pool", self.pool, "--size", size, "--emulate", *options, "--", *program]

    def run_on_pool(self, *program, size="1M", options=(), **more):
        return run(*self.run_command(*program, size=size, options=options), **more)

    def start(self, command, **options):
        """What goes on while the test does; it is killed in the end."""
        options = {"env": clean_environment(), "stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL, **options}
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True, **options)

        def end():
            process.kill()
            process.wait()
            for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
                stream.close()

        self.addCleanup(end)
        return process

    def create(self, size="1M", pool=None):
        self.assert_status(self.nvcache("create", pool or self.pool, "--size", size, "--emulate"), 0)

    def json(self, *arguments):
        return json.loads(self.assert_ok(self.nvcache(*arguments, "--json")).stdout)

    def status(self):
        return self.json("status", self.pool)

    def status_text(self):
        return self.assert_ok(self.nvcache("status", self.pool)).stdout

    @contextlib.contextmanager
    def dirty_image(self, files=None, pool=None):
        """To write a pool by hand, as a program leaves it that has died. It has these files, by their numbers."""
        with image.Image(pool or self.pool) as opened:
            for number, path in (files or {}).items():
                opened.add_file(number, path)
            yield opened
            opened.set_dirty()

    def is_clean(self):
        with image.Image(self.pool) as pool:
            return pool.is_clean()

    def assert_refused(self, result, status, *words):
        """Failed with `status`, and with one line that says so and has these words."""
        self.assert_status(result, status)
        self.assertRegex(result.stderr, r"\Anvcache: [^\n]+\n\Z")
        self.assertEqual(result.stdout, "")
        for word in words:
            self.assertIn(str(word), result.stderr)

    def assert_status(self, result, status):
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def assert_ok(self, result, stdout=None):
        self.assert_status(result, 0)
        self.assertEqual(result.stderr, "")
        if stdout is not None:
            self.assertEqual(result.stdout, stdout)
        return result
