#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the library takes for a call past libc. `installed`: programs and libraries of the distribution, of which it is
known. `generated`: small objects, by each compiler. `lies`: one whose tables and headers say what is not so. `huge`: one of
500 MB. `decoder`: against objdump. `all`: every object of /usr, with those that may be raw."""

import argparse
import glob
import itertools
import os
import pathlib
import re
import shutil
import struct
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


# Code before the function that begins, and behind the one that ends.
AROUND = "long last(long a) { return a + 1; }\n%s\nlong first(long a) { return a + 2; }\n"


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
    for option in ("-Wl,-init,first", "-Wl,-fini,last"):
        path = build("gcc", AROUND % (KNOWN_ONLY % {"number": harmful}), folder, "-O2", "-Wl,-z,noseparate-code", option)
        check(path in scan.raw(path), f"{option}: not found")
    check(cases > 50, f"{cases} objects only")
    say(f"{cases} objects")


class Elf:
    """An object that can be spoiled."""

    EH_FRAME, STACK, LOAD = 0x6474e550, 0x6474e551, 1

    def __init__(self, path):
        self.bytes = bytearray(pathlib.Path(path).read_bytes())
        self.table = self.get("Q", 32)
        self.headers = [self.table + 56 * i for i in range(self.get("H", 56))]

    def get(self, form, at):
        return struct.unpack_from("<" + form, self.bytes, at)[0]

    def put(self, form, at, *values):
        struct.pack_into("<" + form, self.bytes, at, *values)

    def header(self, kind):
        return next(at for at in self.headers if self.get("I", at) == kind)

    def loads(self):
        return [at for at in self.headers if self.get("I", at) == self.LOAD]

    def place(self, address):
        """In the file."""
        for at in self.loads():
            offset, begin, size = self.get("Q", at + 8), self.get("Q", at + 16), self.get("Q", at + 32)
            if begin <= address < begin + size:
                return offset + address - begin
        raise ValueError(hex(address))

    def descriptions(self):
        """Of each function of the unwind table: where the file has its entry, and its description; its address and size."""
        begin = self.get("Q", self.header(self.EH_FRAME) + 16)
        table = self.place(begin)
        for at in range(table + 12, table + 12 + 8 * self.get("I", table + 8), 8):
            description = self.place(begin + self.get("i", at + 4))
            yield at, description, begin + self.get("i", at), self.get("I", description + 12)

    def write(self, path):
        pathlib.Path(path).write_bytes(self.bytes)
        return str(path)


def spoiled(original):
    """Name and object: each lies in another way."""
    fields = Elf(original)
    hdr = fields.header(Elf.EH_FRAME)
    table = fields.place(fields.get("Q", hdr + 16))
    size = fields.get("Q", hdr + 32)
    for name, form, at, values in (
            ("no sections", "QHHH", 40, None), ("sections elsewhere", "Q", 40, (1 << 60,)),
            ("another version", "B", table, (7,)), ("another encoding", "B", table + 3, (0x1b,)),
            ("no function", "I", table + 8, (0,)), ("too many functions", "I", table + 8, (0xffffffff,)),
            ("entries of zeros", f"{size - 12}s", table + 12, (b"",)), ("entries of ones", f"{size - 12}s", table + 12, (b"\xff" * size,)),
            ("a table elsewhere", "Q", hdr + 16, (1 << 40,)), ("a table at the end", "Q", hdr + 16, (2**64 - 8,)),
            ("a table without an end", "Q", hdr + 40, (2**63,)), ("an empty table", "QQ", hdr + 32, (0, 0))):
        object_ = Elf(original)
        if values is None:
            object_.put("Q", 40, 0)
            object_.put("HHH", 58, 0, 0, 0)
        else:
            object_.put(form, at, *values)
        yield name, object_
    # A function that begins later than it does, at each of its bytes.
    for which, (_, _, _, length) in enumerate(list(fields.descriptions())):
        for shift in range(1, length):
            object_ = Elf(original)
            entry, description, _, _ = list(object_.descriptions())[which]
            object_.put("i", entry, object_.get("i", entry) + shift)
            object_.put("iI", description + 8, object_.get("i", description + 8) + shift, length - shift)
            yield f"function {which} begins {shift} bytes later", object_


def lies(scan, folder):
    original = build("gcc", AROUND % (KNOWN_ONLY % {"number": 17}), folder, "-O2")
    check(original in scan.raw(original), "the object itself")
    cases = list(spoiled(original))
    for name, object_ in cases:
        path = object_.write(folder / "lying.so")
        check(path in scan.raw(path), f"{name}: not found")
    say(f"{len(cases)} lies")


def huge(scan, folder):
    """The last program header becomes a segment of code that the file does not have, but for a call at its end."""
    size, page = 500 << 20, 4096
    call = bytes.fromhex("b811000000 0f05 c3")  # mov $17,%eax; syscall; ret
    for code, raw in ((call, True), (b"\x90" * len(call), False)):
        object_ = Elf(build("gcc", DATA, folder, "-O2"))
        header = object_.header(Elf.STACK)
        last = object_.loads()[-1]
        begin = (object_.get("Q", last + 16) + object_.get("Q", last + 40) + page - 1) // page * page
        offset = (len(object_.bytes) + page - 1) // page * page
        object_.put("IIQQQQQQ", header, Elf.LOAD, 5, offset, begin, begin, size, size, page)
        path = object_.write(folder / f"huge-{raw}.so")
        with open(path, "r+b") as file:
            file.truncate(offset + size)
            file.seek(offset + size - len(code))
            file.write(code)
        check(os.stat(path).st_blocks * 512 < size // 100, "the file is not sparse")
        check((path in scan.raw(path)) == raw, f"raw is not {raw}")
    say("found at the end of 500 MB")


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
    cases = {"installed": installed, "generated": generated, "lies": lies, "huge": huge, "decoder": decoder, "all": everything}
    parser.add_argument("case", choices=cases)
    parser.add_argument("--scan", required=True)
    parser.add_argument("--scratch", required=True)
    options = parser.parse_args()
    pathlib.Path(options.scratch).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rawcall-", dir=options.scratch) as folder:
        cases[options.case](Scanner(options.scan), pathlib.Path(folder))


if __name__ == "__main__":
    main()
