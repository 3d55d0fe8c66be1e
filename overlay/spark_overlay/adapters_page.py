"""docs/adapters.md, made from the ledger: `python -m spark_overlay adapters`."""

from __future__ import annotations

from collections.abc import Iterable

from spark_overlay.adapter import Adapter

_HEAD = """\
# The overlay's adapters

Made from the ledger in `overlay/spark_overlay/adapters/` by `python -m spark_overlay adapters`; a test compares. Each
adapter has a switch, states its signatures, and ends the engine process when it is armed and does not hold.
"""


def page(ledger: Iterable[Adapter]) -> str:
    return "\n".join([_HEAD, *(_entry(adapter) for adapter in ledger)])


def _entry(adapter: Adapter) -> str:
    rows = [f"## {adapter.name}", "", adapter.problem, "", "| setting | default | meaning |", "| --- | --- | --- |"]
    rows += [f"| `{each.name}` | {each.default} | {each.meaning} |" for each in adapter.settings]
    rows += ["", "| hook point | kind | parameters | process |", "| --- | --- | --- | --- |"]
    rows += [f"| `{each.target}` | {each.kind} | `{each.signature}` | {each.process} |" for each in adapter.hooks]
    rows += ["", f"Seen with sglang {', '.join(adapter.engines)}. Remove when: {adapter.remove_when}", ""]
    return "\n".join(rows)
