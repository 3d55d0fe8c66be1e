"""Design decision 4: the command that a dry run prints makes the same container as the step does, field by field."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from sparktui.cluster.container import ContainerSpec
from sparktui.cluster.node import Node
from sparktui.engine.launch import check_spec, launch_specs, packer_spec, view_spec
from sparktui.engine.sharing import exporter_spec
from sparktui.remote import our_containers
from sparktui.settings import Settings, parse_settings
from sparktui.steps.shown import typed
from tests.steps.host_link import HostLink
from tests.testbed import Testbed
from tests.testbed.node import SimulatedSpark

IMAGE = "sparktui:test"
pytestmark = pytest.mark.testbed

INSTANCE = {"Id", "Created", "State", "LogPath", "HostnamePath", "HostsPath", "ResolvConfPath", "Name"}
"""What belongs to one container and no other."""


def inspected(node: SimulatedSpark, name: str) -> dict[str, Any]:
    plain = json.loads(node.docker("inspect", name))[0]
    text = json.dumps({key: value for key, value in plain.items() if key not in INSTANCE}, sort_keys=True)
    # Layer folders of this one container.
    shaped: dict[str, Any] = json.loads(text)
    shaped.get("GraphDriver", {}).pop("Data", None)
    for key in ("SandboxID", "SandboxKey", "Networks"):
        shaped.get("NetworkSettings", {}).pop(key, None)
    if plain["Id"].startswith(plain["Config"]["Hostname"]):
        shaped["Config"].pop("Hostname")
    # The Engine gives them in no order of ours.
    shaped["Mounts"] = sorted(shaped["Mounts"], key=lambda each: each["Destination"])
    shaped["HostConfig"]["Binds"] = sorted(shaped["HostConfig"].get("Binds") or ())
    shaped["Config"]["Env"] = sorted(shaped["Config"].get("Env") or ())
    return shaped


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        return [d for key in sorted(a.keys() | b.keys()) for d in differences(a.get(key), b.get(key), f"{path}.{key}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [d for n, (x, y) in enumerate(zip(a, b, strict=True)) for d in differences(x, y, f"{path}[{n}]")]
    # The CLI sends an empty list or False where it was told nothing, a plain body nothing: both mean the default.
    return [] if a == b or not (a or b) else [f"{path}: typed {a!r}, step {b!r}"]


def specs_of(settings: Settings, node: Node) -> dict[str, ContainerSpec]:
    engine = launch_specs(settings, {each.rank: 3 for each in settings.nodes}, image=IMAGE)[node.rank].container
    found = {
        "engine": engine,
        "pack": packer_spec(settings, node, "1" * 40, image=IMAGE),
        "view": view_spec(settings, node, "1" * 40),
        "check": check_spec(settings, node),
    }
    return found | ({"exporter": exporter_spec(settings, IMAGE)} if node.is_head else {})


@pytest.mark.parametrize("place", [0, 1], ids=["head", "worker1"])
async def test_the_typed_command_and_the_step_make_the_same_container(three_sparks: Testbed, place: int) -> None:
    bed = three_sparks
    settings = parse_settings(
        bed.env_text(IMAGE=IMAGE, API_KEY="a-long-secret-key", NFS_SHARE="1"),
        env_path=Path("/home/spark/dsv41/.env"),
        profile="three",
        environment={"HOME": "/home/spark"},
    )
    node, rank = bed.nodes[place], settings.nodes[place]
    node.docker("pull", bed.tiny_image)
    node.docker("tag", bed.tiny_image, IMAGE)
    link = HostLink(node, rank)
    for what, spec in specs_of(settings, rank).items():
        for mount in spec.mounts:
            if mount.source.startswith("/"):
                node.run(["mkdir", "-p", mount.source])
        # The same shape, but with a program that the small image has; devices that only a Spark has are left out.
        spec = dataclasses.replace(spec, entrypoint=("/bin/sleep",), command=("600",), devices=())
        if place:
            spec = dataclasses.replace(spec, mounts=tuple(each for each in spec.mounts if each.source.startswith("/")))
        try:
            line = typed(rank, spec.run_argv())
            bed.head.run(["/bin/bash", "-c", line])
            by_hand = inspected(node, spec.name)
            node.docker("rm", "--force", spec.name)
            await our_containers.start(link, spec)
            by_step = inspected(node, spec.name)
        finally:
            node.docker("rm", "--force", spec.name, check=False)
        assert "\n".join(differences(by_hand, by_step)) == "", what
        assert by_step["Config"]["Labels"]["sparktui.owner"] == "sparktui"
        assert "a-long-secret-key" not in json.dumps(by_step) + line
    await link.aclose()
