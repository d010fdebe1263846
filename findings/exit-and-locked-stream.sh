#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# glibc and musl: what exit writes of a stream that another thread has locked.
#
# Versions: libc6 2.36-9+deb12u14 (Debian 12), libc6 2.41-12+deb13u5 (Debian 13), musl 1.2.3-1. One binary runs with
# both of glibc, and one is linked with musl.
# A thread takes flockfile, puts the first half of a record into the stream, takes 3 seconds, puts the second half,
# and gives the lock back. In the meantime the main thread calls exit.
# A good guess: a record that is written under flockfile is not torn by an exit. Either exit waits for the lock, as
# every other function of stdio does, or it passes over a stream that is in use.
# Seen: glibc 2.36 does neither. It writes the half record and ends at once: "debit;". With glibc 2.41 and musl, exit
# waits, and the file has "debit;credit".
# What follows: with glibc 2.36 the end of a file that several threads write need not be a whole record, though
# nothing crashed. The same binary ends later with 2.41: an exit takes as long as the slowest holder of a
# stream's lock. A library that writes what streams hold, in place of libc, has two rules to keep.
#
# Exit status: 0 it is as said, 1 it has changed, 77 it cannot be run here.
set -euo pipefail

tree=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cannot() { echo "cannot be run: $1" >&2 && exit 77; }

command -v gcc >/dev/null || cannot "gcc is not here"

download=(apt-get -q -o APT::Sandbox::User=root)

# unpack FOLDER PACKAGE
unpack() {
  mkdir "$1.package"
  (cd "$1.package" && "${download[@]}" download "$2") >apt.log 2>&1 || cannot "apt has not got $2: $(tail -n 1 apt.log)"
  dpkg-deb -x "$1.package"/*.deb "$1"
}
unpack glibc-2.36 libc6=2.36-9+deb12u14
unpack musl-1.2.3 musl-dev=1.2.3-1

# The next release's list, which this machine's apt need not have.
"$tree/scripts/debian-sources" trixie | grep ' trixie main$' >sources.list || cannot "apt knows no source of Debian"
mkdir -p lists/partial cache/archives/partial
download+=(-o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" -o Dir::Etc::SourceList="$work/sources.list"
  -o Dir::Etc::SourceParts=/dev/null -o Acquire::Languages=none)
"${download[@]}" update >apt.log 2>&1 || cannot "apt-get update: $(tail -n 1 apt.log)"
unpack glibc-2.41 libc6=2.41-12+deb13u5

cat >program.c <<'END'
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static FILE* stream;
static sem_t half;

static void* WriteRecord(void* unused) {
  flockfile(stream);
  fputs("debit;", stream);
  sem_post(&half);
  sleep(3);
  fputs("credit", stream);
  funlockfile(stream);
  return unused;
}

int main(int count, char** arguments) {
  pthread_t thread;
  if (count != 2 || !(stream = fopen(arguments[1], "w"))) return 2;
  if (sem_init(&half, 0, 0) || pthread_create(&thread, NULL, WriteRecord, NULL)) return 2;
  sem_wait(&half);
  exit(0);
}
END
gcc -pthread -o program program.c
musl=$work/musl-1.2.3/usr/lib/x86_64-linux-musl
gcc -nostdinc -isystem "$work/musl-1.2.3/usr/include/x86_64-linux-musl" -nostdlib -static -no-pie -fno-pie \
  -o program-musl "$musl/crt1.o" "$musl/crti.o" program.c "$musl/libc.a" -lgcc "$musl/crtn.o"

status=0
# expect LIBC RECORD COMMAND...: what the program leaves with that libc.
expect() {
  local seen
  "${@:3}" "file.$1" || cannot "$1: the program failed"
  seen=$(<"file.$1")
  echo "$1: $seen"
  [[ $seen == "$2" ]] || { echo "  this has changed; it was: $2" && status=1; }
}
for glibc in 2.36 2.41; do
  record='debit;credit'
  [[ $glibc == 2.36 ]] && record='debit;'
  folder=$work/glibc-$glibc/lib/x86_64-linux-gnu
  [[ -d $folder ]] || folder=$work/glibc-$glibc/usr/lib/x86_64-linux-gnu
  expect "glibc-$glibc" "$record" "$folder/ld-linux-x86-64.so.2" --library-path "$folder" ./program
done
expect musl-1.2.3 'debit;credit' ./program-musl
exit $status
