"""The words of the command line and what kind each is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CHAIN = "up"
CHANGING = ("download", "build", "share", "pack", "serve", "smoke", "stop")
"""Done in a run of their own, one at a time on a cluster."""
READING = ("doctor", "status", "talk")
"""Steps that change nothing: no run, no lock."""
PRESENT = (CHAIN, *READING, "plan", *CHANGING, "logs", "monitor")
ABSENT = {
    "bench": "the app shows the measured decode speed beside the published one: sparktui",
    "preview": "it is a pane of the app, where `p` switches it: sparktui",
}
"""Verbs of the design that this version does not have, and what there is instead."""
PROFILE_NAMES = ("three", "four", "four-ring")
"""Of `cluster.profile.PROFILES`, without importing it for `--version`."""


def env_file(given: str | None, profile: str | None) -> Path:
    """The settings file that is meant, absolute: the one given, or the profile's in the working folder."""
    from pathlib import Path

    from sparktui.cluster.profile import PROFILES
    from sparktui.errors import UsageError

    path = Path(given or PROFILES[profile or "three"].env_file)
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        raise UsageError(f"{path}: there is no such user, or no home", fix="write the whole path") from None
    except FileNotFoundError:
        fix = "cd into the checkout, then run it again"
        raise UsageError("the working folder is gone: deleted, or its disk unmounted", fix=fix) from None


def app_env_file(given: str | None, profile: str | None) -> Path:
    """The same for the app, which nobody tells twice which cluster this is: where there is no `.env` and one other
    profile's file, that one.
    """
    from pathlib import Path

    from sparktui.cluster.profile import PROFILES

    usual = env_file(given, profile)
    names = dict.fromkeys(each.env_file for each in PROFILES.values())
    others = [found for name in names if (found := Path(name).absolute()).exists()]
    return others[0] if given is None and profile is None and not usual.exists() and len(others) == 1 else usual
