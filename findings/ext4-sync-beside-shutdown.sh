#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# ext4: an fsync or msync that is under way while the file system is shut down may say 0, and what it synced is lost.
#
# Version: Linux 6.18, e2fsprogs 1.47 (Debian 12).
# A good guess: a sync that says 0 has made its file durable, also if the file system fails meanwhile; what fails later
# says EIO.
# Seen: a thread stores to a new block of a mapped file and calls msync, over and over, while FS_IOC_SHUTDOWN comes, without a
# flush of the log. In one round of five the newest store whose msync has said 0 is not there after the next mount; with write
# and fsync in one of fifteen. The shutdown has the running transaction end, without its commit; a sync that
# then asks for this transaction finds neither that it runs nor that it commits, and takes it for committed
# (jbd2_complete_transaction).
# What follows: a test that shuts ext4 down under a program that runs on cannot count the newest sync that was the
# kernel's own (tests/disk/disk_test.py, records-msync). No power failure leaves programs running.
#
# Exit status: 0 it is as said, 1 it has changed, 77 it cannot be run here.
set -euo pipefail

work=$(mktemp -d /var/tmp/finding.XXXXXX)
clean_up() {
  if mountpoint -q "$work/ext4"; then umount "$work/ext4"; fi
  rm -rf "$work"
}
trap clean_up EXIT
cannot() { echo "cannot be run: $1" >&2 && exit 77; }

[ "$(id -u)" = 0 ] || cannot "only root may mount"
for program in mkfs.ext4 python3; do command -v "$program" >/dev/null || cannot "$program is missing"; done

cat >"$work/store.py" <<'PYTHON'
import fcntl, mmap, os, random, struct, sys, threading, time
FS_IOC_SHUTDOWN, NO_LOG_FLUSH, SIZE = 0x8004587d, 2, 1000 * 4096
folder, said = sys.argv[1], 0
file = os.open(folder + "/data", os.O_RDWR | os.O_CREAT)
os.ftruncate(file, SIZE)
os.fsync(file)
memory = mmap.mmap(file, SIZE)

def store():
    global said
    for i in range(1000):
        memory[i * 4096:i * 4096 + 8] = struct.pack("<q", i + 1)
        try:
            memory.flush()
        except OSError:
            return
        said = i + 1

thread = threading.Thread(target=store)
thread.start()
while said == 0:
    time.sleep(0.001)
time.sleep(random.Random(int(sys.argv[2])).uniform(0, 0.02))
fcntl.ioctl(os.open(folder, os.O_RDONLY), FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
thread.join()
print(said)
PYTHON

# Whether the newest store that was said to be durable is missing on the disk. (A copy is mounted: another mount namespace
# may keep the first one for a while.)
is_lost() {
  local said
  truncate -s 64M "$work/disk$1"
  mkfs.ext4 -q "$work/disk$1"
  mount -o loop "$work/disk$1" "$work/ext4" || cannot "ext4 cannot be mounted"
  said=$(python3 "$work/store.py" "$work/ext4" "$1")
  umount "$work/ext4"
  mv "$work/disk$1" "$work/gone" && cp --sparse=always "$work/gone" "$work/disk$1-again"
  mount -o loop "$work/disk$1-again" "$work/ext4"
  newest=$(od -An -td8 -j $(((said - 1) * 4096)) -N 8 "$work/ext4/data" | tr -d ' ')
  umount "$work/ext4"
  rm "$work/gone" "$work/disk$1-again"
  [ "$newest" != "$said" ]
}

mkdir "$work/ext4"
seen=0
for round in $(seq 1 100); do
  if is_lost "$round"; then seen=1 && break; fi
done
if [ $seen = 1 ]; then echo "round $round: msync has said 0, and the store is lost"; else echo "100 rounds: nothing is lost"; fi
[ $seen = 1 ]
