#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Folders and files that are removed and made again, so that the file system gives them the number of those before, by
programs under NVCache and by others; then the disk loses what it has not made durable, the pool in memory stays, as NVMM
would, and the next boot recovers. Whatever was synced is there, and recovery finds nothing to complain of.

Each on ext4, XFS and Btrfs, where the number may be another one each time: that is said. Exit code 77 where a file
system cannot be mounted and shut down."""

import contextlib
import os
import shutil
import sys

import kit
from kit import check
from kit.basics import command
from kit.disks import PowerDisk, make_image, needs_power_failures

KINDS = ("ext4", "xfs", "btrfs")
ATTEMPTS = 20  # until a number is given out again
DATA = "bytes that were synced"

# Does what it is told, and says what that is.
AGENT = """
import os, sys, time
def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
def know(folder):  # two syncs; and one that has nothing to do
    for _ in range(3): sync(folder)
def make(path, text):
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(fd, text.encode())
    os.fsync(fd)
    os.close(fd)
def number(path): return os.stat(path).st_ino
def used():  # numbers; Btrfs does not count them
    found = os.statvfs('.')
    return found.f_files - found.f_ffree
def freed(least):  # XFS frees a number a little later, and hastens that when it is asked how many there are
    end = time.monotonic() + 5
    while used() >= least > 0 and time.monotonic() < end: time.sleep(0.001)
    return used() < least or least == 0
def again(path, remove, make):  # True: the new one has the old one's number
    before = number(path)
    for _ in range(100):
        held = used()
        remove(path)
        if not freed(held): return False
        make(path)
        if number(path) == before: return True
    return False
def new_folder(path): return again(path, os.rmdir, os.mkdir)
def new_file(path, text): return again(path, os.remove, lambda path: open(path, 'w').write(text))
for line in sys.stdin:
    value = eval(line) if not line.startswith('!') else exec(line[1:])
    print(value, flush=True)
"""


class Program:
    """An agent under NVCache, or without."""

    def __init__(self, bench, disk, cache=True):
        command = [sys.executable, "-c", AGENT]
        self.agent = bench.agent(bench.cached(command) if cache else command, cwd=disk.folder)
        if cache:  # the engine has a folder of the file system open: none that we remove
            self.do("os.makedirs('kept', exist_ok=True)", "know('kept')")

    def do(self, *lines):
        for line in lines:
            answer = self.agent.call(line)
        return answer

    def kill(self):
        self.agent.kill()


def expect(disk, files):
    found = {str(path.relative_to(disk.folder)): path.read_text(encoding="utf-8")
             for path in disk.folder.rglob("*") if path.is_file()}
    check(found == files, f"{found}, expected {files}")


def fail(bench, disk, *programs):
    for program in programs:
        program.kill()
    disk.fail(bench.pool)
    bench.recover()


def made_again_outside(bench, disk, goes_on):
    """By a program without NVCache, while the log knows the folder. `goes_on`: the program that made it known, or
    another one comes."""
    program, outsider = Program(bench, disk), Program(bench, disk, cache=False)
    program.do("os.mkdir('d')", "know('d')", "os.sync()")
    same = outsider.do("new_folder('d')") == "True"
    if not goes_on:
        program.kill()
        program = Program(bench, disk)
    program.do(f"make('d/file', '{DATA}')", "sync('d')")
    fail(bench, disk, program, outsider)
    expect(disk, {"d/file": DATA})
    return same


def made_again_inside(bench, disk, parent):
    """By the program itself, at once, in a folder that the log does not know; or that it knows."""
    program = Program(bench, disk)
    if parent:
        program.do("know('.')")
    program.do("os.mkdir('d')", "know('d')")
    same = program.do("(make('d/first', 'first'), os.remove('d/first'), new_folder('d'), "
                      f"make('d/file', '{DATA}'), sync('d'))[2]") == "True"
    fail(bench, disk, program)
    expect(disk, {"d/file": DATA})
    return same


def file_made_again(bench, disk, _):
    """A file that the log knows is removed by somebody else, who makes another one; the program renames that."""
    program, outsider = Program(bench, disk), Program(bench, disk, cache=False)
    program.do("os.mkdir('d')", "sync('.')", "know('d')", "make('d/file', 'first')", "os.sync()")
    same = outsider.do(f"new_file('d/file', '{DATA}')") == "True"
    program.do("os.rename('d/file', 'd/moved')", "sync('d')")
    fail(bench, disk, program, outsider)
    expect(disk, {"d/moved": DATA})
    return same


def written_when_removed(bench, disk, successor):
    """A process goes on writing to a file that another one has removed, beyond the checkpoint of the removal. Its name
    is another file's, perhaps."""
    writer, other = Program(bench, disk), Program(bench, disk)
    writer.do("os.mkdir('d')", "sync('.')", "know('d')", "make('d/file', 'old')", "!f = os.open('d/file', os.O_RDWR)",
              "os.pwrite(f, b'older', 0)")
    other.do("os.rename('d/file', 'd/moved')" if successor == "renamed" else "os.remove('d/file')")
    if successor == "replaced":
        other.do(f"make('d/file', '{DATA}')")
    elif successor == "renamed":
        other.do(f"make('d/new', '{DATA}')", "os.rename('d/new', 'd/moved')")
    other.do("sync('d')", "os.sync()")  # the checkpoint moves
    writer.do("os.pwrite(f, b'newer', 0)", "os.fsync(f)", "os.pwrite(f, b'newest', 0)")
    fail(bench, disk, writer, other)
    expect(disk, {"removed": {}, "replaced": {"d/file": DATA}, "renamed": {"d/moved": DATA}}[successor])
    return True


