# SPDX-License-Identifier: BSD-3-Clause
"""Whose pool it is. A pool of another user is refused, and root, who recovers it all the same,
writes nothing that the pool's owner could not have written: the pools here were made to mislead."""

import json
import os
import pathlib
import shutil
import subprocess
import unittest

import machine
from machine import GROUP, STRANGER, TEAM, USER, USER_NAME, image, tool

SECRET = b"secret content"


class OwnerTest(machine.MachineTest):
    """Who may use a pool at all."""

    def test_mode_of_a_new_pool(self):
        self.pools.chmod(0o777)
        for number, umask in enumerate((0, 0o022, 0o777)):
            pool = self.pools / f"pool{number}"
            for way in (["create", pool, "--size", "1M", "--emulate"],
                        ["run", "--pool", f"{pool}.run", "--size", "1M", "--emulate",
                         "--library", tool.LIBRARY, "--", "true"]):
                self.assert_status(self.as_user(0, *way, umask=umask), 0)
            for path in (pool, pathlib.Path(f"{pool}.run")):
                self.assertEqual(path.stat().st_mode & 0o7777, 0o600, oct(umask))

    def test_of_another_user(self):
        """Even if its mode would let everybody write."""
        self.make_pool(STRANGER)
        self.pool.chmod(0o666)
        before = tool.checksum(self.pool)
        for user in (USER, 0):
            words = (self.pool, f"belongs to the user with the number {STRANGER}")
            self.assert_refused(self.run_as(user, "--required", "--", "true"), 125, *words)
            result = self.run_as(user, "--", "sh", "-c", "sh -c true; exit 7")
            self.assert_refused(result, 7, *words, "; the program runs without the cache")
        self.assert_refused(self.as_user(USER, "recover", self.pool), 1, self.pool, "belongs to the user")
        self.assertEqual(tool.checksum(self.pool), before)
        # To look at it is another matter.
        self.assert_ok(self.as_user(USER, "status", self.pool))

    def run_as(self, user, *words):
        return self.as_user(user, "run", "--pool", self.pool, "--emulate", "--library", self.copy_library(), *words)

    def copy_library(self):
        copy = self.base / "libnvcache.so"
        shutil.copy(tool.LIBRARY, copy)
        return copy

    def test_the_library(self):
        """Without the cache, after one line if notices are wanted; the pool stays as it is."""
        self.make_pool(STRANGER)
        before = tool.checksum(self.pool)
        for dirty, notice in ((False, "1"), (False, "0"), (True, "1"), (True, "0")):
            if dirty and notice == "1":
                self.fill(self.make_file(self.files / "data", b"old"))
                before = tool.checksum(self.pool)
            result = tool.run("sh", "-c", "echo text > \"$0\"; cat \"$0\"", self.files / "written",
                              env=self.settings(NVCACHE_NOTICE=notice, NVCACHE_INCLUDE="*",
                                                LD_PRELOAD=str(self.copy_library())))
            self.assertEqual((result.returncode, result.stdout), (0, "text\n"), result.stderr)
            for line in result.stderr.splitlines():
                self.assertIn("belongs to the user", line)
            self.assertEqual(result.stderr != "", notice == "1")
            self.assertEqual(tool.checksum(self.pool), before)

    def test_a_service_that_gives_up_rights(self):
        """The line of `nvcache run` is the only one: not each process that another user's rights
        are left to says that the pool is not his."""
        self.pools.chmod(0o755)
        self.files.chmod(0o777)
        script = ("echo first > $0/first; exec setpriv --reuid={0} --regid={1} --clear-groups "
                  "sh -c 'echo second > $0/second; sh -c \"echo third > $0/third; cat $0/second\" $0' $0")
        result = self.run_as(0, "--size", "1M", "--", "sh", "-c", script.format(USER, GROUP), self.files)
        self.assertEqual((result.returncode, result.stdout), (0, "second\n"), result.stderr)
        self.assertRegex(result.stderr, r"\Anvcache: [^\n]+ is emulated: [^\n]+\n\Z")
        self.assertTrue(self.is_clean())

    def test_that_others_may_write_to(self):
        self.make_pool(USER)
        for mode in (0o620, 0o602, 0o666):
            self.pool.chmod(mode)
            for user in (USER, 0):
                result = self.as_user(user, "recover", self.pool)
                self.assert_refused(result, 1, self.pool, "may be written by other users", "chmod 600")
        self.pool.chmod(0o644)
        self.assert_ok(self.as_user(USER, "recover", self.pool))

    def test_that_an_acl_lets_others_write_to(self):
        self.make_pool(USER)
        acl = [2, (1, 6, 2**32 - 1), (2, 6, STRANGER), (4, 0, 2**32 - 1), (16, 6, 2**32 - 1), (32, 0, 2**32 - 1)]
        os.setxattr(self.pool, "system.posix_acl_access", image.struct.pack("<I", acl[0])
                    + b"".join(image.struct.pack("<HHI", *entry) for entry in acl[1:]))
        for user in (USER, 0):
            result = self.as_user(user, "recover", self.pool)
            self.assert_refused(result, 1, self.pool, "may be written by other users", "chmod 600")
        result = self.run_as(USER, "--required", "--", "true")
        self.assert_refused(result, 125, self.pool, "may be written by other users")

    def test_root_without_roots_rights(self):
        """Gets no pool that will be recovered with all of them, neither from the command nor in the
        library; who has them, gets it."""
        self.make_pool(0)
        library = self.copy_library()
        settings = {**tool.clean_environment(), "NVCACHE_POOL": str(self.pool), "NVCACHE_EMULATE": "1",
                    "NVCACHE_INCLUDE": "*"}
        weak = [["setpriv", f"--bounding-set=-{name}"] for name in ("chown", "dac_override", "fowner")]
        weak.append(["unshare", "--user", "--map-root-user"])
        for prefix in (*weak, ["setpriv", "--bounding-set=-sys_boot"]):
            with self.subTest(prefix=prefix):
                before = tool.checksum(self.pool)
                done = subprocess.run(
                    [*prefix, "env", f"LD_PRELOAD={library}", "NVCACHE_REQUIRED=1", "true"], env=settings,
                    capture_output=True, text=True, check=False, timeout=60)
                required = tool.run(*prefix, self.command, "run", "--pool", self.pool, "--emulate", "--required",
                                    "--library", library, "--", "true")
                if prefix not in weak:
                    self.assertEqual((done.returncode, required.returncode), (0, 0), done.stderr)
                    continue
                self.assertEqual((done.returncode, required.returncode), (125, 125), done.stderr)
                for text in (done.stderr, required.stderr):
                    self.assertIn("lacks some of root's rights", text)
                self.assertEqual(tool.checksum(self.pool), before)
        self.assert_ok(self.as_user(0, "recover", self.pool))

    def test_planted_link(self):
        """In a folder where everybody may plant names. The kernel may be told to follow such a
        link or not; it leads to a pool of the same user, or is refused."""
        self.make_pool(STRANGER)
        public = self.base / "public"
        public.mkdir()
        public.chmod(0o1777)
        link = public / "pool"
        link.symlink_to(self.pool)
        os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
        self.assert_refused(self.as_user(USER, "recover", link), 1, link)
        self.assert_refused(self.as_user(USER, "create", link, "--size", "1M", "--emulate"), 1, link, "exists already")

    def test_user_option(self):
        self.make_pool(USER)
        self.assert_ok(self.as_user(USER, "recover", self.pool, "--user", USER_NAME))
        self.assert_refused(self.as_user(USER, "recover", self.pool, "--user", "root"), 1, "only root")
        for user in ("no-such-user", "-1", "4294967295", "1x"):
            self.assert_refused(self.as_user(0, "recover", self.pool, f"--user={user}"), 1, user, "no such user")


