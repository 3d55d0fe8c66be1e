"""Who may mount the weights: addresses and networks, never everybody. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network


def problem_of(clients: Iterable[str]) -> str:
    """What is wrong with a list of NFS clients, in words; empty when it may be exported to."""
    fours: list[IPv4Network] = []
    sixes: list[IPv6Network] = []
    for client in clients:
        # A zone (`fe80::1%eth0`) is free text, and would reach the export's configuration.
        if not re.fullmatch(r"[0-9A-Fa-f.:/]+", client):
            return f"{client[:60]} is neither an address nor a network"
        try:
            network = ip_network(client, strict=False)
        except ValueError:
            return f"{client[:60]} is neither an address nor a network"
        if isinstance(network, IPv4Network):
            fours.append(network)
        else:
            sixes.append(network)
    # Halves of the world make the whole of it.
    if any(four.prefixlen == 0 for four in collapse_addresses(fours)) or any(
        six.prefixlen == 0 for six in collapse_addresses(sixes)
    ):
        return "these networks together mean everybody"
    return ""
