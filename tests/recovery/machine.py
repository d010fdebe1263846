# SPDX-License-Identifier: BSD-3-Clause
"""A small machine for tests of recovery: users, and an ext4 file system of its own, in a mount
namespace that goes with the process. Only root can make it."""

import os
import pathlib
import shutil
import unittest

from kit import image, tool
from kit.disks import LAZY_INIT_OFF, make_image, own_mounts

UUID = "3f6c1a52-93a0-4f0e-8d5c-5a2b9e0c7d11"

# Of nobody else on any machine that runs this.
USER, GROUP, TEAM, STRANGER = 54321, 54322, 54323, 54399
USER_NAME = "nvcache-test"

_ready = False


def run(*command, check=True):
    result = tool.run(*command)
    assert not check or result.returncode == 0, f"{command}: {result.stderr}"
    return result


def _bind_copy(base, path, line):
    copy = base / path.name
    copy.write_text(path.read_text() + line)
    run("mount", "--bind", copy, path)


def enter(base):
    """Into a mount namespace with a user and a group of our own, once in this process."""
    global _ready  # pylint: disable=global-statement
    if _ready:
        return
    if not own_mounts():
        raise unittest.SkipTest("needs root, and a mount namespace")
    _bind_copy(base, pathlib.Path("/etc/passwd"),
               f"{USER_NAME}:x:{USER}:{GROUP}::/nonexistent:/bin/sh\n")
    _bind_copy(base, pathlib.Path("/etc/group"),
               f"{USER_NAME}:x:{GROUP}:\nnvcache-team:x:{TEAM}:{USER_NAME}\n")
    _ready = True


class Disk:
    """An ext4 file system in a file."""

    def __init__(self, file):
        self.file = make_image(file, 24 << 20)
        run("mkfs.ext4", "-q", "-U", UUID, *LAZY_INIT_OFF, file)

    def mount(self, folder, *options):
        result = run("mount", "-o", ",".join(("loop", *options)), self.file, folder, check=False)
        if result.returncode != 0:
            raise unittest.SkipTest("no loop devices: " + result.stderr.strip())


class MachineTest(tool.ToolTest):
    """self.files is on the disk, which belongs to nobody but may be entered by all; self.pools in
    memory. Both, and a copy of the command, can be reached by every user."""

    def setUp(self):
        super().setUp()
        self.base, users = (self.make_folder("/var/tmp") for _ in range(2))
        for folder in (self.base, users):
            folder.chmod(0o755)
        enter(users)
        self.command = self.base / "nvcache"
        shutil.copy(tool.COMMAND, self.command)
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
        return tool.run(self.command, *arguments, cwd="/", **more, **options)

    def make_pool(self, owner, path=None):
        path = path or self.pool
        path.parent.chmod(0o777)
        self.assert_status(self.as_user(owner, "create", path, "--size", "1M", "--emulate"), 0)
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
        with self.dirty_image({0: path}, pool) as pool_image:
            pool_image.add_write(0, 0, data)
