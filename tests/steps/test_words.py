"""What status and talk say: all ranks and not the endpoint alone, lines that can be copied, and never the key."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import docker
import pytest

from sparktui.events import Event, Finding, NodeOutcome, Note, Outcome, Question, State
from sparktui.remote.server import ServerError
from sparktui.settings import parse_settings
from sparktui.steps import status
from sparktui.steps.status import Status
from sparktui.steps.step import Context, Step
from sparktui.steps.stop import Stop
from sparktui.steps.talk import Talk, curl_line
from tests.scripted_link import ScriptedLink

KEY = "a-long-secret-key"
MODEL = "deepseek-v4.1-flash"


class Endpoint:
    """What answers at the head's port: model names, or an error."""

    def __init__(self, said: tuple[str, ...] | ServerError) -> None:
        self.said = said
        self.keys: list[str | None] = []

    def __call__(self, url: str, *, api_key: str | None = None) -> Endpoint:
        self.keys.append(api_key)
        return self

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def models(self) -> tuple[str, ...]:
        if isinstance(self.said, ServerError):
            raise self.said
        return self.said


def cluster(folder: Path, **more: str) -> Context:
    values = {
        "HEAD_IP": "10.0.0.1",
        "WORKER_IPS": "10.0.0.2 10.0.0.3",
        "WORKER_HOSTS": "spark2 spark3",
        "MODEL_DIR": "/srv/model",
        "API_KEY": KEY,
        "SERVED_MODEL_NAME": MODEL,
    } | more
    settings = parse_settings(
        "".join(f'{name}="{value}"\n' for name, value in values.items()),
        env_path=folder / ".env",
        profile="three",
        environment={"HOME": str(folder)},
    )
    links = tuple(ScriptedLink(node) for node in settings.nodes)
    for link in links:
        name = "dsv41-head" if link.node.is_head else "dsv41-worker"
        link.engine.add_container(name, labels={"sparktui.owner": "sparktui", "sparktui.profile": "three"})

    async def ask(question: Question) -> str:
        raise AssertionError(f"asked {question.question}")

    return Context(settings, links, ask)


def link_of(context: Context, rank: int) -> ScriptedLink:
    link = context.links[rank]
    assert isinstance(link, ScriptedLink)
    return link


async def told(step: Step, context: Context) -> list[Event]:
    return [each async for each in step.run(context)]


async def rows(
    monkeypatch: pytest.MonkeyPatch, context: Context, said: tuple[str, ...] | ServerError = (MODEL,)
) -> dict[tuple[str, str], Finding]:
    monkeypatch.setattr(status, "EngineServer", Endpoint(said))
    found = [each for each in await told(Status(), context) if isinstance(each, Finding)]
    return {(each.check, each.node): each for each in found}


# -- status ------------------------------------------------------------------------------------------------------


async def test_all_ranks_run_and_the_endpoint_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await rows(monkeypatch, cluster(tmp_path))
    assert {each.state for each in found.values()} == {State.OK}
    assert MODEL in found["endpoint", "head"].what


async def test_a_rank_that_is_gone_is_said_although_the_endpoint_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = cluster(tmp_path)
    gone = link_of(context, 2).engine.containers["dsv41-worker"]
    gone.status, gone.exit_code, gone.finished_at = "exited", 137, "2026-11-29T18:00:11.5Z"
    found = await rows(monkeypatch, context)
    rank, endpoint = found["rank", "worker2"], found["endpoint", "head"]
    assert (rank.state, rank.fix) == (State.WARN, "sparktui logs worker2")
    assert "exit code 137" in rank.what
    assert "2026-11-29T18:00:11Z" in rank.what
    assert endpoint.state is State.WARN
    assert "worker2 has no rank: requests now hang" in endpoint.what


async def test_a_rank_without_a_container_and_one_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = cluster(tmp_path)
    link_of(context, 1).engine.containers.clear()
    dead = link_of(context, 2).engine.containers["dsv41-worker"]
    dead.status, dead.exit_code, dead.oom_killed = "exited", 137, True
    found = await rows(monkeypatch, context)
    assert (found["rank", "worker1"].state, found["rank", "worker1"].fix) == (State.INFO, "sparktui serve")
    assert "out of memory" in found["rank", "worker2"].what
    assert "worker1, worker2" in found["endpoint", "head"].what


