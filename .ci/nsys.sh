#!/usr/bin/env bash
# Unpack Debian's Nsight Systems, which runs without a GPU, into FOLDER; the last line printed is the path of nsys.
# usage: .ci/nsys.sh FOLDER [SUITE]     SUITE: bookworm (2022.4, the default) or trixie (2023.4)
# Fails with one line where it cannot: not Debian, no network, another architecture.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
suite=${2:-bookworm}
fail() { echo "nsys.sh: $1" >&2; exit 1; }

find_nsys() { find "$folder/root" -path '*target-linux-x64/nsys' -type f 2>/dev/null | head -n 1; }

finish() {
  local nsys=$1 libraries="$folder/root/usr/lib/x86_64-linux-gnu"
  cat > "$folder/nsys" <<WRAPPER
#!/bin/sh
LD_LIBRARY_PATH="$folder/links:$libraries:$libraries/nsight-systems:\${LD_LIBRARY_PATH:-}" exec "$nsys" "\$@"
WRAPPER
  chmod +x "$folder/nsys"
  "$folder/nsys" --version >/dev/null 2>&1 || fail "the unpacked nsys does not start"
  echo "$folder/nsys"
}

if nsys=$(find_nsys) && [ -n "$nsys" ]; then finish "$nsys"; exit 0; fi
[ "$(uname -m)" = x86_64 ] || fail "Debian ships nsys for x86-64 only"
command -v apt-get >/dev/null && command -v dpkg >/dev/null || fail "needs apt-get and dpkg"

apt=$folder/apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$folder/root" "$folder/links"
echo "deb [arch=amd64] http://deb.debian.org/debian $suite main non-free" > "$apt/sources.list"
options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root)
apt-get "${options[@]}" update >/dev/null 2>&1 || fail "Debian's archive cannot be reached"

cd "$folder"
for package in nsight-systems nsight-systems-target libssh-4 libpfm4 libgssapi-krb5-2 libkrb5-3 libk5crypto3 libkrb5support0 libkeyutils1 libcom-err2; do
  apt-get "${options[@]}" download "$package" >/dev/null 2>&1 || case $package in nsight-*) fail "$package cannot be downloaded" ;; esac
done
for package in ./*.deb; do dpkg -x "$package" root; done
rm -f ./*.deb

# The target finds its importer through a link beside it; without it only .qdstrm comes out.
nsys=$(find_nsys)
[ -n "$nsys" ] || fail "no nsys in the packages"
host=$(find "$folder/root" -type d -name host-linux-x64 | head -n 1)
[ -z "$host" ] || [ -e "$(dirname "$(dirname "$nsys")")/host-linux-x64" ] || ln -s "$host" "$(dirname "$(dirname "$nsys")")/host-linux-x64"
library=$(find "$folder/root" -name 'libssh.so.4*' -type l -o -name 'libssh.so.4*' -type f | head -n 1)
[ -z "$library" ] || ln -sf "$library" "$folder/links/libssh.so"
finish "$nsys"
