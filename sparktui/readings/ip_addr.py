"""Which interface has which IPv4 address: `ip -o -4 addr show`."""

from __future__ import annotations

import re

_ROW = re.compile(r"\d+:\s+(\S+)\s+inet\s+(\d{1,3}(?:\.\d{1,3}){3})(?:/\d{1,2})?(?:\s.*)?")


def parse_addresses(text: str) -> dict[str, tuple[str, ...]]:
    """Interface -> its IPv4 addresses in the order printed; an interface without one does not appear."""
    found: dict[str, list[str]] = {}
    for line in text.split("\n"):
        match = _ROW.fullmatch(line.rstrip("\r\\ "))
        if match and all(int(part) < 256 for part in match[2].split(".")):
            found.setdefault(match[1], []).append(match[2])
    return {name: tuple(addresses) for name, addresses in found.items()}
