"""`docker kill` of a worker on the simulated cluster while it serves: the endpoint answers on, the monitor tells."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from tests.demo.conftest import Demo


def kill(docker_socket: Path, container: str) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
        wire.settimeout(10)
        wire.connect(str(docker_socket))
        wire.sendall(
            f"POST /containers/{container}/kill HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\r\n".encode()
        )
        return wire.recv(4096)


def test_u75_monitor_once_names_the_rank_that_was_killed_while_serving(demo: Demo) -> None:
    demo.events("up", "--yes")
    calm = {each["check"]: each for each in demo.events("monitor", "--once") if "check" in each}
    assert calm["endpoint"]["state"] == "OK", calm["endpoint"]
    assert kill(demo.home.docker_socket("worker2"), "dsv41-worker").startswith(b"HTTP/1.1 204")
    killed = {each["check"]: each for each in demo.events("monitor", "--once") if "check" in each}
    assert "alarm.endpoint.ranks" in killed, killed["endpoint"]
    told = killed["alarm.endpoint.ranks"]
    assert (told["node"], told["state"]) == ("worker2", "FAIL")
    assert "rank 2 is gone: its engine on worker2 ended, exit status 137" in json.dumps(told)
    assert "sparktui logs worker2" in told["fix"]
    assert killed["endpoint"]["state"] != "OK"
