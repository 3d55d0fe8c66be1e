"""What smoke says of a real server for coding agents: all well with our plugin, each old behaviour named without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktui.events import State
from sparktui.remote.server import EngineServer
from sparktui.settings import Settings, parse_settings
from sparktui.shipped import shipped
from sparktui.steps.smoke import asked_of
from sparktui.steps.smoke_agents import OLD, agent_checks, judge_agent
from sparktui.steps.smoke_checks import Verdict, load_checks
from tests.engine.serving import KEY, MODEL, Serving

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]


def settings() -> Settings:
    text = f'HEAD_IP=10.0.0.1\nWORKER_IPS="10.0.0.2 10.0.0.3"\nSERVED_MODEL_NAME={MODEL}\nAPI_KEY={KEY}\n'
    return parse_settings(text, env_path=Path("/srv/.env"), profile="three", environment={"HOME": "/home/u"})


async def verdicts(server: Serving) -> dict[str, Verdict]:
    tool = next(each for each in load_checks(shipped("assets") / "smoke.json") if each.id == "tool")
    key = KEY if "authorization" in server.client.headers else None
    async with EngineServer(server.url, api_key=key) as endpoint:
        return {
            each.id: judge_agent(each, await asked_of(endpoint, settings(), each), settings())
            for each in agent_checks(tool)
        }


async def test_u85_u88_u89_all_five_are_well_with_the_plugin(plugin: Serving) -> None:
    found = await verdicts(plugin)
    assert {name: each.state for name, each in found.items()} == dict.fromkeys(found, State.OK), found


async def test_without_the_plugin_what_it_mends_is_named(plain: Serving) -> None:
    found = await verdicts(plain)
    wrong = {name: each.what for name, each in found.items() if each.state is not State.OK}
    assert set(wrong) == {"loop", "thinking"}, found
    assert all(text.endswith(OLD) for text in wrong.values()), wrong
