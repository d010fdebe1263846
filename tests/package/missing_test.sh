#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# missing_test.sh SOURCE: where a package is missing, scripts/quickstart and bench/run say so in one line
# that has the command by which to get it.
set -euo pipefail
source=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"

# A user who is not root and has no sudo, where all is installed but fio.
for tool in bash dirname rm; do ln -s "$(command -v "$tool")" "$folder/$tool"; done
cat >"$folder/dpkg-query" <<'end'
#!/bin/sh
[ "$4" = fio ] || echo "install ok installed"
end
printf '#!/bin/sh\nexit 1\n' >"$folder/apt-get"
chmod 755 "$folder"/{dpkg-query,apt-get}
user=()
if ((EUID == 0)); then user=(setpriv --reuid=65534 --regid=65534 --clear-groups); fi

# says WHAT COMMAND...: the command fails, and this line is all that it says on stderr.
says() {
  local expected=$1 found
  shift
  if found=$("$@" 2>&1 >/dev/null); then echo "$*: does not fail" >&2 && exit 1; fi
  [[ $found == "$expected" ]] || { echo "$*: says: $found" >&2 && exit 1; }
}

says "packages: missing: fio; as root: apt-get install fio" \
  "${user[@]}" env PATH="$folder" bash "$source/scripts/quickstart"
rm "$folder/apt-get"
says "packages: missing, and there is no apt-get here: fio" \
  "${user[@]}" env PATH="$folder" bash "$source/scripts/quickstart"

# A module that cannot be imported is one that is not there.
for module in jinja2 matplotlib; do
  rm -rf "$folder/modules"
  mkdir "$folder/modules"
  echo "raise ModuleNotFoundError(name='$module')" >"$folder/modules/$module.py"
  says "bench/run: the package python3-$module is missing: apt-get install python3-$module, or \
scripts/install-packages test for all of them" env PYTHONPATH="$folder/modules" "$source/bench/run" --help
done

names=$(bash "$source/scripts/test" --list | sed -n 's/^\([a-z0-9]\{1,\}\) .*/\1, /p' | tr -d '\n')
says "scripts/test: --everything is no part and no option; the parts are ${names%, }, the options --help has" \
  bash "$source/scripts/test" --everything
says "scripts/test: --all has every part: leave now out" bash "$source/scripts/test" --all now
bash "$source/scripts/test" --help | grep -q -- 'scripts/test --all  '
