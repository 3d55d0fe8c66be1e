"""What a run on the simulated cluster is put together from: the real steps, the settings of its folder, its links."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktui.demo.home import DemoHome
from sparktui.runs.parts import UNCHECKED, Parts
from sparktui.runs.request import RunRequest

if TYPE_CHECKING:
    from sparktui.remote.link import NodeLink
    from sparktui.settings import Settings
    from sparktui.steps.step import Step

PROGRAM = (sys.executable, "-m", "sparktui.demo.process")


def demo_parts() -> Parts:
    """Everything is found by the env file: its folder is the demo's home."""
    return Parts(_load_settings, _open_links, _step, _trust_host_key)


def _load_settings(request: RunRequest) -> Settings:
    from sparktui.engine.fitting import fit_problems
    from sparktui.settings import load_settings

    home = DemoHome(Path(request.env_file).parent)
    home.check()
    fit = None if set(request.verbs) & UNCHECKED else fit_problems
    overrides = {**request.overrides, **forced(home)}
    return load_settings(Path(request.env_file), profile=request.profile, cli_overrides=overrides, fit=fit)


def forced(home: DemoHome) -> dict[str, str]:
    """Settings that a file in the demo's folder does not decide: nothing is written elsewhere, nobody else listens."""
    return {
        "MODEL_DIR": str(home.model_dir),
        "COMMON_MODEL": str(home.root / "head" / home.model_dir.name),
        "HOST": "127.0.0.1",
        "PORT": str(home.port()),
    }


async def _open_links(settings: Settings) -> tuple[NodeLink, ...]:
    import asyncio

    from sparktui.demo.link import DemoLink
    from sparktui.demo.wire import Wire, ensure_running

    home = DemoHome(settings.home_dir)
    await asyncio.to_thread(ensure_running, home)
    await Wire(home).ask("configure", config=await asyncio.to_thread(configuration, settings))
    return tuple(DemoLink(node, home) for node in settings.nodes)


def configuration(settings: Settings) -> dict[str, Any]:
    """What the simulated machines have to know of the settings: names, addresses, cables, each rank's memory."""
    from sparktui.engine.fitting import memory_sheet

    plan = memory_sheet(settings)
    sheets = {}
    for rank in plan.ranks:
        items = {item.name: item.gib for item in rank.items}
        sheets[str(rank.rank)] = {
            "system": items.get("system, driver, CUDA", 8.7) + items.get("server, tokenizer, exporter", 0.0),
            "weights": items.get("weights", 101.0),
            "adapters": items["padding"] + items["not explained"],
            "kv": items.get("KV pool", 1.5),
            "graphs": items.get("CUDA graphs", 0.6),
            "nccl": items.get("NCCL buffers", 0.3),
        }
    return {
        "profile": settings.profile.name,
        "fabric": settings.profile.fabric.value,
        "nodes": [{"name": node.name, "rank": node.rank, "address": node.address} for node in settings.nodes],
        "devices": list(settings.rdma_devices),
        "sheets": sheets,
    }


def _step(verb: str) -> Step:
    from sparktui.steps.catalog import step

    return step(verb)


def _trust_host_key(line: str) -> None:
    """Nobody asks: a simulated node's key is known."""
