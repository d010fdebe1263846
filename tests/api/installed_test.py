# SPDX-License-Identifier: BSD-3-Clause
"""Installs into an empty folder, and builds and runs the example with what is there."""

import os
import pathlib
import re
import shutil
import tempfile
import unittest

from kit import tool
from kit.tool import BUILD, run_well

SOURCE = pathlib.Path(os.environ["NVCACHE_SOURCE_DIR"]).resolve()
CC = os.environ.get("CC", "cc")
CXX = os.environ.get("CXX", "c++")

FUNCTIONS = "open close read pread write pwrite lseek fsync ftruncate fstat drain".split()


class InstalledTest(tool.FolderTest):
    @classmethod
    def setUpClass(cls):
        (BUILD / "test-data").mkdir(exist_ok=True)
        cls.prefix = pathlib.Path(tempfile.mkdtemp(prefix="installed-", dir=BUILD / "test-data"))
        run_well("cmake", "--install", BUILD, "--prefix", cls.prefix)
        (cls.shared_object,) = cls.prefix.glob("lib*/**/libnvcache-api.so")
        cls.env = {"PKG_CONFIG_PATH": str(cls.shared_object.parent / "pkgconfig"),
                   "LD_LIBRARY_PATH": str(cls.shared_object.parent)}

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.prefix, ignore_errors=True)

    def flags(self):
        return run_well("pkg-config", "--cflags", "--libs", "nvcache", env=self.env).split()

    def test_everything_is_there(self):
        for name in ("bin/nvcache", "include/nvcache.h"):
            self.assertTrue((self.prefix / name).is_file(), name)
        self.assertTrue((self.shared_object.parent / "libnvcache.so").is_file())

    def test_pkg_config(self):
        version = run_well("pkg-config", "--modversion", "nvcache", env=self.env).strip()
        self.assertIn(f"nvcache {version}\n", run_well(self.prefix / "bin/nvcache", "--version"))

    def test_needs_libc_alone(self):
        dynamic = run_well("readelf", "--dynamic", "--wide", self.shared_object)
        self.assertEqual(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic), ["libc.so.6"])

    def test_exports_the_api_alone(self):
        lines = run_well("nm", "--dynamic", "--defined-only", "--portability", self.shared_object).splitlines()
        names = {line.split()[0].split("@")[0] for line in lines if line.split()[1] != "A"}
        self.assertEqual(names, {"nvcache_" + name for name in FUNCTIONS})

    def test_header(self):
        """Alone, in every dialect that somebody may use."""
        source = self.prefix / "header"
        warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
        for compiler, dialects in (
            ([CC, "-xc"], ("c90", "c11", "gnu17")),
            ([CXX, "-xc++"], ("c++11", "c++20")),
        ):
            source.write_text("#include <nvcache.h>\n")
            for dialect in dialects:
                run_well(*compiler, f"-std={dialect}", *warnings, f"-I{self.prefix}/include", source)

    def test_example(self):
        example = self.prefix / "example"
        run_well(CC, "-Wall", "-Wextra", "-Werror", SOURCE / "src/api/example.c", "-o", example,
            *self.flags(), env=self.env)
        journal = self.prefix / "journal"
        said = run_well(example, journal, env={**self.env, **self.settings("4M", NVCACHE_REQUIRED="1")})
        expected = "".join(f"record {i}\n" for i in range(1000))
        self.assertEqual(journal.read_text(), expected)
        self.assertEqual(said, f"{len(expected)} bytes, the first are: record 0\n")
        status = run_well(self.prefix / "bin/nvcache", "status", self.pool)
        self.assertRegex(status, r"(?m)^ +100\d  records that reached the disk$")

    def test_command_finds_the_library(self):
        """The installed command preloads the installed library, found from its own place."""
        command = [self.prefix / "bin/nvcache", "run", "--pool", self.pool, "--size", "1M", "--emulate"]
        self.assertEqual(run_well(*command, "--", "printenv", "LD_PRELOAD", env=self.env).strip(),
                         str(self.shared_object.parent / "libnvcache.so"))


if __name__ == "__main__":
    unittest.main()
