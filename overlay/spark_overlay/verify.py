"""Proves, in one process and without a GPU, that every adapter holds in the engine that is installed here.

`python -m spark_overlay verify [--source-allowed]`: exit status 0 when all hold, 1 with adapter, target and reason when
one does not, 2 for settings that cannot be meant. Where the engine itself cannot be imported (an image build sees no
GPU driver), `--source-allowed` compares the hook points with its source instead, and says that it did no more.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterable, Mapping

from spark_overlay import arming, signatures, switches
from spark_overlay.adapter import Adapter, Process
from spark_overlay.arming import ArmingError

HELD, FAILED, REFUSED = 0, 1, 2


def engine_version() -> str:
    """`none` where no engine is installed."""
    try:
        return importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return "none"


def everything_on(ledger: Iterable[Adapter]) -> dict[str, int]:
    """The defaults, with every switch that is 0 or 1 at 1: verify proves what anybody may switch on."""
    every = [switch for adapter in ledger for switch in adapter.settings]
    return {switch.name: 1 if (switch.least, switch.most) == (0, 1) else switch.default for switch in every}


def verify(ledger: tuple[Adapter, ...], environment: Mapping[str, str], *, source_allowed: bool) -> int:
    """Print one line an adapter, or the one that says what does not hold; the exit status."""
    version = engine_version()
    print(f"[spark] verify: sglang {version}, {len(ledger)} adapters", flush=True)
    try:
        arming.values_of(ledger, environment)
    except switches.SwitchError as error:
        print(f"[spark] ERROR {error}")
        return REFUSED
    try:
        try:
            arming.check_points(ledger, arming.signature_now)
        except ImportError as error:
            if not source_allowed:
                print(f"[spark] ERROR the engine cannot be imported here: {error}")
                return FAILED
            arming.check_points(ledger, signatures.in_source)
            print(f"[spark] verify: hook points compared with the source only; the engine cannot be imported: {error}")
            return HELD
        for stated in arming.arm(ledger, everything_on(ledger), list(Process)):
            print(f"[spark] {stated.line}")
    except ArmingError as error:
        print(f"[spark] ERROR {error}", flush=True)
        return FAILED
    for adapter in ledger:
        if version not in adapter.engines:
            print(f"[spark] WARNING adapter {adapter.name} was written for sglang {', '.join(adapter.engines)}")
    print("[spark] verify: all hold", flush=True)
    return HELD


def main(arguments: list[str]) -> int:
    from spark_overlay.ledger import LEDGER

    return verify(LEDGER, os.environ, source_allowed="--source-allowed" in arguments)
