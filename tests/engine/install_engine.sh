#!/bin/sh
# Put real SGLang and the tiny model into the cache ($SPARKTUI_CACHE, else /var/cache/sparktui). Twice is fine: only what
# lacks is added. Exit status 75: the disk is too small, and the tests that need the engine skip and say so.
set -eu
version=0.5.23
needed_gib=20
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
SPARKTUI_CACHE=${SPARKTUI_CACHE:-/var/cache/sparktui}
export SPARKTUI_CACHE
engine=$SPARKTUI_CACHE/engine-$version
marker=$engine/.complete
# The containers of the testbed have Debian's python3 and nothing else: the environment has to be made by the same one.
python=/usr/bin/python3

say() { printf 'engine: %s\n' "$*" >&2; }

for program in "$python" gcc flock; do
    command -v "$program" >/dev/null || { say "$program is missing: apt-get install python3 python3-venv gcc util-linux"; exit 1; }
done
mkdir -p "$SPARKTUI_CACHE"
exec 9>"$SPARKTUI_CACHE/.engine.lock"
flock 9

if [ ! -e "$marker" ] && [ -e "$engine/bin/python3" ]; then
    # Installed by hand: complete if pip finds every dependency of it.
    if "$engine/bin/python3" -m pip show --quiet "sglang" 2>/dev/null &&
        ls -d "$engine"/lib/python3.*/site-packages/sglang-"$version".dist-info >/dev/null 2>&1; then
        : >"$marker"
    fi
fi
if [ ! -e "$marker" ]; then
    free_kib=$(df -Pk "$SPARKTUI_CACHE" | awk 'NR == 2 { print $4 }')
    if [ "$free_kib" -lt $((needed_gib * 1024 * 1024)) ]; then
        say "disk too small for the engine: $SPARKTUI_CACHE has $((free_kib / 1024 / 1024)) GiB free, $needed_gib are needed"
        exit 75
    fi
    say "installing SGLang $version into $engine (about four minutes, 11 GB)"
    rm -rf "$engine.partial"
    "$python" -m venv "$engine.partial" || { say "no venv: apt-get install python3-venv"; exit 1; }
    "$engine.partial/bin/python3" -m pip install --quiet --no-cache-dir --disable-pip-version-check "sglang==$version"
    rm -rf "$engine"
    mv "$engine.partial" "$engine"
    : >"$marker"
fi

stub=$engine/lib/sparktui-stub
if [ ! -e "$stub/libcuda.so.1" ]; then
    # sgl_kernel's library wants this one symbol of the driver; on a CPU it is never called.
    mkdir -p "$stub"
    printf 'int cuPointerGetAttribute(void *data, int attribute, unsigned long long pointer)\n%s\n' \
        '{ (void)data; (void)attribute; (void)pointer; return 1; }' |
        gcc -shared -fPIC -x c -Wl,-soname,libcuda.so.1 -o "$stub/.libcuda.partial" -
    mv "$stub/.libcuda.partial" "$stub/libcuda.so.1"
fi

model=$("$python" "$here/engine_env.py" model-dir)
if [ ! -d "$model" ]; then
    say "training the tiny model into $model (about a minute)"
    # Passive: threads that spin for each other take ten times as long where something else runs.
    LD_LIBRARY_PATH=$("$python" "$here/engine_env.py" library-path) SGLANG_USE_CPU_ENGINE=1 PYTHONDONTWRITEBYTECODE=1 \
        OMP_WAIT_POLICY=passive \
        "$engine/bin/python3" -W ignore "$here/tiny_model.py" "$model" >&2
    for old in "$SPARKTUI_CACHE"/tiny-model-*; do
        [ "$old" = "$model" ] || rm -rf "$old"
    done
fi
printf '%s\n' "$model"
