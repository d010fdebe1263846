#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# SQLite: a rollback journal that is kept costs one sync more in each transaction than one that is deleted.
#
# Version: sqlite3 and libsqlite3-0 3.40.1-2+deb12u2 (Debian 12), with its default synchronous=FULL.
# A good guess: journal_mode=TRUNCATE and PERSIST spare a sync. They keep the journal's name, and so the
# folder need not be synced once the journal is there: DELETE 4, the others 3, at the most 4.
# Seen: each transaction of one connection syncs the folder in each of the three modes, though in two of them
# no name changes; and TRUNCATE and PERSIST also sync the end of the journal, which DELETE leaves to the file
# system. DELETE 4 (journal 2, folder 1, database 1), TRUNCATE and PERSIST 5 (journal 3). With
# locking_mode=EXCLUSIVE, where the journal stays open, the folder's sync goes, and there all three cost the same.
# What follows: who counts syncs ranks the modes the other way round than who counts changes of names. Their fifth
# sync buys something: no sync covers the removal that ends a transaction in DELETE mode.
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

# trace MODE LOCKING TRANSACTIONS: the syncs of one connection's transactions, in the file trace.TRANSACTIONS.
trace() {
  local i script
  rm -f database*
  sqlite3 database 'create table t(a); insert into t values(0);'
  script="pragma journal_mode=$1; pragma locking_mode=$2;"
  for ((i = 0; i < $3; i++)); do script+="insert into t values($i);"; done
  strace -yy -o "trace.$3" -e trace=fsync,fdatasync sqlite3 -init /dev/null database "$script" >/dev/null
}

# counted FILE TRANSACTIONS: its syncs.
counted() { grep -c "sync([0-9]*<[^>]*/$1>)" "trace.$2" || true; }

# Two numbers of transactions, as what a connection does once counts for none.
seen=$(for locking in normal exclusive; do
  for mode in delete truncate persist; do
    trace $mode $locking 5
    trace $mode $locking 15
    printf '%-9s %-8s' $locking $mode
    for file in database-journal "${work##*/}" database; do
      printf ' %s' $((($(counted "$file" 15) - $(counted "$file" 5)) / 10))
    done
    echo
  done
done)
expected='normal    delete   2 1 1
normal    truncate 3 1 1
normal    persist  3 1 1
exclusive delete   3 0 1
exclusive truncate 3 0 1
exclusive persist  3 0 1'

sqlite3 --version
echo "syncs in each transaction, of journal, folder and database:"
echo "$seen"
if [[ $seen != "$expected" ]]; then
  echo "this has changed; it was"
  echo "$expected"
  exit 1
fi
