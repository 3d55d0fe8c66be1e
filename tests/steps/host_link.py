"""A simulated Spark's Docker Engine as a step's link sees it, from the machine that runs the tests."""

from __future__ import annotations

from sparktui.cluster.node import Node
from sparktui.remote.docker import SocketEngine
from tests.scripted_link import ScriptedLink
from tests.testbed.node import SimulatedSpark


class HostLink(ScriptedLink):
    """Commands are scripted; `docker()` is the node's real Engine."""

    def __init__(self, spark: SimulatedSpark, node: Node) -> None:
        super().__init__(node)
        socket = str(spark.path("/run/docker.sock"))
        self._real = SocketEngine(self, socket, remote_socket="/var/run/docker.sock")

    async def docker(self) -> SocketEngine:  # type: ignore[override]
        return self._real

    async def aclose(self) -> None:
        await self._real.aclose()
