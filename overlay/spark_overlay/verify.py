"""Proves, in one process and without a GPU, that every adapter holds in the engine that is installed here.

`python -m spark_overlay verify [--source-allowed] [--engine-may-lack]`: exit status 0 when all hold, 1 with adapter,
target and reason for each that does not, 2 for settings that cannot be meant. Where the engine itself cannot be
imported for want of the GPU's driver (an image build sees none), `--source-allowed` compares the hook points with its
source instead, and says that it did no more. Any other import that fails is a broken engine and fails here too.
`--engine-may-lack` is for an image whose engine is mounted at run time.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Callable, Iterable, Mapping

from spark_overlay import arming, signatures, switches
from spark_overlay.adapter import Adapter, Process
from spark_overlay.arming import ArmingError
from spark_overlay.switches import Values

HELD, FAILED, REFUSED = 0, 1, 2
_NO_DRIVER = re.compile(r"libcuda\.so|libnvidia-ml\.so|NVML Shared Library|\bdrivers?\b", re.IGNORECASE)
"""What the driver brings, and how the libraries call it; `libcudart`, which a wheel brings, is none of it."""


def lacks_the_driver(error: BaseException) -> bool:
    """Whether an import failed because this machine has no GPU driver, by the error's text or by that of its causes."""
    step: BaseException | None = error
    while step is not None:
        if _NO_DRIVER.search(str(step)):
            return True
        step = step.__cause__ or step.__context__
    return False


def engine_version() -> str:
    """`none` where no engine is installed."""
    try:
        return importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return "none"


def everything_on(ledger: Iterable[Adapter]) -> Values:
    """Each setting at the value that switches its behaviour on: verify proves what anybody may switch on."""
    return {each.name: each.on for adapter in ledger for each in adapter.settings}


def verify(
    ledger: tuple[Adapter, ...],
    environment: Mapping[str, str],
    *,
    source_allowed: bool = False,
    engine_may_lack: bool = False,
) -> int:
    """Print one line an adapter: armed, or what does not hold. The exit status."""
    version = engine_version()
    print(f"[spark] verify: sglang {version}, {len(ledger)} adapters", flush=True)
    try:
        arming.values_of(ledger, environment)
    except switches.SwitchError as error:
        print(f"[spark] ERROR {error}")
        return REFUSED
    if version == "none":
        if engine_may_lack:
            print("[spark] verify: no engine is installed here: nothing was compared, the engine comes at run time")
            return HELD
        print("[spark] ERROR no engine is installed here")
        return FAILED
    only_source = ""
    try:
        holding = _with_their_points(ledger, arming.signature_now)
    except (ImportError, OSError, RuntimeError) as error:
        if not source_allowed or not lacks_the_driver(error):
            print(f"[spark] ERROR the engine cannot be imported here: {error}")
            return FAILED
        holding, only_source = _with_their_points(ledger, signatures.in_source), str(error)
    try:
        for stated in [] if only_source else arming.arm(holding, everything_on(ledger), list(Process)):
            print(f"[spark] {stated.line}")
    except ArmingError as error:
        print(f"[spark] ERROR {error}", flush=True)
        return FAILED
    if len(holding) < len(ledger):
        print(f"[spark] verify: {len(holding)} of {len(ledger)} hold", flush=True)
        return FAILED
    for adapter in ledger:
        if version not in adapter.engines:
            print(f"[spark] WARNING adapter {adapter.name} was written for sglang {', '.join(adapter.engines)}")
    if only_source:
        print(f"[spark] verify: hook points compared with the source only; no engine to import: {only_source}")
    else:
        print("[spark] verify: all hold", flush=True)
    return HELD


def _with_their_points(ledger: Iterable[Adapter], look: Callable[[str], str]) -> list[Adapter]:
    """The adapters whose hook points are all there; each other one is named. Raises ImportError."""
    holding = []
    for adapter in ledger:
        try:
            arming.check_points([adapter], look)
            holding.append(adapter)
        except ArmingError as error:
            print(f"[spark] ERROR {error}", flush=True)
    return holding


def main(arguments: list[str]) -> int:
    from spark_overlay.ledger import LEDGER

    return verify(
        LEDGER,
        os.environ,
        source_allowed="--source-allowed" in arguments,
        engine_may_lack="--engine-may-lack" in arguments,
    )
