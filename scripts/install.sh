#!/bin/sh
# install.sh PACKAGE... -- installs the packages that are missing, and says so; does nothing when none is.
# Debian and Ubuntu are known. On another system it prints the list and stops.
set -eu

if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
    for tool in gcc make pkg-config; do
        command -v "$tool" >/dev/null 2>&1 || missing_tools="${missing_tools:-} $tool"
    done
    if [ -n "${missing_tools:-}" ]; then
        echo "This system has no apt-get. flowlua needs what these Debian packages hold: $*" >&2
        exit 1
    fi
    exit 0
fi

missing=
for package in "$@"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "Installing what flowlua needs to build, run and test:$missing"
if [ "$(id -u)" = 0 ]; then sudo=
elif command -v sudo >/dev/null 2>&1; then sudo=sudo
else
    echo "Not root, and there is no sudo. Run as root: apt-get install$missing" >&2
    exit 1
fi
$sudo apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
