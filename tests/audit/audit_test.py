#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs under NVCache, watched by strace: no call on a cached file reaches the kernel past the
library. See kernel_trace.py for how that is told."""

import pathlib
import sys

import kit
from kit import check, comparison
from kernel_trace import REASONS, STRACE, Audit

# One lock for a life: else the files are write-through, and the kernel has what others may look at. SQLite lets go of a
# byte when it has got the rest of its lock, once.
SQL = ("PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode={}; CREATE TABLE t(v); CREATE INDEX i ON t(v);" +
       "".join(f"INSERT INTO t VALUES('{'x' * (i % 500)}{i}');" for i in range(200)) +
       "PRAGMA wal_checkpoint; SELECT count(*) FROM t; VACUUM;")
PYTHON = """
import os
with open("a", "w+b", 0) as f:
    for i in range(100): f.write(b"x" * i)
    f.seek(0); f.read(50); f.truncate(99)
with open("b", "w") as f: f.write("text" * 1000)
with open("b", "r+") as f: f.seek(8); f.write("more"); f.flush(); os.fsync(f.fileno()); f.read()
os.rename("b", "c"); open("c").read(); os.stat("c")
fd = os.open("a", os.O_RDWR | os.O_APPEND); os.pwrite(fd, b"at the end", 5); os.dup2(fd, 77)
os.writev(77, [b"1", b"2"]); os.preadv(fd, [bytearray(5)], 3); os.close(fd); os.write(77, b"z")
"""
FIO = ("fio --name=a --filename=data --size=2M --rw=randrw --bs=512-9k --bs_unaligned --fsync=8 --thread "
       "--ioengine=psync --direct=0 --randseed=1 --verify=crc32c --minimal")
GIT = ("git init -q r && cd r && git config user.email a@example.org && git config user.name A && "
       "cp ../source/words ../source/deep/file* . && git add . && git commit -q -m 1 && "
       "echo x >> words && git commit -q -a -m 2 && git gc -q && git fsck --strict && cd .. && "
       "git clone -q r s")

# Command, and the reasons for which it may reach the kernel.
PROGRAMS = {
    "sqlite_wal": (["sqlite3", "db", SQL.format("wal")], set()),
    "sqlite_delete": (["sqlite3", "db", SQL.format("delete")], set()),
    "cp": (["cp", "-r", "--reflink=never", "source", "copy"], set()),
    "cp_in_kernel": (["cp", "source/words", "copy"], {"target"}),
    "cat": (["sh", "-c", "cat source/words >> out"], {"standard"}),
    "dd": (["dd", "if=source/words", "of=out", "bs=1000", "conv=fsync", "status=none"], set()),
    "tar_create": (["tar", "cf", "a.tar", "source"], set()),
    "tar_extract": (["tar", "xf", "given.tar"], set()),
    "gzip": (["gzip", "-k", "source/words"], set()),
    "sort": (["sort", "-S", "500k", "-T", ".", "-o", "out", "source/words"], set()),
    "sed": (["sed", "-i.bak", "s/1/one/", "source/words"], set()),
    "perl": (["perl", "-i", "-pe", "s/1/one/", "source/words"], set()),
    "rsync": (["rsync", "-a", "source/", "copy"], set()),
    "git": (["sh", "-c", GIT], {"used again"}),
    "python": ([sys.executable, "-c", PYTHON], set()),
    "fio": (FIO.split(), set()),
    "db_bench": (["db_bench", "--db=db", "--benchmarks=fillsync,fillrandom,readrandom,compact",
                  "--num=2000", "--write_buffer_size=100000", "--compression_type=none"], {"unlinked"}),
}
# Everything that these write is the kernel's work, or goes to a descriptor 1 that was inherited.
UNCACHED = {"cp_in_kernel", "cat"}

# What raw.c does past libc.
PLANTED = ("write", "pwrite64", "pread64", "lseek", "fsync", "ftruncate", "dup", "close", "read", "open", "fork",
           "target")


class Auditor:
    def __init__(self, options, bench):
        self.bench = bench
        self.witness = pathlib.Path(options.witness).resolve()
        self.folder = bench.folder / "work"
        comparison.source_tree(self.folder / "source")
        bench.without("tar", "cf", "given.tar", "-C", "source", ".", cwd=self.folder)

    def run(self, command):
        trace = self.bench.folder / "trace"
        settings = self.bench.settings(LD_PRELOAD=f"{self.witness} {self.bench.preload_library}", NVCACHE_BATCH_MIN="20",
                                       NVCACHE_RAW="trust")  # the witness speaks past libc
        words = [word for name, value in settings.items() for word in ("-E", f"{name}={value}")]
        self.bench.without(*STRACE, "-o", trace, *words, *command, cwd=self.folder)
        with open(trace, encoding="utf-8", errors="replace") as lines:
            return Audit(self.folder, lines)


def program(auditor, name):
    command, allowed = PROGRAMS[name]
    audit = auditor.run(command)
    shown = ", ".join(f"{count} because {REASONS[reason]}" for reason, count in audit.reasons.items())
    kit.say(f"         {len(audit.cached)} files cached; to the kernel: {shown or 'nothing'}")
    check(not audit.violations,
          f"{len(audit.violations)} calls went past the library:\n" + "\n".join(audit.violations[:10]))
    check(set(audit.reasons) <= allowed, f"{set(audit.reasons) - allowed}: unexpected reasons")
    # A file whose inode's number is used again is told as that, whatever else it is.
    stale = set() if "used again" in audit.reasons else allowed & {"stream", "standard", "turn"} - set(audit.reasons)
    check(not stale, f"{stale}: not needed any more, to be removed from the test")
    check((audit.served > 0) == (name not in UNCACHED), f"{audit.served} reads and writes by the library")


def planted(auditor, raw):
    audit = auditor.run([raw, "nothing"])
    check(not audit.violations, f"clean, and yet: {audit.violations}")
    for call in PLANTED:
        (auditor.folder / "file").unlink()
        audit = auditor.run([raw, call])
        wanted = "write" if call == "open" else call
        check(len(audit.violations) == 1 and f": {wanted}(" in audit.violations[0],
              f"a planted {call} gives {audit.violations}")


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--witness", required=True, help="witness.c, built")
    parser.add_argument("--raw", required=True, help="raw.c, built")
    options = parser.parse_args()

    def one(name):
        with kit.Bench(options, size="64M", dram="8M", timeout=300) as bench:
            auditor = Auditor(options, bench)
            if name == "planted":
                planted(auditor, pathlib.Path(options.raw).resolve())
            else:
                program(auditor, name)

    kit.main(options, {name: lambda name=name: one(name) for name in ("planted", *PROGRAMS)})


if __name__ == "__main__":
    main()
