#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Python scripts, from plain files to databases: the same files and output with and without NVCache."""

import sys

from kit import comparison

FILES = r"""
import os, random
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
DATABASES = r"""
import dbm.dumb, hashlib, shelve, sqlite3
with sqlite3.connect("first.db", isolation_level=None) as db:
    db.execute("pragma journal_mode=wal")
    db.execute("create table t(id integer primary key, v text)")
    db.execute("begin")
    db.executemany("insert into t values(?, ?)", ((i, str(i) * (i % 90)) for i in range(5000)))
    db.execute("commit")
    for i in range(300):
        db.execute("update t set v = ? where id = ?", (f"new {i}", i * 13))
    other = sqlite3.connect("first.db")
    print(other.execute("select count(*), sum(length(v)) from t").fetchone())
    other.close()
    with sqlite3.connect("copy.db") as target:
        db.backup(target)
    target.close()
db.close()
with shelve.Shelf(dbm.dumb.open("shelf", "c")) as shelf:
    for i in range(500):
        shelf[f"key {i}"] = {"number": i, "bytes": bytes(i)}
    del shelf["key 7"]
    shelf["key 8"] = [1, 2, 3]
    shelf.sync()
with shelve.Shelf(dbm.dumb.open("shelf", "r")) as shelf:
    print(len(shelf), sum(len(shelf[k]["bytes"]) for k in shelf if k != "key 8"), shelf["key 8"])
for name in ("first.db", "copy.db"):
    with sqlite3.connect(name) as db:
        rows = "".join(map(repr, db.execute("select * from t order by id")))
        print(name, hashlib.sha256(rows.encode()).hexdigest(),
              db.execute("pragma integrity_check").fetchone())
    db.close()
"""
MAPPED = r"""
import mmap, os
fd = os.open("mapped", os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b"before " * 3000)
with mmap.mmap(fd, 0) as view:
    assert view[:7] == b"before "
    view[0:7] = b"mapped "
    os.pwrite(fd, b"by write", 9000)
    assert view[9000:9008] == b"by write"
    view[12000:12005] = b"again"
    view.flush()
    assert os.pread(fd, 5, 12000) == b"again"
    view.resize(30000)
    view[29990:] = b"0123456789"
os.close(fd)
with open("private", "w+b") as f:
    f.write(b"x" * 5000)
    f.flush()
    with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as view:
        view[0:3] = b"abc"
    f.seek(0)
    print(f.read(3))
    f.write(b"after")
print(os.path.getsize("mapped"))
"""
CHILDREN = r"""
import multiprocessing, os, subprocess, sys, tempfile
with open("log", "w") as log:
    log.write("parent first\n")
    log.flush()
    subprocess.run(["echo", "child"], stdout=log, check=True)
    subprocess.run("echo shell; echo more >> other", shell=True, stdout=log, check=True)
    log.write("parent last\n")
    log.flush()
    with subprocess.Popen(["sort", "-r"], stdin=subprocess.PIPE, stdout=log, text=True) as sort:
        sort.communicate("a\nb\nc\n")
fd = os.open("shared", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
os.write(fd, b"parent\n")
child = os.fork()
if child == 0:
    os.write(fd, b"forked child\n")
    with open("by-child", "w") as f:
        f.write("from the child\n" * 1000)
    os._exit(0)
os.waitpid(child, 0)
os.write(fd, b"parent again\n")
print(os.pread(fd, 100, 0))
os.close(fd)
print(subprocess.check_output(["wc", "-c", "log", "other", "shared", "by-child"], text=True))
def task(n):
    name = f"task{n}"
    with open(name, "w") as f:
        f.write(str(n) * 10000)
    return os.path.getsize(name)
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(task, range(8)))
    pool.close()  # else its children are killed
    pool.join()
with tempfile.TemporaryDirectory(dir=".") as folder, tempfile.TemporaryFile(dir=folder) as t:
    t.write(b"temporary" * 1000)
    t.seek(9)
    print(t.read(9))
"""
PYTHON = sys.executable
# Python 3.12 and newer warns of a fork beside threads, and counts ours (docs/limits.md).
PYTHON += " -W ignore::DeprecationWarning"
CASES = {name: [f"{PYTHON} script.py {name}"] for name in ("files", "databases", "mapped", "children")}
SCRIPTS = {"files": FILES, "databases": DATABASES, "mapped": MAPPED, "children": CHILDREN}


def prepare(folder):
    parts = [f"if sys.argv[1] == {name!r}:\n    exec({text!r})\n" for name, text in SCRIPTS.items()]
    (folder / "script.py").write_text("import sys\n" + "".join(parts))


if __name__ == "__main__":
    comparison.main(__doc__, CASES, prepare, through_the_log=CASES, hot=("databases",),
                    hot_through_the_log=("databases",))
