#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What a program has flushed to its streams is durable, and in the log: when it has ended, the files are empty, and recovery makes
# them what they are without the library. (But for one that is handed over to the kernel; with it goes to the disk what the log has
# then, so it is looked at alone.)
#
#   stdio_pending.sh PROGRAM LIBRARY NVCACHE DIRECTORY [NAME=value ...]
set -u
program=$1 library=$2 nvcache=$3 directory=$4
shift 4

pool=/dev/shm/nvcache-preload-$$.pool
trap 'rm -f "$pool"' EXIT
# No write-back before the end, nor at the end.
settings=(NVCACHE_POOL="$pool" NVCACHE_SIZE=64M NVCACHE_EMULATE=1 NVCACHE_WRITE_BACK=always
          NVCACHE_BATCH_MIN=1000000 NVCACHE_BATCH_MAX=1000000 NVCACHE_BATCH_DELAY=60000 NVCACHE_DRAIN_AT_EXIT=0 "$@")

# The program's end, and its exit code then.
check() {
  local end=$1 expected=$2 without with written
  rm -rf "$directory"
  mkdir -p "$directory/without" "$directory/with"
  timeout 240 "$program" "$directory/without" "$end"
  without=$?
  env LD_PRELOAD="$library" "${settings[@]}" timeout 240 "$program" "$directory/with" "$end"
  with=$?
  if [ $without != "$expected" ] || [ $with != "$expected" ]; then
    echo "$end: exit codes: $without without the library, $with with it"
    exit 1
  fi
  written=$(find "$directory/with" -type f -size +0 -printf '%f ')
  if [ "$end" = again ]; then
    # libc opens it by itself, by a name that was in the cache: it is write-through, in the file and in the log.
    "$nvcache" dump "$pool" | grep -q ' data  *[0-9]* .* 5 .*/again$' ||
      { echo "$end: what was written to the file again is not in the log" && exit 1; }
  elif [ -n "$written" ]; then
    echo "$end: not in the log, but written to the file: $written"
    exit 1
  fi
  "$nvcache" recover "$pool" || exit 1
  diff -rq "$directory/without" "$directory/with" || exit 1
  echo "$end: $(find "$directory/with" -type f | wc -l) files recovered"
}

check kill 137
check exit 0
check again 137
