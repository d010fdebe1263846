#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# fio: fsync=1 is no sync of each write: not of the last, of many in flight, or of one file among several.
#
# Version: fio 3.33-3 (Debian 12).
# A good guess: with fsync=1, each write is followed by an fsync of its file, once it is complete; so 32 writes
# have 32 syncs, and whatever fio has reported is on the disk.
# Seen: a sync is what fio does next in place of a write, and that has three effects.
#   - A job that has written its last block does nothing next: 32 writes, 31 syncs, and the last write has none.
#   - With libaio and iodepth=8, one sync comes after the first write, none after the next 6, and then one for each
#     completion that fio fetches: 25 syncs, at each of which the kernel has writes whose completion fio has not
#     fetched, 7 at most of them. An fsync owes nothing to these. (It is the system call, no request of libaio.)
#   - With nrfiles=2 a sync takes its turn among the files as a write does. All writes of the first half go to one
#     file and all syncs to the other: 16 writes that nothing ever syncs. (Met by others: axboe/fio, issue 1904.)
#     With file_service_type=sequential each sync is of the file that was written.
# What follows: a check that stops the machine and looks for what fio has synced wants psync, one file in turn,
# and end_fsync=1; and figures of fsync=1 with several files have syncs of clean files among them.
#
# Exit status: 0 it is as said, 1 it has changed, 77 it cannot be run here.
set -euo pipefail

packages=(fio=3.33-3 strace=6.1-0.1 libunwind8=1.6.2-3)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cannot() { echo "cannot be run: $1" >&2 && exit 77; }
installed() { [[ $(dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null) == *installed* ]]; }

# fio is linked with many libraries for engines that are not used here. Those that are not installed come along.
for package in $(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
  --no-enhances fio | grep -E '^lib[^:]*$' | sort -u || true); do
  [[ $package == libunwind8 ]] || installed "$package" || packages+=("$package")
done
apt-get -q -o APT::Sandbox::User=root download "${packages[@]}" >apt.log 2>&1 ||
  cannot "apt has not got ${packages[*]}: $(tail -n 1 apt.log)"
for package in *.deb; do dpkg-deb -x "$package" root; done
export PATH=$work/root/usr/bin:$PATH
libraries=$work/root/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH=$libraries:$work/root/lib/x86_64-linux-gnu:$libraries/ceph
strace -o /dev/null true 2>/dev/null || cannot "no process can be traced here"

# job OPTION...: what a job of 32 writes of 4 KiB does, one line for each write (that is complete on return, or is
# submitted), fetched completion and sync, with its file.
job() {
  rm -f job.*
  strace -f -yy -o trace -e trace=pwrite64,io_submit,io_getevents,fsync,fdatasync \
    fio --thread --name=job --directory="$work" --size=128k --bs=4k --rw=write --fsync=1 --output=out "$@" ||
    cannot "fio: $(tail -n 1 out)"
  sed -nE 's/.* pwrite64\([0-9]+<[^>]*\/(job[^>]*)>.*/written \1/p
    s/.* io_submit\(.*aio_fildes=[0-9]+<[^>]*\/(job[^>]*)>.*/submitted \1/p
    s/.* fsync\([0-9]+<[^>]*\/(job[^>]*)>.*/sync \1/p
    s/.* io_getevents\(.*\) = ([0-9]+)$/fetched \1/p' trace
}

# counted: of those lines, the writes, the syncs, the writes after the last sync, those in flight at each sync, at
# least and at most, and the writes to files that nothing syncs later.
counted() {
  awk '$1 == "submitted" { flight++ }
    $1 == "fetched" { flight -= $2 }
    $1 == "written" || $1 == "submitted" { writes++; last++; unsynced[$2]++ }
    $1 == "sync" {
      if (!syncs++ || flight < least) least = flight
      if (flight > most) most = flight
      last = unsynced[$2] = 0
    }
    END {
      for (file in unsynced) lost += unsynced[file]
      printf "%d writes, %d syncs; after the last sync: %d; in flight at a sync: %d to %d; never synced: %d\n",
             writes, syncs, last, least, most, lost
    }'
}

status=0
# expect WHAT OPTION...
expect() {
  local seen
  job "${@:2}" >steps
  seen=$(counted <steps)
  echo "${*:2}: $seen"
  [[ $seen == "$1" ]] || { echo "  this has changed; it was: $1" && status=1; }
}
fio --version
expect '32 writes, 31 syncs; after the last sync: 1; in flight at a sync: 0 to 0; never synced: 1' --ioengine=psync
expect '32 writes, 25 syncs; after the last sync: 1; in flight at a sync: 1 to 7; never synced: 1' \
  --ioengine=libaio --iodepth=8
expect '32 writes, 31 syncs; after the last sync: 1; in flight at a sync: 0 to 0; never synced: 17' \
  --ioengine=psync --nrfiles=2
expect '32 writes, 31 syncs; after the last sync: 1; in flight at a sync: 0 to 0; never synced: 1' \
  --ioengine=psync --nrfiles=2 --file_service_type=sequential
exit $status
