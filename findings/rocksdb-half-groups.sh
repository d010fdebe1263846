#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# RocksDB: a group of synced writes has half of the threads, however slow the disk is.
#
# Version: rocksdb-tools and librocksdb7.8 7.8.3-2 (Debian 12), db_bench fillrandom --sync=1, as it comes: no
# pipelined writes, no delay.
# A good guess: while one sync runs, all other threads queue up behind it, so with 8 threads a sync
# serves 7 or 8 writes, and the slower the disk, the nearer to 8.
# Seen: 4 with 8 threads and 8 with 16, with syncs of 2 ms as with those of 10 ms. The next leader starts as soon as
# the group before it is synced, with those that are queued by then; that group's own threads come a moment too
# late, for the whole time of the next sync. So two groups take turns, and their sizes add up to the
# number of threads.
# What follows: such a group makes synced writes faster by half the number of threads, and not by their number; a
# benchmark with 8 threads that gains 4 has met no limit of its disk.
#
# Exit status: 0 it is as said, 1 it has changed, 77 it cannot be run here.
set -euo pipefail

packages=(rocksdb-tools=7.8.3-2 librocksdb7.8=7.8.3-2 libgflags2.2=2.2.2-2 libsnappy1v5=1.1.9-3 liblz4-1=1.9.4-1
  strace=6.1-0.1 libunwind8=1.6.2-3)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cannot() { echo "cannot be run: $1" >&2 && exit 77; }

apt-get -q -o APT::Sandbox::User=root download "${packages[@]}" >apt.log 2>&1 ||
  cannot "apt has not got ${packages[*]}: $(tail -n 1 apt.log)"
for package in *.deb; do dpkg-deb -x "$package" root; done
export PATH=$work/root/usr/bin:$PATH
export LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu:$work/root/lib/x86_64-linux-gnu
strace -o /dev/null true 2>/dev/null || cannot "no process can be traced here"

# syncs THREADS MICROSECONDS: how often the log is synced for 100 writes of each thread, if a sync takes that longer.
syncs() {
  rm -rf database
  strace -f --seccomp-bpf -o /dev/null -e trace=fdatasync -e inject=fdatasync:delay_exit="$2" \
    db_bench --db="$work/database" --benchmarks=fillrandom --sync=1 --threads="$1" --num=100 --statistics >out 2>&1
  awk '$1 == "rocksdb.wal.synced" { print $4 }' out
}

status=0
for threads in 8 16; do
  for delay in 2000 10000; do
    count=$(syncs $threads $delay)
    [[ -n $count ]] || cannot "db_bench: $(tail -n 1 out)"
    awk -v threads=$threads -v delay=$delay -v count="$count" 'BEGIN {
      group = threads * 100 / count
      printf "%d threads, a sync takes %d ms more: %d writes, %d syncs, %.1f writes to each\n",
             threads, delay / 1000, threads * 100, count, group
      exit !(group > threads * 0.4 && group < threads * 0.65) }' ||
      { echo "  this has changed: it was about half of the threads" && status=1; }
  done
done
exit $status
