# SPDX-License-Identifier: BSD-3-Clause
"""Programs of the suite `everyday` that handle files."""

import dataclasses
import functools
import pathlib
import random
import shutil
import sysconfig
from collections.abc import Callable

from harness import leavings, systems
from suites.everyday_program import MOST, OLD, Program, write_file

PYTHON = "/usr/bin/python3"
ALL = "names, modes, contents, links"
# Of the time without NVCache, where names are made and removed.
NAMES = (("plain", 1.15),)
# Of a program that waits for the disk, and of libeatmydata's time: a part, and a little more.
SYNCS = (("plain", 1), ("eatmydata", 1.15))
JOURNAL = (("plain", 1 / 5), ("eatmydata", 1.15))
REPLACED = (("plain", 1 / 10), ("eatmydata", 1.3))
FOLDERS = 8


def tree(folder, count):
    """Files of up to 20 KiB, the same each time; one that may be executed, an empty one, a link."""
    draw = random.Random(count)
    for number in range(count):
        data = draw.randbytes(draw.randint(1 << 10, 20 << 10))
        write_file(folder / str(number % FOLDERS) / str(number), data, 0o755 if number == 1 else 0o644)
    write_file(folder / "empty", b"")
    (folder / "link").symlink_to("0/0")


def source_tree(turn):
    tree(turn.work / "source", turn.scale.choose(40, 400, 2000))


@dataclasses.dataclass(frozen=True)
class Tool(Program):
    """A command that runs in a folder that was prepared; then the whole folder is compared."""
    prepare: Callable = lambda turn: None
    command: Callable = None  # turn -> the command
    environment: dict = dataclasses.field(default_factory=dict)
    left: Callable = leavings.tree  # folder -> what is compared

    def run(self, turn):
        self.prepare(turn)
        turn.place.environment.update(self.environment)
        seconds = turn.timed(self.command(turn))
        turn.settle()
        return dict.fromkeys(self.titles, seconds), self.left(turn.work)


@dataclasses.dataclass(frozen=True)
class Short(Program):
    """A program that is over at once, several times."""
    prepare: Callable = lambda turn: None
    command: Callable = None  # turn, number of the run -> the command
    times: int = 20

    def run(self, turn):
        self.prepare(turn)
        seconds = turn.spawned([self.command(turn, number) for number in range(self.times)])
        turn.settle()
        return dict.fromkeys(self.titles, seconds), leavings.tree(turn.work)


def _tool(name, title, needs, command, **options):
    goals = {name: options.pop("goals", (("plain", MOST),))}
    return Tool(name, {name: title}, options.pop("compared", ALL), needs, command=command, goals=goals, **options)


def _shell(script, *counts):
    """The script, with $1 by scale."""
    return lambda turn: ["sh", "-ec", script, "sh", turn.scale.choose(*counts)]


# ----------------------------------------------------------------------------------------------------

GIT = """\
git init -q
for i in $(seq "$1"); do
  for f in 0 1 2 3 4; do echo "commit $i" >>"source/$f/$f"; done
  git add -A
  git commit -q -m "commit $i"
done
git gc -q
"""
# Nothing of a commit depends on time and user, nothing of a pack on how threads shared the work.
GIT_SETTINGS = {"init.defaultBranch": "main", "core.fsync": "all", "gc.auto": "0", "pack.threads": "1",
                "user.name": "A", "user.email": "a@example.org"}
