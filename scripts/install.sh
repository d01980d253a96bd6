#!/bin/sh
# install.sh PACKAGE... -- installs the packages that are missing, and says so; does nothing when none is.
# Debian and Ubuntu are known. On another system it prints the list and goes on: the compiler will say what is missing.
set -eu

if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
    echo "This system has no apt-get. flowlua needs what these Debian packages hold: $*"
    exit 0
fi

missing=
for package in "$@"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

# The purpose of a package; the README gives the reasons for the choice.
purpose() {
    case $1 in
        gcc | libc6-dev | make | pkg-config) echo "to build" ;;
        liblua5.4-dev) echo "the Lua interpreter inside" ;;
        zlib1g-dev) echo "compressed data files" ;;
        libjansson-dev) echo "headers of checkpoint files, JSON" ;;
        libjpeg-dev | libpng-dev) echo "JPEG and PNG images" ;;
        libdnnl-dev) echo "large matrix products, convolutions" ;;
        libopenblas0-pthread) echo "factors and eigenvalues of matrices" ;;
        libopenmpi-dev) echo "the transport between ranks" ;;
        openmpi-bin) echo "to start ranks (mpirun)" ;;
        libpcre2-8-0 | libutf8proc-dev) echo "patterns and Unicode of tokenizers" ;;
        libedit2 | libedit-dev) echo "editing lines in the session" ;;
        lua-busted | lua-check | lua5.4 | clang-format-14) echo "to test" ;;
        *) echo "needed" ;;
    esac
}

echo "flowlua installs what is missing here:"
for package in $missing; do echo "  $package -- $(purpose "$package")"; done
if [ "$(id -u)" = 0 ]; then sudo=
elif command -v sudo >/dev/null 2>&1; then sudo=sudo
else
    echo "Not root, and there is no sudo. Run as root: apt-get install$missing" >&2
    exit 1
fi
$sudo apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
