# SPDX-License-Identifier: BSD-3-Clause
"""A project outside of this tree builds with nvcache::nvcache, runs, and keeps its own settings."""

import os
import pathlib
import shutil
import unittest

from kit import tool
from kit.tool import BUILD, SCRATCH, run_well

SOURCE = pathlib.Path(os.environ["NVCACHE_SOURCE_DIR"]).resolve()


class ProjectTest(tool.FolderTest):
    def setUp(self):
        super().setUp()
        self.folder = self.make_folder(SCRATCH)
        shutil.copytree(SOURCE / "tests/api/project", self.folder / "project")
        shutil.copy(SOURCE / "src/api/example.c", self.folder / "project")

    def configure(self, *options):
        out = self.folder / "out"
        return run_well("cmake", "-S", self.folder / "project", "-B", out, "-G", "Ninja", *options)

    def build_and_run(self):
        out = self.folder / "out"
        run_well("cmake", "--build", out, "--target", "journal", "--parallel", "2")
        journal = self.folder / "journal"
        run_well(out / "journal", journal, env=self.settings("4M", NVCACHE_REQUIRED="1"))
        self.assertEqual(journal.read_text(), "".join(f"record {i}\n" for i in range(1000)))
        status = run_well(BUILD / "nvcache", "status", self.pool)
        self.assertRegex(status, r"(?m)^ +100\d  records that reached the disk$")
        return run_well("ldd", out / "journal")

    def test_find_package(self):
        prefix = self.folder / "prefix"
        run_well("cmake", "--install", BUILD, "--prefix", prefix)
        moved = self.folder / "moved"
        prefix.rename(moved)  # nothing in it names the place where it was
        self.configure(f"-DCMAKE_PREFIX_PATH={moved}")
        self.assertIn(f"{moved}/", self.build_and_run())

    def test_another_major_version_is_none(self):
        prefix = self.folder / "prefix"
        run_well("cmake", "--install", BUILD, "--prefix", prefix)
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
