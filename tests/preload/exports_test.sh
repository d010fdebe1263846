#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What the preload library exports and needs, against what it should.
#
#   exports_test.sh LIBRARY WRAPPED_DEF EVERY_CALL LIBC
set -u
library=$1 wrapped=$2 every_call=$3 libc=$4
failures=0

# Prints what only one of two sorted lists has.
expect_same() {
  local difference
  difference=$(diff <(echo "$2") <(echo "$3"))
  if [ -n "$difference" ]; then
    echo "$1:"
    echo "$difference"
    failures=$((failures + 1))
  fi
}

expect_empty() { expect_same "$1" "" "$2"; }

names_of() { sed -nE "s/^NVCACHE_($1)\(([A-Za-z0-9_]+).*/\2/p" "$wrapped" | sort; }
symbols() { nm -D "$@" | awk '{print $NF}' | sed 's/@.*//' | sort -u; }

listed=$(names_of 'WRAP|OPTIONAL|ALIAS')
of_libc=$(names_of 'WRAP|ALIAS')
exported=$(symbols --defined-only "$library")

expect_same "exported (>) is not what is listed (<)" "$listed" "$exported"
expect_empty "listed twice" "$(echo "$listed" | uniq -d)"
expect_empty "not in libc" "$(comm -23 <(echo "$of_libc") <(symbols --defined-only "$libc"))"

# A wrapper that is not listed becomes a local symbol, and catches nothing.
expect_empty "defined like a function of libc, but not exported" \
  "$(comm -12 <(symbols --defined-only "$libc") \
     <(nm "$library" | awk '$2 == "t" {print $3}' | grep -vx pthread_atfork | sort -u))"

expect_same "needed libraries" "libc.so.6" \
  "$(readelf -dW "$library" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p')"
expect_empty "symbols of a C++ run-time library" \
  "$(symbols --undefined-only "$library" |
     grep -E '^(_Z|__cxa_|__gxx_|_Unwind_)' | grep -vE '^__cxa_(finalize|at_quick_exit|atexit)$')"
expect_empty "malloc and its like" \
  "$(symbols --undefined-only "$library" | grep -xE 'malloc|calloc|realloc|free|posix_memalign')"

# Nothing is wrapped and never called by a test.
expect_empty "not called by every_call" \
  "$(comm -23 <(echo "$listed") <(symbols --undefined-only "$every_call"))"

[ $failures = 0 ] && echo "$(echo "$listed" | wc -l) names"
exit $failures
