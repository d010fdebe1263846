# SPDX-License-Identifier: BSD-3-Clause
"""recover for several pools, and for a list of them."""

import json
import os
import pathlib
import unittest

from kit import image, tool


class ListTest(tool.ToolTest):
    def setUp(self):
        super().setUp()
        self.list = self.files / "list"

    def dirty_pool(self, name, data=b"data"):
        pool = self.pools / name
        self.create(pool=pool)
        path = self.files / (name + ".file")
        path.write_bytes(b"")
        with self.dirty_image({0: path}, pool) as pool_image:
            pool_image.add_write(0, 0, data)
        return pool, path

    def recover(self, text, *options):
        self.list.write_text(text)
        return self.nvcache("recover", "--list", self.list, *options)

    def test_two_good_ones_and_once_more(self):
        one, one_file = self.dirty_pool("one")
        two, two_file = self.dirty_pool("a name with blanks", b"other")
        text = f"# the pools of this machine\n\n  {one}  \r\n\t{two}\n   # the end"
        result = self.assert_ok(self.recover(text))
        self.assertEqual(
            result.stdout,
            f"{one}: recovered 1 record (4 B) of 1 file\n"
            f"{two}: recovered 1 record (5 B) of 1 file\n",
        )
        self.assertEqual((one_file.read_bytes(), two_file.read_bytes()), (b"data", b"other"))
        self.assert_ok(self.recover(text), f"{one}: nothing to recover\n{two}: nothing to recover\n")

    def test_on_the_command_line(self):
        pools = [self.dirty_pool(name) for name in ("one", "two")]
        self.assert_ok(self.nvcache("recover", *(pool for pool, _ in pools)))
        for _, path in pools:
            self.assertEqual(path.read_bytes(), b"data")

    def test_empty(self):
        for text in ("", "\n\n", "# nothing\n"):
            self.assert_ok(self.recover(text), "no pools are listed\n")
            self.assertEqual(json.loads(self.recover(text, "--json").stdout), {"pools": []})

    def test_no_list(self):
        result = self.nvcache("recover", "--list", self.list)
        self.assert_refused(result, 1, self.list, "cannot be read", "No such file")
        self.assert_refused(self.nvcache("recover", "--list", self.files), 1, self.files, "cannot be read")
        self.assert_refused(self.nvcache("recover"), 2, "no pool is named")

    def test_missing_pool(self):
        """Is wrong, for its file system may not be mounted; unless the list says that it may."""
        good, path = self.dirty_pool("good")
        missing = self.pools / "missing"
        result = self.assert_status(self.recover(f"{missing}\n{good}\n"), 1)
        self.assertEqual(
            result.stderr.splitlines(),
            [f"nvcache: pool {missing} does not exist: make it with `nvcache create`, or set "
             "NVCACHE_SIZE",
             "nvcache: 1 of 2 pools were not recovered completely; see above"],
        )
        self.assertEqual(path.read_bytes(), b"data")
        self.assert_ok(self.recover(f"-{missing}\n-{good}\n"), f"{missing}: not there\n{good}: nothing to recover\n")

    def test_bad_ones_do_not_stop_the_others(self):
        """In whatever order; the worst one gives the exit status."""
        damaged, _ = self.dirty_pool("damaged")
        with image.Image(damaged) as pool:
            pool.flip(pool.unit_offset(1))
        lost, lost_file = self.dirty_pool("lost")
        lost_file.unlink()
        no_pool = self.pools / "no-pool"
        no_pool.write_bytes(b"x" * tool.MIB)
        bad = {damaged: 4, lost: 3, no_pool: 1}
        for chosen in ([damaged], [lost], [no_pool], [damaged, lost], [lost, damaged, no_pool]):
            good, path = self.dirty_pool("good")
            lines = [*map(str, chosen[:1]), str(good), *map(str, chosen[1:])]
            before = [tool.checksum(pool) for pool in chosen]
            result = self.recover("\n".join(lines), "--dry-run", "--json")
            self.assertEqual([tool.checksum(pool) for pool in chosen], before)
            report = json.loads(result.stdout)
            self.assertEqual([pool["pool"] for pool in report["pools"]], lines)
            self.assertEqual([pool["status"] for pool in report["pools"]],
                             [bad.get(pathlib.Path(line), 0) for line in lines])
            for pool in report["pools"]:
                self.assertEqual(pool["message"] is None, pool["status"] == 0)
            result = self.recover("\n".join(lines), "--dry-run" if damaged in chosen else "--json")
            worst = min((bad[pool] for pool in chosen), key=[1, 3, 4].index)
            self.assertEqual(result.returncode, worst, result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), len(chosen) + 1)
            if damaged not in chosen:
                self.assertEqual(path.read_bytes(), b"data")
            good.unlink()
            path.unlink()

    def test_lines_that_are_wrong(self):
        good, path = self.dirty_pool("good")
        result = self.assert_status(self.recover(f"relative/pool\n{good}\nroot\n- {good}\n"), 1)
        for number, line in ((1, "relative/pool"), (3, "root"), (4, f"- {good}")):
            self.assertIn(f"nvcache: {self.list}:{number}: '{line}' is not a pool's absolute path",
                          result.stderr)
        self.assertEqual(path.read_bytes(), b"data")

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_users(self):
        """A line may say with whose rights the files are written."""
        mine, path = self.dirty_pool("mine")
        self.assert_status(self.recover(f"nobody {mine}\n"), 3)
        self.assertEqual(path.read_bytes(), b"")
        result = self.assert_status(self.recover(f"no-such-user {mine}\n"), 1)
        self.assertIn("no such user", result.stderr)
        self.assertEqual(self.recover(f"root -{mine}\n").returncode, 0)
        self.assertEqual(path.read_bytes(), b"data")

    def test_a_pool_that_kills_its_reader(self):
        """As one does that its owner cuts off while it is read: only that recovery dies."""
        good, path = self.dirty_pool("good")
        hostile, hostile_file = self.dirty_pool("hostile")
        for options in ([], ["--json"]):
            result = tool.run("strace", "-f", "-o", os.devnull, "-P", hostile_file, "-e", "trace=pwritev", "-e",
                              "inject=pwritev:signal=SIGBUS", tool.COMMAND, "recover", hostile, good, *options)
            if "ptrace" in result.stderr:
                self.skipTest("cannot be traced: " + result.stderr)
            self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
            self.assertIn(f"pool {hostile}: the recovery was killed by signal 7", result.stderr)
            self.assertEqual(path.read_bytes(), b"data")
        self.assertEqual([pool["status"] for pool in json.loads(result.stdout)["pools"]], [1, 0])

    def test_export_is_for_one(self):
        good, _ = self.dirty_pool("good")
        self.assert_refused(self.recover(f"{good}\n", "--export", self.files / "export"), 2, "--export is for one pool")
        self.assertFalse((self.files / "export").exists())


if __name__ == "__main__":
    unittest.main()
