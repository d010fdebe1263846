#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs a program that has the cache built in without a pool, then with one: same output, same files,
# and its bytes have gone through the pool.
#
#   compare.sh PROGRAM PLUGIN NVCACHE DIRECTORY [NAME=value ...]
#
# PLUGIN is a shared object to load, or - for none. DIRECTORY is made anew, on the disk of the build.
# The settings are for the second run only.
set -u
program=$1 plugin=$2 nvcache=$3 directory=$4
shift 4

pool=/dev/shm/nvcache-test-calls-$$.pool
trap 'rm -f "$pool"' EXIT
rm -rf "$directory"
mkdir -p "$directory/without" "$directory/with"
unset NVCACHE_POOL

(cd "$directory/without" && exec timeout 240 "$program" . "$plugin") < /dev/null > "$directory/without.out" 2>&1
without=$?
(cd "$directory/with" &&
  exec env NVCACHE_POOL="$pool" NVCACHE_SIZE=64M NVCACHE_EMULATE=1 NVCACHE_WRITE_BACK=always "$@" timeout 240 "$program" . "$plugin") \
    < /dev/null > "$directory/with.out" 2> "$directory/with.err"
with=$?

# One line says that the pool is not persistent memory.
grep -v '^nvcache: ' "$directory/with.err" >> "$directory/with.out"
[ $without = 77 ] && exit 77  # it says why
if [ $without != 0 ] || [ $with != 0 ]; then
  echo "exit codes: $without without a pool, $with with one"
  cat "$directory/with.err"
  diff "$directory/without.out" "$directory/with.out" | head -20
  exit 1
fi
diff "$directory/without.out" "$directory/with.out" || exit 1
diff -r "$directory/without" "$directory/with" || exit 1

# A cache that stayed off would pass all of that.
if [ ! -e "$pool" ]; then
  echo "no pool was made: the cache stayed off"
  cat "$directory/with.err"
  exit 1
fi
# That one has closed the pool's descriptor by hand: what it has in the log is for recovery.
case $program in *lost_descriptors*)
  "$nvcache" recover "$pool" || exit 1
  diff -r "$directory/without" "$directory/with" || exit 1 ;;
esac
status=$("$nvcache" status --json "$pool") || exit 1
number() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" <<< "$status" | head -n 1; }
records=$(number entries_cleaned) pending=$(number pending_records)
if [ "${records:-0}" = 0 ] || [ "${pending:-1}" != 0 ]; then
  echo "through the log went ${records:-no} records, pending are ${pending:-none that status tells of}"
  exit 1
fi
echo "$(wc -l < "$directory/with.out") lines the same, $records records"
