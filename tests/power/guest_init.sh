#!/bin/busybox sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The guest's first and only process: it mounts what is needed, loads the modules and runs the job
# that the host hands over. Lines to the host go to the second serial port; those that begin with @
# are for the test, all others are for people.
export PATH=/bin:/nvcache
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir /dev/shm
mount -t tmpfs shm /dev/shm
while read -r module; do insmod "/modules/$module.ko"; done </modules/order
stty raw -echo </dev/ttyS1
exec </dev/null >/dev/ttyS1 2>&1

# pool_up fsdax|devdax: sets POOL.
pool_up() {
  case $1 in
    devdax) POOL=/dev/dax0.0 ;;
    fsdax)
      mount -t ext4 -o dax /dev/pmem0 /p || echo "@bad guest the pool's file system cannot be mounted"
      POOL=/p/pool
      ;;
  esac
}

# disk_up DEVICE OPTIONS
disk_up() {
  mount -t ext4 -o "$2" "$1" /d || echo "@bad guest the disk cannot be mounted"
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

. /sys/firmware/qemu_fw_cfg/by_name/opt/job/raw
echo "@done"
sleep 0.1
poweroff -f
