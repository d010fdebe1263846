#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the library takes for a call past libc. `installed`: programs and libraries of the distribution, of which it is
known. `generated`: small objects, by each compiler. `decoder`: against objdump. `all`: every object of /usr, with those
that may be raw."""

import argparse
import glob
import itertools
import pathlib
import re
import shutil
import subprocess
import tempfile

import kit
from kit import check, say

LIBRARIES = "/usr/lib/x86_64-linux-gnu/"
# By patterns; at least MOST of each list are installed where the tests run.
CLEAN = ("/usr/bin/sqlite3", "/usr/bin/perl", "/usr/bin/git", "/usr/bin/dpkg", "/usr/bin/python3", "/usr/bin/node",
         "/usr/bin/fio", "/usr/bin/db_bench", "/usr/sbin/mariadbd", "/usr/lib/postgresql/*/bin/postgres",
         "/usr/lib/jvm/*/lib/server/libjvm.so", LIBRARIES + "librocksdb.so.*", LIBRARIES + "libjemalloc.so.2",
         LIBRARIES + "libsqlite3.so.0", LIBRARIES + "libcrypto.so.3", LIBRARIES + "libnode.so.*",
         LIBRARIES + "libstdc++.so.6", LIBRARIES + "libLLVM-*.so.1", LIBRARIES + "liblmdb.so.0", LIBRARIES + "libaio.so.1")
RAW = ("/usr/bin/etcd", LIBRARIES + "liburing.so.2", LIBRARIES + "libgomp.so.1", LIBRARIES + "libasan.so.*")
CLEAN_AT_LEAST, RAW_AT_LEAST = 8, 1
# All objects of /usr that are raw have one of these in their path, or are Go's or FreePascal's.
MAY_BE_RAW = re.compile(r"/(ldconfig|busybox|shellcheck|stress-ng|libgomp|libitm|libunwind|liburing|lib[a-z]*san|libclang_rt|valgrind"
                        r"|arch-test/|libpthread|gdbserver)")
OTHERS = (b"Go build", b"FPC ", b"go.buildinfo")

CODE = """
long call(long number, long a) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a) : "rcx", "r11", "memory");
  return result;
}
long known(long a) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "0"(%(number)dL), "D"(a) : "rcx", "r11", "memory");
  return result + 1;
}
"""
# As a compiler does that makes a call several times: the number is in a register that calls leave alone.
KEPT = """
long kept(long a) {
  long result;
  __asm__ volatile("mov $%(number)d, %%%%r14d\\n\\tmov %%%%r14d, %%%%eax\\n\\tsyscall\\n\\tmov $%(other)d, %%%%r14d"
                   : "=a"(result) : "D"(a) : "rcx", "r11", "r14", "memory");
  return result + 1;
}
"""
KNOWN_ONLY = CODE[CODE.index("long known"):]
# The bytes within constants, and in data that stands among the code, most of which is in functions.
DATA = "".join(f"long f{n}(long x) {{ for (long i = {n}; i < x; ++i) x ^= x * i + {n}; return x; }}\n" for n in range(60)) + """
unsigned constant(unsigned x) { return x * 0xc3050f00u + 0x050fu; }
unsigned long wide(unsigned long x) { return x ^ 0xf001050fc3050f48ul; }
__attribute__((section(".text"), used)) static const char text[] = "\\x0f\\x05\\x0f\\x05 in a table \\x0f\\x05!!";
const char* data(void) { return text; }
"""


class Scanner:
    def __init__(self, program):
        self.program = program

    def __call__(self, *words):
        done = subprocess.run([self.program, *words], capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr}")
        return done.stdout.splitlines()

    def raw(self, *files):
        """Those that are, of these."""
        return {line.removesuffix(" (trusted)") for line in self(*files)[:-1]}


def there(patterns):
    found = [path for pattern in patterns for path in glob.glob(pattern)]
    return sorted({str(pathlib.Path(path).resolve()) for path in found if pathlib.Path(path).is_file()})


def installed(scan, _folder):
    clean, raw = there(CLEAN), there(RAW)
    check(len(clean) >= CLEAN_AT_LEAST and len(raw) >= RAW_AT_LEAST, f"too little is installed: {clean} {raw}")
    found = scan.raw(*clean, *raw)
    check(found == set(raw), f"wrongly raw: {sorted(found - set(raw))}; not found: {sorted(set(raw) - found)}")
    say(f"{len(clean)} clean, {len(raw)} raw")


def build(compiler, source, folder, *options):
    """The object; None, if the compiler is not there."""
    if shutil.which(compiler) is None:
        return None
    (folder / "source.c").write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-w", *options, folder / "source.c", "-o", folder / "object.so"], check=True)
    return str(folder / "object.so")


def generated(scan, folder):
    harmless, harmful, cases = 202, 17, 0
    ways = itertools.product(("gcc", "clang"), ("-O0", "-Os", "-O2", "-O3"),
                             ("-fasynchronous-unwind-tables", "-fno-asynchronous-unwind-tables"))
    for compiler, level, tables in ways:
        expected = {CODE % {"number": harmless}: True, KNOWN_ONLY % {"number": harmful}: True}
        if tables.startswith("-fasync"):  # else nobody knows where a function begins
            # Without optimization the number goes by way of memory.
            expected |= {KNOWN_ONLY % {"number": harmless}: False} if level != "-O0" else {}
            expected |= {KEPT % {"number": harmless, "other": harmless}: False} if level != "-O0" else {}
            expected |= {DATA: False, KEPT % {"number": harmless, "other": harmful}: True,
                         KEPT % {"number": harmful, "other": harmful}: True}
        for source, raw in expected.items():
            for more in (("-Wl,-z,noseparate-code",), ("-Wl,-z,separate-code",), ("-Wl,-s", "-Wl,--build-id=none")):
                path = build(compiler, source, folder, level, tables, *more)
                if path is None:
                    continue
                cases += 1
                check((path in scan.raw(path)) == raw, f"{compiler} {level} {tables} {more}: raw is not {raw} of {source}")
    check(cases > 50, f"{cases} objects only")
    say(f"{cases} objects")


def starts_by_objdump(path):
    lines = subprocess.run(["objdump", "-d", "-w", "--no-show-raw-insn", path], capture_output=True, text=True, check=True).stdout
    return {int(line.split(":")[0], 16) for line in lines.splitlines() if re.match(r" *[0-9a-f]+:\t", line)}


def decoder(scan, _folder):
    """Where objdump and the decoder disagree, one of them has read data, or taken a prefix for an instruction."""
    paths = there([LIBRARIES + name for name in ("libm.so.6", "libz.so.1", "libsqlite3.so.0", "libgmp.so.10")])
    check(len(paths) >= 3, f"too little is installed: {paths}")
    instructions = wrong = 0
    for path in paths:
        known = starts_by_objdump(path)
        for line in scan("--starts", path)[:-1]:
            begin, _, lengths = line.partition(":")
            at, before = int(begin, 16), 0
            for length in lengths.split():
                instructions += 1
                # objdump takes fwait, of one byte, for a part of the next one.
                if at not in known and not (before == 1 and at - 1 in known):
                    wrong += 1
                    say(f"{path}: objdump has no instruction at {at:x}")
                before = int(length, 16)
                at += before
    check(instructions > 100000 and wrong == 0, f"{wrong} of {instructions} instructions begin elsewhere")
    say(f"{instructions} instructions of {len(paths)} objects begin where objdump has them")


def objects():
    for folder in ("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec"):
        for path in pathlib.Path(folder).rglob("*"):
            if path.is_file() and not path.is_symlink() and (path.stat().st_mode & 0o111 or ".so" in path.name):
                with path.open("rb") as file:
                    if file.read(4) == b"\x7fELF":
                        yield str(path)


def everything(scan, _folder):
    paths = list(objects())
    for start in range(0, len(paths), 100):
        some = paths[start:start + 100]
        for path in scan.raw(*some):
            content = pathlib.Path(path).read_bytes()
            check(MAY_BE_RAW.search(path) or any(sign in content for sign in OTHERS), f"{path} is raw")
        done = subprocess.run([scan.program, "--functions", *some], capture_output=True, text=True, check=False)
        unread = [line for line in done.stdout.splitlines() if "is not read to its end" in line]
        check(len(unread) <= 1, f"functions that are not read: {unread}")
    say(f"{len(paths)} objects")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    cases = {"installed": installed, "generated": generated, "decoder": decoder, "all": everything}
    parser.add_argument("case", choices=cases)
    parser.add_argument("--scan", required=True)
    parser.add_argument("--scratch", required=True)
    options = parser.parse_args()
    pathlib.Path(options.scratch).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rawcall-", dir=options.scratch) as folder:
        cases[options.case](Scanner(options.scan), pathlib.Path(folder))


if __name__ == "__main__":
    main()
