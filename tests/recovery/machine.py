# SPDX-License-Identifier: BSD-3-Clause
"""A small machine for tests of recovery: users, and an ext4 file system of its own, in a mount
namespace that goes with the process. Only root can make it."""

import ctypes
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tool"))

import image  # pylint: disable=wrong-import-position
import support  # pylint: disable=wrong-import-position

CLONE_NEWNS = 0x00020000
UUID = "3f6c1a52-93a0-4f0e-8d5c-5a2b9e0c7d11"

# Of nobody else on any machine that runs this.
USER, GROUP, TEAM, STRANGER = 54321, 54322, 54323, 54399
USER_NAME = "nvcache-test"

_ready = False


def run(*command, check=True):
    return subprocess.run(
        [str(word) for word in command], check=check, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=60,
    )


def _bind_copy(base, path, line):
    copy = base / path.name
    copy.write_text(path.read_text() + line)
    run("mount", "--bind", copy, path)


def enter(base):
    """Into a mount namespace with a user and a group of our own, once in this process."""
    global _ready  # pylint: disable=global-statement
    if _ready:
        return
    if os.geteuid() != 0:
        raise unittest.SkipTest("needs root")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise unittest.SkipTest("no mount namespace: " + os.strerror(ctypes.get_errno()))
    run("mount", "--make-rprivate", "/")
    _bind_copy(base, pathlib.Path("/etc/passwd"),
               f"{USER_NAME}:x:{USER}:{GROUP}::/nonexistent:/bin/sh\n")
    _bind_copy(base, pathlib.Path("/etc/group"),
               f"{USER_NAME}:x:{GROUP}:\nnvcache-team:x:{TEAM}:{USER_NAME}\n")
    _ready = True


class Disk:
    """An ext4 file system in a file."""

    def __init__(self, file):
        self.file = file
        with open(file, "wb") as f:
            f.truncate(24 << 20)
        run("mkfs.ext4", "-q", "-U", UUID, "-E", "lazy_itable_init=0,lazy_journal_init=0", file)

    def mount(self, folder, *options):
        result = run("mount", "-o", ",".join(("loop", *options)), self.file, folder, check=False)
        if result.returncode != 0:
            raise unittest.SkipTest("no loop devices: " + result.stderr.strip())


class MachineTest(support.ToolTest):
    """self.files is on the disk, which belongs to nobody but may be entered by all; self.pools in
    memory. Both, and a copy of the command, can be reached by every user."""

    def setUp(self):
        super().setUp()
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="nvcache-test-", dir="/var/tmp"))
        self.addCleanup(shutil.rmtree, self.base, ignore_errors=True)
        self.base.chmod(0o755)
        users = pathlib.Path(tempfile.mkdtemp(prefix="nvcache-test-", dir="/var/tmp"))
        self.addCleanup(shutil.rmtree, users, ignore_errors=True)
        users.chmod(0o755)
        enter(users)
        self.command = self.base / "nvcache"
        shutil.copy(support.COMMAND, self.command)
        self.mounted = self.base / "disk"
        self.mounted.mkdir()
        self.disk = Disk(self.base / "disk.img")
        self.disk.mount(self.mounted)
        self.addCleanup(run, "umount", "-l", self.mounted, check=False)
        self.files = self.mounted / "files"
        self.files.mkdir()
        self.pools.chmod(0o755)
        self.export = self.base / "export"

    def as_user(self, user, *arguments, groups=(), **options):
        """Runs nvcache as a user; 0 is root."""
        more = {}
        if user != 0:
            more = {"user": user, "group": GROUP if user == USER else user, "extra_groups": groups}
        options.setdefault("umask", -1)
        return subprocess.run(
            [str(self.command), *map(str, arguments)], env=support.clean_environment(),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
            cwd="/", **more, **options,
        )

    def make_pool(self, owner, path=None):
        path = path or self.pool
        path.parent.chmod(0o777)
        result = self.as_user(owner, "create", path, "--size", "1M", "--emulate")
        self.assertEqual(result.returncode, 0, result.stderr)
        path.parent.chmod(0o755)
        self.assertEqual(path.stat().st_uid, owner)
        return path

    def make_file(self, path, content=b"", owner=0, group=None, mode=0o600):
        path = pathlib.Path(path)
        path.write_bytes(content)
        os.chown(path, owner, owner if group is None else group)
        path.chmod(mode)
        return path

    def fill(self, path, data=b"NEW", pool=None):
        """A pool that was left with one write to the file."""
        with image.Image(pool or self.pool) as pool_image:
            pool_image.add_file(0, path)
            pool_image.add_write(0, 0, data)
            pool_image.set_dirty()

    def is_clean(self):
        with image.Image(self.pool) as pool:
            return pool.is_clean()
