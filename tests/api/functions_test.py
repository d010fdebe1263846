# SPDX-License-Identifier: BSD-3-Clause
"""The C API's functions with the cache, without it, and under the preload library."""

import os
import unittest

from kit import tool

PROGRAM = os.environ["NVCACHE_API_TEST"]


class FunctionsTest(tool.ToolTest):
    def setUp(self):
        super().setUp()
        self.file = self.files / "data"
        self.cached = self.settings("4M", NVCACHE_REQUIRED="1")

    def program(self, case, **env):
        result = tool.run(PROGRAM, case, self.file, env=env, clean=tool.without_nvcache)
        self.assertEqual((result.returncode, result.stdout), (0, ""), result.stderr)
        return result.stderr

    def assert_cached(self):
        """The engine was at work, and has left nothing behind."""
        status = self.status()
        self.assertGreater(status["statistics"]["segments_taken"], 0)
        self.assertEqual((status["state"], status["pending_records"]), ("clean", 0))

    def everywhere(self, case, check):
        self.assertEqual(self.program(case), "")
        check()
        self.assertFalse(self.pool.exists())
        # That each file is cached is the default of the API, not of the preload library.
        for more in ({}, {"LD_PRELOAD": str(tool.LIBRARY), "NVCACHE_WRITE_BACK": "always"}):
            with self.subTest(more=more):
                self.file.unlink(missing_ok=True)
                self.pool.unlink(missing_ok=True)
                said = self.program(case, **self.cached, **more)
                # One engine has the pool, so one line says what an emulated pool is.
                self.assertRegex(said, r"\A(nvcache: [^\n]+ is emulated: [^\n]+\n)?\Z")
                check()
                if case != "pipes":
                    self.assert_cached()

    def test_functions(self):
        self.everywhere("functions", lambda: self.assertEqual(self.file.read_bytes(), b"0123"))

    def test_pipes(self):
        self.everywhere("pipes", lambda: None)

    def test_threads(self):
        def check():
            records = (bytes([97 + i]) * 700 for i in range(8))
            self.assertEqual(self.file.read_bytes(), b"".join(records) * 200)

        self.everywhere("threads", check)

    def test_fork(self):
        expected = b"parent child parent"
        self.everywhere("fork", lambda: self.assertEqual(self.file.read_bytes(), expected))

    def test_hidden(self):
        self.program("hidden", **self.cached)
        self.assertEqual(self.file.read_bytes(), b"x")
        self.assert_cached()

    def test_died(self):
        """What the program wrote before it died comes back by recovery."""
        self.program("die", **self.cached, NVCACHE_BATCH_DELAY="60000")
        status = self.status()
        self.assertEqual((status["state"], status["pending_records"]), ("dirty", 100))
        self.assert_status(self.nvcache("recover", self.pool), 0)
        self.assertEqual(self.file.read_bytes(), b"durable\n" * 100)

    def test_pool_that_cannot_be_had(self):
        """Runs without the cache, after one line; or not at all when it is required."""
        self.pool.write_bytes(b"no pool" * 1000)
        env = {**self.cached, "NVCACHE_REQUIRED": "0"}
        said = self.program("functions", **env)
        self.assertRegex(said, r"\Anvcache: [^\n]+too few for a pool[^\n]+\n\Z")
        self.assertEqual(self.file.read_bytes(), b"0123")
        result = tool.run(PROGRAM, "functions", self.file, env=self.cached, clean=tool.without_nvcache)
        self.assert_refused(result, 125)


if __name__ == "__main__":
    unittest.main()