def unmounted(bench, disk, _):
    """Another file system comes in the place of one that the log knew, with a folder of the same number."""
    program = Program(bench, disk)
    program.do("os.mkdir('d')", "know('d')")
    program.agent.end()
    program.agent.process.wait()
    before = os.stat(disk.folder / "d")
    disk.unmount()
    make_image(disk.image, 0)
    command("mkfs.ext4", "-q", make_image(disk.image, 64 << 20))
    disk.mount()
    (disk.folder / "lost+found").rmdir()
    for name in ("kept", "d"):
        (disk.folder / name).mkdir()
    after = os.stat(disk.folder / "d")
    program = Program(bench, disk)
    program.do(f"make('d/file', '{DATA}')", "sync('d')")
    fail(bench, disk, program)
    expect(disk, {"d/file": DATA})
    return (after.st_dev, after.st_ino) == (before.st_dev, before.st_ino)


CASES = {
    "outside": (made_again_outside, True),
    "outside_other": (made_again_outside, False),
    "inside": (made_again_inside, False),
    "inside_known": (made_again_inside, True),
    "file": (file_made_again, None),
    "removed": (written_when_removed, "removed"),
    "replaced": (written_when_removed, "replaced"),
    "renamed": (written_when_removed, "renamed"),
    "unmounted": (unmounted, None),
}


def clear(disk):
    for path in disk.folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    disk.sync()


def run(options, name, kind):
    case, how = CASES[name]
    with kit.Bench(options, size="16M", dram="1M", write_back="auto") as bench, PowerDisk(bench, kind=kind) as disk:
        with contextlib.suppress(OSError):
            (disk.folder / "lost+found").rmdir()
        # Btrfs never gives one out again.
        for _ in range(1 if kind == "btrfs" else ATTEMPTS):
            if case(bench, disk, how):
                return
            clear(disk)
            bench.pool.unlink()
        check(kind == "btrfs", "no number was given out again")


def main():
    options = kit.arguments(__doc__).parse_args()
    needs_power_failures(options)
    kit.main(options, {f"{name}_{kind}": lambda name=name, kind=kind: run(options, name, kind)
                       for name in CASES for kind in (KINDS if name != "unmounted" else ("ext4",))})


if __name__ == "__main__":
    main()
