#!/bin/busybox sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The guest's first and only process: it mounts what is needed, loads the modules and runs the job
# that the host hands over. Lines to the host go to the second serial port; those that begin with @
# are for the test, all others are for people.
export PATH=/bin:/nvcache HOME=/tmp PGHOST=/tmp PGDATABASE=template1
/bin/busybox --install -s /bin
PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
chmod 1777 /tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir /dev/shm
mount -t tmpfs shm /dev/shm
JOB=/sys/firmware/qemu_fw_cfg/by_name/opt/job/raw

# load_modules LIST
load_modules() {
  while read -r module; do insmod "/modules/$module.ko"; done <"/modules/$1"
}

load_modules software
stty raw -echo </dev/ttyS1
exec </dev/null >/dev/ttyS1 2>&1

# pool_up fsdax|devdax|disk: sets POOL.
pool_up() {
  case $1 in
    devdax) POOL=/dev/dax0.0 ;;
    fsdax)
      mount -t ext4 -o dax /dev/pmem0 /p || echo "@bad guest the NVDIMM cannot be mounted"
      POOL=/p/pool
      ;;
    disk) POOL=/d/pool ;;
  esac
}

# disk_up DEVICE OPTIONS [FILE SYSTEM]
disk_up() {
  mount -t "${3:-ext4}" -o "$2" "$1" /d || echo "@bad guest the disk cannot be mounted"
}

# database_up FOLDER USER: PostgreSQL's data, all of them or none.
database_up() {
  chown "$2" "$1"
  [ -e "$1/data" ] && return
  rm -rf "$1/new"
  mkdir "$1/new"
  tar -xzf /database.tar.gz -C "$1/new"
  sync
  mv "$1/new/data" "$1/data"
}

# mapper_up: /dev/mapper/data is the disk, and can be broken and mended.
mapper_up() {
  SECTORS=$(blockdev --getsz /dev/vda)
  dmsetup create data --noudevsync --table "0 $SECTORS linear /dev/vda 0"
  dmsetup mknodes
}

# mapper_is: the table on stdin is in force from now on; what is under way is not waited for.
mapper_is() {
  cat >/tmp/table
  dmsetup load data /tmp/table && dmsetup suspend --noflush --nolockfs --noudevsync data &&
    dmsetup resume --noudevsync data && return
  cat /tmp/table
  echo "@bad guest the mapping cannot be changed"
}

# bad_blocks FILE...: a table by which the blocks of these files give errors.
bad_blocks() {
  for file in "$@"; do filefrag -e -b512 "$file"; done | grep -v delalloc | tr -d ':.' |
    awk '$1 ~ /^[0-9]+$/ && NF >= 6 { print $4, $6 }' | sort -n |
    awk -v at=0 -v end="$SECTORS" '
      function linear(to) { if (to > at) print at, to - at, "linear /dev/vda", at }
      { linear($1); print $1, $2, "error"; at = $1 + $2 }
      END { linear(end) }'
}

# break_disk error|flakey|delay|blocks
break_disk() {
  case $1 in
    error) echo "0 $SECTORS error" ;;
    flakey) echo "0 $SECTORS flakey /dev/vda 0 1 1 1 error_writes" ;;
    delay) echo "0 $SECTORS delay /dev/vda 0 40" ;;
    blocks) bad_blocks /d/raw*/[abc] ;;
  esac | mapper_is
  echo "@broken"
}

mend_disk() {
  echo "0 $SECTORS linear /dev/vda 0" | mapper_is
  echo "@mended"
}

# errors: how often the file system has refused since the pool was opened. The host's line is its own:
# a slow machine shows progress before it.
errors() {
  nvcache status "$POOL" --json 2>/tmp/status | sed -n 's/.*"write_back_errors": \([0-9]*\).*/@errors \1/p'
}

# await_cached N: until so many files are in the cache. A new one becomes cached by a sync, so a disk that fails before
# has it be the kernel's, and nothing is promised of it.
await_cached() {
  until nvcache status "$POOL" --json 2>/tmp/status | grep -q "\"cached_files\": $1,"; do sleep 0.1; done
}

# step NAME COMMAND...: runs the command between two lines to the host. Its status is in STATUS.
step() {
  echo "@begin $1"
  name=$1
  shift
  "$@"
  STATUS=$?
  echo "@end $name $STATUS"
}

# Without a job the host saves the guest's state here, before it has looked at NVDIMM and disk. Each
# guest that goes on from there has a job, another clock and a boot of its own.
insmod /modules/qemu_fw_cfg.ko
if [ ! -e "$JOB" ]; then
  rmmod qemu_fw_cfg
  echo "@waiting"
  read -r now </dev/ttyS1
  date -s "@$now" >/dev/null
  cat /proc/sys/kernel/random/uuid >/tmp/boot_id
  mount --bind /tmp/boot_id /proc/sys/kernel/random/boot_id
  insmod /modules/qemu_fw_cfg.ko
fi
load_modules drivers
echo "@up"
. "$JOB"
echo "@done"
sleep 0.1
poweroff -f
