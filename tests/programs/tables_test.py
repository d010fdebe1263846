# SPDX-License-Identifier: BSD-3-Clause
"""More files open at once than the library's table holds: the rest pass through, and status says
so. Nothing else is said, and nothing is lost."""

import resource
import sys

import kit
from kit import check, say, skip

FILES = 70000
TABLE = 65536

WRITER = r'''
import os, resource, sys
count = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (200000, 200000))
files = []
for i in range(count):
    if i % 1000 == 0:
        os.mkdir("d%d" % (i // 1000))
    fd = os.open("d%d/%d" % (i // 1000, i), os.O_RDWR | os.O_CREAT, 0o644)
    if os.write(fd, b"file %d" % i) != len(b"file %d" % i):
        sys.exit("short write")
    files.append(fd)
for i in range(0, count, 7):
    if os.pwrite(files[i], b"FILE", 0) != 4 or os.pread(files[i], 4, 0) != b"FILE":
        sys.exit("file %d" % i)
again = os.open("d0/0", os.O_RDWR)
if os.read(again, 100) != b"FILE 0":
    sys.exit("opened again")
late = os.open("late", os.O_RDWR | os.O_CREAT, 0o644)
if os.write(late, b"late") != 4 or os.pread(late, 9, 0) != b"late":
    sys.exit("late")
for fd in files:
    os.close(fd)
'''


def more_files(bench):
    worker = [sys.executable, "-c", WRITER, FILES]
    done = bench.with_cache(*worker)
    lines = done.stderr.splitlines()
    check(len(lines) == 1 and "emulated" in lines[0], f"stderr: {done.stderr}")
    bench.check_drained()
    full = bench.counter("table_full")
    check(FILES - TABLE <= full <= FILES - TABLE + 10, f"{full} files were passed through")
    text = bench.without(bench.nvcache, "status", bench.pool).stdout
    check("files passed through: table full" in text, text)
    for i in range(FILES):
        content = (bench.folder / f"d{i // 1000}" / str(i)).read_bytes()
        wanted = (b"FILE %d" if i % 7 == 0 else b"file %d") % i
        check(content == wanted, f"file {i} holds {content}")
    say(f"{full} of {FILES} files passed through")


def main():
    options = kit.arguments(__doc__).parse_args()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200000, 200000))
    except (ValueError, OSError) as problem:
        skip(f"the limit of open files cannot be raised: {problem}", must_run_in_ci=False)
    with kit.Bench(options) as bench:
        kit.main(options, {"more_files": lambda: more_files(bench)})


main()
