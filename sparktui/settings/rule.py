"""A rule's answer, and the small questions that several rules ask."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from sparktui.envfile import Severity


@dataclass(frozen=True, slots=True)
class Found:
    """What a rule found wrong with a setting.

    Attributes:
        reason: follows the setting's name in a sentence ("is 1, …"), or a colon.
        value: what to write; None where only a person knows.
        warning: it stops nothing.
        note: it stops nothing, and a check on the nodes judges it.
    """

    name: str
    reason: str
    value: str | None = None
    warning: bool = False
    note: bool = False

    @property
    def severity(self) -> Severity:
        return Severity.NOTE if self.note else Severity.WARNING if self.warning else Severity.ERROR

    @property
    def sentence(self) -> str:
        continues = self.reason.split(" ", 1)[0] in ("is", "are", "names", "holds", "must", "needs")
        return f"{self.name} {self.reason}" if continues else f"{self.name}: {self.reason}"


def means_itself(address: str) -> bool:
    """Whether an address is good on its own machine only."""
    if address == "localhost":
        return True
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return parsed.is_loopback or parsed.is_unspecified


def shortened(word: str) -> str:
    """A word for a message: its beginning only, since the rest may be anything."""
    return word if len(word) <= 24 else f"{word[:23]}…"