async def test_a_node_that_cannot_be_asked_is_unknown_never_ok(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = cluster(tmp_path)
    link_of(context, 1).unreachable("no route to 10.0.0.2")
    found = await rows(monkeypatch, context)
    assert found["rank", "worker1"].state is State.UNKNOWN
    assert found["rank", "worker1"].data["unreachable"] is True
    assert found["rank", "worker2"].state is State.OK
    assert found["endpoint", "head"].state is State.WARN


async def test_an_engine_that_refuses_is_unknown_and_costs_its_own_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = cluster(tmp_path)
    link_of(context, 2).engine.broken = docker.errors.APIError("500 Server Error: out of inodes")
    found = await rows(monkeypatch, context)
    assert (found["rank", "worker2"].state, found["rank", "worker2"].fix) == (State.UNKNOWN, "sparktui doctor")
    assert "out of inodes" in found["rank", "worker2"].what
    assert found["rank", "worker1"].state is State.OK


async def test_stop_goes_on_with_the_other_nodes_when_one_engine_refuses(tmp_path: Path) -> None:
    context = cluster(tmp_path)
    for rank in range(3):
        link_of(context, rank).answer("/proc/self/ns/net")
        for each in link_of(context, rank).engine.containers.values():
            each.body["Labels"]["sparktui.role"] = "worker" if rank else "head"
    link_of(context, 1).engine.broken = docker.errors.APIError("500 Server Error: tried to kill")
    seen = await told(Stop(), context)
    outcomes = {each.node: each.outcome for each in seen if isinstance(each, NodeOutcome)}
    assert outcomes == {"head": Outcome.DONE, "worker1": Outcome.FAILED, "worker2": Outcome.DONE}
    assert [link_of(context, rank).engine.containers == {} for rank in range(3)] == [True, False, True]


async def test_nothing_listens_while_the_ranks_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ServerError("nothing listens on 10.0.0.1:8888", kind="refused")
    found = await rows(monkeypatch, cluster(tmp_path), refused)
    assert (found["endpoint", "head"].state, found["endpoint", "head"].what) == (State.INFO, refused.what)
    silent = await rows(monkeypatch, cluster(tmp_path), ServerError("no answer in 5 s", kind="timeout"))
    assert silent["endpoint", "head"].state is State.WARN


async def test_status_changes_nothing_and_shows_other_containers_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = cluster(tmp_path)
    labels = {"sparktui.owner": "sparktui", "sparktui.role": "nfs"}
    link_of(context, 0).engine.add_container("dsv41-nfs", labels=labels)
    link_of(context, 0).engine.add_container("somebody-elses")
    found = await rows(monkeypatch, context)
    assert found["container", "head"].what == "dsv41-nfs (nfs): running"
    assert not any("somebody" in each.what for each in found.values())
    assert [link_of(context, rank).engine.actions for rank in range(3)] == [[], [], []]


async def test_the_key_is_sent_and_never_shown_by_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, endpoint = cluster(tmp_path), Endpoint((MODEL,))
    monkeypatch.setattr(status, "EngineServer", endpoint)
    seen = await told(Status(), context)
    plan = await Status().plan(context)
    assert endpoint.keys == [KEY]
    assert KEY not in repr(seen) + repr(plan)


# -- talk --------------------------------------------------------------------------------------------------------


async def test_talk_says_how_to_reach_it_and_never_the_key(tmp_path: Path) -> None:
    context = cluster(tmp_path)
    seen = await told(Talk(), context)
    text = "\n".join(each.text for each in seen if isinstance(each, Note))
    assert KEY not in text + repr(await Talk().plan(context))
    assert "OpenAI base URL: http://10.0.0.1:8888/v1" in text
    assert "Anthropic base URL: http://10.0.0.1:8888\n" in text
    assert f"model: {MODEL}" in text
    assert f"••••••ey (in {context.settings.state_dir / 'api-key'})" in text
    assert not any(isinstance(each, Note) and each.state is State.WARN for each in seen)


async def test_talk_warns_of_an_open_endpoint(tmp_path: Path) -> None:
    seen = await told(Talk(), cluster(tmp_path, API_KEY="none"))
    warned = [each.text for each in seen if isinstance(each, Note) and each.state is State.WARN]
    assert warned == ["there is no API_KEY: everybody on this network can use it"]
    assert "Authorization" not in repr(seen)


@pytest.mark.parametrize("folder", ["plain", "with space and 'quote'"])
def test_the_curl_line_can_be_pasted_and_sends_the_keys_file(tmp_path: Path, folder: str) -> None:
    home = tmp_path / folder
    home.mkdir()
    context = cluster(home)
    state = context.settings.state_dir
    state.mkdir(parents=True, exist_ok=True)
    (state / "api-key").write_text(f"{KEY}\n")
    line = curl_line(context.settings)
    assert KEY not in line
    # A shell in which `curl` prints its arguments, one a line.
    shell = f"curl() {{ printf '%s\\n' \"$@\"; }}; {line}"
    ran = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True, timeout=10, check=True)
    arguments = ran.stdout.splitlines()
    assert arguments[0] == "http://10.0.0.1:8888/v1/chat/completions"
    assert f"Authorization: Bearer {KEY}" in arguments
    body = json.loads(arguments[arguments.index("-d") + 1])
    assert (body["model"], body["max_tokens"] > 0, body["chat_template_kwargs"]) == (MODEL, True, {"thinking": False})


def test_a_model_name_is_quoted_in_the_curl_line(tmp_path: Path) -> None:
    line = curl_line(cluster(tmp_path, SERVED_MODEL_NAME="it's-mine", API_KEY="none").settings)
    assert json.loads(shlex.split(line)[-1])["model"] == "it's-mine"
