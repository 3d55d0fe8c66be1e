"""What settings may not say, alone or together. Rules are pure: none asks a node."""

from __future__ import annotations

from collections.abc import Mapping

from sparktui.envfile import Problem, quoted
from sparktui.settings import rules_cluster, rules_engine, rules_spelling
from sparktui.settings.model import Settings

RULES = (*rules_spelling.RULES, *rules_cluster.RULES, *rules_engine.RULES)


def problems_of(settings: Settings, lines: Mapping[str, int]) -> list[Problem]:
    """Every rule's answer with the line that the setting is on (0 for a default or a command-line value)."""
    return [
        Problem(
            line=lines.get(found.name, 0),
            reason=found.sentence,
            fixed="" if found.value is None else f"{found.name}={quoted(found.value)}",
            name=found.name,
            severity=found.severity,
        )
        for rule in RULES
        for found in rule(settings)
    ]
