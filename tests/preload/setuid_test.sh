#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# A set-user-ID program that another user starts is left alone, whatever the environment says.
#
#   setuid_test.sh LIBRARY
set -u
readonly kSkipped=77

skip() {
  echo "skipped: $1"
  exit $kSkipped
}

[ "$(id -u)" = 0 ] || skip "only root can make such a program"
folder=$(mktemp -d)
pool=/dev/shm/nvcache-preload-$$.pool
trap 'rm -rf "$folder" "$pool"' EXIT
case ",$(findmnt -n -o OPTIONS -T "$folder")," in
  *,nosuid,*) skip "$folder is mounted nosuid" ;;
esac
chmod 755 "$folder"
cp "$1" "$folder/libnvcache.so"
cp "$(command -v grep)" "$folder/grep"

# Prints how many mappings of the library the program has.
mappings() {
  setpriv --reuid=65534 --regid=65534 --clear-groups \
    env LD_PRELOAD="$folder/libnvcache.so" NVCACHE_POOL="$pool" NVCACHE_SIZE=64M NVCACHE_EMULATE=1 \
    NVCACHE_REQUIRED=1 "$folder/grep" -c libnvcache.so /proc/self/maps 2>/dev/null
}

ordinary=$(mappings)
[ "${ordinary:-0}" -gt 0 ] || { echo "not even an ordinary program has the library"; exit 1; }
rm -f "$pool"
chmod u+s "$folder/grep"
privileged=$(mappings)
[ "$privileged" = 0 ] || { echo "a set-user-ID program has the library: $privileged"; exit 1; }
[ ! -e "$pool" ] || { echo "a set-user-ID program made a pool"; exit 1; }
echo "left alone"
