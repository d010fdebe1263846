# SPDX-License-Identifier: BSD-3-Clause
"""Front ends without `nvcache run`: the wrong library for a program, a missing one, an older pool.
One line, and the program runs without the cache, or not at all when the cache was required."""

import os
import pathlib
import unittest

from kit import image, tool

MUSL_LIBRARY = tool.BUILD / "musl/lib/libnvcache-musl.so"
STATUS = 7  # of the program when all went well

# Each kind of program, and what brings NVCache into it.
FRONT_ENDS = {"GLIBC": {"LD_PRELOAD": str(tool.LIBRARY)}, "MUSL_DYNAMIC": {}, "MUSL_STATIC": {}}


def program(name):
    """A build of program.c."""
    path = os.environ.get(f"NVCACHE_TEST_{name}", "")
    return pathlib.Path(path) if path else None


class ByHandTest(tool.ToolTest):
    def setUp(self):
        super().setUp()
        self.out = self.files / "out"
        self.with_pool = self.settings(**tool.QUIET)

    def run_kind(self, name, env):
        """Starts the program, which writes the file; it is skipped where there is none."""
        if program(name) is None:
            self.skipTest(f"there is no {name} program")
        self.out.unlink(missing_ok=True)
        return tool.run(program(name), "--write", self.out, env=env)

    def assert_without(self, name, env, line):
        """Runs without the cache and says this; with NVCACHE_REQUIRED it does not run."""
        result = self.run_kind(name, env)
        self.assertEqual((result.returncode, result.stderr), (STATUS, line + "\n"))
        self.assertEqual(self.out.read_text(), "written\n")
        result = self.run_kind(name, {**env, "NVCACHE_REQUIRED": "1"})
        line = line.replace("runs without the cache", "is not started (NVCACHE_REQUIRED)")
        self.assertEqual((result.returncode, result.stderr), (125, line + "\n"))
        self.assertFalse(self.out.exists(), "the program was started")

    def test_cached(self):
        """The tests below would all pass if nothing were ever cached."""
        for name, preload in FRONT_ENDS.items():
            with self.subTest(front_end=name):
                result = self.run_kind(name, {**self.with_pool, **preload})
                self.assertEqual((result.returncode, result.stderr), (STATUS, ""))
                status = self.nvcache("status", self.pool)
                self.assertRegex(status.stdout, r"(?m)^state +clean")
                self.pool.unlink()

    def test_older_pool(self):
        self.create()
        with image.Image(self.pool) as pool:
            current = pool.field("version")
            pool.set_field("version", current - 1)
        before = tool.checksum(self.pool)
        line = (
            f"nvcache: pool {self.pool} has format version {current - 1}, this is for version "
            f"{current}: use the NVCache that made it"
        )
        for name, preload in FRONT_ENDS.items():
            with self.subTest(front_end=name):
                self.assert_without(name, {**self.with_pool, **preload}, line)
                self.assertEqual(tool.checksum(self.pool), before)

    def test_descriptor_limit(self):
        """What a low limit lets fail is named, in a folder without a file of leases, and in one that has it."""
        script = """
            mount -t tmpfs shm /dev/shm || exit 99
            "$1" create /dev/shm/pool --size 1M --emulate >/dev/null
            for limit in 4 5 6 7 7 4; do
              echo "limit $limit" >&2
              (ulimit -n $limit; exec env LD_PRELOAD="$2" NVCACHE_POOL=/dev/shm/pool true)
            done
            ls -A /dev/shm >&2
            exit 0"""
        result = tool.run("unshare", "--mount", "sh", "-c", script, "sh", tool.COMMAND, tool.LIBRARY, env=tool.QUIET)
        if result.returncode == 99 or result.stderr.startswith("unshare:"):
            self.skipTest("no file system of its own can be mounted here")
        pool = "nvcache: pool /dev/shm/pool cannot be opened, too many files are open: raise the limit (ulimit -n)"
        self.assertEqual(result.stderr.splitlines(), [
            "limit 4", pool, "limit 5", "limit 6", "limit 7", "limit 7", "limit 4", pool,
            f"nvcache-leases-{os.geteuid()}", "pool"])

    def test_library_of_glibc_in_other_libc(self):
        env = {"LD_PRELOAD": str(tool.LIBRARY)}
        line = (
            "nvcache: libnvcache.so is for programs of glibc; link this one with nvcache-musl-gcc, or "
            "with glibc; the program runs without the cache"
        )
        self.assert_without("PLAIN_MUSL", {**env, **self.with_pool}, line)
        self.assertFalse(self.pool.exists())
        result = self.run_kind("PLAIN_MUSL", env)  # no pool, nothing to say
        self.assertEqual((result.returncode, result.stderr), (STATUS, ""))

    def test_library_of_glibc_in_nvcache_musl(self):
        """It is inherited where programs of both libraries run, and does no harm."""
        for name in ("MUSL_DYNAMIC", "MUSL_STATIC"):
            with self.subTest(front_end=name):
                result = self.run_kind(name, {**self.with_pool, "LD_PRELOAD": str(tool.LIBRARY)})
                self.assertEqual((result.returncode, result.stderr), (STATUS, ""))
                self.assertTrue(self.pool.exists())

    def test_library_of_musl_in_glibc(self):
        if not MUSL_LIBRARY.exists():
            self.skipTest("there is no library for musl")
        result = self.run_kind("GLIBC", {**self.with_pool, "LD_PRELOAD": str(MUSL_LIBRARY)})
        self.assertEqual(result.returncode, STATUS)
        self.assertRegex(result.stderr,
                         r"\Anvcache: libnvcache-musl\.so is for [^\n]+; the program runs without the cache\n\Z")
        line = result.stderr.strip()
        self.assert_without("GLIBC", {**self.with_pool, "LD_PRELOAD": str(MUSL_LIBRARY)}, line)

    def test_missing_library(self):
        """The dynamic linker itself goes on, whatever is required; glibc's says so."""
        missing = self.files / "libnvcache.so"
        for name, said in (("GLIBC", f"'{missing}' from LD_PRELOAD cannot be preloaded"), ("PLAIN_MUSL", "")):
            with self.subTest(front_end=name):
                env = {**self.with_pool, "LD_PRELOAD": str(missing), "NVCACHE_REQUIRED": "1"}
                result = self.run_kind(name, env)
                self.assertEqual(result.returncode, STATUS)
                self.assertIn(said, result.stderr)
                self.assertEqual(len(result.stderr.splitlines()), 1 if said else 0)
                self.assertFalse(self.pool.exists())


if __name__ == "__main__":
    unittest.main()
