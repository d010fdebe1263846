#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# XFS: an fsync of a folder that comes after the file system was shut down says 0, and the rename before it is lost.
#
# Version: Linux 6.18, xfsprogs 6.1 (Debian 12).
# A good guess: after FS_IOC_SHUTDOWN without a flush of the log, every sync says EIO; so what an fsync has said 0 for
# is on the disk.
# Seen: a file is renamed, the file system is shut down, and fsync of its folder follows. On ext4 that says EIO. On XFS
# it says 0, and after the next mount the file has its old name.
# What follows: a test that shuts a disk down under programs that run cannot count, on XFS, names that were
# acknowledged after the shutdown began (tests/faults/shutdown_test.py).
#
# Exit status: 0 it is as said, 1 it has changed, 77 it cannot be run here.
set -euo pipefail

work=$(mktemp -d /var/tmp/finding.XXXXXX)
clean_up() {
  for folder in "$work/ext4" "$work/xfs"; do
    if mountpoint -q "$folder"; then umount "$folder"; fi
  done
  rm -rf "$work"
}
trap clean_up EXIT
cannot() { echo "cannot be run: $1" >&2 && exit 77; }

[ "$(id -u)" = 0 ] || cannot "only root may mount"
for program in mkfs.xfs mkfs.ext4 python3; do command -v "$program" >/dev/null || cannot "$program is missing"; done

# What the fsync has said, and the name after the next mount.
seen_on() {
  local image=$work/$1.image folder=$work/$1 said
  mkdir "$folder"
  truncate -s 320M "$image"
  "mkfs.$1" -q "$image"
  mount -o loop "$image" "$folder" || cannot "$1 cannot be mounted"
  said=$(python3 - "$folder" <<'PYTHON'
import errno, fcntl, os, struct, sys
FS_IOC_SHUTDOWN, NO_LOG_FLUSH = 0x8004587d, 2
os.chdir(sys.argv[1])
with open("old", "w") as file:
    file.write("bytes")
    file.flush()
    os.fsync(file.fileno())
folder = os.open(".", os.O_RDONLY)
os.fsync(folder)
os.rename("old", "new")
fcntl.ioctl(folder, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
try:
    os.fsync(folder)
    print("0")
except OSError as error:
    print(errno.errorcode[error.errno])
PYTHON
  )
  umount "$folder"
  mount -o loop "$image" "$folder"
  if [ -e "$folder/old" ]; then echo "$said old"; else echo "$said new"; fi
  umount "$folder"
}

ext4=$(seen_on ext4) xfs=$(seen_on xfs)
echo "ext4: $ext4; xfs: $xfs"
[ "$ext4" = "EIO old" ] && [ "$xfs" = "0 old" ]
