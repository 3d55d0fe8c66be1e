#!/bin/sh
# Renews engine-aarch64.lock (the Sparks, Python 3.12) and engine-x86_64.lock (tests, Debian 12's Python 3.11).
# Needs uv (pip install uv) and the package index that it is set up with; no address of an index enters the files.
set -eu
cd "$(dirname "$0")"
lock() {
    uv pip compile engine.in --constraint engine-constraints.txt --python-platform "$2" --python-version "$3" \
        --generate-hashes --only-binary :all: --no-emit-index-url --no-config --no-annotate --quiet \
        --custom-compile-command "overlay/renew-lock.sh" --output-file "$1.new"
    if grep -n '://' "$1.new"; then
        echo "renew-lock: $1.new names an address" >&2
        exit 1
    fi
    mv "$1.new" "$1"
    echo "$1: $(grep -c '==' "$1") packages"
}
lock engine-aarch64.lock aarch64-manylinux_2_35 3.12
lock engine-x86_64.lock x86_64-manylinux_2_35 3.11
