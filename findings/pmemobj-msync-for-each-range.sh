#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# libpmemobj without DAX: a transaction syncs the file three times for each range of 8 bytes that it changes.
#
# Version: libpmemobj1 and libpmem1 1.12.1-2 (Debian 12), a pool on a file system without DAX.
# A good guess: a transaction has three points where it waits: its undo log is there, its data are, the log is void. A
# flush is cheap and a drain is the wait; so where msync stands in for both, a transaction has 3, and more
# ranges in the same page cost no more.
# Seen: without DAX the flush is the msync, and a drain is nothing. Each range has two for its entry in the log
# and one for its data, and the end of the transaction has one: 4 with one range of 8 bytes, 7 with two, 10 with
# three, 13 with four, all in one page. One range of 1,024 bytes has 6: less than two of 8 bytes.
# With PMEM_IS_PMEM_FORCE=1, as in most tests, there is none.
# What follows: a program that was tuned on emulated memory, to add the few bytes that change and no more,
# waits for an ordinary disk that many times. One range around all of them is the cure.
#
# Exit status: 0 it is as said, 1 it has changed, 77 it cannot be run here.
set -euo pipefail

packages=(libpmemobj1=1.12.1-2 libpmemobj-dev=1.12.1-2 libpmem1=1.12.1-2 libpmem-dev=1.12.1-2
  libndctl6=76.1-1 libdaxctl1=76.1-1 libkmod2=30+20221128-1 strace=6.1-0.1 libunwind8=1.6.2-3)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cannot() { echo "cannot be run: $1" >&2 && exit 77; }

command -v gcc >/dev/null || cannot "gcc is not here"
apt-get -q -o APT::Sandbox::User=root download "${packages[@]}" >apt.log 2>&1 ||
  cannot "apt has not got ${packages[*]}: $(tail -n 1 apt.log)"
for package in *.deb; do dpkg-deb -x "$package" root; done

cat >program.c <<'END'
#include <libpmemobj.h>
#include <stdint.h>
#include <stdlib.h>

/* program POOL TRANSACTIONS RANGES BYTES: each transaction changes so many ranges of that size, side by side. */
int main(int count, char** arguments) {
  if (count != 5) return 2;
  PMEMobjpool* pool = pmemobj_create(arguments[1], "ranges", PMEMOBJ_MIN_POOL, 0600);
  if (!pool) return 2;
  const int ranges = atoi(arguments[3]), words = atoi(arguments[4]) / 8;
  uint64_t* object = pmemobj_direct(pmemobj_root(pool, 4096));
  for (int transaction = 0; transaction < atoi(arguments[2]); transaction++) {
    TX_BEGIN(pool) {
      for (int range = 0; range < ranges; range++) {
        /* Every second word, for ranges that touch could be taken as one. */
        uint64_t* start = object + range * 2 * words;
        pmemobj_tx_add_range_direct(start, words * 8);
        for (int word = 0; word < words; word++) start[word]++;
      }
    }
    TX_ONABORT { exit(1); }
    TX_END
  }
  pmemobj_close(pool);
  return 0;
}
END
libraries=$work/root/usr/lib/x86_64-linux-gnu
gcc -I root/usr/include -o program program.c -L "$libraries" -lpmemobj \
  -Wl,-rpath-link,"$libraries:$work/root/lib/x86_64-linux-gnu"
export PATH=$work/root/usr/bin:$PATH
export LD_LIBRARY_PATH=$libraries:$work/root/lib/x86_64-linux-gnu
unset PMEM_IS_PMEM_FORCE
strace -o /dev/null true 2>/dev/null || cannot "no process can be traced here"

# syncs TRANSACTIONS RANGES BYTES
syncs() {
  rm -f pool
  strace -o trace -e trace=msync,fsync,fdatasync ./program pool "$@" || cannot "no pool can be made here"
  grep -c 'sync(' trace || true
}

status=0
# expect NUMBER RANGES BYTES
expect() {
  local many few seen
  few=$(syncs 10 "$2" "$3")
  many=$(syncs 30 "$2" "$3")
  seen=$(((many - few) / 20))
  echo "ranges: $2, of $3 bytes: $seen syncs in each transaction"
  ((seen == $1)) || { echo "  this has changed; it was: $1" && status=1; }
}
for ranges in 1 2 3 4; do expect $((1 + 3 * ranges)) $ranges 8; done
expect 6 1 1024
export PMEM_IS_PMEM_FORCE=1
echo "with PMEM_IS_PMEM_FORCE=1:"
expect 0 4 8
exit $status
