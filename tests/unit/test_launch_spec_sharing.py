from __future__ import annotations

from pathlib import Path

import pytest

from sparktui.engine.sharing import (
    export_clients,
    exporter_spec,
    local_volume_spec,
    nfs_volume_spec,
    parse_route_source,
    server_address,
)
from sparktui.errors import SettingsError
from sparktui.settings import Settings, parse_settings

THREE = """
HEAD_IP=10.0.0.1
WORKER_IPS="10.0.0.2 10.0.0.3"
WORKER_FABRIC_IPS="10.0.22.2 10.0.23.3"
"""


def settings_of(**overrides: str) -> Settings:
    return parse_settings(
        THREE,
        env_path=Path("/srv/sparktui/.env"),
        profile="three",
        cli_overrides=overrides,
        environment={"HOME": "/home/spark"},
    )


def test_each_worker_of_the_triangle_mounts_over_its_own_cable() -> None:
    settings = settings_of(NFS_SERVER_IPS="10.0.22.1 10.0.23.1")
    assert [server_address(settings, node, None).address for node in settings.nodes[1:]] == ["10.0.22.1", "10.0.23.1"]


def test_one_address_serves_all_workers() -> None:
    settings = settings_of(NFS_SERVER_IPS="10.0.22.1")
    assert {server_address(settings, node, None).address for node in settings.nodes[1:]} == {"10.0.22.1"}


def test_the_route_to_the_fabric_address_is_asked_when_nothing_is_set() -> None:
    settings = settings_of()
    found = server_address(settings, settings.nodes[2], "10.0.23.1")
    assert found.address == "10.0.23.1"
    assert "10.0.23.3" in found.source
    assert not found.warning


def test_the_control_network_is_never_taken_in_silence() -> None:
    settings = settings_of()
    assert "HEAD_IP" in server_address(settings, settings.nodes[1], "10.0.0.1").warning
    with pytest.raises(SettingsError) as refused:
        server_address(settings, settings.nodes[1], None)
    assert refused.value.node == "worker1"


def test_the_exporter_exports_read_only_to_the_named_clients_and_outlives_a_reboot() -> None:
    spec = exporter_spec(settings_of(NFS_CLIENTS="10.0.22.0/24,10.0.23.0/24"))
    assert spec.name == "dsv41-nfs"
    assert spec.restart == "unless-stopped"
    assert spec.run_argv()[-2:] == ["dsv41-3x-spark:local", "nfs"]
    assert spec.mounts[0].text.endswith("DeepSeek-V4.1-Flash-1017:/export:ro")
    assert spec.environment["NFS_CLIENTS"] == "10.0.22.0/24,10.0.23.0/24"
    assert spec.environment["NFS_SERVER"] == "kernel"
    assert spec.health is not None
    assert spec.health.command[-1] == "spark_overlay.nfs_null"  # not the image's, which asks an engine


def test_ganesha_gets_the_workers_own_addresses_when_nothing_is_set() -> None:
    spec = exporter_spec(settings_of(NFS_SERVER="ganesha"))
    assert spec.environment["NFS_SERVER"] == "ganesha"
    assert spec.environment["NFS_CLIENTS"] == "10.0.0.2,10.0.0.3,10.0.22.2,10.0.23.3"


@pytest.mark.parametrize("client", ["10.0.0.2(rw)", "$(reboot)", "a\nb", "10.0.0.2;x", "*", "0.0.0.0/0"])
def test_a_client_that_is_no_address_is_refused(client: str) -> None:
    settings = settings_of().model_copy(update={"nfs_clients": (client,)})
    with pytest.raises(SettingsError):
        export_clients(settings)


def test_u50_a_changed_server_changes_the_volume_options() -> None:
    settings = settings_of(NFS_SERVER_IPS="10.0.22.1 10.0.23.1")
    worker = settings.nodes[1]
    volume = nfs_volume_spec(settings, worker, server_address(settings, worker, None))
    assert volume.options == {
        "type": "nfs",
        "device": ":/",
        "o": "addr=10.0.22.1,nfsvers=4.2,ro,nconnect=8,rsize=1048576,wsize=1048576,hard,timeo=600",
    }
    assert volume.labels["sparktui.owner"] == "sparktui"


def test_local_weights_are_a_bind() -> None:
    settings = settings_of(NFS_SHARE="0", WORKER_MODEL_DIR="/data/model-1017")
    options = local_volume_spec(settings, settings.nodes[1]).options
    assert options == {"type": "none", "o": "bind", "device": "/data/model-1017"}


def test_route_source() -> None:
    text = "10.0.22.2 dev enp1s0f1np1 src 10.0.22.1 uid 1000 \n    cache \n"
    assert parse_route_source(text) == "10.0.22.1"
    assert parse_route_source("RTNETLINK answers: Network is unreachable") is None
