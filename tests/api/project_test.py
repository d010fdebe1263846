# SPDX-License-Identifier: BSD-3-Clause
"""A project outside of this tree builds with nvcache::nvcache, runs, and keeps its own settings."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["NVCACHE_BUILD_DIR"]).resolve()
SOURCE = pathlib.Path(os.environ["NVCACHE_SOURCE_DIR"]).resolve()


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}")
    return done.stdout


class ProjectTest(unittest.TestCase):
    def setUp(self):
        (BUILD / "test-data").mkdir(exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="project-", dir=BUILD / "test-data"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        shutil.copytree(SOURCE / "tests/api/project", self.folder / "project")
        shutil.copy(SOURCE / "src/api/example.c", self.folder / "project")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("NVCACHE_", "LD_"))}

    def configure(self, *options):
        out = self.folder / "out"
        return run("cmake", "-S", self.folder / "project", "-B", out, "-G", "Ninja", *options, env=self.env)

    def build_and_run(self):
        out = self.folder / "out"
        run("cmake", "--build", out, "--target", "journal", "--parallel", "2", env=self.env)
        shared = "/dev/shm" if os.path.isdir("/dev/shm") else None
        with tempfile.TemporaryDirectory(prefix="nvcache-api-", dir=shared) as pools:
            pool = pathlib.Path(pools) / "pool"
            env = {**self.env, "NVCACHE_POOL": str(pool), "NVCACHE_SIZE": "4M",
                   "NVCACHE_EMULATE": "1", "NVCACHE_REQUIRED": "1"}
            journal = self.folder / "journal"
            run(out / "journal", journal, env=env)
            self.assertEqual(journal.read_text(), "".join(f"record {i}\n" for i in range(1000)))
            status = run(BUILD / "nvcache", "status", pool)
            self.assertRegex(status, r"(?m)^ +100\d  records that reached the disk$")
        return run("ldd", out / "journal", env=self.env)

    def test_find_package(self):
        prefix = self.folder / "prefix"
        run("cmake", "--install", BUILD, "--prefix", prefix)
        moved = self.folder / "moved"
        prefix.rename(moved)  # nothing in it names the place where it was
        self.configure(f"-DCMAKE_PREFIX_PATH={moved}")
        self.assertIn(f"{moved}/", self.build_and_run())

    def test_another_major_version_is_none(self):
        prefix = self.folder / "prefix"
        run("cmake", "--install", BUILD, "--prefix", prefix)
        listing = self.folder / "project/CMakeLists.txt"
        listing.write_text(listing.read_text().replace("nvcache 1.0", "nvcache 0.1"))
        with self.assertRaisesRegex(AssertionError, "version"):
            self.configure(f"-DCMAKE_PREFIX_PATH={prefix}")

    def test_add_subdirectory(self):
        listing = self.folder / "project/CMakeLists.txt"
        listing.write_text(listing.read_text() + """
foreach(name CMAKE_CXX_FLAGS_RELEASE CMAKE_RUNTIME_OUTPUT_DIRECTORY CMAKE_CXX_STANDARD CPACK_PACKAGE_NAME)
  if(NOT "${${name}}" STREQUAL "$CACHE{${name}}")
    message(FATAL_ERROR "${name} has become ${${name}}")
  endif()
endforeach()
get_directory_property(options COMPILE_OPTIONS)
get_directory_property(definitions COMPILE_DEFINITIONS)
if(options OR definitions OR TARGET nvcache_unit_tests OR TARGET nvcache_micro)
  message(FATAL_ERROR "more than nvcache::nvcache: ${options} ${definitions}")
endif()
""")
        self.configure(f"-DNVCACHE_SOURCE={SOURCE}", "-DCMAKE_CXX_FLAGS=-O0",
                       "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
        self.assertNotIn("-Werror", (self.folder / "out/compile_commands.json").read_text())
        self.assertFalse((self.folder / "out/CPackConfig.cmake").exists())
        self.assertIn(f"{self.folder}/out/nvcache/", self.build_and_run())


if __name__ == "__main__":
    unittest.main()
