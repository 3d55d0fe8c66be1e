"""What reaches a shell and how its answer is read back, run through this machine's own shells."""

from __future__ import annotations

import asyncio
import contextlib
import io
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktui.errors import RemoteCommandFailed
from sparktui.remote import posix_script, script_streams
from sparktui.remote.posix_script import assignments, begin_of, command_text, end_of, frame, launcher, quiet, unframe
from sparktui.remote.script_streams import completed, follow

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


def test_the_line_that_a_login_shell_reads_is_the_same_to_all_of_them() -> None:
    line = launcher(1234)
    inside = line.removeprefix("exec /bin/sh -c '").removesuffix("'")
    assert not set(inside) & set("'\\!\n")


@given(words=st.lists(TEXT, min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_any_argument_arrives_as_it_is(words: list[str]) -> None:
    text = command_text(["printf", "%s\\0", *words])
    done = subprocess.run(["/bin/sh"], input=text.encode(), capture_output=True, timeout=20, check=True)
    assert done.stdout.decode().split("\0")[:-1] == words


@given(value=TEXT)
@settings(max_examples=40, deadline=None)
def test_a_value_is_data_never_shell(value: str) -> None:
    done = subprocess.run(
        ["/bin/sh"], input=(assignments({"x": value}) + 'printf %s "$x"').encode(), capture_output=True
    )
    assert done.stdout.decode() == value


@pytest.mark.parametrize("name", ["", "1x", "a b", "x;id", "x=$(id)", "é"])
def test_a_name_that_is_no_shell_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a shell variable name"):
        assignments({name: "1"})


@given(body=st.binary(max_size=200), noise=st.lists(st.sampled_from(["banner", "two words", "x"]), max_size=3))
def test_the_payload_comes_back_byte_for_byte_whatever_the_login_prints(body: bytes, noise: list[str]) -> None:
    marker = "sparktui-0123456789"
    before = "".join(f"{line}\n" for line in noise).encode()
    got = unframe(before + begin_of(marker) + body + end_of(marker) + b" 3\nlate\n", b"", marker)
    assert (got.exit_status, got.stdout, got.noise) == (3, body.decode("utf-8", "replace"), (*noise, "late"))


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "fish", "tcsh"])
@pytest.mark.parametrize(
    "text, data, expected", [("echo hi; exit 3", b"", ("hi\n", 3)), ("cat", b"\x01'\n", ("\x01'\n", 0))]
)
def test_a_frame_runs_under_every_login_shell(shell: str, text: str, data: bytes, expected: tuple[str, int]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    framed = frame(text, data=data, deadline_seconds=20)
    child = subprocess.Popen(
        [shell, "-c", framed.command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin and child.stdout and child.stderr
    child.stdin.write(framed.stdin)
    child.stdin.flush()  # and open it stays: its end is the order to stop
    got = unframe(child.stdout.read(), child.stderr.read(), framed.marker)
    child.stdin.close()
    child.wait(timeout=20)
    assert (got.stdout, got.exit_status, got.stderr, got.noise) == (*expected, "", ())


@pytest.mark.parametrize("keep", [0, 10, 400, -1])
def test_a_script_that_arrives_cut_off_does_nothing(keep: int, tmp_path: Path) -> None:
    framed = frame(f"touch {tmp_path}/made", deadline_seconds=20)
    subprocess.run(
        ["/bin/sh", "-c", framed.command],
        input=framed.stdin[:keep],
        capture_output=True,
        timeout=30,
        start_new_session=True,
    )
    assert not list(tmp_path.iterdir())


def test_u10_ssh_chatter_goes_and_the_one_real_error_stays() -> None:
    chatter = "Warning: Permanently added '10.0.0.2' (ED25519) to the list of known hosts.\r\n" * 5
    assert quiet(chatter + "nvidia-smi: not found\n" + chatter) == "nvidia-smi: not found\n"


class Chunks:
    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size = data, size

    async def read(self, n: int = -1, /) -> bytes:
        part, self._data = self._data[: self._size], self._data[self._size :]
        return part


@given(
    lines=st.lists(st.sampled_from(["", "a", "b c", "sparktui-", "-end"]), max_size=6),
    last_break=st.booleans(),
    size=st.integers(1, 60),
)
async def test_followed_lines_are_the_commands_lines_however_they_are_cut(
    lines: list[str], last_break: bool, size: int
) -> None:
    marker = "sparktui-m"
    text = "\n".join(lines) + ("\n" if last_break else "")
    stream = b"noise\n" + begin_of(marker) + text.encode() + end_of(marker) + b" 0\n"
    streams = (io.BytesIO(), Chunks(stream, size), Chunks(b"", 1))
    got = [line async for line in follow(*streams, marker, node="w", what="x", ended="lost")]
    expected = text.split("\n")
    assert got == (expected[:-1] if expected[-1] == "" else expected)


def test_a_killed_command_is_not_taken_for_an_answer() -> None:
    marker = "sparktui-m"
    with pytest.raises(RemoteCommandFailed, match="killed before it ended: oom"):
        completed(unframe(begin_of(marker) + b"half", begin_of(marker) + b"oom\n", marker), ("x",), node="w")


@pytest.mark.parametrize("kind", ["silence", "deadline"])
def test_without_a_word_from_the_head_the_node_ends_the_command_itself(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posix_script, "SILENCE_SECONDS", 1)
    monkeypatch.setattr(posix_script, "GRACE_SECONDS", 0)
    text = "trap '' TERM; echo on; sleep 600; sleep 600"
    framed = frame(text, deadline_seconds=None if kind == "silence" else 1)
    child = subprocess.Popen(
        ["/bin/sh", "-c", framed.command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdin and child.stdout
    child.stdin.write(framed.stdin)
    child.stdin.flush()  # open, as the socket of a head that lost its power stays open
    got = unframe(child.stdout.read(), b"", framed.marker)
    child.stdin.close()
    child.wait(timeout=20)
    assert (got.stdout, got.exit_status) == ("on\n", None)


async def test_a_follower_says_that_it_is_there_until_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_streams, "HEARTBEAT_SECONDS", 0.005)
    marker, stdin, open_end = "sparktui-m", io.BytesIO(), asyncio.StreamReader()
    open_end.feed_data(begin_of(marker) + b"one\n")
    lines = follow(stdin, open_end, Chunks(b"", 1), marker, node="w", what="x", ended="lost")
    assert await anext(lines) == "one"
    for _ in range(2_000):
        await asyncio.sleep(0.005)
        if len(stdin.getvalue()) >= 3:
            break
    await lines.aclose()  # type: ignore[attr-defined]
    said = stdin.getvalue()
    await asyncio.sleep(0.05)
    assert stdin.getvalue() == said == b"\n" * len(said)
    assert len(said) >= 3


def test_heartbeats_keep_a_stream_going(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posix_script, "SILENCE_SECONDS", 2)
    framed = frame("sleep 4; echo done", deadline_seconds=None)
    child = subprocess.Popen(
        ["/bin/sh", "-c", framed.command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdin and child.stdout
    child.stdin.write(framed.stdin)
    for _ in range(12):
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(b"\n")
            child.stdin.flush()
        time.sleep(0.4)
        if child.poll() is not None:
            break
    got = unframe(child.stdout.read(), b"", framed.marker)
    with contextlib.suppress(BrokenPipeError):
        child.stdin.close()
    child.wait(timeout=20)
    assert (got.stdout, got.exit_status) == ("done\n", 0)
