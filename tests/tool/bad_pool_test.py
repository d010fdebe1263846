# SPDX-License-Identifier: BSD-3-Clause
"""Pools that cannot be used: one line that says why, and nothing is overwritten."""

import fcntl
import os
import resource
import shutil
import unittest

from kit import image, tool

USERS = {
    "status": ["status"],
    "dump": ["dump"],
    "recover": ["recover"],
    "run": ["run", "--required", "--emulate", "--pool"],
}


class BadPoolTest(tool.ToolTest):
    def use(self, user, pool=None):
        """Hands the pool to a command; its result and the status it must fail with."""
        program = ["--", "touch", self.files / "started"] if user == "run" else []
        result = self.nvcache(*USERS[user], pool or self.pool, *program)
        return result, 125 if user == "run" else 1

    def assert_bad(self, *words, pool=None, users=tuple(USERS)):
        """Every command refuses the pool with these words and leaves it as it is."""
        pool = pool or self.pool
        is_file = pool.is_file()
        before = tool.checksum(pool) if is_file else None
        for user in users:
            with self.subTest(user=user, words=words):
                result, status = self.use(user, pool)
                self.assert_refused(result, status, pool, *words)
                self.assertFalse((self.files / "started").exists(), "the program was started")
                if user == "run":
                    self.assert_runs_without(pool, *words)
                if is_file:
                    self.assertEqual(tool.checksum(pool), before, "the pool was changed")

    def assert_runs_without(self, pool, *words, emulate=("--emulate",)):
        """Where the cache is not required, the program runs without it, after one line; nor does what
        it starts say it again."""
        started = self.files / "started"
        result = self.nvcache("run", "--pool", pool, *emulate, "--", "sh", "-c",
                              f"touch {started}; sh -c ': > {self.files}/more'; exit 7")
        self.assert_refused(result, 7, pool, *words, "; the program runs without the cache")
        started.unlink()
        (self.files / "more").unlink()

    def test_missing(self):
        self.assert_bad("does not exist", users=("status", "dump", "recover"))
        self.assertEqual(list(self.pools.iterdir()), [])

    def test_missing_folder(self):
        pool = self.pools / "nowhere" / "pool"
        self.assert_bad("does not exist", pool=pool)
        self.assert_refused(self.nvcache("create", pool, "--size", "1M", "--emulate"), 1, pool, "folder does not exist")

    def test_too_small(self):
        for size in (0, 1, 4096, 8192):
            self.pool.write_bytes(b"x" * size)
            self.assert_bad(f"has {size} bytes, too few for a pool")

    def test_not_a_pool(self):
        self.pool.write_bytes(os.urandom(2 * tool.MIB))
        self.assert_bad("is not a pool")

    def test_directory(self):
        self.pool.mkdir()
        self.assert_bad("is a directory")

    def test_fifo(self):
        os.mkfifo(self.pool)
        self.assert_bad("is neither a file nor a devdax device")

    def test_path_through_file(self):
        (self.pools / "file").write_bytes(b"x")
        self.assert_bad("through a file", pool=self.pools / "file" / "pool")

    def test_truncated(self):
        self.create("2M")
        for size in (2 * tool.MIB - 1, tool.MIB, 12288, 88):
            os.truncate(self.pool, size)
            self.assert_bad(f"is truncated, {size} of {2 * tool.MIB} bytes")

    def test_damaged_superblock(self):
        """A flipped bit in any field is repaired from the copy."""
        self.create()
        good = self.pool.read_bytes()
        for place in (0, image.SUPERBLOCK_COPY_OFFSET):
            for name, offset, size in image.SUPERBLOCK_FIELDS:
                with self.subTest(field=name, place=place), image.Image(self.pool) as pool:
                    pool.flip(place + offset + size - 1, bit=3)
                    damaged = self.pool.read_bytes()
                    result = self.assert_ok(self.nvcache("status", self.pool))
                    self.assertRegex(result.stdout, "(?m)^errors +a damaged superblock")
                    self.assert_ok(self.nvcache("recover", self.pool, "--dry-run"))
                    self.assertEqual(self.pool.read_bytes(), damaged)
                    self.assert_ok(self.nvcache("recover", self.pool))
                    self.assertEqual(self.pool.read_bytes(), good)

    def test_damaged_superblocks(self):
        """With the copy gone as well, a flipped bit in any field, whatever it is, is found."""
        self.create()
        with image.Image(self.pool) as pool:
            pool.write(image.SUPERBLOCK_COPY_OFFSET, bytes(88))
        expected = {"magic": "is not a pool", "version": "has format version"}
        for name, offset, size in image.SUPERBLOCK_FIELDS:
            for byte in (0, size - 1):
                with self.subTest(field=name, byte=byte), image.Image(self.pool) as pool:
                    pool.flip(offset + byte, bit=3)
                    self.assert_bad(expected.get(name, "damaged superblock"), users=("recover",))
                    pool.flip(offset + byte, bit=3)
        self.assert_ok(self.nvcache("status", self.pool))

    def test_damaged_superblock_everywhere(self):
        self.create()
        with image.Image(self.pool) as pool:
            pool.flip(70)
            pool.flip(image.SUPERBLOCK_COPY_OFFSET + 70)
        self.assert_bad("damaged superblock", "so is the copy")

    def test_other_version(self):
        self.create()
        with image.Image(self.pool) as pool:
            pool.set_field("version", 4)
        self.assert_bad("has format version 4", "for version 14", "use the NVCache that made it")

    def test_other_geometry(self):
        """Whole superblocks of pools that were laid out in another way."""
        self.create("2M")
        original = self.pool.read_bytes()
        with image.Image(self.pool) as pool:
            changes = {
                "pool_size": pool.pool_size + pool.segment_size,
                "segment_size": 2 * pool.segment_size,
                "segment_count": pool.segment_count - 1,
                "salt": pool.salt & (2**63 - 1),
            }
        for name, value in changes.items():
            with self.subTest(field=name):
                self.pool.write_bytes(original)
                with image.Image(self.pool) as pool:
                    pool.set_field(name, value)
                self.assert_bad("geometry", users=("recover", "status"))

    def test_other_units(self):
        self.create()
        original = self.pool.read_bytes()
        for name, value in {"page_size": 8192, "unit_size": 128}.items():
            self.pool.write_bytes(original)
            with image.Image(self.pool) as pool:
                pool.set_field(name, value)
            self.assert_bad(value, "not 4096 and 64")

    def test_pool_of_version_4(self):
        """Its superblock was larger, and what lies where the copy is now was another."""
        self.create()
        with image.Image(self.pool) as pool:
            old = pool.read(0, 8) + image.struct.pack("<IIQQ16sQQQIII", 4, 88, pool.pool_size, pool.salt,
                                                      bytes(range(16)), 1, 81920, 15104, 16, 4096, 64)
            pool.write(0, old + image.struct.pack("<I", image.crc32c(old)))
            pool.write(image.SUPERBLOCK_COPY_OFFSET, old + image.struct.pack("<I", image.crc32c(old)))
        self.assert_bad("has format version 4", "for version 14", "use the NVCache that made it")

    def test_damaged_state(self):
        """From the checkpoint of a clean pool on there is nothing, so nothing is lost with it."""
        self.create()
        with image.Image(self.pool) as pool:
            pool.flip(image.STATE_OFFSET, bit=5)
            for place in (image.CHECKPOINT_OFFSET, None):
                if place is not None:
                    pool.flip(place)
                result = self.assert_ok(self.nvcache("status", self.pool))
                self.assertRegex(result.stdout, "(?m)^state +dirty")
        self.assert_ok(self.nvcache("recover", self.pool), "recovered 0 records (0 B) of 0 files\n")
        self.assert_ok(self.nvcache("recover", self.pool))

    def test_damaged_checkpoints(self):
        self.create()
        with image.Image(self.pool) as pool:
            pool.flip(image.CHECKPOINT_OFFSET)
            self.assert_ok(self.nvcache("status", self.pool))  # one is enough
            pool.flip(image.CHECKPOINT_OFFSET + image.CHECKPOINT_DISTANCE)
        self.assert_bad("both records of its checkpoint", "dump --all")

    def test_in_use(self):
        self.create()
        with image.Image(self.pool) as pool, open(self.pool, "r+b") as user:
            pool.set_dirty(os.getpid())
            fcntl.flock(user, fcntl.LOCK_EX)
            self.assert_bad(f"is in use by process {os.getpid()}", users=("recover",))
            result = self.assert_ok(self.nvcache("status", self.pool))
            self.assertRegex(result.stdout, rf"(?m)^state +in use by process {os.getpid()} ")
            self.assert_ok(self.nvcache("dump", self.pool))

    def test_read_only(self):
        """A file system that may only be read; permission bits do not bind root."""
        self.create()
        for user in ("recover", "run"):
            command = [tool.COMMAND, *USERS[user], self.pool]
            command += ["--", "true"] if user == "run" else []
            self.assert_refused(self.in_read_only_folder(command), 125 if user == "run" else 1, self.pool, "read-only")
        self.assert_ok(self.in_read_only_folder([tool.COMMAND, "status", self.pool]))
        new = self.pools / "new"
        result = self.in_read_only_folder([tool.COMMAND, "create", new, "--size", "1M", "--emulate"])
        self.assert_refused(result, 1, new, "read-only")

    def in_read_only_folder(self, command):
        script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" || exit 99; exec "$@"'
        result = tool.run("unshare", "--mount", "sh", "-c", script, self.pools, *command)
        if result.returncode == 99 or result.stderr.startswith("unshare:"):
            self.skipTest("a read-only mount needs root: " + result.stderr.strip())
        return result

    def test_too_few_huge_pages(self):
        """hugetlbfs has what was set aside for it; the mount allows fewer than the pool takes."""
        script = 'mount -t hugetlbfs -o size=2M none "$0" || exit 99; exec "$@"'
        new = self.pools / "new"
        result = tool.run("unshare", "--mount", "sh", "-c", script, self.pools, tool.COMMAND, "create", new, "--size",
                          "4M", "--emulate")
        if result.returncode == 99 or result.stderr.startswith("unshare:"):
            self.skipTest("there is no hugetlbfs, or no right to mount it: " + result.stderr.strip())
        self.assert_refused(result, 1, new, "there are no huge pages for 4194304 bytes", "vm.nr_hugepages")

    @unittest.skipIf(os.geteuid() == 0, "permission bits do not bind root")
    def test_no_permission(self):
        self.create()
        self.pool.chmod(0o400)
        self.assert_bad("permission denied", users=("recover", "run"))

    def test_not_persistent(self):
        """Without --emulate ordinary memory is refused, new or not."""
        result = self.nvcache("create", self.pool, "--size", "1M")
        self.assert_refused(result, 1, self.pool, "is not persistent memory", "--emulate")
        self.assertFalse(self.pool.exists())
        result = self.nvcache("run", "--required", "--pool", self.pool, "--size", "1M", "--", "true")
        self.assert_refused(result, 125, self.pool, "is not persistent memory", "--emulate")
        self.assertFalse(self.pool.exists())
        self.create()
        before = tool.checksum(self.pool)
        result = self.nvcache("run", "--required", "--pool", self.pool, "--", "true")
        self.assert_refused(result, 125, self.pool, "is not persistent memory", "--emulate")
        self.assert_runs_without(self.pool, "is not persistent memory", emulate=())
        self.assertEqual(tool.checksum(self.pool), before)

    def test_existing_file_is_kept(self):
        self.pool.write_bytes(b"precious")
        result = self.nvcache("create", self.pool, "--size", "1M", "--emulate")
        self.assert_refused(result, 1, self.pool, "exists already")
        self.assertEqual(self.pool.read_bytes(), b"precious")

    def test_existing_pool_is_kept(self):
        self.create()
        before = tool.checksum(self.pool)
        result = self.nvcache("create", self.pool, "--size", "2M", "--emulate")
        self.assert_refused(result, 1, self.pool, "exists already")
        self.assertEqual(tool.checksum(self.pool), before)

    def test_no_space(self):
        """More than the whole file system has, so that nothing is taken from it meanwhile."""
        if self.pools.parent != tool.pathlib.Path("/dev/shm"):
            self.skipTest("no /dev/shm")
        total = shutil.disk_usage(self.pools).total
        size = str(total + tool.MIB)
        result = self.nvcache("create", self.pool, "--size", size, "--emulate")
        self.assert_refused(result, 1, self.pool, "no room for", "smaller size")
        self.assertFalse(self.pool.exists())
        result = self.nvcache("run", "--required", "--pool", self.pool, "--size", size, "--emulate", "--",
                              "true")
        self.assert_refused(result, 125, self.pool, "no room for")
        self.assert_runs_without(self.pool, "no room for", emulate=("--emulate", "--size", size))
        self.assertFalse(self.pool.exists())

    def test_file_size_limit(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (tool.MIB, tool.MIB))

        result = self.nvcache("create", self.pool, "--size", "2M", "--emulate", preexec_fn=limit)
        self.assert_refused(result, 1, self.pool, "are not allowed", "ulimit -f")
        self.assertFalse(self.pool.exists())

    def test_descriptor_limit(self):
        """Whatever a low limit lets fail, it is named."""
        self.nvcache("create", self.pool, "--size", "1M", "--emulate")
        for most in (4, 5):
            def limit():
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

            for words in (("recover", self.pool), ("create", self.pools / "another", "--size", "1M", "--emulate")):
                result = self.nvcache(*words, preexec_fn=limit)
                self.assert_refused(result, 1, words[1], "too many files are open", "ulimit -n")

    def test_strange_name(self):
        """A name with a line feed or an escape sequence does not reach the terminal as such."""
        pool = self.pools / "a\nb\x1b[31m"
        result = self.assert_status(self.nvcache("status", pool), 1)
        self.assertRegex(result.stderr, r"\Anvcache: [ -~]+\n\Z")
        self.assertIn(r"a\x0ab\x1b[31m", result.stderr)


if __name__ == "__main__":
    unittest.main()
