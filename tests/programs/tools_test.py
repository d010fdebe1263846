#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Everyday programs: what they leave on the disk is the same with and without NVCache."""

import hashlib
import os
import pathlib
import random
import sys

import harness
from harness import check

WRITER = r"""
import os, random, sys
r = random.Random(3)
with open("lines.txt", "w") as f:
    for i in range(20000):
        f.write(f"line {i} {r.random()}\n")
with open("lines.txt", "a") as f:
    f.write("the last line\n")
    f.flush()
    assert os.path.getsize("lines.txt") == f.tell() == os.fstat(f.fileno()).st_size
with open("lines.txt", "r+b") as f:
    f.seek(100)
    f.write(b"#" * 50)
    f.seek(100)
    assert f.read(50) == b"#" * 50
    f.seek(0, os.SEEK_END)
    f.truncate(f.tell() - 3)
fd = os.open("holes", os.O_RDWR | os.O_CREAT, 0o600)
for i in range(500):
    offset = r.randrange(1 << 20)
    data = r.randbytes(r.randrange(1, 9000))
    assert os.pwrite(fd, data, offset) == len(data)
    assert os.pread(fd, len(data), offset) == data
os.ftruncate(fd, 900000)
assert os.fstat(fd).st_size == os.lseek(fd, 0, os.SEEK_END) == 900000
copy = os.dup(fd)
os.close(fd)
os.write(copy, b"after the end")
os.lseek(copy, 0, os.SEEK_SET)
os.writev(copy, [b"one ", b"", b"two ", b"three"])
os.lseek(copy, 4, os.SEEK_SET)
assert os.read(copy, 4) == b"two "
os.rename("holes", "renamed")
os.write(copy, b"still the same file")
os.close(copy)
print(os.path.getsize("renamed"), open("renamed", "rb").read(12))
"""


def digest(folder):
    """Names, kinds, sizes, permissions and content of everything below `folder`."""
    result = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            result[name] = ("link", os.readlink(path))
        elif path.is_dir():
            result[name] = ("folder", oct(path.stat().st_mode))
        else:
            data = path.read_bytes()
            result[name] = (oct(path.stat().st_mode), len(data), hashlib.sha256(data).hexdigest())
    return result


def source_tree(folder):
    """Files of all sizes, the same each time."""
    draw = random.Random(1)
    for sub in ("", "deep/deeper", "empty"):
        (folder / sub).mkdir(parents=True, exist_ok=True)
    for number, size in enumerate((0, 1, 511, 4095, 4096, 4097, 70000, 1 << 20, (3 << 20) + 17)):
        (folder / f"deep/file{number}").write_bytes(draw.randbytes(size))
    words = [f"{draw.randrange(10**9):09} word{i}" for i in range(60000)]
    (folder / "words").write_text("\n".join(words) + "\n")
    (folder / "link").symlink_to("words")
    # The folder and the link as well: an archive has the time of everything.
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (1600000000, 1600000000), follow_symlinks=False)


CASES = {
    "cp": ["cp -a source copy", "cp source/words copy/words2", "cat source/words >> copy/words2"],
    "tar": ["tar cf archive.tar source", "mkdir out", "tar xf archive.tar -C out",
            "tar czf archive.tgz --mtime=@0 source", "tar tzf archive.tgz"],
    "sort": ["sort -S 1M -T . -o sorted source/words", "sort -r source/words > reverse",
             "sort -u -o sorted sorted reverse"],
    "sed": ["cp source/words w", "sed -i 's/word/WORD/; /7/d' w", "sed -i.bak '1,100d' w", "wc w"],
    "dd": ["dd if=source/words of=a bs=777 conv=fsync status=none",
           "dd if=source/words of=a bs=100 seek=31 count=9 conv=notrunc status=none",
           "dd if=a of=a bs=1 skip=5 seek=200 count=3000 conv=notrunc,fdatasync status=none",
           "dd if=source/words of=b bs=4k oflag=append conv=notrunc,fsync status=none",
           "truncate -s 12345 a", "cmp a source/words || true"],
    "shell": ["for i in $(seq 300); do echo line $i >> log; done",
              "exec 5<>log; echo first >&5; head -2 log; exec 5>&-", "wc -c < log",
              "(echo a; echo b) > two; mv two three; ln three four; rm three; cat four",
              "mkdir d; mv four d; echo c >> d/four; cat d/four"],
    "git": ["git init -q repo", "cp -a source/. repo", "cd repo",
            "git add -A", "git commit -q -m first", "sed -i 's/1/one/' words",
            "git commit -q -a -m second", "git gc -q", "git fsck --full --strict",
            "git log --format=%H%s", "git status --short", "cd ..",
            # Only what git promises; its index holds times and inode numbers.
            "git -C repo archive HEAD > archive.tar", "rm -rf repo/.git"],
    "python": [f"{sys.executable} writer.py"],
    "gzip": ["gzip -nk source/words", "mv source/words.gz .", "gzip -dc words.gz > words",
             "cmp words source/words"],
}
ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "C", "GIT_COMMITTER_EMAIL": "c@example.org",
    "GIT_AUTHOR_DATE": "1600000000 +0000", "GIT_COMMITTER_DATE": "1600000000 +0000",
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
}


def main():
    options = harness.arguments(__doc__).parse_args()

    def one(name_of_case, lines):
        with harness.Bench(options.nvcache, options.scratch, size="64M", dram="8M") as bench:
            results = []
            for name, cache in (("plain", False), ("cached", True)):
                folder = bench.folder / name
                folder.mkdir()
                source_tree(folder / "source")
                (folder / "writer.py").write_text(WRITER)
                done = bench.run(["bash", "-ec", "\n".join(lines)], cache, cwd=folder,
                                 env=ENVIRONMENT)
                results.append((done.stdout, done.stderr, digest(folder)))
            bench.check_drained()
            # The counters are those of the last program that wrote.
            if name_of_case == "python":
                check(bench.counter("entries_cleaned") > 0, "nothing went through the log")
            (plain_out, plain_err, plain), (out, err, cached) = results
            check(out == plain_out, f"stdout differs:\n{plain_out!r}\n{out!r}")
            for name in sorted(plain.keys() | cached.keys()):
                check(plain.get(name) == cached.get(name),
                      f"{name}: {plain.get(name)} without, {cached.get(name)} with NVCache")
            # The cache may say one line about the pool, and nothing else.
            extra = [line for line in err.splitlines() if line not in plain_err.splitlines()]
            check(all(line.startswith("nvcache:") for line in extra), f"stderr has more: {extra}")

    harness.main(options, {name: lambda name=name, lines=lines: one(name, lines) for name, lines in CASES.items()})


if __name__ == "__main__":
    main()
