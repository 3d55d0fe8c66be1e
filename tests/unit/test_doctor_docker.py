"""doctor on Docker: permission, contexts, images, other containers, disk."""

from __future__ import annotations

import json

import pytest

from sparktui.errors import DockerUnavailable
from sparktui.events import State
from tests.unit.doctor_answers import GIB, df
from tests.unit.doctor_cluster import IMAGE, Cluster


@pytest.mark.parametrize(
    "text",
    [
        "user ada is not in group docker, which owns /var/run/docker.sock (docker says: permission denied)",
        "group docker was added to ada, but this session is older: reconnect (docker says: permission denied)",
    ],
)
async def test_u12_docker_permission_has_two_texts_and_keeps_dockers_own(text: str) -> None:
    cluster = Cluster()
    cluster.links[1].engine.broken = DockerUnavailable(text, fix="log in again", node="worker1")
    row = await cluster.row("docker.permission", "worker1")
    assert (row.state, row.what, row.fix) == (State.FAIL, text, "log in again")


async def test_u13_an_unreadable_socket_is_not_an_empty_list() -> None:
    cluster = Cluster()
    cluster.links[1].engine.broken = DockerUnavailable("the Docker Engine is not running", node="worker1")
    row = await cluster.row("containers.other", "worker1")
    assert row.state is State.UNKNOWN
    assert "cannot read" in row.what
    assert (await cluster.row("image", "worker1")).state is State.UNKNOWN
    nothing = await Cluster().row("containers.other", "worker1")
    assert (nothing.state, nothing.what) == (State.OK, "no other container runs")


async def test_other_containers_with_the_gpu_are_named() -> None:
    cluster = Cluster()
    container = cluster.links[1].engine.add_container("ollama", "ollama/ollama:latest")
    container.body["HostConfig"] = {"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}
    row = await cluster.row("containers.other", "worker1")
    assert row.state is State.WARN
    assert "ollama (ollama/ollama:latest)" in row.what


async def test_u14_cdi_mode_warns_before_serve() -> None:
    cluster = Cluster()
    cluster.says(cluster.links[1], cdi='mode = "cdi"\n')
    row = await cluster.row("docker.gpu", "worker1")
    assert row.state is State.WARN
    assert "--gpus" in row.what


async def test_u17_images_that_differ_are_shown_as_a_pattern() -> None:
    cluster = Cluster()
    cluster.links[2].engine.images.clear()
    cluster.links[2].engine.add_image(IMAGE, layers=["a", "other"])
    found, error = await cluster.run()
    row = next(each for each in found if each.check == "image.same")
    assert row.state is State.FAIL
    assert row.what.startswith("image differs: A A B")
    assert row.node == "worker2"
    assert error is not None


async def test_u20_an_image_of_another_architecture_fails_now() -> None:
    cluster = Cluster()
    cluster.links[1].engine.images.clear()
    cluster.links[1].engine.add_image(IMAGE, layers=["a", "b"], labels={"sparktui.overlay": "x"}, architecture="amd64")
    row = await cluster.row("image", "worker1")
    assert row.state is State.FAIL
    assert "is amd64, the node is aarch64" in row.what


async def test_a_machine_that_is_no_spark_is_a_warning_only() -> None:
    cluster = Cluster()
    for link in cluster.links:
        link.engine.images[IMAGE].architecture = "amd64"
        cluster.says(link, uname="Linux box 6.1.0 x86_64\n", release='PRETTY_NAME="Debian 12"\n')
    found, error = await cluster.run()
    assert error is None
    rows = [each for each in found if each.check == "arch"]
    assert {each.state for each in rows} == {State.WARN}
    assert "not a DGX Spark: x86_64" in rows[0].what


async def test_u22_another_docker_context_is_named_with_its_source() -> None:
    cluster = Cluster()
    meta = json.dumps({"Name": "desktop-linux", "Endpoints": {"docker": {"Host": "unix:///home/user/d.sock"}}})
    choice = f'DOCKER_HOST\t\nDOCKER_CONTEXT\t\nconfig\t"currentContext": "desktop-linux"\ncontext\t{meta}\n'
    cluster.says(cluster.links[0], docker_choice=choice)
    row = await cluster.row("docker.context")
    assert row.state is State.WARN
    assert "unix:///home/user/d.sock" in row.what
    assert "currentContext" in row.what
    cluster.says(cluster.links[0], docker_choice="DOCKER_HOST\tssh://box\nDOCKER_CONTEXT\t\nconfig\t\n")
    assert "ssh://box" in (await cluster.row("docker.context")).what


async def test_u19_disk_names_what_is_short_and_deducts_what_is_there() -> None:
    cluster = Cluster()
    small = df(300 * GIB)
    cluster.says(cluster.links[0], df_model=small, df_engram=small, df_docker=small)
    row = await cluster.row("disk")
    assert row.state is State.FAIL
    assert "476 GiB checkpoint" in row.what
    assert "65 GiB Engram rows" in row.what
    assert "has 300 GiB: short by 242 GiB" in row.what, "475.3 + 65.1 + 2 kept free - 300, counted once"

    there = f"@checkpoint.folder\npresent\n@checkpoint.files\n{470 * GIB}\tmodel-00001-of-00001.safetensors\n"
    there = there.replace(str(470 * GIB), "10").replace("model-00001-of-00001.safetensors", "config.json")
    parts = f"@checkpoint.parts\n{470 * GIB}\tmodel-00001-of-00001.safetensors.partial\n"
    cluster.says(cluster.links[0], df_model=small, df_engram=small, df_docker=small, checkpoint=there + parts)
    row = await cluster.row("disk")
    assert row.state is State.OK
    assert "5.3 GiB checkpoint" in row.what


async def test_disks_that_are_different_are_not_added_up() -> None:
    cluster = Cluster()
    big, small = df(500 * GIB, source="/dev/sda1", mount="/srv"), df(80 * GIB)
    cluster.says(cluster.links[0], df_model=big, df_engram=small, df_docker=small)
    assert (await cluster.row("disk")).state is State.OK


async def test_an_image_that_only_may_not_fit_is_a_warning() -> None:
    cluster = Cluster()
    cluster.links[1].engine.images.clear()
    disk = df(100 * GIB)
    cluster.says(cluster.links[1], df_model=disk, df_engram=disk, df_docker=disk)
    row = await cluster.row("disk", "worker1")
    assert row.state is State.WARN
    assert "estimate" in row.cause


async def test_disk_without_an_answer_is_unknown() -> None:
    cluster = Cluster()
    cluster.says(cluster.links[1], exits={"df.engram": 124}, df_engram="")
    assert (await cluster.row("disk", "worker1")).state is State.UNKNOWN
