"""Which class does which verb. Imported only when the verb is used: the command line must start at once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from sparktui.errors import UsageError

if TYPE_CHECKING:
    from sparktui.steps.step import Step

UP = ("doctor", "download", "build", "share", "pack", "serve", "smoke")
"""The chain of `up`, in order."""
LOOKS = frozenset({"doctor", "status", "talk"})
"""Steps whose `run()` is the look at the nodes itself; to inspect them first would look twice."""
STEPS = {
    "doctor": "sparktui.steps.doctor:Doctor",
    "download": "sparktui.steps.download:Download",
    "build": "sparktui.steps.build:Build",
    "share": "sparktui.steps.share:Share",
    "pack": "sparktui.steps.pack:Pack",
    "serve": "sparktui.steps.serve:Serve",
    "smoke": "sparktui.steps.smoke:Smoke",
    "stop": "sparktui.steps.stop:Stop",
    "status": "sparktui.steps.status:Status",
    "talk": "sparktui.steps.talk:Talk",
}


def step(verb: str) -> Step:
    """The step of a verb, ready to use.

    Raises:
        UsageError: no step has that name.
    """
    if verb not in STEPS:
        raise UsageError(f"there is no step {verb!r}", fix=f"steps: {', '.join(STEPS)}")
    module, _, name = STEPS[verb].partition(":")
    return cast("Step", getattr(import_module(module), name)())
