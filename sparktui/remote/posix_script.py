"""How text reaches a node's shell and how its answer comes back, whatever the login shell is. Pure text, no I/O.

What sshd hands to the login shell is one constant line without a quote, backslash, `!` or line break inside its single
quotes: sh, bash, zsh, fish and tcsh read it alike, and it replaces itself by /bin/sh. Everything else (a supervisor,
then the payload, then its standard input) travels on stdin, so it is in no process list.

The supervisor frames the payload between random markers, and ends its whole process group when stdin reaches its end: a
cancelled call or a dead connection leaves nothing running on the node (terminating through sshd does not work as root).
"""

from __future__ import annotations

import base64
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

GRACE_SECONDS = 10
"""The node ends a script by itself this long after the caller's deadline, in case the head has gone without a word."""
HEARTBEAT_SECONDS = 20
"""How often the follower of a stream says on stdin that it is still there."""
SILENCE_SECONDS = 75
"""Without a heartbeat for this long the node ends the stream's command."""
_CHATTER = re.compile(
    r"^(Warning: Permanently added .* to the list of known hosts\."
    r"|\*\* WARNING: connection is not using a post-quantum .*|\*\* This session may be vulnerable .*"
    r"|\*\* The server may need to be upgraded.*"
    r"|Connection to .* closed\.|Shared connection to .* closed\.)\r?$"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

# Read as a function: a supervisor that arrives cut off is a syntax error, never half a script.
_SUPERVISOR = """sparktui_run() {
exec 3<&0 </dev/null
M=@MARKER@
read -r _a _b _c _d G _e </proc/$$/stat
[ "$G" = "$$" ] || { echo "sparktui: this login does not lead a process group of its own" >&2; exit 97; }
P=$(head -c @PAYLOAD_BYTES@ <&3)
case $P in *"#$M") ;; *) exit 98 ;; esac
D=$(head -c @DATA_BYTES@ <&3)
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
@EXPORTS@
printf '\\n%s-begin\\n' "$M"
printf '\\n%s-begin\\n' "$M" >&2
( trap '' TERM HUP PIPE
@WATCH@
kill -TERM 0; sleep 1; kill -KILL 0 ) <&3 >/dev/null 2>&1 &
@DEADLINE@
@PAYLOAD@
S=$?
printf '\\n%s-end\\n' "$M" >&2
printf '\\n%s-end %s\\n' "$M" "$S"
kill -KILL 0
}
sparktui_run
"""
_WATCH_END = "while read -r _x; do :; done"
_WATCH_HEARTBEAT = 'while B=$(timeout @SILENCE@ head -c 1; echo x); [ "$B" != x ]; do :; done'
_DEADLINE = (
    "( trap '' TERM HUP PIPE; sleep @SECONDS@; kill -TERM 0; sleep 1; kill -KILL 0 ) </dev/null >/dev/null 2>&1 3<&- &"
)
_PLAIN = '( exec 3<&-; eval "$P" )'
_FED = 'printf %s "$D" | base64 -d | ( exec 3<&-; eval "$P" )'


@dataclass(frozen=True, slots=True)
class Framed:
    """What to execute and what to write to its stdin at once; stdin then stays open until the end marker."""

    command: str
    stdin: bytes
    marker: str


@dataclass(frozen=True, slots=True)
class Unframed:
    """A script's answer.

    Attributes:
        exit_status: None when the end marker never came.
        began: the payload was reached; False means that the login itself failed.
        noise: lines printed around the payload.
    """

    exit_status: int | None
    began: bool
    stdout: str
    stderr: str
    noise: tuple[str, ...]


def assignments(values: Mapping[str, str]) -> str:
    """Shell assignments, one a line.

    Raises:
        ValueError: a name that is no shell name, or a value with a NUL byte.
    """
    for name, value in values.items():
        if not _NAME.match(name):
            raise ValueError(f"not a shell variable name: {name!r}")
        if "\0" in value:
            raise ValueError(f"{name} holds a NUL byte")
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def exported(values: Mapping[str, str]) -> str:
    return assignments(values) + "".join(f"export {name}\n" for name in values)


def command_text(argv: Sequence[str]) -> str:
    """One command as sh text, quoted once."""
    if not argv or any("\0" in each for each in argv):
        raise ValueError("a command needs at least one word, none with a NUL byte")
    return f"exec {shlex.join(argv)}\n"


def launcher(bytes_on_stdin: int) -> str:
    """The constant line that a login shell is given."""
    return f"exec /bin/sh -c 'S=$(head -c {bytes_on_stdin}); eval \"$S\"'"


def frame(
    text: str,
    *,
    values: Mapping[str, str] | None = None,
    data: bytes = b"",
    deadline_seconds: float | None,
    exports: Mapping[str, str] | None = None,
) -> Framed:
    """Wrap a script. Without a deadline it is a stream: it lives as long as heartbeats arrive.

    `exports` become environment variables of everything in it.
    """
    marker = f"sparktui-{secrets.token_hex(12)}"
    payload = f"{assignments(values or {})}{text}\n#{marker}".encode()
    encoded = base64.b64encode(data)
    watch, ending = _WATCH_HEARTBEAT.replace("@SILENCE@", str(SILENCE_SECONDS)), ""
    if deadline_seconds is not None:
        watch, ending = _WATCH_END, _DEADLINE.replace("@SECONDS@", str(int(deadline_seconds) + GRACE_SECONDS))
    supervisor = (
        _SUPERVISOR.replace("@MARKER@", marker)
        .replace("@PAYLOAD_BYTES@", str(len(payload)))
        .replace("@DATA_BYTES@", str(len(encoded)))
        .replace("@WATCH@", watch)
        .replace("@DEADLINE@", ending)
        .replace("@EXPORTS@", exported(exports or {}))
        .replace("@PAYLOAD@", _FED if data else _PLAIN)
    ).encode()
    return Framed(launcher(len(supervisor)), supervisor + payload + encoded, marker)


def frame_pipe(argv: Sequence[str], *, exports: Mapping[str, str] | None = None) -> Framed:
    """Wrap a bulk command: what is written after `stdin` is the command's own; its output follows a begin marker."""
    marker = f"sparktui-{secrets.token_hex(12)}"
    path = "PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nexport PATH"
    text = f"{path}\n{exported(exports or {})}\nprintf '\\n%s-begin\\n' {marker}\n{command_text(argv)}"
    body = f"sparktui_run() {{\n{text}}}\nsparktui_run\n".encode()
    return Framed(launcher(len(body)), body, marker)


def begin_of(marker: str) -> bytes:
    return f"\n{marker}-begin\n".encode()


def end_of(marker: str) -> bytes:
    return f"\n{marker}-end".encode()


def unframe(stdout: bytes, stderr: bytes, marker: str) -> Unframed:
    """Split an answer into payload and noise. The payload's bytes are untouched, apart from decoding."""
    begin, end = begin_of(marker), end_of(marker)
    before, found, rest = stdout.partition(begin)
    if not found:
        return Unframed(None, False, "", _text(stderr), _noise(stdout))
    body, _, tail = rest.partition(end)
    status, _, after = tail.partition(b"\n")
    _, seen, errors = stderr.partition(begin)
    errors, _, late = (errors if seen else stderr).partition(end)
    try:
        code: int | None = int(status)
    except ValueError:
        code = None
    return Unframed(
        code, True, _text(body), quiet(_text(errors + late.removeprefix(b"\n"))), _noise(before) + _noise(after)
    )


def quiet(stderr: str) -> str:
    """Standard error without ssh's own chatter, so that the first line left is the cause."""
    return "".join(line for line in stderr.splitlines(keepends=True) if not _CHATTER.match(line.rstrip("\n")))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _noise(data: bytes) -> tuple[str, ...]:
    return tuple(line.strip() for line in _text(data).splitlines() if line.strip())
