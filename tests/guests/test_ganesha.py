"""NFS_SERVER=ganesha: our exporter in a container of a simulated Spark, read by libnfs from another one."""

from __future__ import annotations

import subprocess
import time

import pytest

from tests.guests.disk import OVERLAY
from tests.testbed import Testbed

pytestmark = pytest.mark.testbed
MODEL = "/home/spark/models/ganesha"
EXPORTER = "ganesha-trial"


def test_the_ganesha_export_is_read_by_libnfs_and_refuses_a_write_and_a_stranger(three_sparks: Testbed) -> None:
    head, (worker, stranger) = three_sparks.head, three_sparks.workers
    _, client = three_sparks.plan.between(1, worker.number) or ("", worker.address)
    server, _ = three_sparks.plan.between(1, worker.number) or (head.address, "")
    head.write_file(f"{MODEL}/config.json", '{"model_type": "tiny"}')
    head.docker("pull", three_sparks.base_image, timeout=300)
    arguments = ("BRING_TO_LOCK=never", "NFS=ganesha", f"BASE={three_sparks.base_image}")
    build = [part for each in arguments for part in ("--build-arg", each)]
    head.run(
        ["docker", "build", "--network=none", "--tag", "ganesha-trial:1", *build, str(OVERLAY)],
        env={"DOCKER_BUILDKIT": "0"},
        timeout=300,
    )
    settings = {"NFS_SERVER": "ganesha", "NFS_CLIENTS": client, "NFS_PORT": "20490", "STATE_PATH": "/tmp"}
    environment = [part for name, value in settings.items() for part in ("--env", f"{name}={value}")]
    options = ("--detach", "--privileged", "--network=host", "--no-healthcheck", "--name", EXPORTER)
    try:
        head.docker("run", *options, "-v", f"{MODEL}:/export:ro", *environment, "ganesha-trial:1", "nfs")
        end = time.monotonic() + 60
        while "[spark] NFS READY" not in (said := head.run(["docker", "logs", EXPORTER], check=False).stdout):
            assert time.monotonic() < end, said
            time.sleep(0.2)
        query = "version=4&nfsport=20490"
        url = f"nfs://{server}//config.json?{query}"
        assert worker.run(["nfs-cat", url]).stdout == '{"model_type": "tiny"}'
        copied = worker.run(["nfs-cp", "/etc/hostname", f"nfs://{server}//new?{query}"], check=False)
        assert copied.returncode != 0
        assert not head.path(f"{MODEL}/new").exists()
        own, _ = three_sparks.plan.between(1, stranger.number) or (head.address, "")
        refused: subprocess.CompletedProcess[str] = stranger.run(
            ["nfs-cat", f"nfs://{own}//config.json?{query}"], check=False
        )
        assert refused.returncode != 0
        assert "model_type" not in refused.stdout
        head.docker("stop", EXPORTER)
        assert '"ExitCode": 0' in head.docker("inspect", EXPORTER)
    finally:
        head.docker("rm", "-f", EXPORTER, check=False)
        head.docker("rmi", "ganesha-trial:1", check=False)
