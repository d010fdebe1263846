#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Debian's libraries that stand between a program and libc, behind ours and before it: a program does the same with NVCache
and without, in each of its files; and nothing happens at the paths that one of them translates."""

import glob
import shutil
import sys

import kit
from kit import check, say
from kit.basics import SKIPPED

PROGRAM = """
import os, sys
folder = sys.argv[1]
def path(name): return folder + "/" + name
def put(name, text, syncs=70):
    fd = os.open(path(name), os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(fd, text, 0)
    for _ in range(syncs): os.fsync(fd)
    os.pwrite(fd, text, 0)
    return fd
fds = [put(name, b"content of " + name.encode()) for name in "abcdef"]
place = os.open(folder, os.O_RDONLY)
for _ in range(3): os.fsync(place)
os.rename(path("a"), path("a2")); os.unlink(path("b")); os.truncate(path("c"), 3); os.link(path("d"), path("d2"))
os.pwrite(fds[4], b"more", 20)
print("stat", os.stat(path("e")).st_size, open(path("e"), "rb").read())
os.rename(path("f"), path("e"))
os.fsync(place)
os.mkdir(path("folder")); os.symlink("c", path("folder/s")); os.rename(path("folder"), path("moved"))
os.close(put("g.tmp", b"new")); os.rename(path("g.tmp"), path("g"))
fd = put("h", b"to be cut"); os.close(os.open(path("h"), os.O_WRONLY | os.O_TRUNC)); os.pwrite(fd, b"cut", 0); os.fsync(fd)
fd = put("i", b"opened anew")
with open(path("i"), "wb") as stream: stream.write(b"anew")
os.fsync(fd)
os.chmod(path("c"), 0o640)
try: os.chown(path("c"), 0, 0)
except PermissionError as error: print(error)
print("of c", oct(os.stat(path("c")).st_mode), os.stat(path("c")).st_uid)
for fd in fds: os.fsync(fd)
if os.fork() == 0:
    os.rename(path("a2"), path("a3")); os._exit(0)
print(os.wait()[1], "".join(chr(b) for b in os.popen("cat " + path("d2")).read().encode()))
print({name: open(path(name), "rb").read() for name in sorted(os.listdir(folder)) if name != "moved"})
"""
NAMES = "abcdefghi"


def found(*patterns):
    for pattern in patterns:
        for path in glob.glob(pattern):
            return path
    return None


LIBRARIES = {name: (f"/usr/lib/*/{name}", f"/usr/lib/{name}") for name in
             ("libsocket_wrapper.so", "libuid_wrapper.so", "libnss_wrapper.so", "libeatmydata.so",
              "fakechroot/libfakechroot.so", "nocache/nocache.so")}


def of_case(case, bench, folder):
    """The library, its settings, and what the files lie below in truth."""
    library = found(*(pattern for name, patterns in LIBRARIES.items() if case in name for pattern in patterns))
    (bench.folder / "sockets").mkdir(exist_ok=True)
    (bench.folder / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n", encoding="utf-8")
    settings = {"socket_wrapper": {"SOCKET_WRAPPER_DIR": bench.folder / "sockets"},
                "uid_wrapper": {"UID_WRAPPER": "1", "UID_WRAPPER_ROOT": "1"},
                "nss_wrapper": {"NSS_WRAPPER_PASSWD": bench.folder / "passwd",
                                "NSS_WRAPPER_GROUP": bench.folder / "passwd"}}.get(case, {})
    if case != "fakechroot":
        return library, settings, folder
    root = folder.parent / "root"
    below = root / str(folder).lstrip("/")
    below.mkdir(parents=True)
    stays = ["/usr", "/bin", "/lib", "/lib64", "/proc", "/dev", "/etc", sys.prefix, sys.base_prefix,
             str(bench.folder / "program.py")]
    return library, {"FAKECHROOT": "true", "FAKECHROOT_BASE": root, "FAKECHROOT_EXCLUDE_PATH": ":".join(stays)}, below


def run(case, how, rule, bench):
    folder = bench.folder / f"{how}-{rule}" / "files"
    folder.mkdir(parents=True)
    library, settings, below = of_case(case, bench, folder)
    if below != folder:
        for name in NAMES:
            (folder / name).write_text("DECOY\n", encoding="utf-8")
    bench.write_back = rule
    ours = {} if how == "without" else bench.settings(preload=False, NVCACHE_NOTICE="0")
    order = {"without": "{0}", "behind": f"{bench.preload_library}:{{0}}", "before": f"{{0}}:{bench.preload_library}"}
    # Python from 3.12 on says that the process has threads, which are ours (docs/limits.md).
    words = [sys.executable, "-W", "ignore::DeprecationWarning", bench.folder / "program.py", folder]
    if case == "fakeroot":
        preload = order[how].format("$LD_PRELOAD")
        words = ["fakeroot", "sh", "-c", f'export LD_PRELOAD={preload}; exec "$@"', "sh", *words]
    else:
        settings["LD_PRELOAD"] = order[how].format(library)
    command = ["env", *(f"{name}={value}" for name, value in {**ours, **settings}.items()), *words]
    done = bench.without(*command, may_fail=True)
    files = {str(path.relative_to(below)): path.read_bytes() if path.is_file() else None
             for path in sorted(below.rglob("*"))}
    if below != folder:
        check({path.name: path.read_text() for path in folder.iterdir()} == dict.fromkeys(NAMES, "DECOY\n"),
              f"{how}, {rule}: what lies at the untranslated paths was changed")
    return done.returncode, done.stdout.replace(str(folder), "FOLDER"), done.stderr.replace(str(folder), "FOLDER"), files


def test(case, options):
    there = shutil.which("fakeroot") if case == "fakeroot" else any(
        found(*patterns) for name, patterns in LIBRARIES.items() if case in name)
    if not there:
        say(f"{case} is not there")
        sys.exit(SKIPPED)
    with kit.Bench(options, size="32M") as bench:
        (bench.folder / "program.py").write_text(PROGRAM, encoding="utf-8")
        expected = run(case, "without", "auto", bench)
        check(expected[0] == 0, f"without: {expected}")
        for how in ("behind", "before"):
            for rule in ("auto", "exclusive", "always"):
                seen = run(case, how, rule, bench)
                check(seen == expected, f"{how}, {rule}:\n{seen}\ninstead of\n{expected}")
        say(f"{case}: {len(expected[3])} files the same, in both orders")


def main():
    parser = kit.arguments(__doc__)
    options = parser.parse_args()
    for case in options.cases or ("fakechroot", "fakeroot", "nocache", "eatmydata", "socket_wrapper", "uid_wrapper",
                                  "nss_wrapper"):
        test(case, options)


if __name__ == "__main__":
    main()
