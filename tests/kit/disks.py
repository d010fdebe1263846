# SPDX-License-Identifier: BSD-3-Clause
"""File systems of a test's own, which only root can mount: plain ones, on a disk that loses what is not durable, on
one that refuses when it is told to."""

import ctypes
import fcntl
import os
import pathlib
import random
import struct
import subprocess
import time

from .basics import MIB, Failure, check, command, say, skip, until
from .bench import Bench, main, rounds

CLONE_NEWNS = 0x20000
IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32), of ext4 and XFS
SHUTDOWN_NOLOGFLUSH = 2
STATE_OFFSET, BOOT_OFFSET, BOOT_SIZE = 8192, 24, 16  # src/pool/format.h
FILE_SYSTEMS = ("ext4", "xfs", "btrfs")  # of PowerDisk
LAZY_INIT_OFF = ("-E", "lazy_itable_init=0,lazy_journal_init=0")


def make_image(path, size):
    """So many bytes without a block."""
    with open(path, "wb") as image:
        image.truncate(size)
    return path


class Mount:
    """A file system in the file `image`, which is made if it has a size; or a tmpfs. The end of the `with` unmounts
    it."""

    def __init__(self, image, folder, kind="ext4", make=(), options="", size=None):
        self.image, self.folder, self.kind, self.options = image, folder, kind, options
        self.mounted = False
        folder.mkdir(exist_ok=True)
        if kind == "tmpfs":
            self.options = f"size={size}"
        else:
            if size is not None:
                make_image(image, size)
            command(f"mkfs.{kind}", "-q", *make, image)
        self.mount()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    def mount(self, more=""):
        loop = "" if self.kind == "tmpfs" else "loop"
        options = ",".join(filter(None, (loop, self.options, more)))
        command("mount", "-t", self.kind, "-o", options, self.image, self.folder)
        self.mounted = True

    def unmount(self, *how):
        command("umount", *how, self.folder)
        self.mounted = False

    def unmount_unused(self):
        """A process that was killed may still have to close its files."""
        unmount = ["umount", "--quiet", self.folder]
        until(lambda: subprocess.run(unmount, check=False, stderr=subprocess.DEVNULL).returncode == 0,
              "nobody uses the file system", 20)
        self.mounted = False

    def await_end(self):
        """After a lazy unmount: nobody uses it any more, and the kernel has let go of the image."""
        def users():
            for path in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
                try:
                    if path.read_text(encoding="utf-8").rstrip("\n") == str(self.image):
                        return True
                except OSError:  # it went just now
                    pass
            return False
        until(lambda: not users(), "the end of the file system")

    def again(self, more=""):
        """What only the page cache had is gone."""
        self.unmount_unused()
        self.mount(more)

    def close(self):
        if self.mounted:
            subprocess.run(["umount", "-l", self.folder], check=False)

    def shown_read_only(self):
        with open("/proc/mounts", encoding="utf-8") as mounts:
            line = next(line for line in mounts if f" {self.folder} " in line)
        return "ro" in line.split()[3].split(",") or "emergency_ro" in line

    @staticmethod
    def write_out(path):
        """The file's bytes are on the disk then, and nothing says yet that they are its own."""
        file = os.open(path, os.O_RDONLY)
        wait_before_write_wait_after = 7
        whole = ctypes.c_int64(0)
        check(ctypes.CDLL(None).sync_file_range(file, whole, whole, wait_before_write_wait_after) == 0,
              "the bytes cannot be written")
        os.close(file)

    def sync(self):
        folder = os.open(self.folder, os.O_RDONLY)
        ctypes.CDLL(None).syncfs(folder)
        os.close(folder)

    def shut_down(self):
        """ext4 or XFS stops at once, without writing anything more."""
        folder = os.open(self.folder, os.O_RDONLY)
        fcntl.ioctl(folder, IOC_SHUTDOWN, struct.pack("I", SHUTDOWN_NOLOGFLUSH))
        os.close(folder)


