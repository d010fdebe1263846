#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the first implementation of NVCache got wrong: see peers.c. Each case runs without and with
the cache, and afterwards the files are what they have to be. Nothing is written back before the
end, so whatever is not served from the cache would be missed."""

import os
import pathlib
import re
import subprocess
import threading

import kit
from kit import LATE, check

LETTERS = (b"abcdefghijklmnopqrstuvwxyz" * 800)[:20000]
VECTORS = bytearray(LETTERS[:1000])
VECTORS[500:517] = b"one two threeone "
VECTORS[20:33] = b"one two three"

# What each case leaves. The first two kill themselves.
KILLED = {
    "rename_while_dirty": {"new": LETTERS[:10000] + LETTERS[:5000], "old": b"another file"},
    "truncate_while_dirty": {"shorter": LETTERS[:3000],
                             "island": LETTERS[:3000] + bytes(2000) + b"island"},
}
LEFT = {
    **KILLED,
    "append": {"log": b"first second third fourth"},
    "all_bytes": {"file": b"by the first, by its copy, by a number"},
    "vectors": {"file": bytes(VECTORS)},
    "reader_of_dirty": {"file": LETTERS[:9000] + b"more"},
    "last_byte_of_stream": {str(size): LETTERS[:size] for size in range(4094, 4099)},
    "wrong_mode": {"file": LETTERS[:100]},
    "close_on_exec": {"file": LETTERS},
    "close_while_dirty": {"file": LETTERS * 200},
}


class Peers:
    def __init__(self, options, bench):
        self.bench = bench
        self.program = str(pathlib.Path(options.program).resolve())

    def run(self, case, cache, *before):
        folder = self.bench.folder / ("cached" if cache else "plain")
        folder.mkdir()
        command = self.bench.cached([self.program, case]) if cache else [self.program, case]
        done = self.bench.without(*before, *command, cwd=folder, env=LATE, may_fail=True)
        want = -9 if case in KILLED else 0
        check(done.returncode == want, f"exit code {done.returncode}: {done.stderr}")
        return folder, done

    def check_left(self, case, folder):
        found = {path.name: path.read_bytes() for path in folder.iterdir()}
        for name in sorted(found.keys() | LEFT[case].keys()):
            check(found.get(name) == LEFT[case].get(name), f"{folder.name}: {name} is {found.get(name)!r:.200}")

    def simple(self, case):
        folder, plain = self.run(case, False)
        self.check_left(case, folder)
        folder, cached = self.run(case, True)
        check(plain.stdout == cached.stdout, f"stdout: {cached.stdout!r} instead of {plain.stdout!r}")
        if case in KILLED:
            check(self.bench.pending() > 0, "nothing is pending: nothing is tested")
            # Recovery needs no word from anybody: any program's start with the cache does it.
            if self.bench.front_end == "built-in":
                self.bench.with_cache(self.program, may_fail=True)
            else:
                self.bench.without("true", env=self.bench.settings())
        elif case != "last_byte_of_stream":
            check(self.bench.counter("entries_cleaned") > 0, "nothing went through the log")
            check(self.bench.counter("pass_through_files") == 0, "a file went to the kernel")
        self.bench.check_drained()
        self.check_left(case, folder)

    def close_while_dirty(self):
        """close() does not wait for the disk: no flush until it returns. The last one hands the bytes
        to the kernel, so that other programs see them; that is copying."""
        trace = self.bench.folder / "trace"
        folder, done = self.run("close_while_dirty", True, "strace", "-f", "-y", "-o", trace)
        self.check_left("close_while_dirty", folder)
        check(self.bench.counter("entries_cleaned") > 0, "nothing went through the log")
        check(done.stdout == "closing\nclosed\n", f"stdout: {done.stdout!r}")
        text = trace.read_text()
        inside = text[text.index('"closing\\n"'):text.index('"closed\\n"')]
        wait = re.findall(r"^\d+ +(?:fsync|fdatasync|syncfs|sync_file_range|sync|msync)\(.*$", inside, re.M)
        check(not wait, f"close() waited for: {wait[:3]}")
        after = text[text.index('"closed\\n"'):]
        check(re.search(rf"f(?:data)?sync\(\d+<{folder}/file", after) is not None,
              "the write-back at the end cannot be seen: nothing is tested; of flushes there are "
              + str(re.findall(r"^.*sync.*\(.*$", text, re.M)))

    def two_processes(self):
        """Both on one pool, killed while they write: every record that was acknowledged is there."""
        names = ("first", "second")
        shell = " ".join(f"{self.program} record_{name} >&{fd} &" for name, fd in zip(names, (3, 4)))
        pipes = {name: os.pipe() for name in names}
        give = " ".join(f"{fd}>&{pipes[name][1]}" for name, fd in zip(names, (3, 4)))
        counts = dict.fromkeys(names, 0)
        enough = threading.Barrier(3)

        def listen(name):
            with os.fdopen(pipes[name][0], "rb") as pipe:
                for line in pipe:
                    counts[name] = int(line.split()[1]) + 1
                    if counts[name] == 2000:
                        enough.wait(60)

        with subprocess.Popen(
                ["bash", "-c", f'exec "$@" {give}', "bash", *self.bench.cached(["bash", "-c", shell + " wait"])],
                cwd=self.bench.folder, env=dict(os.environ, **LATE), pass_fds=[pipes[name][1] for name in names],
                start_new_session=True, stderr=subprocess.DEVNULL) as shell_process:
            for name in names:
                os.close(pipes[name][1])
            listeners = [threading.Thread(target=listen, args=(name,)) for name in names]
            for listener in listeners:
                listener.start()
            try:
                enough.wait(60)
            finally:
                os.killpg(shell_process.pid, 9)
        for listener in listeners:
            listener.join()
        check(self.bench.pending() > 0, "nothing is pending: nothing is tested")
        self.bench.recover()
        for name in names:
            lines = (self.bench.folder / name).read_text().splitlines()
            check(lines == [f"{name} {i}" for i in range(len(lines))], f"{name} is damaged")
            check(counts[name] <= len(lines) <= counts[name] + 1,
                  f"{name}: {len(lines)} records, {counts[name]} are acknowledged")


def main():
    parser = kit.arguments(__doc__)
    parser.add_argument("--program", required=True, help="peers.c, built")
    parser.add_argument("--built-in", action="store_true", help="the program has the cache in its libc")
    options = parser.parse_args()

    def one(case):
        with kit.Bench(options, size="64M", dram="8M", timeout=100,
                       front_end="built-in" if options.built_in else "preload") as bench:
            peers = Peers(options, bench)
            special = getattr(peers, case, None)
            if special:
                special()
            else:
                peers.simple(case)

    kit.main(options, {case: lambda case=case: one(case) for case in (*LEFT, "two_processes")})


if __name__ == "__main__":
    main()
