#!/bin/sh
# Compiles the row store: librow_store.so, and with --self-test the program row_store_self_test beside it.
#   CXX=aarch64-linux-gnu-g++ sh build.sh OUTPUT_FOLDER [--self-test]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build.sh OUTPUT_FOLDER [--self-test]}
compiler=${CXX:-g++}
mkdir -p "$out"
work=$(mktemp -d "$out/objects.XXXXXX")
trap 'rm -rf "$work"' EXIT

compile() {
    "$compiler" -std=c++17 -O2 -g1 -fPIC -fvisibility=hidden -pthread \
        -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -c "$here/$1.cpp" -o "$work/$1.o"
}

# The image's libc is all that the results need: C++'s own library is inside them. Written beside and renamed: a process
# that has the old library open keeps it.
link() {
    name=$1
    shift
    "$compiler" -pthread -static-libstdc++ -static-libgcc "$@" -o "$work/$name"
    mv "$work/$name" "$out/$name"
}

for source in crc32c packed_file pages page_reader thread_reader ring ring_reader row_cache statistics store c_abi; do
    compile $source
done
link librow_store.so -shared -Wl,-z,defs,--exclude-libs,ALL "$work"/*.o
[ "${2:-}" = --self-test ] || exit 0
compile self_test
link row_store_self_test "$work"/*.o
