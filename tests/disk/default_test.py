#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`nvcache run` where nobody has named a pool: one is made on the disk, and found again."""

import os
import pathlib
import subprocess
import unittest

from kit import disks, tool

NOBODY = 65534
ROOTS = pathlib.Path("/var/lib/nvcache/pool")
WRITE = ("sh", "-c", "echo x > $0; sync $0; sync $0")


@unittest.skipUnless(disks.own_mounts(), "nothing can be mounted here")
class DefaultTest(tool.ToolTest):
    def setUp(self):
        super().setUp()
        self.assertEqual(subprocess.run(["mount", "--bind", self.files, "/var/lib"], check=False).returncode, 0)
        self.addCleanup(subprocess.run, ["umount", "/var/lib"], check=False)
        self.out = self.files / "out"
        self.out.touch()

    def run_alone(self, *options, **more):
        return tool.run(tool.COMMAND, "run", *options, "--", *WRITE, self.out, **more)

    def as_nobody(self, *words, **environment):
        for folder in (self.files, *self.files.parents, *tool.COMMAND.parents):
            if folder != self.files and not os.stat(folder).st_mode & 0o001:
                self.skipTest(f"another user cannot enter {folder}")
        os.chown(self.files, NOBODY, NOBODY)
        os.chown(self.out, NOBODY, NOBODY)
        return tool.run(*words, env=environment, user=NOBODY, group=NOBODY, extra_groups=[])

    def assert_made(self, result, pool, size="256 MiB"):
        self.assert_status(result, 0)
        self.assertEqual(result.stderr, f"nvcache: {pool} is made with {size}, for no pool was named, and has a journal on its "
                         "disk: what a program syncs survives a power failure\n")
        self.assertEqual(pool.stat().st_mode & 0o777, 0o600)
        self.assertEqual(pool.parent.stat().st_mode & 0o777, 0o700)

    def test_of_root(self):
        self.assert_made(self.run_alone(), ROOTS)
        made = ROOTS.stat().st_ino
        result = self.run_alone()
        self.assert_status(result, 0)
        self.assertRegex(result.stderr, rf"\Anvcache: {ROOTS} has a journal on its disk: [^\n]+\n\Z")
        self.assertEqual(ROOTS.stat().st_ino, made)
        self.assertEqual(self.json("status", ROOTS)["size"], 256 << 20)

    def test_at_once(self):
        """Of several that find none, one makes it, and all use it."""
        runs = [self.start([tool.COMMAND, "run", "--size", "8M", "--required", "--", *WRITE, self.files / f"out{i}"],
                           stderr=subprocess.PIPE) for i in range(4)]
        said = [run.communicate(timeout=60)[1] for run in runs]
        self.assertEqual([run.returncode for run in runs], [0] * 4, said)
        self.assertEqual(sum("is made with 8 MiB" in text for text in said), 1, said)
        self.assertEqual([path.name for path in ROOTS.parent.iterdir()], ["pool"])

    def test_size(self):
        self.assert_made(self.run_alone("--size", "4M", env={"NVCACHE_POOL": ""}), ROOTS, "4 MiB")

    def test_quiet(self):
        self.assert_ok(self.run_alone("--size", "4M", env=tool.QUIET))

    def test_one_that_is_named(self):
        pool = self.files / "named"
        self.assert_status(self.run_alone("--size", "4M", env={"NVCACHE_POOL": str(pool)}), 0)
        self.assertTrue(pool.exists())
        self.assertFalse(ROOTS.exists())

    def test_of_a_user(self):
        for environment, place in (({"XDG_STATE_HOME": str(self.files / "state"), "HOME": "/nowhere"}, "state/nvcache/pool"),
                                   ({"HOME": str(self.files / "home")}, "home/.local/state/nvcache/pool"),
                                   ({"XDG_STATE_HOME": "relative", "HOME": str(self.files / "other")},
                                    "other/.local/state/nvcache/pool")):
            with self.subTest(place=place):
                result = self.as_nobody("env", "-u", "XDG_STATE_HOME",
                                        *(f"{name}={value}" for name, value in environment.items()), tool.COMMAND, "run", "--size",
                                        "4M", "--", *WRITE, self.out)
                self.assert_made(result, self.files / place, "4 MiB")
                self.assertEqual((self.files / place).stat().st_uid, NOBODY)

    def test_of_nobody_with_no_home(self):
        result = self.as_nobody("env", "-u", "XDG_STATE_HOME", "-u", "HOME", tool.COMMAND, "run", "--", *WRITE, self.out)
        self.assert_refused(result, 125, "no pool is named", "--pool")

    def test_where_it_cannot_be(self):
        """In memory, it would be durable for nobody."""
        subprocess.run(["mount", "-t", "tmpfs", "none", "/var/lib"], check=True)
        self.addCleanup(subprocess.run, ["umount", "/var/lib"], check=False)
        result = self.run_alone()
        self.assert_status(result, 0)
        self.assertRegex(result.stderr, rf"\Anvcache: pool {ROOTS} is not persistent memory[^\n]+; the program runs without the "
                         r"cache\n\Z")
        self.assertFalse(ROOTS.exists())
        self.assert_refused(self.run_alone("--required"), 125, ROOTS, "--emulate")

    def test_little_memory(self):
        """As containers have it."""
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", "/dev/shm"], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", "/dev/shm"], check=False)
        result = self.run_alone()
        self.assert_status(result, 0)
        self.assertRegex(result.stderr, rf"\Anvcache: {ROOTS} is made with 32 MiB, not 256 MiB: .*/dev/shm[^\n]+\n[^\n]+ has a "
                         r"journal on its disk[^\n]+\n\Z")
        self.assertEqual(self.json("status", ROOTS)["size"], 32 << 20)

    def test_with_the_library_alone(self):
        """It uses a journal that is there, makes one where a size is given, and says so where none is."""
        pool = self.files / "pool"
        settings = {"LD_PRELOAD": str(tool.LIBRARY), "NVCACHE_POOL": str(pool)}
        result = tool.run(*WRITE, self.out, env=settings)
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stderr, rf"(?m)^nvcache: pool {pool} does not exist: .*NVCACHE_SIZE")
        self.assertFalse(pool.exists())
        result = tool.run(*WRITE, self.out, env={**settings, "NVCACHE_SIZE": "4M", "NVCACHE_REQUIRED": "1"})
        self.assert_status(result, 0)
        self.assertIn("journal", result.stderr)
        before = self.json("status", pool)
        self.assertEqual((before["durability"], before["size"]), ("disk", 4 << 20))
        self.assertGreater(before["journal"]["waits"], 0)
        # Nobody has its memory any more, as after a start of the machine.
        for memory in pathlib.Path("/dev/shm").glob(f"nvcache-{before['uuid'].replace('-', '')}-*"):
            memory.unlink()
        result = tool.run(*WRITE, self.out, env={**settings, "NVCACHE_REQUIRED": "1"})
        self.assert_status(result, 0)
        after = self.json("status", pool)
        self.assertEqual(after["uuid"], before["uuid"])
        self.assertGreater(after["journal"]["waits"], 0)


if __name__ == "__main__":
    unittest.main()
