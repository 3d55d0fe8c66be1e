"""Which daemon is in use, and why one cannot be used: different causes have different texts."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.remote.docker import demultiplex
from sparktui.remote.docker_access import context_endpoint, daemon_in_use, explain_refusal, read_access

SOCKET = "/var/run/docker.sock"
REFUSED = read_access(
    "user=u\nsession=u adm\naccount=u adm\nsocket=/var/run/docker.sock\nexists=yes\ngroup=docker\nis_socket=yes\n"
    "cli=yes\nengine=yes\nsaid=permission denied while trying to connect\n"
)


def test_u12_not_in_the_group_and_added_since_are_two_texts() -> None:
    outside = explain_refusal(REFUSED, "", node="worker1")
    assert outside.what.startswith("user u is not in group docker")
    assert outside.fix == "sudo usermod -aG docker u, then log in again"
    older = explain_refusal(dataclasses.replace(REFUSED, account_groups=("u", "docker")), "", node="worker1")
    assert older.what.startswith("group docker was added to u, but this session is older: reconnect")
    for error in (outside, older):
        assert "(docker says: permission denied while trying to connect)" in error.what and error.node == "worker1"


def test_absent_stopped_and_silent_are_three_more() -> None:
    stopped = explain_refusal(dataclasses.replace(REFUSED, exists=False), "", node="w")
    absent = explain_refusal(dataclasses.replace(REFUSED, exists=False, has_cli=False, has_engine=False), "", node="w")
    silent = explain_refusal(dataclasses.replace(REFUSED, allowed=True), "broken pipe", node="w")
    assert "is not running" in stopped.what and "there is no Docker Engine" in absent.what
    assert "does not answer: broken pipe" in silent.what


def test_an_empty_probe_is_not_permission() -> None:
    assert not read_access("").allowed


@pytest.mark.parametrize(
    "environment, current, contexts, endpoint, system, source",
    [
        ({}, None, {}, "unix:///var/run/docker.sock", True, "docker's default"),
        ({}, "default", {}, "unix:///var/run/docker.sock", True, "docker's default"),
        ({"DOCKER_HOST": "ssh://me@box"}, "desktop-linux", {}, "ssh://me@box", False, "DOCKER_HOST in the environment"),
        ({"DOCKER_HOST": "unix:///run/docker.sock"}, None, {}, "unix:///run/docker.sock", True, "DOCKER_HOST"),
        (
            {},
            "desktop-linux",
            {"desktop-linux": "unix:///home/u/.docker/desktop/docker.sock"},
            "unix:///home/u/.docker/desktop/docker.sock",
            False,
            "context desktop-linux (currentContext in ~/.docker/config.json)",
        ),
        ({}, "gone", {}, "", False, "context gone, which does not exist"),
        (
            {"DOCKER_CONTEXT": "rootless"},
            "default",
            {"rootless": "unix:///run/user/1000/docker.sock"},
            "",
            False,
            "rootless",
        ),
    ],
)
def test_u22_the_daemon_in_use_is_named_with_where_that_came_from(
    environment: dict[str, str], current: str | None, contexts: dict[str, str], endpoint: str, system: bool, source: str
) -> None:
    text = json.dumps({"currentContext": current}) if current else None
    choice = daemon_in_use(environment, text, contexts)
    assert choice.is_system == system and source in choice.source
    assert choice.endpoint == (endpoint or choice.endpoint)


@given(st.text(max_size=100))
def test_a_damaged_config_is_the_default_and_a_damaged_context_is_none(text: str) -> None:
    daemon_in_use({}, text, {})
    context_endpoint(text)


def test_a_contexts_file() -> None:
    meta = {"Name": "box", "Endpoints": {"docker": {"Host": "ssh://box"}}}
    assert context_endpoint(json.dumps(meta)) == ("box", "ssh://box")


@given(parts=st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=30)), max_size=6), size=st.integers(1, 40))
async def test_frame_headers_are_stripped_however_the_stream_is_cut(parts: list[tuple[int, bytes]], size: int) -> None:
    stream = b"".join(bytes([number, 0, 0, 0]) + len(data).to_bytes(4, "big") + data for number, data in parts)

    async def chunks():  # type: ignore[no-untyped-def]
        for start in range(0, len(stream), size):
            yield stream[start : start + size]

    assert b"".join([part async for part in demultiplex(chunks())]) == b"".join(data for _, data in parts)
