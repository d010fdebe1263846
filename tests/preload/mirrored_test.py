#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""mirrored.c on a mirrored pool, and opened_past.c. Where another writer has the epoch, each call that promises durability fails, and
so does, with --commit write, each that changes something; all others do as ever. Where syncs are real, none fails."""

import pathlib
import shutil
import struct

import kit
from kit import check

STATE = 81920 + 128  # SharedState::mirror_state (docs/pool-format.md)
REAL, FENCED = 1, 6

PROMISES = {
    "fsync", "fdatasync", "fsync by number", "fsync of a folder", "sync_file_range", "syncfs", "sync by number", "msync",
    "msync by number", "pwritev2, RWF_DSYNC", "pwritev2, RWF_SYNC", "write, O_DSYNC", "write, O_SYNC",
    "write by number, O_DSYNC", "sendfile, O_DSYNC", "splice, O_DSYNC", "stream, O_DSYNC", "aio_fsync",
    "aio_write, O_DSYNC", "io_submit, a sync", "io_submit, RWF_DSYNC",
}
CHANGES = {
    "write", "pwrite", "writev", "pwritev", "pwritev2", "ftruncate", "truncate", "fallocate", "posix_fallocate",
    "copy_file_range", "ioctl, which sets", "stream", "open, O_CREAT", "open, O_TRUNC", "rename", "link", "symlink",
    "unlink", "mkdir", "rmdir", "mkfifo", "chmod", "fchmod", "chown", "fchown", "utimensat", "setxattr", "fsetxattr",
    "write, again", "write, once more", "unlink by a child of vfork",
}
# By numbers that pipes had before.
PAST = {"write, opened past libc": "0", **dict.fromkeys(
    ("write, O_DSYNC, opened past libc", "the same, close_range", "the same, fclose", "the same, dup2"), "EIO")}
# Of a file that the log has bytes of: with --write-back always.
REMOVALS = {"unlink of what was written", "rename over what was written"}
# The kernel does them by itself, later; or they change nothing.
NEITHER = {
    "mmap", "msync, later", "sync_file_range, begun", "write into a pipe", "read", "ioctl, which reads", "aio_write", "io_setup", "io_submit",
    "open", "stat",
}


def results(bench, program, commit, state, rule):
    """What the program says of each call."""
    folder = bench.folder / "data"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "folder").mkdir()
    for name in ("file", "other", "gone", "cut", "written", "target", "shared"):
        (folder / name).write_bytes(b"x" * 5000)
    pool = bench.pool.with_name(f"{program.name}-{commit}-{state}-{rule}")
    bench.without(bench.nvcache, "create", pool, "--size", "16M", "--commit", commit)
    with open(pool, "r+b") as file:
        file.seek(STATE)
        file.write(struct.pack("<I", state))
    done = bench.without(program, folder, env=bench.settings(NVCACHE_POOL=str(pool), NVCACHE_WRITE_BACK=rule))
    return dict(line.split("\t") for line in done.stdout.splitlines())


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True, help="mirrored.c, built")
    parser.add_argument("--past", required=True, help="opened_past.c, built")
    options = parser.parse_args()
    program, past = (pathlib.Path(each).resolve() for each in (options.program, options.past))
    with kit.Bench(options, size="16M") as bench:
        found = results(bench, past, "fsync", FENCED, "auto")
        check(found == PAST, f"opened past libc: {found}")
        for rule in ("auto", "always"):
            removals = REMOVALS if rule == "always" else set()
            for commit, fails in (("fsync", PROMISES | removals), ("write", PROMISES | CHANGES | REMOVALS)):
                found = results(bench, program, commit, FENCED, rule)
                check(found.pop("descriptors") == "0", f"{commit}, {rule}: descriptors are left")
                every = PROMISES | CHANGES | REMOVALS | NEITHER
                check(set(found) == every, set(found) ^ every)
                wrong = [f"{name}: {error}" for name, error in found.items() if error != ("EIO" if name in fails else "0")]
                check(not wrong, f"--commit {commit}, {rule}:\n" + "\n".join(wrong))
                found = results(bench, program, commit, REAL, rule)
                wrong = [f"{name}: {error}" for name, error in found.items() if error != "0"]
                check(not wrong, f"syncs are real, --commit {commit}, {rule}:\n" + "\n".join(wrong))
    print(f"{len(PROMISES)} calls promise, {len(CHANGES)} change something")


if __name__ == "__main__":
    main()
