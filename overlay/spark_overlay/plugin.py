"""What SGLang's plugin framework (entry-point group `sglang.srt.plugins`) calls in every engine process.

The framework logs an exception of a plugin and goes on; what must not go on ends the process here.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback

from spark_overlay import switches
from spark_overlay.adapter import Process
from spark_overlay.key_file import mask_log_records, read_key

NOT_ARMED = 70
ran_here: list[int] = []
"""The process ids in which `install` came to its end: the engine's main process asks, since SGLang may be told to leave
a plugin out.
"""


def processes_here() -> frozenset[Process]:
    """Which hooks belong into this process: the main one serves HTTP, its children are schedulers or less.

    SGLang names neither; it starts every child with a target function of its own.
    """
    name = process_name()
    if name == "server":
        return frozenset({Process.SERVER})
    return frozenset() if "detokenizer" in name else frozenset({Process.SCHEDULER})


def process_name() -> str:
    """`server`, or what SGLang named the function that it started this child with: `scheduler`, `detokenizer`."""
    if multiprocessing.parent_process() is None:
        return "server"
    target = getattr(multiprocessing.current_process(), "_target", None)
    return getattr(target, "__name__", "child").removeprefix("run_").removesuffix("_process")


def install() -> None:
    """Runs once in each engine process, before its work starts; ends it when an armed adapter does not hold."""
    try:
        key = read_key(os.environ.get("API_KEY_FILE"))
        if key:
            mask_log_records(key)
        arm()
        ran_here.append(os.getpid())
    except Exception as error:
        _end(error)


def arm() -> None:
    """Arm the ledger's adapters and say one line about each.

    Raises:
        ArmingError, SwitchError: see there.
    """
    from spark_overlay.arming import arm as arm_all
    from spark_overlay.arming import values_of
    from spark_overlay.ledger import LEDGER

    here = processes_here()
    values = values_of(LEDGER, os.environ)
    for stated in arm_all(LEDGER, values, here, os.environ):
        print(f"[spark] {process_name()}: {stated.line}", flush=True)


def _end(error: Exception) -> None:
    from spark_overlay.arming import ArmingError

    if isinstance(error, ArmingError | switches.SwitchError):
        print(f"[spark] ERROR {process_name()}: {error}; this engine process ends here", flush=True)
    else:
        traceback.print_exc()
        print("[spark] ERROR the overlay could not be installed in an engine process; it ends here", flush=True)
    sys.stdout.flush()
    os._exit(NOT_ARMED)
