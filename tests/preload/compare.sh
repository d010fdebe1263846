#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs a program without and with the preload library: same output, same files.
#
#   compare.sh PROGRAM LIBRARY PLUGIN DIRECTORY [NAME=value ...]
#
# DIRECTORY is made anew, on the disk of the build. The settings are for the second run only;
# @POOL@ in them is a new pool on /dev/shm.
set -u
program=$1 library=$2 plugin=$3 directory=$4
shift 4

pool=/dev/shm/nvcache-test-preload-$$.pool
trap 'rm -f "$pool"' EXIT
rm -rf "$directory"
mkdir -p "$directory/without" "$directory/with"

(cd "$directory/without" && exec timeout 240 "$program" . "$plugin") < /dev/null > "$directory/without.out" 2>&1
without=$?
(cd "$directory/with" && exec env LD_PRELOAD="$library" "${@//@POOL@/$pool}" timeout 240 "$program" . "$plugin") \
    < /dev/null > "$directory/with.out" 2> "$directory/with.err"
with=$?

# Without a pool the library has nothing to say; with one, a line that it is not persistent memory.
grep -v '^nvcache: ' "$directory/with.err" >> "$directory/with.out"
[ $without = 77 ] && exit 77  # it says why
if [ $# = 0 ] && [ -s "$directory/with.err" ]; then
  cat "$directory/with.err"
  exit 1
fi
if [ $without != 0 ] || [ $with != 0 ]; then
  echo "exit codes: $without without the library, $with with it"
  diff "$directory/without.out" "$directory/with.out" | head -20
  exit 1
fi
diff "$directory/without.out" "$directory/with.out" || exit 1
diff -r "$directory/without" "$directory/with" || exit 1
# A cache that stayed off would pass all of that.
if [ $# != 0 ] && [ ! -e "$pool" ]; then
  echo "no pool was made: the cache stayed off"
  cat "$directory/with.err"
  exit 1
fi
echo "$(wc -l < "$directory/with.out") lines the same"
