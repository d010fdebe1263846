# SPDX-License-Identifier: BSD-3-Clause
"""Runs the same shell commands without and with NVCache, and compares what they print and leave."""

import difflib
import hashlib
import os
import random

from .basics import check
from .bench import Bench, arguments, by_rules
from .bench import main as run_cases

# The time of everything in the source tree; who keeps times has to keep this one.
OLD = 1600000000


def digest(folder):
    """Names, kinds, sizes, permissions and content of everything below `folder`."""
    result = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        status = path.lstat()
        common = (oct(status.st_mode), "old" if status.st_mtime_ns == OLD * 10**9 else "new")
        if path.is_symlink():
            result[name] = ("link", os.readlink(path))
        elif path.is_dir():
            result[name] = ("folder", *common)
        else:
            data = path.read_bytes()
            result[name] = (*common, len(data), hashlib.sha256(data).hexdigest())
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
    with open(folder / "deep/holes", "wb") as file:
        file.seek(1 << 20)
        file.write(b"an island")
        file.truncate(3 << 20)
    (folder / "link").symlink_to("words")
    # The folder and the link as well: an archive has the time of everything.
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (OLD, OLD), follow_symlinks=False)


def difference(one, other):
    """The first lines in which two texts differ."""
    lines = difflib.unified_diff(one.splitlines(), other.splitlines(), "without", "with", n=0, lineterm="")
    return "\n".join(list(lines)[:20])


def compare(bench, prepare, lines, env=None):
    """Runs the lines with bash, each time in the same folder, as `prepare` has filled it."""
    results = []
    for cache in (False, True):
        folder = bench.folder / "work"
        folder.mkdir()
        prepare(folder)
        done = bench.run(["bash", "-ec", "\n".join(lines)], cache, cwd=folder, env=env)
        results.append((done.stdout, done.stderr, digest(folder)))
        folder.rename(bench.folder / ("cached" if cache else "plain"))
    bench.check_drained()
    (plain_out, plain_err, plain), (out, err, cached) = results
    check(out == plain_out, f"stdout differs:\n{difference(plain_out, out)}")
    for name in sorted(plain.keys() | cached.keys()):
        check(plain.get(name) == cached.get(name),
              f"{name}: {plain.get(name)} without, {cached.get(name)} with NVCache")
    # The cache may say one line in each process (and git repeat it), and nothing else.
    rest = "".join(line for line in err.splitlines(keepends=True) if "nvcache: " not in line)
    check(rest == plain_err, f"stderr differs:\n{difference(plain_err, rest)}")


def main(description, cases, prepare, env=None, through_the_log=(), hot=(), hot_through_the_log=()):
    """One test for each of `cases`, which maps names to lists of shell commands, and for those of `hot`
    one with the default rule. The counters of a pool are those of the last program that used it: for
    `through_the_log` and, with the default rule, `hot_through_the_log`, that is the one tested. Of a file that
    is write-through nothing is cleaned, so segments are counted."""
    options = arguments(description).parse_args()

    def one(name, rule):
        with Bench(options, size="64M", dram="8M", write_back=rule) as bench:
            compare(bench, prepare, cases[name], env)
            if name in (through_the_log if rule == "always" else hot_through_the_log):
                check(bench.counter("segments_taken") > 0, "nothing went through the log")

    run_cases(options, by_rules(one, cases, hot))