GIT_ENVIRONMENT = {
    "GIT_AUTHOR_DATE": f"{OLD} +0000", "GIT_COMMITTER_DATE": f"{OLD} +0000",
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_COUNT": str(len(GIT_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{i}": key for i, key in enumerate(GIT_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{i}": value for i, value in enumerate(GIT_SETTINGS.values())},
}


def _git_tree(turn):
    tree(turn.work / "source", 60)


# ----------------------------------------------------------------------------------------------------

LARGE = (4, 256, 1024)  # MiB
QUARTERS = tuple(f"{size // 4}M" for size in LARGE)


def _large_file(turn):
    draw = random.Random(1)
    block = draw.randbytes(1 << 20)
    write_file(turn.work / "large", block * turn.scale.choose(*LARGE))


def _archive(turn):
    source_tree(turn)
    turn.without(["tar", "-cf", "archive.tar", "--owner=0", "--group=0", "--sort=name", f"--mtime=@{OLD}",
                  "source"])
    shutil.rmtree(turn.work / "source")


# ----------------------------------------------------------------------------------------------------

CONTROL = """\
Package: everyday
Version: 1
Architecture: all
Maintainer: A <a@example.org>
Description: files
"""


def _package(turn):
    """A package of the tree, and what dpkg needs of a system to unpack it there."""
    root = turn.place.folder / "package"
    tree(root / "usr/share/everyday", turn.scale.choose(40, 400, 2000))
    write_file(root / "DEBIAN/control", CONTROL.encode())
    turn.without(["dpkg-deb", "--root-owner-group", "-Znone", "-b", root, turn.work / "everyday.deb"],
                 env=turn.plain | {"SOURCE_DATE_EPOCH": str(OLD)})
    for name in ("info", "updates", "triggers"):
        (turn.work / "root/var/lib/dpkg" / name).mkdir(parents=True)
    for name in ("status", "available"):
        write_file(turn.work / "root/var/lib/dpkg" / name, b"")


def _unpack(turn):
    return ["dpkg", f"--root={turn.work}/root", "--force-not-root,bad-path,script-chrootless",
            "--log=/dev/null", "--unpack", "everyday.deb"]


# ----------------------------------------------------------------------------------------------------

SHELL = """\
for i in $(seq "$1"); do
  echo "line $i" >>log
  sed "s/line/row/" log >rows
  sort -r rows >sorted
  mkdir "d$i"
  head -n 3 sorted >"d$i/top"
  cp "d$i/top" "d$i/copy"
  mv "d$i/copy" "d$i/moved"
  grep -c row rows >>counts
  rm rows
done
"""

UNITS = (3, 12, 40)
MAKEFILE = """\
objects = {objects}
program: main.o libunits.a
\t$(CC) -o $@ main.o libunits.a
libunits.a: $(objects)
\t$(AR) rcs $@ $(objects)
%.o: %.c unit.h
\t$(CC) -O1 -c -o $@ $<
"""


def _c_project(turn):
    units = [f"unit{i}" for i in range(turn.scale.choose(*UNITS))]
    write_file(turn.work / "Makefile", MAKEFILE.format(objects=" ".join(f"{unit}.o" for unit in units)).encode())
    write_file(turn.work / "unit.h", "".join(f"int {unit}(int);\n" for unit in units).encode())
    for i, unit in enumerate(units):
        table = ",".join(str(i * n % 251) for n in range(2000))
        write_file(turn.work / f"{unit}.c", f'#include "unit.h"\nstatic const unsigned char t[] = {{{table}}};\n'
                   f"int {unit}(int x) {{ return t[x % 2000] + x; }}\n".encode())
    calls = " + ".join(f"{unit}(n)" for unit in units)
    write_file(turn.work / "main.c", '#include <stdio.h>\n#include "unit.h"\nint main(void) {\n'
               f'  for (int n = 0; n < 20; ++n) printf("%d\\n", {calls});\n}}\n'.encode())


PACKAGES = (("json",), ("json", "email", "logging", "asyncio"), ("json", "email", "logging", "asyncio", "xml",
                                                                 "unittest", "multiprocessing", "concurrent"))


def _python_sources(turn):
    """Some of what Python itself consists of."""
    library = pathlib.Path(sysconfig.get_path("stdlib"))
    for package in turn.scale.choose(*PACKAGES):
        for path in sorted((library / package).rglob("*.py")):
            write_file(turn.work / path.relative_to(library), path.read_bytes())


# ----------------------------------------------------------------------------------------------------

SQLITE_ROWS = (10, 200, 1000)
SQLITE_JOURNALS = ("DELETE", "TRUNCATE", "PERSIST", "WAL")


def _statements(journal, synchronous, counts, turn):
    rows = turn.scale.choose(*counts)
    text = [f"PRAGMA journal_mode={journal};", f"PRAGMA synchronous={synchronous};",
            "CREATE TABLE rows (id INTEGER PRIMARY KEY, value TEXT);",
            *(f"INSERT INTO rows VALUES ({i}, 'row {i * 37} {'x' * 100}');" for i in range(rows))]
    write_file(turn.work / "statements", "\n".join(text).encode())


@dataclasses.dataclass(frozen=True)
class Sqlite(Tool):
    """The shell of SQLite; each insert is a transaction."""

    def run(self, turn):
        seconds, files = super().run(turn)
        left = {name: "there" for name in files}
        for question in ("PRAGMA integrity_check;", ".dump"):
            left |= leavings.lines(question, turn.without(["sqlite3", "database", question]))
        if "ok" not in left.values():
            raise systems.Broken(f"{turn.place.system}: the database is damaged")
        return seconds, left


def sqlite(name, title, journal, synchronous="FULL", goals=JOURNAL, counts=SQLITE_ROWS):
    """`counts`: of inserts, by scale."""
    return Sqlite(name, {name: f"sqlite3, an insert in a transaction, {title}"},
                  "names; .dump, integrity_check", {"sqlite3": "sqlite3"}, goals={name: goals},
                  kind="databases", logged=synchronous == "FULL",
                  prepare=functools.partial(_statements, journal, synchronous, counts),
                  command=lambda turn: ["sqlite3", "-batch", "-bail", "database", ".read statements"])


# ----------------------------------------------------------------------------------------------------

# As a mail server's agent that has many messages at once. Each is synced, and gets its name by a link.
MAILDIR = """\
import email.message, mailbox, sys
box = mailbox.Maildir("Maildir", create=True)
for number in range(int(sys.argv[1])):
    message = email.message.EmailMessage()
    message["Subject"] = f"message {number}"
    message.set_content("a line of text\\n" * (10 + number % 50))
    box.add(message)
"""

LINE = b"x" * 4095 + b"\n"


def _line(turn):
    write_file(turn.work / "line", LINE)


# A file that has its content again and again, as settings have.
REWRITE = """\
import os, sys
way, rounds = sys.argv[1], int(sys.argv[2])
for number in range(rounds):
    name = "settings" if way == "truncate" else "settings.new"
    with open(name, "w") as file:
        file.write(f"setting {number}\\n" * 300)
        if way == "synced":
            file.flush()
            os.fsync(file.fileno())
    if way != "truncate":
        os.rename(name, "settings")
    if way == "synced":
        folder = os.open(".", os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
"""
ROUNDS = (10, 200, 1000)


def _python(script, *words, counts):
    return lambda turn: [PYTHON, "-c", script, *words, turn.scale.choose(*counts)]


def _rewrite(way, title, counts=ROUNDS, **options):
    return _tool(f"rewrite {way}", title, {PYTHON: "python3"}, _python(REWRITE, way, counts=counts), **options)


def replaced(counts=ROUNDS):
    """`counts`: of replacements, by scale."""
    return _rewrite("synced", "a file rewritten, synced, and renamed over the old one, the folder synced", counts, goals=REPLACED)


# Files that nobody syncs.
NEW_FILES = """\
import os, sys
os.mkdir("files")
for number in range(int(sys.argv[1])):
    file = os.open(f"files/{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    os.write(file, b"x" * 1024)
    os.close(file)
"""
TEMPORARY = """\
import os, sys
for number in range(int(sys.argv[1])):
    file = os.open("temporary", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    os.write(file, b"x" * 1024)
    os.close(file)
    os.unlink("temporary")
"""
CUT = """\
import os, sys
file = os.open("file", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
for number in range(int(sys.argv[1])):
    os.ftruncate(file, 1000)
    os.pwrite(file, b"x" * 1000, 1000)
"""
FILES = (100, 10000, 10000)


def _new_files(turn):
    turn.without(_python(NEW_FILES, counts=FILES)(turn))


# ----------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Children(Program):
    """Children of a process that has 100 open files which it has written."""

    def run(self, turn):
        lines = turn.run([turn.bench.program("nvcache_overhead"), "children", turn.work]).splitlines()
        seconds = {name: float(ns) / 1e9 for name, ns in map(str.split, lines)}
        turn.settle()
        if set(seconds) != set(self.titles):
            raise systems.Broken(f"nvcache_overhead children has printed {', '.join(seconds)}")
        return seconds, leavings.tree(turn.work)


PROGRAMS = (
    Short("nothing", {"nothing": "`true`: a program that does nothing"}, ALL, {},
          goals={"nothing": (("plain", 120e-6),)}, added=True, command=lambda turn, number: ["/bin/true"]),
    Short("one file", {"one file": "`sed -n w`: a program that writes one file of 4 KiB"}, ALL, {"sed": "sed"},
          goals={"one file": (("plain", 300e-6),)}, added=True, prepare=_line,
          command=lambda turn, number: ["/bin/sed", "-n", f"w {turn.work}/file{number}", turn.work / "line"]),
    _tool("git", "git: commits, `core.fsync=all`, gc", {"git": "git"}, _shell(GIT, 3, 20, 20), seconds=(0.3, 2, 2), goals=SYNCS,
          compared=f"{ALL}, but for `.git/index`, which has times and inode numbers", prepare=_git_tree,
          environment=GIT_ENVIRONMENT, left=lambda folder: leavings.tree(folder, skip=(".git/index",))),
    _tool("tar -c", "`tar -c`", {"tar": "tar"}, lambda turn: [
        "tar", "-cf", "archive.tar", "--owner=0", "--group=0", "--sort=name", f"--mtime=@{OLD}", "source"],
          prepare=source_tree, goals=NAMES),
    _tool("tar -x", "`tar -x`", {"tar": "tar"}, lambda turn: ["tar", "-xf", "archive.tar"], prepare=_archive,
          goals=NAMES),
    _tool("cp -r", "`cp -r`", {"cp": "coreutils"}, lambda turn: ["cp", "-r", "source", "copy"], prepare=source_tree,
          goals=(("plain", 1.1),)),
    _tool("cp", "`cp` of a file four times the pool", {"cp": "coreutils"}, lambda turn: ["cp", "large", "copy"],
          prepare=_large_file, pools=QUARTERS, seconds=(0.2, 2, 8)),
    _tool("cp, sync", "`cp` of a file four times the pool, then `sync`", {"cp": "coreutils"},
          _shell("cp large copy; sync", 1, 1, 1), prepare=_large_file, pools=QUARTERS, seconds=(0.2, 3, 10)),
    _tool("dpkg", "`dpkg --unpack`", {"dpkg": "dpkg", "dpkg-deb": "dpkg"}, _unpack, prepare=_package,
          goals=SYNCS, seconds=(0.5, 2, 8)),
    # They write as standard output, which is the kernel's.
    _tool("shell", "a shell script of small commands", {"sh": "dash"}, _shell(SHELL, 3, 20, 100), goals=(("plain", 1.1),)),
    _tool("make", "`make` of a small C project", {"make": "make", "gcc": "gcc"},
          lambda turn: ["make", "-s", "-j2", "CC=gcc"], prepare=_c_project, seconds=(0.3, 1, 3),
          goals=(("plain", 1.1),)),
    _tool("compileall", "Python's compileall", {PYTHON: "python3"},
          lambda turn: [PYTHON, "-m", "compileall", "-q", "."], prepare=_python_sources,
          # The order of a set's constants depends on it.
          environment={"PYTHONHASHSEED": "0"}, seconds=(0.2, 1, 3), goals=(("plain", 1.1),)),
    _tool("maildir", "delivery into a maildir", {PYTHON: "python3"}, _python(MAILDIR, counts=(5, 100, 500)),
          compared="modes and contents; names have the time", left=leavings.bag, goals=REPLACED),
    _tool("new files", "new files of 1 KiB", {PYTHON: "python3"}, _python(NEW_FILES, counts=FILES),
          goals=(("plain", 1.2),)),
    _tool("removal", "`rm -r` of these", {"rm": "coreutils"}, lambda turn: ["rm", "-r", "files"],
          prepare=_new_files, goals=(("plain", 1.2),)),
    _tool("temporary", "a file made, written, closed and removed", {PYTHON: "python3"},
          _python(TEMPORARY, counts=FILES), goals=NAMES),
    _tool("cut", "`ftruncate` to 1,000 bytes, and a write behind them", {PYTHON: "python3"},
          _python(CUT, counts=FILES), goals=NAMES),
    _rewrite("truncate", "a file rewritten through `O_TRUNC`"),
    _rewrite("rename", "a file rewritten, and renamed over the old one"),
    replaced(),
    Children("children", {"fork": "`fork` with 100 open files that were written", "vfork": "`vfork`, likewise",
                          "posix_spawn": "`posix_spawn`, likewise",
                          "posix_spawn_plain": "`posix_spawn`, likewise, of a program without NVCache"}, ALL, {},
             goals=dict.fromkeys(("fork", "vfork", "posix_spawn", "posix_spawn_plain"), (("plain", 1.1),))),
    *(sqlite(f"sqlite3 {journal}", journal, journal) for journal in SQLITE_JOURNALS),
    sqlite("sqlite3 OFF", "DELETE, `synchronous=OFF`", "DELETE", "OFF", NAMES),
)
