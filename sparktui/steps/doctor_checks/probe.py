"""The one script that doctor runs on a node. Its parts run side by side, each with its own deadline.

A part that hangs (a dead NFS server, a wedged driver) costs only its own answer: it writes to a file, is killed, and is
reported with status 124; nothing waits for it. The script writes nothing but that scratch folder, which it removes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparktui.cluster.node import Node
from sparktui.engine.folders import node_folders
from sparktui.readings.nvidia_smi import APP_FIELDS, GPU_FIELDS, GPU_FIELDS_SHORT
from sparktui.readings.sections import sections
from sparktui.steps.checkpoint_probe import CHECKPOINT_SCRIPT, IDENTITY_SCRIPT
from sparktui.steps.fabric_probe import FABRIC_SCRIPT

if TYPE_CHECKING:
    from sparktui.settings import Settings

NO_ANSWER = 124
PART_SECONDS = 5
"""What a part may take; the checkpoint's listing may take longer on a cold disk."""
SLOW_PART_SECONDS = 8
PROBE_DEADLINE_SECONDS = 20.0

_START = """\
scratch=$(mktemp -d "${TMPDIR:-/tmp}/sparktui.XXXXXX" 2>/dev/null || mktemp -d /dev/shm/sparktui.XXXXXX) || exit 90
parts= tab=$(printf '\\t')
limit() { s=$1; shift; if command -v timeout >/dev/null; then timeout -k 1 "$s" "$@"; else "$@"; fi; }
part() {
  parts="$parts $1"
  ( eval "$2" >"$scratch/$1.out" 2>"$scratch/$1.err" </dev/null; echo $? >"$scratch/$1.rc" ) >/dev/null 2>&1 &
}
near() { p=$1; while [ ! -e "$p" ] && [ "$p" != / ]; do p=$(dirname "$p"); done; printf '%s\\n' "$p"; }
"""
_END = """\
n=0
while [ $n -lt @TICKS@ ]; do
  open=
  for name in $parts; do [ -s "$scratch/$name.rc" ] || open=1; done
  [ -z "$open" ] && break
  sleep 0.05; n=$((n+1))
done
for name in $parts; do
  echo "@$name"; cat "$scratch/$name.out"; echo
  if [ -s "$scratch/$name.rc" ]; then rc=$(cat "$scratch/$name.rc"); else rc=124; fi
  echo "@$name.exit"; echo "$rc"
  if [ -s "$scratch/$name.err" ]; then echo "@$name.stderr"; head -c 2000 "$scratch/$name.err"; echo; fi
done
rm -rf "$scratch"
"""

_CACHES = """\
for d in .triton .cache/triton .cache/flashinfer .cache/torch_extensions .cache/torch/inductor .cache/vllm \
 .cache/tilelang .deep_gemm; do [ -d "$HOME/$d" ] && printf '%s\\t%s\\n' "$(stat -f -c %T "$HOME/$d")" "$HOME/$d"; done
:"""


_DOCKER_CHOICE = """\
printf 'DOCKER_HOST\\t%s\\nDOCKER_CONTEXT\\t%s\\n' "$DOCKER_HOST" "$DOCKER_CONTEXT"
printf 'config\\t%s\\n' "$(grep -o '"currentContext"[^,}]*' "$HOME/.docker/config.json" 2>/dev/null)"
for f in "$HOME"/.docker/contexts/meta/*/meta.json
do [ -f "$f" ] && printf 'context\\t%s\\n' "$(tr -d '\\n' <"$f")"; done; :"""
"""Only the name of the context: the file also holds logins of registries."""


def _nvidia(query: str) -> str:
    return f"limit {PART_SECONDS} nvidia-smi {query} --format=csv,noheader,nounits"


def _parts() -> tuple[tuple[str, str], ...]:
    listing = f'limit {SLOW_PART_SECONDS} /bin/sh -c "$checkpoint_script"'
    return (
        ("uname", "uname -snrm"),
        ("release", "cat /etc/dgx-release || cat /etc/os-release"),
        ("id", "id"),
        ("gpu", _nvidia("--query-gpu=" + ",".join(GPU_FIELDS))),
        ("gpu.short", _nvidia("--query-gpu=" + ",".join(GPU_FIELDS_SHORT))),
        ("gpu.apps", _nvidia("--query-compute-apps=" + ",".join(APP_FIELDS))),
        ("docker.choice", _DOCKER_CHOICE),
        ("cdi", "grep -E '^[[:space:]]*mode[[:space:]]*=' /etc/nvidia-container-runtime/config.toml"),
        ("fabric", FABRIC_SCRIPT),
        ("addresses", "ip -o -4 addr show"),
        ("meminfo", "cat /proc/meminfo"),
        ("minfree", "cat /proc/sys/vm/min_free_kbytes"),
        ("caches", _CACHES),
        ("df.model", f'limit {PART_SECONDS} df -PB1 "$(near "$MODEL_DIR")"'),
        ("df.engram", f'limit {PART_SECONDS} df -PB1 "$(near "$ENGRAM_DIR")"'),
        ("df.docker", f'limit {PART_SECONDS} df -PB1 "$(near "$DOCKER_DIR")"'),
        (
            "engram",
            f'[ -d "$ENGRAM_DIR" ] && limit {PART_SECONDS} find "$ENGRAM_DIR" -maxdepth 1 -name \'engram-*\' -type f'
            " -printf '%s\\t%f\\n'; :",
        ),
        ("checkpoint", listing),
        ("identity", f'limit {SLOW_PART_SECONDS} /bin/sh -c "$identity_script"'),
    )


def probe_script() -> str:
    """The text; what differs between nodes is in `probe_values()`."""
    calls = "".join(f"part {name} {_quoted(command)}\n" for name, command in _parts())
    ticks = str((SLOW_PART_SECONDS + 2) * 20)
    listing = f"checkpoint_script={_quoted(CHECKPOINT_SCRIPT)}\nidentity_script={_quoted(IDENTITY_SCRIPT)}\n"
    listing += "export MODEL_DIR\n"
    return f"{listing}{_START}{calls}{_END.replace('@TICKS@', ticks)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def probe_values(settings: Settings, node: Node) -> dict[str, str]:
    folders = node_folders(settings, node)
    model = settings.model_dir if node.is_head else settings.worker_model_path
    return {"MODEL_DIR": model, "ENGRAM_DIR": folders.engram, "DOCKER_DIR": "/var/lib/docker"}


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """A node's answer. A part that is not in it was never reached: unknown."""

    parts: dict[str, str] = field(default_factory=dict)
    noise_lines: int = 0

    def text(self, name: str) -> str | None:
        """A part's output when it ended by itself with status 0; None otherwise."""
        return self.parts.get(name) if self.status(name) == 0 else None

    def status(self, name: str) -> int | None:
        word = self.parts.get(f"{name}.exit", "").strip()
        return int(word) if word.isdigit() else None

    def hung(self, name: str) -> bool:
        return self.status(name) in (NO_ANSWER, 137)

    def all_text(self, name: str) -> str:
        """Output and errors, for judging why a part failed."""
        return self.parts.get(name, "") + self.parts.get(f"{name}.stderr", "")


def read_probe(stdout: str, noise_lines: int = 0) -> ProbeAnswer:
    return ProbeAnswer(sections(stdout), noise_lines)