class FaultyDisk(Mount):
    """On a disk that obeys (faulty_disk.c). Without a journal, unless told otherwise: the errors hit data only, as long
    as no file grows."""

    def __init__(self, folder, tool, name="bad", size=64 * MIB, make=("-O", "^has_journal"), mount_options=""):
        self.raw = folder / f"{name}.raw"
        self.raw.mkdir()
        self.process = subprocess.Popen([tool, self.raw, str(size)], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until((self.raw / "disk").exists, "the disk")
        super().__init__(self.raw / "disk", folder / name, make=(*LAZY_INIT_OFF, *make), options=mount_options)

    def tell(self, line):
        with open(self.raw / "control", "w", encoding="ascii") as control:
            control.write(line + "\n")

    def close(self):
        self.tell("ok")
        super().close()
        subprocess.run(["umount", "-l", self.raw], check=False)
        self.process.terminate()
        self.process.wait()


class PowerDisk(Mount):
    """Commits only when it is asked to, and can lose its power."""

    def __init__(self, bench, size=64 << 20, kind="ext4"):
        self.device = None  # of XFS, a descriptor
        size = size if kind == "ext4" else max(size, 400 << 20)  # the others want so much
        super().__init__(bench.folder / "image", bench.folder / "mounted", kind, options="commit=300", size=size)

    def mount(self, more=""):
        if self.kind != "xfs":
            super().mount(more)
            return
        # On the same device each time, whoever else takes any: XFS is known by its device's number. As long as that is
        # open, the kernel does not give it to others.
        if self.device is None:
            command("mount", "-o", "loop", self.image, self.folder)
            self.device = os.open(command("findmnt", "-n", "-o", "SOURCE", self.folder).strip(), os.O_RDONLY)
        else:
            command("mount", f"/proc/self/fd/{self.device}", self.folder, pass_fds=[self.device])
        self.mounted = True

    def fail(self, pool=None):
        """The power is gone, and comes back. As if the machine had been started anew, where a pool is named: what the
        kernel had in its memory is gone."""
        if self.kind == "btrfs":
            self.fail_by_copy()
        else:
            self.shut_down()
            self.unmount_unused()
        self.mount()
        if pool is not None:
            with open(pool, "r+b") as file:
                file.seek(STATE_OFFSET + BOOT_OFFSET)
                file.write(bytes(BOOT_SIZE))

    def fail_by_copy(self):
        """Btrfs has no such call. What its device has by now is a disk without power: the copy begins with
        the superblock, and no block that this one leads to is written over before the next commit."""
        copy = self.image.with_suffix(".copy")
        command("cp", "--sparse=always", self.image, copy)
        self.unmount_unused()
        copy.rename(self.image)


def own_mounts():
    """False where nothing can be mounted. What is, is seen by nobody else, and goes with us."""
    return (os.geteuid() == 0 and ctypes.CDLL(None).unshare(CLONE_NEWNS) == 0 and
            subprocess.run(["mount", "--make-rprivate", "/"], check=False).returncode == 0)


def needs_mounts(with_fuse=True):
    if not own_mounts() or (with_fuse and not os.path.exists("/dev/fuse")):
        skip("file systems cannot be mounted here")


def needs_power_failures(options):
    """Where a file system can be mounted and shut down."""
    needs_mounts(with_fuse=False)
    try:
        with Bench(options) as bench, PowerDisk(bench) as disk:
            disk.fail()
    except (OSError, Failure) as problem:
        skip(f"ext4 cannot be mounted and shut down here: {problem}")


def strike(bench, disk, crowd, choice, one_first=None):
    """All of the crowd is killed; one of them, perhaps, before: one_first(which) does it. The power fails, perhaps; the
    next boot recovers. How many segments the logs had taken."""
    if one_first is not None:
        one_first(choice.randrange(len(crowd.processes)))
        time.sleep(choice.uniform(0, 0.5))
    crowd.kill()
    errors = crowd.said()
    check(errors == "", f"a program said: {errors}")
    segments = bench.counter("segments_taken") if bench.pool.exists() else 0
    if choice.random() < 0.75:
        disk.fail(bench.pool)
    bench.recover()
    return segments


def run_on_power_disk(options, cases, **bench_options):
    """Of each case so many rounds: case(bench, disk, choice) is one, and returns how much was done."""
    def run(case):
        with Bench(options, **bench_options) as bench, PowerDisk(bench) as disk:
            done = rounds(options, lambda seed: case(bench, disk, random.Random(seed)))
        check(sum(done) > 0, "nothing was ever in a log")
        say(f"         {len(done)} rounds, {sum(done)} segments taken")

    needs_power_failures(options)
    main(options, {name: lambda case=case: run(case) for name, case in cases.items()})
