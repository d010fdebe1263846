#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs that make, rename and remove files to be durable: sqlite3's journals, git, a maildir, dpkg. They are killed,
the disk loses what it has not made durable, the pool in memory stays, as NVMM would, and the next boot
recovers. What a program has acknowledged is there, and its own checker finds nothing wrong.

Exit code 77 where a file system cannot be mounted and shut down."""

import os
import pathlib
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time

import kit
from kit import check, command
from kit.disks import FILE_SYSTEMS, PowerDisk, needs_power_failures

# Each prints a number when that one is acknowledged.
SQLITE = """
import sqlite3, sys
db = sqlite3.connect("db", isolation_level=None)
db.execute("PRAGMA synchronous=FULL")
db.execute("PRAGMA journal_mode={mode}")
db.execute("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v TEXT)")
first = db.execute("SELECT ifnull(max(id), 0) FROM t").fetchone()[0]
for i in range(first + 1, first + 1000000):
    db.execute("INSERT INTO t VALUES(?, ?)", (i, str(i) * (i % 700)))
    print(i, flush=True)
"""
GIT = """
set -e
[ -d .git ] || git init -q .
i=$(git rev-list --count HEAD 2>/dev/null || echo 0)
# A killed git leaves its locks: that is for whoever runs it next.
find .git -name '*.lock' -delete
while :; do
  i=$((i + 1))
  echo "$i" >"file$((i % 7))"
  git add -A
  git commit -q -m "$i"
  echo "$i"
done
"""
MAILDIR = """
import os
for name in ("tmp", "new", "cur"):
    os.makedirs(name, exist_ok=True)
