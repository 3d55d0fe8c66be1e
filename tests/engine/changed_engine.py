"""Run by the engine's Python: verify an engine in which one hook point after the other was removed, renamed or given
other parameters. Prints one JSON object: `adapter target change` -> what verify said ('' when it noticed nothing).
"""

from __future__ import annotations

import json
from typing import Any

from spark_overlay import arming, signatures
from spark_overlay.arming import ArmingError
from spark_overlay.ledger import LEDGER


def other_parameters(self: Any, something_new: int) -> None:
    """Stands where the engine's function was."""


def said() -> str:
    try:
        arming.check_points(LEDGER, arming.signature_now)
    except ArmingError as error:
        return str(error)
    return ""


def changed(target: str, change: str) -> str:
    holder, name, _ = signatures.find(target)
    kept = vars(holder)[name] if isinstance(holder, type) else getattr(holder, name)
    try:
        delattr(holder, name)
        if change == "renamed":
            setattr(holder, f"{name}_renamed", kept)
        elif change == "re-signed":
            setattr(holder, name, other_parameters)
        return said()
    finally:
        setattr(holder, name, kept)


def main() -> None:
    answers = {"nothing changed": said()}
    for adapter in LEDGER:
        for hook in adapter.hooks:
            for change in ("removed", "renamed", "re-signed"):
                answers[f"{adapter.name} {hook.target} {change}"] = changed(hook.target, change)
    answers["put back"] = said()
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
