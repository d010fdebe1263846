#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# SQLite: a connection with locking_mode=EXCLUSIVE lets go of a lock before it has written anything.
#
# Version: sqlite3 and libsqlite3-0 3.40.1-2+deb12u2 (Debian 12).
# A good guess: with locking_mode=EXCLUSIVE a connection takes its locks and lets go of none until it ends. Its manual
# says that a lock which was got is not released at the end of a transaction.
# Seen: in rollback and in WAL mode the first read takes a byte, then the 510 bytes that stand for readers, and lets go
# of that one byte at once. From there to the end of three transactions no lock is let go of.
# What follows: who tells by unlocks (F_UNLCK) whether a program shares a file has to look at what stays locked. By the
# calls alone, a program that has the database for itself looks like one that takes turns.
#
# Exit status: 0 it is as said, 1 it has changed, 77 it cannot be run here.
set -euo pipefail

packages=(sqlite3=3.40.1-2+deb12u2 libsqlite3-0=3.40.1-2+deb12u2 libreadline8=8.2-1.3
  strace=6.1-0.1 libunwind8=1.6.2-3)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cannot() { echo "cannot be run: $1" >&2 && exit 77; }

apt-get -q -o APT::Sandbox::User=root download "${packages[@]}" >apt.log 2>&1 ||
  cannot "apt has not got ${packages[*]}: $(tail -n 1 apt.log)"
for package in *.deb; do dpkg-deb -x "$package" root; done
export PATH=$work/root/usr/bin:$PATH
export LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu:$work/root/lib/x86_64-linux-gnu
strace -o /dev/null true 2>/dev/null || cannot "no process can be traced here"

# What the connection's locks are, a line each: kind, first byte, bytes. After the third transaction the shell starts a
# program, and what comes from there on, as the end does, is not counted.
seen=$(for mode in delete wal; do
  rm -f database*
  sqlite3 database "pragma journal_mode=$mode; create table t(a);" >/dev/null
  printf '%s\n' 'pragma locking_mode=exclusive;' 'insert into t values(1);' 'insert into t values(2);' \
    'insert into t values(3);' '.shell true' >script
  strace -yy -o trace -e trace=fcntl,clone,clone3,vfork sqlite3 -init /dev/null database <script >/dev/null
  echo "$mode:"
  sed -E '/^(clone|clone3|vfork)\(/,$d' trace | grep -F "$work/database>" |
    sed -n 's/.*F_SETLK, {l_type=F_\([A-Z]*\), .*l_start=\([0-9]*\), l_len=\([0-9]*\)}) = 0/\1 \2 \3/p' |
    awk '{ print $1, $2 - 1073741824, $3 }'
done)
expected='delete:
RDLCK 0 1
RDLCK 2 510
UNLCK 0 1
WRLCK 1 1
WRLCK 0 1
WRLCK 2 510
wal:
RDLCK 0 1
RDLCK 2 510
UNLCK 0 1
WRLCK 0 1
WRLCK 2 510'

sqlite3 --version
echo "locks of the database, from its byte 2^30 on:"
echo "$seen"
if [[ $seen != "$expected" ]]; then
  echo "this has changed; it was"
  echo "$expected"
  exit 1
fi
