#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Linux and ext4 without a journal: a file whose times somebody looks at costs one write of the disk more with each fdatasync.
#
# Version: Linux 6.18.44; since 6.13, by its multigrain timestamps. mkfs.ext4 -O ^has_journal (e2fsprogs 1.47.0).
# A good guess: fdatasync after a write in place writes the data and flushes the disk. The times changed, too, but fdatasync leaves
# them; and fstat changes nothing.
# Seen: 2 writes for each fdatasync, one of them the flush, which is counted as a write of nothing; 3 where fstat is called between two
# of them. Times that were looked at change with the next write, at the clock's full resolution; else with the clock's
# tick, some milliseconds. Without a journal, ext4 then has the block of the inode among the buffers of the file, and fdatasync
# writes these, whatever has changed in them. With a journal it is 2 with and without fstat, for only a size that has changed waits for
# a transaction.
# What follows: a look at a file that is written and synced over and over asks for no times (statx without STATX_MTIME and
# STATX_CTIME), if it is only for a size or an inode number. And where an image of a virtual machine has no journal, programs
# without a log of their own are measured too fast.
#
# Exit status: 0 it is as said, 1 it has changed, 77 it cannot be run here.
set -euo pipefail

work=$(mktemp -d -p /var/tmp)
trap 'umount -l "$work/mounted" 2>/dev/null || true; rm -rf "$work"' EXIT
cannot() { echo "cannot be run: $1" >&2 && exit 77; }
[ "$(id -u)" = 0 ] || cannot "mounts need root"
[ "$(printf '6.13\n%s\n' "$(uname -r)" | sort -V | head -n 1)" = 6.13 ] || cannot "this kernel has no multigrain timestamps"
mkdir "$work/mounted"

# writes JOURNAL LOOK: of the disk, for each of 200 rounds.
writes() {
  dd if=/dev/zero of="$work/image" bs=1M count=64 status=none
  mkfs.ext4 -q -F -E lazy_itable_init=0 -O "$1" "$work/image"
  mount -o loop "$work/image" "$work/mounted" 2>/dev/null || cannot "no loop device can be mounted"
  /usr/bin/python3 - "$work/mounted/file" "$2" <<'END'
import os, pathlib, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
os.write(file, bytes(4096))
os.fsync(file)
device = os.stat(sys.argv[1]).st_dev
stat = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
def count():
    return int(stat.read_text().split()[4])
before = count()
for i in range(200):
    if sys.argv[2] == "look":
        os.fstat(file)
    os.pwrite(file, bytes([i % 256]) * 4096, 0)
    os.fdatasync(file)
print(round((count() - before) / 200))
END
  umount "$work/mounted"
}

seen=$(for journal in ^has_journal has_journal; do
  for look in none look; do echo "$journal $look $(writes $journal $look)"; done
done)
expected='^has_journal none 2
^has_journal look 3
has_journal none 2
has_journal look 2'
echo "$seen"
[ "$seen" = "$expected" ]
