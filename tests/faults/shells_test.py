#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Many small processes on a disk that is full, with their standard error on it: none of them is ended
by a signal, and none has last words.

    blocks   the disk has so many blocks left, one more each time: so each call that wants one is refused
             in turn, while an inode is free
    inodes   the same with inodes
    taken    somebody takes and gives back the last blocks all the time, also those that were promised
    memory   /dev/shm has so many pages left: there is no room for a pool, for leases, for either
    refused  the disk itself refuses some writes and flushes with ENOSPC, when it is told to write back
    calls    the Nth call of each kind fails with ENOSPC, in each process and thread, under strace

Exit code 77 where file systems cannot be mounted; 1 if CI=true."""

import errno
import os
import random
import re
import subprocess
import threading

import kit
from kit import check, command, say
from kit.basics import PATIENCE
from kit.disks import FaultyDisk, Mount, needs_mounts

BLOCK = 1024
SHELLS = ("sh", "bash")
SCRIPT = """
echo hello > a
echo more >> a
cat a > b
( echo x; echo y ) > p 2>&1
for i in 1 2 3; do echo $i >> n; done
sort a > s
seq 1 2000 > q
: > n
echo z >> n
mv s t
cp q e
printf '#!/bin/sh\\necho hi\\n' > k; chmod +x k; ./k
cat <<END > h
some text
END
dd if=/dev/zero of=z bs=3000 count=4
ls nothing
exec 4> w; echo x >&4; exec 4>&-; echo y >> w
rm -f b q
seq 1 500 | tee u > v
"""
# What a command says of itself goes to a pipe; a shell that is killed itself says it by its status.
WATCHED = "".join(f"{line}\ns=$?; [ $s -le 128 ] || [ $s = 141 ] || echo \"$s: {line.split()[0]}\" >&9\n"
                  if line and not line.startswith(("cat <<", "some", "END")) else f"{line}\n"
                  for line in SCRIPT.split("\n"))


class Shells:
    """A small disk, and shells that work on it. The end of the `with` says what was wrong with them."""

    def __init__(self, options, inodes=200, blocks=2048, refuses=False):
        self.found, self.runs = [], 0
        self.bench = kit.Bench(options, size="1M", dram="64k")
        make = ("-b", str(BLOCK), "-m", "0", "-N", str(inodes), "-O", "^has_journal")
        if refuses:
            self.mount = FaultyDisk(self.bench.folder, options.disk, size=8 << 20, make=make)
        else:
            self.mount = Mount(self.bench.folder / "image", self.bench.folder / "full", make=make, size=blocks * BLOCK)
        self.folder = self.mount.folder
        self.work = self.folder / "work"
        self.work.mkdir()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.mount.close()
        self.bench.__exit__(kind, value, trace)
        if kind is None:
            say(f"         {self.runs} shells")
            check(not self.found, "\n".join(self.found[:20]))

    def clear(self):
        for path in self.work.iterdir():
            path.unlink()

    def leave_blocks(self, free):
        fill = self.folder / "fill"
        with open(fill, "wb") as file:
            def left():
                return os.statvfs(self.folder).f_bavail * os.statvfs(self.folder).f_frsize // BLOCK
            while left() > free:
                try:
                    file.write(bytes(BLOCK * (left() - free)))
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:
                    break
            # Blocks that say where the others are count, too.
            while left() < free and file.tell() > 0:
                file.truncate(max(0, file.tell() - BLOCK))
                file.seek(0, os.SEEK_END)
                os.fsync(file.fileno())

    def leave_inodes(self, free):
        n = 0
        while os.statvfs(self.folder).f_favail > free:
            (self.folder / f"i{n}").touch()
            n += 1

    def run(self, shell, what, prefix=()):
        reading, writing = os.pipe()
        with open(self.work / "stderr", "ab", buffering=0) as stderr:
            env = dict(os.environ, TMPDIR=str(self.work),
                       **self.bench.settings(preload=not prefix, NVCACHE_BATCH_DELAY="5"))
            if prefix:
                prefix = [*prefix, "env", f"LD_PRELOAD={self.bench.preload_library}"]
            script = f"exec 9>&{writing} {writing}>&-\n{WATCHED}" if writing != 9 else WATCHED
            process = subprocess.Popen([*prefix, shell, "-c", script], cwd=self.work, env=env,
                                       pass_fds=(writing,), stdin=subprocess.DEVNULL, stdout=stderr,
                                       stderr=stderr)
        os.close(writing)
        try:
            status = process.wait(PATIENCE * 3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = "hangs"
        with open(reading, encoding="utf-8", errors="replace") as said:
            killed = said.read()
        found = []
        if status == "hangs" or status < 0 or 128 < status < 255 and status != 141:
            found.append(f"{shell}: {status}")
        found += killed.split("\n")[:-1]
        words = self.last_words()
        if words:
            found.append(words)
        self.found += [f"{what}, {shell}: {text}" for text in found]
        self.runs += 1

    def last_words(self):
        if not self.bench.pool.exists():
            return ""
        done = subprocess.run([self.bench.nvcache, "status", self.bench.pool, "--json"], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        found = re.search(r'"last_words": \{[^}]*\}', done.stdout)
        return found.group(0) if found else ""

    def forget_pool(self):
        self.bench.pool.unlink(missing_ok=True)


def blocks(options):
    with Shells(options) as shells:
        for free in range(0, options.most, options.step):
            for shell in SHELLS:
                shells.clear()
                shells.leave_blocks(free)
                shells.run(shell, f"{free} blocks")


def inodes(options):
    with Shells(options, inodes=100) as shells:
        shells.leave_inodes(30)
        for free in range(14):
            for path in shells.folder.glob("j*"):
                path.unlink()
            shells.clear()
            for n in range(max(0, os.statvfs(shells.folder).f_favail - free - 1)):
                (shells.folder / f"j{n}").touch()
            shells.run(SHELLS[free % 2], f"{free} inodes")


def taken(options):
    """Three shells at once, on one pool."""
    draw = random.Random(options.seed)
    with Shells(options) as shells:
        over = threading.Event()

        def take():
            while not over.is_set():
                try:
                    with open(shells.folder / "fill", "wb", buffering=0) as file:
                        while not over.is_set():
                            file.write(bytes(BLOCK * draw.choice([1, 16, 64])))
                except OSError:
                    pass
        taker = threading.Thread(target=take)
        taker.start()
        try:
            for n in range(options.rounds):
                several = [threading.Thread(target=lambda s=s: shells.run(s, f"round {n}"))
                           for s in draw.choices(SHELLS, k=3)]
                for thread in several:
                    thread.start()
                for thread in several:
                    thread.join()
        finally:
            over.set()
            taker.join()


def memory(options):
    """The namespace is our own: its /dev/shm can be a small one."""
    command("mount", "-t", "tmpfs", "-o", "size=2M", "tmpfs", "/dev/shm")
    try:
        with Shells(options) as shells:
            fill = shells.bench.pools.parent / "fill"
            for free in [*range(0, 36, 3), *range(30, 48), *range(240, 320, 5)]:
                shells.clear()
                shells.forget_pool()
                for path in shells.bench.pools.parent.glob("nvcache-leases-*"):
                    path.unlink()
                fill.unlink(missing_ok=True)
                left = os.statvfs("/dev/shm")
                with open(fill, "wb") as file:
                    file.write(bytes(max(0, left.f_bavail - free) * left.f_bsize))
                shells.run(SHELLS[shells.runs % 2], f"{free} pages of /dev/shm")
    finally:
        command("umount", "-l", "/dev/shm")


def refused(options):
    """What is refused stays in the pool for the next shell to recover, or to do without."""
    draw = random.Random(options.seed)
    with Shells(options, refuses=True) as shells:
        for n in range(options.rounds):
            count = draw.choice(["", " 1", " 3"])
            shells.mount.tell(f"{draw.choice(['write', 'flush'])} {errno.ENOSPC}{count}")
            shells.run(draw.choice(SHELLS), f"round {n}")
            shells.mount.tell("ok")
            if draw.random() < 0.3:
                shells.run(draw.choice(SHELLS), f"round {n}, on a good disk")


CALLS = ("write,pwrite64,pwritev,writev", "fallocate", "ftruncate,truncate", "fsync,fdatasync,syncfs,sync_file_range",
         "openat,open", "rename,unlink,link", "mmap", "clone,clone3,fork,vfork")


def calls(options):
    with Shells(options) as shells:
        for kind in CALLS:
            for n in range(1, options.calls):
                shells.clear()
                shells.forget_pool()
                log = shells.bench.folder / "strace"
                shells.run(SHELLS[n % 2], f"{kind} {n}",
                           ("strace", "-f", "-qq", "-o", str(log), "-e", "trace=none", "-e",
                            f"inject={kind}:error=ENOSPC:when={n}"))
                ends = re.findall(r"killed by \w+", log.read_text(encoding="utf-8", errors="replace"))
                shells.found += [f"{kind} {n}: {end}" for end in ends if "SIGPIPE" not in end]


def main():
    parser = kit.arguments(__doc__, rounds=15)
    parser.add_argument("--disk", help="faulty_disk, for `refused`")
    parser.add_argument("--most", type=int, default=90, help="blocks [90]")
    parser.add_argument("--step", type=int, default=3, help="from so many blocks to so many more [3]")
    parser.add_argument("--calls", type=int, default=6, help="which of each kind, less one [6]")
    options = parser.parse_args()
    needs_mounts()
    kit.main(options, kit.cases_of((blocks, inodes, taken, memory, refused, calls), options))


if __name__ == "__main__":
    main()
