#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# completion_test.sh NVCACHE COMPLETION: what the shell offers.
set -euo pipefail
tool=$1
# shellcheck source=/dev/null
source "$2"

# offers WORD... -- WANTED...: with this command line, whose last word is being written
offers() {
  COMP_WORDS=("$tool")
  while [[ $1 != @ ]]; do
    COMP_WORDS+=("$1")
    shift
  done
  shift
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _nvcache
  local wanted
  for wanted in "$@"; do
    if [[ " ${COMPREPLY[*]} " != *" $wanted "* ]]; then
      echo "nvcache ${COMP_WORDS[*]:1}: $wanted is not offered, but: ${COMPREPLY[*]}" >&2
      exit 1
    fi
  done
}

offers '' @ create run checkpointer recover status top dump --help --version
offers re @ recover
offers recover --d @ --dry-run --discard
offers run --pool /dev/shm/pool --ba @ --batch-min --batch-max --batch-delay
offers top --j @ --json
offers status --m @ --mirror
offers mirror --me @ --metrics
offers mirror --metrics /us @ /usr
offers run --checkpointer n @ never
offers checkpointer --s @ --stay
offers dump --export /us @ /usr
offers run -- base64 @
offers run -- base @ base64
[[ ${#COMPREPLY[@]} -lt 20 ]]
offers recover --size '' @
[[ ${#COMPREPLY[@]} -eq 0 ]]
