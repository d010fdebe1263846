#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""fio writes, fio verifies: in the same run through NVCache, and afterwards without it.

The files are together 8 times the log and 32 times the DRAM cache, so that segments are used again, pages
are evicted while records of them are pending, and reads miss on such pages.

fio can verify unaligned blocks in two ways: a block size that is no multiple of anything (offsets
are multiples of the block size), and blocksize_unaligned with norandommap, where it verifies the
blocks that no later one overlaps.
"""

import re

import kit
from kit import check

THREADS = ["--thread", "--numjobs=4"]
SEPARATE = ["--filename_format=$jobname.$jobnum"]


def job(name, *options):
    """The options of one; the first word, fio or its like, is put before them."""
    return [f"--name={name}", "--ioengine=psync", "--verify=crc32c", "--verify_fatal=1",
            "--randseed=20", "--group_reporting", "--fallocate=none", "--unlink=0",
            "--buffer_compress_percentage=0", *options]


def verify_clean(done):
    for stream in (done.stdout, done.stderr):
        check(not re.search(r"verify(:| failed)|err=[0-9 ]*[1-9]", stream),
              f"fio reports an error:\n{stream[-4000:]}")


class FioTest:
    def __init__(self, options):
        self.options = options

    def bench(self):
        part = self.options.part
        return kit.Bench(self.options, size=f"{128 // part}M",
                             dram=f"{32 // part}M", front_end=self.options.front_end)

    def both(self, job_options, counters=(), verify_again=True):
        """Without, to know that the job itself is sound; with; and once more without, from disk."""
        debians = ["fio", *job_options]
        with self.bench() as bench:
            verify_clean(bench.without(*debians))
            if verify_again:
                verify_clean(bench.without(*debians, "--verify_only=1"))
        with self.bench() as bench:
            verify_clean(bench.with_cache(self.options.program, *job_options))
            bench.check_drained()
            for name in ("entries_cleaned", *counters):
                value = bench.counter(name)
                kit.say(f"         {name} {value}")
                least = bench.counter("segments") if name == "segments_taken" else 0
                check(value > least, f"{name} is {value}: the test did not test what it should")
            if verify_again:
                verify_clean(bench.without(*debians, "--verify_only=1"))

    def size(self, megabytes):
        return f"{megabytes // self.options.part}M"

    # 1 GiB in four files, every block size between 512 bytes and 64 KiB. In a second run, fio does
    # not know any more which blocks of this size a mixed job wrote.
    def sizes(self, mode, size):
        # Of a part of the log, writes alone are on the disk before their pages are evicted.
        dirty = mode != "randwrite" or self.options.part == 1
        self.both(job("sizes", f"--rw={mode}", "--bsrange=512-64k", "--bs_unaligned=0",
                      f"--size={self.size(size)}", *THREADS, *SEPARATE, "--verify_backlog=4096"),
                  ("segments_taken", "evictions", *(("dirty_evictions", "dirty_misses") if dirty else ())),
                  verify_again=mode == "randwrite")

    # One block size; one shared file, of which each thread has a quarter.
    def single(self, mode, block, quarter):
        self.both(job("single", f"--rw={mode}", f"--bs={block}", f"--size={self.size(quarter)}",
                      f"--offset_increment={self.size(quarter)}", "--filename=shared", *THREADS))

    # 3333 bytes: no block but the first starts on a page, most lie across two.
    def odd(self, mode, size):
        self.both(job("odd", f"--rw={mode}", "--bs=3333", f"--size={self.size(size)}", *THREADS,
                      *SEPARATE))

    def unaligned(self, size):
        self.both(job("unaligned", "--rw=randwrite", "--bsrange=640-64k", "--bs_unaligned=1",
                      "--blockalign=1", "--norandommap=1", f"--size={self.size(size)}", *THREADS,
                      *SEPARATE),
                  verify_again=False)

    # Jobs that are processes: the cache is handed over at each fork.
    def forked(self, size):
        self.both(job("forked", "--rw=randwrite", "--bs=4k", f"--size={self.size(size)}",
                      "--numjobs=4", *SEPARATE))

    # fio finds a single wrong byte: else every case above could pass for nothing.
    def detects(self):
        command = ["fio", *job("detects", "--rw=randwrite", "--bs=4k", "--size=4M",
                               "--filename=file")]
        with self.bench() as bench:
            verify_clean(bench.without(*command))
            with open(bench.folder / "file", "r+b") as file:
                file.seek(1234567)
                byte = file.read(1)
                file.seek(1234567)
                file.write(bytes([byte[0] ^ 1]))
            done = bench.without(*command, "--verify_only=1", may_fail=True)
            check(done.returncode != 0, "fio accepts a file with a flipped bit")

    def synced(self, size):
        self.both(job("synced", "--rw=randwrite", "--bs=4k", "--fsync=1",
                      f"--size={self.size(size)}", *THREADS, *SEPARATE))


def main():
    parser = kit.arguments(__doc__.splitlines()[0])
    kit.front_end_arguments(parser, "fio")
    options = parser.parse_args()
    test = FioTest(options)
    cases = {"detects": test.detects}
    if options.long:
        cases |= {
            "sizes_write": lambda: test.sizes("randwrite", 256),
            "sizes_mixed": lambda: test.sizes("randrw", 256),
            "odd_write": lambda: test.odd("randwrite", 256),
            "odd_mixed": lambda: test.odd("randrw", 256),
            "unaligned": lambda: test.unaligned(256),
            "forked": lambda: test.forked(256),
            "synced": lambda: test.synced(64),
        }
        for block in ("512", "1k", "2k", "4k", "8k", "16k", "32k", "64k"):
            for mode in ("randwrite", "randrw"):
                cases[f"single_{mode}_{block}"] = (
                    lambda mode=mode, block=block: test.single(mode, block, 256))
    else:
        cases |= {
            "sizes_write": lambda: test.sizes("randwrite", 256),
            "sizes_mixed": lambda: test.sizes("randrw", 256),
            "single_512": lambda: test.single("randwrite", "512", 16),
            "single_64k": lambda: test.single("randrw", "64k", 64),
            "odd_mixed": lambda: test.odd("randrw", 32),
            "unaligned": lambda: test.unaligned(48),
            "forked": lambda: test.forked(32),
            "synced": lambda: test.synced(8),
        }
    kit.main(options, cases)


if __name__ == "__main__":
    main()
