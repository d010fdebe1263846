# SPDX-License-Identifier: BSD-3-Clause
"""Settings and command lines that cannot be understood: one line, and no pool is made."""

import unittest

from kit import tool


class BadSettingTest(tool.ToolTest):
    def assert_run_refused(self, *words, options=(), env=None):
        result = self.nvcache("run", "--pool", self.pool, "--emulate", *options, "--", "true", env=env)
        self.assert_refused(result, 125, *words)
        self.assertEqual(list(self.pools.iterdir()), [])

    def test_unknown_setting(self):
        self.assert_run_refused("NVCACHE_BOGUS", "no setting", env={"NVCACHE_BOGUS": "1"})

    def test_unreadable_size(self):
        for size in ("x", "12q", "1.2.3", "-1", "1 G", "1e9", "99999999999999999999", "0x10", "k"):
            with self.subTest(size=size):
                self.assert_refused(self.nvcache("create", self.pool, "--emulate", f"--size={size}"), 2, "--size", size)
                self.assert_run_refused("NVCACHE_SIZE", size, options=[f"--size={size}"])
                self.assert_run_refused("NVCACHE_DRAM", size, options=[f"--dram={size}"])
                self.assert_run_refused("NVCACHE_DRAM", size, env={"NVCACHE_DRAM": size})

    def test_size_out_of_range(self):
        for size in ("0", "4k", "1023k", "65T", "8000P"):
            with self.subTest(size=size):
                result = self.nvcache("create", self.pool, "--emulate", "--size", size)
                self.assert_refused(result, 1, self.pool, "from 1M to 64T")
                self.assert_run_refused("from 1M to 64T", options=["--size", size])
        self.assert_run_refused("from 64k to 4T", options=["--dram", "63k"])
        self.assert_run_refused("from 64k to 4T", options=["--dram", "5T"])
        self.assert_run_refused("from 64k to 4T", options=["--frames", "pool:63k"])

    def test_frames(self):
        for frames in ("64M", "pool", "pool:", "nvmm:64M", "pool:64M,dram:64M"):
            with self.subTest(frames=frames):
                self.assert_run_refused("NVCACHE_FRAMES", frames, options=["--frames", frames])
                self.assert_run_refused("NVCACHE_FRAMES", frames, env={"NVCACHE_FRAMES": frames})
        both = ["--dram", "64M", "--frames", "pool:64M"]
        self.assert_run_refused("NVCACHE_DRAM and NVCACHE_FRAMES", options=both)
        self.assert_run_refused("NVCACHE_DRAM and NVCACHE_FRAMES",
                                env={"NVCACHE_DRAM": "64M", "NVCACHE_FRAMES": "dram:32M"})
        self.assert_run_refused("0 to 100000", env={"NVCACHE_FRAME_DELAY": "1us"})

    def test_impossible_glob(self):
        for glob in ("[", "[abc", "a[!", "b\\", "/good/*:[bad"):
            with self.subTest(glob=glob):
                self.assert_run_refused("NVCACHE_INCLUDE", glob, options=["--include", glob])
                self.assert_run_refused("NVCACHE_EXCLUDE", glob, options=["--exclude", glob])
                self.assert_run_refused("NVCACHE_INCLUDE", env={"NVCACHE_INCLUDE": glob})

    def test_one_of_several_globs(self):
        options = ["--include", "*.db", "--include", "[z"]
        self.assert_run_refused("NVCACHE_INCLUDE", "[z", options=options)

    def test_write_back(self):
        for rule in ("Always", "1", "yes", "hot", "auto:always", " auto"):
            with self.subTest(rule=rule):
                words = (f"NVCACHE_WRITE_BACK={rule}", "give auto, always or never")
                self.assert_run_refused(*words, options=["--write-back", rule])
                self.assert_run_refused(*words, env={"NVCACHE_WRITE_BACK": rule})

    def test_flags_and_numbers(self):
        self.assert_run_refused("NVCACHE_REQUIRED", "maybe", env={"NVCACHE_REQUIRED": "maybe"})
        self.assert_run_refused("NVCACHE_BATCH_MIN", "ten", options=["--batch-min", "ten"])
        self.assert_run_refused("NVCACHE_BATCH_MAX", "0", options=["--batch-max", "0"])
        self.assert_run_refused("NVCACHE_BATCH_DELAY", "1s", options=["--batch-delay", "1s"])
        self.assert_run_refused("NVCACHE_BATCH_MIN=20", "NVCACHE_BATCH_MAX=10",
                                options=["--batch-min", "20", "--batch-max", "10"])

    def test_no_program(self):
        self.assert_refused(self.nvcache("run", "--pool", self.pool), 125, "no program")
        self.assert_refused(self.nvcache("run", "--pool", self.pool, "--"), 125, "no program")

    def test_no_library(self):
        missing = self.files / "libnvcache.so"
        self.assert_run_refused("--library", missing, options=["--library", missing])
        spaced = self.files / "a b" / "libnvcache.so"
        spaced.parent.mkdir()
        spaced.write_bytes(b"")
        self.assert_run_refused(spaced, "space or colon", options=["--library", spaced])

    def test_usage(self):
        for arguments in ([], ["bogus"], ["--bogus"], ["create"], ["create", "pool"], ["create", "--size", "1M"],
                          ["create", "pool", "more", "--size", "1M"], ["dump", "--bogus", "pool"],
                          ["recover"], ["recover", "pool", "--export"]):
            with self.subTest(arguments=arguments):
                self.assert_refused(self.nvcache(*arguments, cwd=self.files), 2, "--help")
        self.assert_refused(self.nvcache("run", "--bogus", "--", "true"), 125, "--bogus", "--help")
        self.assert_refused(self.nvcache("run", "--pool"), 125, "--pool", "--help")
        self.assertEqual(list(self.files.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
