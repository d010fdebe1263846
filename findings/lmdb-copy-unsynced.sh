#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# LMDB: each commit waits for the disk twice, a backup never; and half of a commit's waits are no call that syncs.
#
# Version: lmdb-utils and liblmdb0 0.9.24-1 (Debian 12).
# A good guess: a commit is an fdatasync of the pages and a second one of the meta page, as in bbolt, which was made
# after it. And mdb_copy, the tool for backups of a database that is this careful, syncs what it has written before
# it ends with status 0; O_DIRECT alone is no sync.
# Seen: mdb_load commits each hundred records: one fdatasync each, then 120 bytes of the meta page through a second
# descriptor, opened with O_DSYNC. mdb_copy, with and without -c, sets O_DIRECT by fcntl after the open, and
# syncs neither the copy nor its folder.
# What follows: who counts fsync and fdatasync sees half of what a commit costs; who takes them away
# by LD_PRELOAD has to see to open's flags, too. And a backup needs a sync by whoever asked for it:
# O_DIRECT takes neither the file's size and extents nor the disk's own cache to the medium.
#
# Exit status: 0 it is as said, 1 it has changed, 77 it cannot be run here.
set -euo pipefail

packages=(lmdb-utils=0.9.24-1 liblmdb0=0.9.24-1 strace=6.1-0.1 libunwind8=1.6.2-3)
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

calls=trace=openat,fcntl,write,pwrite64,writev,pwritev,fsync,fdatasync,sync_file_range,msync,sync,syncfs
status=0
# expect WHAT NUMBER PATTERN: that many lines of the trace match.
expect() {
  local seen
  seen=$(grep -cE "$3" trace || true)
  echo "$1: $seen"
  ((seen == $2)) || { echo "  this has changed; it was: $2" && status=1; }
}

{
  printf '%s\n' VERSION=3 format=print type=btree mapsize=1048576 maxreaders=126 HEADER=END
  for ((i = 0; i < 300; i++)); do printf ' key%03d\n value%03d\n' $i $i; done
  echo DATA=END
} >records
mkdir database copy compact
echo "mdb_load, 300 records, three commits"
strace -f -yy -o trace -e $calls mdb_load -f records database
expect "  calls that sync" 3 '(sync|syncfs|sync_file_range)\('
expect "  second descriptors of the data, with O_DSYNC" 1 'openat\(.*"database/data.mdb".*O_DSYNC'
synchronous=$(sed -nE 's/.*openat\(.*"database\/data.mdb".*O_DSYNC.* = ([0-9]+)<.*/\1/p' trace)
expect "  writes of 120 bytes to it" 3 "pwrite64\\($synchronous<.*, 120, [0-9]+\\) = 120"

for folder in copy compact; do
  flags=()
  [[ $folder == compact ]] && flags=(-c)
  echo "mdb_copy ${flags[*]}"
  strace -f -yy -o trace -e $calls mdb_copy "${flags[@]}" database $folder
  expect "  calls that sync" 0 '(sync|syncfs|sync_file_range)\('
  expect "  opened to be synchronous" 0 "openat\\(.*\"$folder/data.mdb\".*O_D?SYNC"
  expect "  O_DIRECT asked for after the open" 1 "fcntl\\([0-9]+<.*/$folder/data.mdb>, F_SETFL, .*O_DIRECT"
  cmp <(mdb_dump database) <(mdb_dump $folder) >/dev/null || echo "  (its dump differs)"
done
exit $status