folder = os.open("new", os.O_RDONLY)
i = len(os.listdir("new"))
while True:
    i += 1
    fd = os.open(f"tmp/{i}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, b"%d\\n" % i * (i % 900 + 1))
    os.fsync(fd)
    os.close(fd)
    if i % 2:
        os.rename(f"tmp/{i}", f"new/{i}")
    else:
        if os.path.exists(f"new/{i}"):
            os.unlink(f"new/{i}")
        os.link(f"tmp/{i}", f"new/{i}")
        os.unlink(f"tmp/{i}")
    os.fsync(folder)
    print(i, flush=True)
"""
# Of five packages, each number gives one the version of that number, or purges it; after the last one it waits.
DPKG = """
import os, signal, subprocess
for name in ("info", "updates"):
    os.makedirs(f"root/var/lib/dpkg/{name}", exist_ok=True)
open("root/var/lib/dpkg/status", "a").close()
subprocess.run(["sync", "-f", "root"], check=True)
query = ["dpkg-query", "--root=root", "-W", "-f", "${Version} "]
i = max(map(int, subprocess.run(query, capture_output=True, check=True).stdout.split()), default=0)
while True:
    i += 1
    package = f"../packages/{i}.deb"
    action = ["--purge", f"p{i % 5}"] if i % 4 == 0 else ["--install", package]
    if action[0] == "--install" and not os.path.exists(package):
        signal.pause()
    # Containers are set up with --force-unsafe-io, which leaves the syncs out.
    done = subprocess.run(["dpkg", "--root=root", "--log=/dev/null", "--refuse-unsafe-io",
                           "--force-bad-path", *action], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{i}: {done.stdout}{done.stderr}")
    print(i, flush=True)
"""
GIT_ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
    "GIT_CONFIG_COUNT": "3", "GIT_CONFIG_KEY_0": "core.fsync", "GIT_CONFIG_VALUE_0": "all",
    "GIT_CONFIG_KEY_1": "gc.auto", "GIT_CONFIG_VALUE_1": "0",
    "GIT_CONFIG_KEY_2": "safe.directory", "GIT_CONFIG_VALUE_2": "*"}


def check_sqlite(folder, acknowledged):
    db = sqlite3.connect(folder / "db")
    check(db.execute("PRAGMA integrity_check").fetchall() == [("ok",)], "integrity_check finds something")
    rows = db.execute("SELECT id, v FROM t ORDER BY id").fetchall()
    db.close()
    check(rows == [(i, str(i) * (i % 700)) for i in range(1, len(rows) + 1)], "a row is wrong")
    check(len(rows) >= acknowledged, f"{len(rows)} rows, {acknowledged} acknowledged")


def check_git(folder, acknowledged):
    def git(*words):
        return command("git", *words, cwd=folder, env=dict(os.environ, **GIT_ENVIRONMENT))

    git("fsck", "--strict", "--no-dangling")
    commits = int(git("rev-list", "--count", "HEAD"))
    check(commits >= acknowledged, f"{commits} commits, {acknowledged} acknowledged")
    found = git("show", f"HEAD~{commits - acknowledged}:file{acknowledged % 7}")
    check(found == f"{acknowledged}\n", f"the last acknowledged commit has {found!r}")


def check_maildir(folder, acknowledged):
    names = {int(path.name) for path in (folder / "new").iterdir()}
    missing = set(range(1, acknowledged + 1)) - names
    check(not missing, f"of {acknowledged} messages are missing: {sorted(missing)}")
    for i in range(1, acknowledged + 1):
        data = (folder / "new" / str(i)).read_bytes()
        check(data == b"%d\n" % i * (i % 900 + 1), f"message {i} has {len(data)} bytes: {data[:20]!r}")


def package_files(i):
    """What version `i` of its package has: names below the root, and content."""
    files = {f"usr/share/p{i % 5}/f{k}": f"{i} {k}\n" * (1 + 37 * k) for k in range(1 + i % 7)}
    files[f"usr/bin/p{i % 5}"] = f"program {i}\n" * 3000
    return files


POOL = {"size": "256M", "dram": "1M", "write_back": "auto"}
PACKAGES_AHEAD = 40  # of each kill


def build_packages(folder, last):
    packages = folder / "packages"
    packages.mkdir(exist_ok=True)
    for i in range(1, last + 1):
        target = packages / f"{i}.deb"
        if i % 4 == 0 or target.exists():
            continue
        with tempfile.TemporaryDirectory(dir=packages) as name:
            tree = pathlib.Path(name)
            tree.chmod(0o755)
            control = (f"Package: p{i % 5}\nVersion: {i}\nArchitecture: all\nMaintainer: a <a@b>\n"
                       "Description: a test\n")
            for path, content in {"DEBIAN/control": control, **package_files(i)}.items():
                (tree / path).parent.mkdir(parents=True, exist_ok=True)
                (tree / path).write_text(content)
            command("dpkg-deb", "-Znone", "--root-owner-group", "--build", tree, target)


def packages_after(last):
    """Package to version."""
    versions = {}
    for i in range(1, last + 1):
        if i % 4 == 0:
            versions.pop(f"p{i % 5}", None)
        else:
            versions[f"p{i % 5}"] = i
    return versions


def check_packages(root, versions, but=None):
    """They are installed, and no others, with their files, and no others; but for one of which nothing is known. dpkg
    does not sync a folder that it only removes files from: a journal takes that along with the next sync."""
    lines = command("dpkg-query", f"--root={root}", "-W", "-f", "${Package} ${Version} ${Status}\\n").splitlines()
    found = {line.split()[0]: line for line in lines if line.split()[0] != but}
    expected = {name: f"{name} {i} install ok installed" for name, i in versions.items() if name != but}
    check(found == expected, f"dpkg knows {found}, expected {expected}")
    for name in {f"p{number}" for number in range(5)} - {but}:
        files = package_files(versions[name]) if name in versions else {}
        paths = [root / "usr/bin" / name, *(root / "usr/share" / name).glob("*")]
        there = {path.relative_to(root).as_posix(): path.read_text() for path in paths if path.exists()}
        wrong = {path for path in {*files, *there} if files.get(path) != there.get(path)}
        check(not wrong, f"{expected.get(name, name + ' was purged')}: wrong are {sorted(wrong)}")


def check_dpkg(folder, acknowledged):
    """What was interrupted is done once more, as an administrator would; then all is well."""
    root = folder / "root"
    check_packages(root, packages_after(acknowledged), but=f"p{(acknowledged + 1) % 5}")

    def dpkg(*words):
        return command("dpkg", f"--root={root}", "--log=/dev/null", "--force-bad-path", *words)

    after = acknowledged + 1
    if after % 4 == 0:
        dpkg("--purge", f"p{after % 5}")
    else:
        build_packages(folder.parent, after)
        dpkg("--install", str(folder.parent / "packages" / f"{after}.deb"))
    audit = dpkg("--audit")
    check(audit == "", f"dpkg --audit: {audit}")
    check_packages(root, packages_after(after))
    command("sync", "-f", root)


def python(code):
    return [sys.executable, "-c", code]


CASES = {
    "sqlite_delete": (python(SQLITE.format(mode="DELETE")), check_sqlite),
    "sqlite_truncate": (python(SQLITE.format(mode="TRUNCATE")), check_sqlite),
    "sqlite_persist": (python(SQLITE.format(mode="PERSIST")), check_sqlite),
    "sqlite_wal": (python(SQLITE.format(mode="WAL")), check_sqlite),
    "git": (["sh", "-c", GIT], check_git),
    "maildir": (python(MAILDIR), check_maildir),
    "dpkg": (python(DPKG), check_dpkg),
}


def play(bench, disk, case, acknowledged, choice, recovers=True):
    """What is acknowledged by the end."""
    program, verify = CASES[case]
    if case == "dpkg":
        build_packages(bench.folder, acknowledged + PACKAGES_AHEAD)
    heard = []
    crowd = kit.Crowd(bench, disk.folder, [program], lambda _, words: heard.append(int(words[0])),
                      HOME=str(bench.folder), **GIT_ENVIRONMENT)
    crowd.await_words(lambda: heard, "something is acknowledged")
    time.sleep(choice.uniform(0, 1.5))
    status, = crowd.kill()
    # All that were killed, which may take a sync's time.
    group = crowd.processes[0].pid
    kit.until(lambda: not kit.group_lives(group), "the end of what was killed", 60)
    check(status == -signal.SIGKILL, f"it ended with {status}: {crowd.said()[-2000:]}")
    acknowledged = heard[-1]
    if choice.random() < 0.8 or not recovers:
        disk.fail(bench.pool)
    if recovers:
        bench.recover()
    verify(disk.folder, acknowledged)
    # A checker is a program without NVCache. sqlite3 may have rolled a journal back, and removed it.
    disk.sync()
    return acknowledged


def run(options, case, kind):
    choice = random.Random(f"{options.seed} {case} {kind}")
    size = 4 << 30 if options.long else 400 << 20  # some 30 MiB a round
    acknowledged = 0
    with kit.Bench(options, **POOL) as bench, PowerDisk(bench, size, kind) as disk:
        for _ in range(options.rounds * (40 if options.long else 1)):
            acknowledged = play(bench, disk, case, acknowledged, choice)
    kit.say(f"         {acknowledged} acknowledged")


def self_check(options):
    """Without recovery something is missing, or the test sees nothing. (Not where the kill comes early: the disk has
    what was synced before the names were in the log.)"""
    choice = random.Random(options.seed)
    for _ in range(10):
        with kit.Bench(options, **POOL) as bench, PowerDisk(bench, 400 << 20) as disk:
            try:
                play(bench, disk, "maildir", 0, choice, recovers=False)
            except (kit.Failure, OSError) as expected:
                kit.say(f"as it should be: {expected}")
                return
    raise kit.Failure("nothing is missing")


def main():
    parser = kit.arguments(__doc__, rounds=2)
    parser.add_argument("--kind", action="append", choices=FILE_SYSTEMS)
    parser.add_argument("--self-check", action="store_true", help="whether the test finds what is missing")
    options = parser.parse_args()
    needs_power_failures(options)
    chosen = options.cases or [case for case in CASES if case != "dpkg" or shutil.which("dpkg-deb")]
    options.cases = []
    if options.self_check:
        kit.main(options, {"self_check": lambda: self_check(options)})
    kit.main(options, {f"{kind}, {case}": lambda kind=kind, case=case: run(options, case, kind)
                       for kind in options.kind or FILE_SYSTEMS for case in chosen})


if __name__ == "__main__":
    main()
