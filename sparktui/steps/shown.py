"""How a command is shown: as a person on the head would type it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sparktui.cluster.node import Node
from sparktui.steps.step import Command


def typed(node: Node, argv: Sequence[str]) -> str:
    """The command line for `argv` on `node`: plain on the head, through ssh on a worker."""
    line = shlex.join(argv)
    return line if node.is_head else f"{ssh_prefix(node)} {shlex.quote(line)}"


def ssh_prefix(node: Node) -> str:
    """`ssh user@host`, with the key file that the settings name."""
    target = f"{node.ssh_user}@{node.ssh_host}" if node.ssh_user else node.ssh_host
    port = ["-p", str(node.ssh_port)] if node.ssh_port else []
    key = ["-i", node.ssh_identity] if node.ssh_identity else []
    return shlex.join(["ssh", *key, *port, target])


def shown(node: Node, argv: Sequence[str], why: str = "") -> Command:
    return Command(node.name, typed(node, argv), why)
