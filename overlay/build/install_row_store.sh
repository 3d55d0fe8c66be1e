#!/bin/sh
# At image build: compiles the row store, whose sources lie beside this script, to the folder $1, and loads it once.
# A base without a C++ compiler gets one from its distribution for the time of this script, and no longer.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: install_row_store.sh OUTPUT_FOLDER}
needed="The Engram rows are read by a small C++ library that is compiled here; use a base with g++"
added=""
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

packages() {
    dpkg-query --show --showformat='${db:Status-Status} ${binary:Package}\n' | sed -n 's/^installed //p' | LC_ALL=C sort
}

if ! command -v "${CXX:-g++}" >/dev/null 2>&1; then
    if [ -n "${CXX:-}" ]; then
        echo "CXX=$CXX is no program in this base. $needed, or leave CXX empty" >&2
        exit 1
    fi
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "this base has neither g++ nor apt-get to install it with. $needed" >&2
        exit 1
    fi
    packages >"$work/before"
    export DEBIAN_FRONTEND=noninteractive
    if ! { apt-get update && apt-get install --yes --no-install-recommends g++; }; then
        echo "this base has no g++, and apt-get could not install it (its reason stands above): let the build reach" \
            "the distribution's packages. $needed" >&2
        exit 1
    fi
    packages >"$work/after"
    added=$(LC_ALL=C comm -13 "$work/before" "$work/after")
fi
sh "$here/build.sh" "$out"
if [ -n "$added" ]; then
    # shellcheck disable=SC2086
    apt-get purge --yes $added
    rm -rf /var/lib/apt/lists/*
fi

# After the compiler has gone: it must load with what stays, and count right.
python3 -S - "$out/librow_store.so" <<'CHECK'
import ctypes, sys

library = ctypes.CDLL(sys.argv[1])
library.rs_crc32c.restype = library.rs_crc32c_portable.restype = ctypes.c_uint32
for function in (library.rs_crc32c, library.rs_crc32c_portable):
    found = function(b"123456789", ctypes.c_size_t(9))
    if found != 0xE3069283:
        sys.exit(f"{sys.argv[1]} is wrong: CRC32C of 123456789 is {found:#x}, not 0xe3069283")
answer = library.rs_probe_io_uring()
print(f"{sys.argv[1]}: loads and counts right; io_uring in this build: {'yes' if answer == 0 else f'no (errno {answer})'}")
CHECK
