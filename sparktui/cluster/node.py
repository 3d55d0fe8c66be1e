"""One Spark as the plan sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """A Spark and its rank.

    Attributes:
        name: `head`, `worker1`, `worker2`, …: the name in every message.
        rank: 0 for the head; workers in the order of WORKER_HOSTS.
        address: the control-plane IP that other nodes reach it by.
        ssh_host: what ssh is given (an alias of the user's ssh config, a name or an IP); empty for the head.
        ssh_user: the user of this node, or None for what ssh's own configuration says.
        ssh_identity: the key file that the settings name, or empty for what ssh's own configuration says.
        fabric_address: the ConnectX address that this node mounts weights over, or None where not set.
    """

    name: str
    rank: int
    address: str
    ssh_host: str = ""
    ssh_user: str | None = None
    ssh_port: int | None = None
    ssh_identity: str = ""
    fabric_address: str | None = None

    @property
    def is_head(self) -> bool:
        return self.rank == 0