class MisleadingPoolTest(machine.MachineTest):
    """Root recovers a pool of the user."""

    def setUp(self):
        super().setUp()
        self.make_pool(USER)
        self.home = self.files / "home"
        self.home.mkdir()
        os.chown(self.home, USER, GROUP)
        self.secrets = self.files / "secrets"
        self.secrets.mkdir(mode=0o755)

    def secret(self, owner=0, group=None, mode=0o600, folder=None):
        return self.make_file((folder or self.secrets) / "secret", SECRET, owner, group, mode)

    def point_to(self, target, data=b"EVIL", **changes):
        """The pool names the file by all that it is, under `changes["path"]` if given."""
        with self.dirty_image() as pool:
            pool.add_file(0, target, name=changes.pop("path", None), **changes)
            pool.add_write(0, 0, data)

    def recover(self, *options):
        return self.as_user(0, "recover", self.pool, *options)

    def assert_not_written(self, path, *words):
        result = self.assert_status(self.recover(), 3)
        for word in words:
            self.assertIn(word, result.stdout)
        self.assertEqual(path.read_bytes(), SECRET)
        self.assertFalse(self.is_clean())

    def test_nothing_wrong(self):
        path = self.make_file(self.home / "file", b"old.", USER, GROUP)
        self.point_to(path)
        result = self.assert_ok(self.recover("--json"))
        self.assertEqual(json.loads(result.stdout)["user"], USER_NAME)
        self.assertEqual(path.read_bytes(), b"EVIL")

    def test_files_of_others(self):
        for owner, mode in ((0, 0o600), (0, 0o644), (STRANGER, 0o640), (STRANGER, 0o4755)):
            self.point_to(self.secret(owner, mode=mode))
            self.assert_not_written(self.secrets / "secret", "Permission denied")

    def test_in_a_closed_folder(self):
        """Everybody could write to it, could they get there; its handle leads there."""
        self.secrets.chmod(0o700)
        secret = self.secret(mode=0o666)
        self.point_to(secret)
        self.assert_not_written(secret, "Permission denied")
        self.point_to(secret, path=self.home / "nothing")
        self.assert_not_written(secret, "Permission denied")

    def test_symbolic_links(self):
        secret = self.secret()
        link = self.home / "link"
        link.symlink_to(secret)
        self.point_to(secret, path=link)
        self.assert_not_written(secret, "")
        folder = self.home / "folder"
        folder.symlink_to(self.secrets)
        self.point_to(secret, path=folder / "secret")
        self.assert_not_written(secret, "Permission denied")
        # Even to what the user may write, a link at the place of the file is another file.
        own = self.make_file(self.home / "own", SECRET, USER, GROUP)
        other = self.make_file(self.home / "other", b"other", USER, GROUP)
        self.point_to(other)
        other.rename(self.home / "gone")
        other.symlink_to(own)
        self.assert_ok(self.recover())  # by its handle
        self.assertEqual(own.read_bytes(), SECRET)
        self.assertEqual((self.home / "gone").read_bytes(), b"EVILr")

    def recover_from(self, folder, *prefix, **options):
        """By root, who stands in the folder."""
        return tool.run(*prefix, self.command, "recover", self.pool, cwd=folder, **options)

    def test_magic_links(self):
        """What recovery itself has open or stands in is not the user's way past a closed folder."""
        self.secrets.chmod(0o700)
        inner = self.secrets / "inner"
        inner.mkdir(mode=0o755)
        secret = self.secret(mode=0o666, folder=inner)
        (self.home / "link").symlink_to("/proc/self/cwd")
        held = os.open(inner, os.O_PATH | os.O_DIRECTORY)
        self.addCleanup(os.close, held)
        for path in ("/proc/self/cwd/secret", "/proc/thread-self/cwd/secret", self.home / "link" / "secret",
                     f"/proc/self/fd/{held}/secret", f"/dev/fd/{held}/secret",
                     f"/proc/self/fd/{held}/../inner/secret", f"/proc/self/root{secret}"):
            with self.subTest(path=str(path)):
                self.make_again()
                self.point_to(secret, path=path)
                result = self.recover_from(inner, pass_fds=[held])
                self.assertEqual(secret.read_bytes(), SECRET, result.stdout)
                self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
                self.assertIn("Permission denied", result.stdout)  # by its handle
        # To the user's own file, any way may lead, and be that by its handle.
        own = self.make_file(self.home / "own", b"own.", USER, GROUP)
        self.make_again()
        self.point_to(own, path="/proc/self/cwd/own")
        self.assert_ok(self.recover_from(self.home))
        self.assertEqual(own.read_bytes(), b"EVIL")

    def test_what_stores_nothing(self):
        """Not even root's pool says what is written to /proc."""
        self.make_again(0)
        name = pathlib.Path("/proc/sys/kernel/domainname")
        for _ in range(2):
            self.point_to(name)
            result = self.recover_from("/", "unshare", "--uts", "sh", "-c",
                                       "echo before > /proc/sys/kernel/domainname; \"$@\"; s=$?; "
                                       "cat /proc/sys/kernel/domainname; exit $s", "sh")
            self.assertIn("another file has its name", result.stdout, result.stderr)
            self.assertEqual((result.returncode, result.stdout.split()[-1]), (3, "before"))

    def test_hard_link(self):
        secret = self.secret()
        link = self.home / "link"
        os.link(secret, link)
        self.point_to(secret, path=link)
        self.assert_not_written(secret, "Permission denied")
        file = self.make_file(self.home / "file", b"old", USER, GROUP)
        self.point_to(file)
        file.unlink()
        os.link(secret, file)
        self.assert_not_written(secret, "another file has its name")

    def test_devices(self):
        """Nothing is opened that is not the file: a fifo would hang, a device might do things."""
        file = self.make_file(self.home / "file", b"old", USER, GROUP)
        self.point_to(file)
        file.unlink()
        os.mkfifo(file)
        os.chown(file, USER, GROUP)
        secret = self.secret()
        self.assert_not_written(secret, "another file has its name")

    def test_groups(self):
        """The groups of the user count, and no others."""
        secret = self.secret(0, TEAM, 0o660)
        self.point_to(secret, b"TEAM")
        self.assert_ok(self.recover())
        self.assertEqual(secret.read_bytes(), b"TEAM" + SECRET[4:])
        secret = self.secret(0, STRANGER, 0o660)
        for groups in ((), (STRANGER,)):  # root may have it
            self.make_again()
            self.point_to(secret)
            result = tool.run(self.command, "recover", self.pool, extra_groups=groups)
            self.assertEqual(result.returncode, 3, result.stdout)
            self.assertEqual(secret.read_bytes(), SECRET)

    def test_a_user_without_an_entry(self):
        """Has no groups: not even that of his pool, which a folder may have given it."""
        self.make_again(STRANGER)
        os.chown(self.pool, STRANGER, TEAM)
        secret = self.secret(0, TEAM, 0o660)
        self.point_to(secret)
        self.assert_not_written(secret, "Permission denied")
        own = self.make_file(self.secrets / "own", b"own.", STRANGER, TEAM)
        self.make_again(STRANGER)
        self.point_to(own)
        self.assert_ok(self.recover())
        self.assertEqual(own.read_bytes(), b"EVIL")

    def make_again(self, owner=USER):
        self.pool.unlink()
        self.make_pool(owner)

    def test_another_user_is_named(self):
        secret = self.secret(STRANGER)
        self.point_to(secret)
        self.assert_not_written(secret)
        # No records of one user are trusted as those of another, of root least of all.
        for other in (str(STRANGER), "root"):
            result = self.recover("--user", other)
            self.assert_refused(result, 1, self.pool, f"belongs to the user with the number {USER}")
            self.assertEqual(secret.read_bytes(), SECRET)
        listed = self.base / "list"
        listed.write_text(f"{STRANGER} {self.pool}\n")
        result = self.as_user(0, "recover", "--list", listed)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("belongs to the user", result.stderr)
        # A pool of root's may have fewer rights than its owner.
        own = self.secret()
        self.make_again(0)
        self.point_to(own)
        result = self.recover("--user", str(STRANGER))
        self.assertEqual((result.returncode, own.read_bytes()), (3, SECRET), result.stdout)
        secret = self.secret(STRANGER)
        self.make_again(0)
        self.point_to(secret)
        self.assert_ok(self.recover("--user", str(STRANGER)))
        self.assertEqual(secret.read_bytes()[:4], b"EVIL")

    def test_set_user_id(self):
        """A file of the user with set-user-ID loses it, as by any write of its owner."""
        file = self.make_file(self.home / "file", b"old.", USER, GROUP, 0o4755)
        self.point_to(file)
        self.assert_ok(self.recover())
        self.assertEqual(file.read_bytes(), b"EVIL")
        self.assertEqual(file.stat().st_mode & 0o7777, 0o755)

    def test_what_is_missing_is_not_made(self):
        """Whatever a record says of it, and wherever its path leads."""
        lost = self.make_file(self.home / "lost", b"", USER, GROUP)
        open_to_all = self.files / "open"
        open_to_all.mkdir()
        open_to_all.chmod(0o777)
        link = self.files / "link"
        link.symlink_to(open_to_all)
        cases = (
            (dict(), "No such file"),
            (dict(mode=0o106777), "No such file"),
            (dict(gid=TEAM), "No such file"),
            (dict(uid=0), "No such file"),
            (dict(path=self.secrets / "lost"), "No such file"),
            (dict(path="/etc/cron.d/nvcache-test"), "No such file"),
            (dict(path=f"{self.home}/../secrets/lost"), "No such file"),
            (dict(path=f"{self.home}/.."), "another file has its name"),
            (dict(path=link / "lost"), "No such file"),
            (dict(path="/proc/self/cwd/lost"), "another file has its name"),
            (dict(path=f"/proc/self/root{open_to_all}/lost"), "another file has its name"),
        )
        for changes, words in cases:
            with self.subTest(changes=changes):
                self.make_again()
                lost.touch()
                os.chown(lost, USER, GROUP)
                self.point_to(lost, **changes)
                lost.unlink()
                result = self.recover_from(open_to_all)
                self.assertEqual(result.returncode, 3, result.stdout)
                self.assertIn(words, result.stdout)
                for folder in (self.home, self.secrets, open_to_all):
                    self.assertEqual(os.listdir(folder), [])
                self.assertFalse(os.path.exists("/etc/cron.d/nvcache-test"))

    def test_export_belongs_to_the_caller(self):
        file = self.make_file(self.home / "file", b"old", USER, GROUP)
        self.point_to(file)
        file.unlink()
        self.assert_ok(self.recover("--export", self.export, "--discard"))
        for path in (self.export, self.export / "0.data", self.export / "manifest.json"):
            self.assertEqual((path.stat().st_uid, path.stat().st_mode & 0o077), (0, 0))
        self.assertTrue(self.is_clean())

    def test_export_follows_no_link(self):
        file = self.make_file(self.home / "file", b"old", USER, GROUP)
        self.point_to(file)
        file.unlink()
        secret = self.secret()
        self.export.mkdir()
        (self.export / "0.data").symlink_to(secret)
        self.assert_refused(self.recover("--export", self.export), 1, self.export, "empty or a new folder")
        self.assertEqual(secret.read_bytes(), SECRET)

    def test_capabilities_that_stay(self):
        """Where the kernel was told to leave root its capabilities, nothing is done."""
        secret = self.secret()
        self.point_to(secret)
        result = tool.run("setpriv", "--securebits", "+no_setuid_fixup", self.command, "recover", self.pool)
        self.assert_refused(result, 1, "cannot take the rights of user", USER_NAME)
        self.assertEqual(secret.read_bytes(), SECRET)


if __name__ == "__main__":
    unittest.main()
