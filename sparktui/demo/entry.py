"""`sparktui demo`: what it takes before a verb, and the folder that it works in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparktui.demo.faults import FAULTS, mend, read_faults, set_fault
from sparktui.demo.home import DemoHome, default_home
from sparktui.errors import UsageError

HELP = f"""\
usage: sparktui demo [--fresh] [--first-start]          the app on a simulated cluster of three Sparks
       sparktui demo [--fresh] VERB [options]           any verb on it, such as: sparktui demo up --yes
       sparktui demo fault NODE {"|".join(FAULTS)}
       sparktui demo mend [NODE]                        all is well again
       sparktui demo leave                              end its background process

No root, no Docker, no GPU and no network are needed. Everything lies in one folder
($XDG_CACHE_HOME/sparktui/demo, else ~/.cache/sparktui/demo); nothing else is written.

  --fresh         forget everything that an earlier demo did
  --first-start   begin without settings, as on a new machine
"""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is left to do.

    Attributes:
        argv: a verb and its options; empty for the app; None when all is done.
        said: lines to print.
    """

    home: DemoHome
    argv: list[str] | None
    said: tuple[str, ...] = ()


def prepare(argv: Sequence[str]) -> Prepared:
    """Read the demo's own words, make its folder.

    Raises:
        UsageError: a word that it does not know.
        SettingsError: the folder holds something else.
    """
    home, words = default_home(), list(argv)
    fresh = first_start = False
    while words and words[0] in ("--fresh", "--first-start", "--ascii", "--help", "-h"):
        word = words.pop(0)
        fresh = fresh or word == "--fresh"
        first_start = first_start or word == "--first-start"
        if word in ("--help", "-h"):
            return Prepared(home, None, tuple(HELP.splitlines()))
    if any(word == "--env-file" or word.startswith("--env-file=") for word in words):
        raise UsageError("the demo has settings of its own: --env-file is not for it", fix="sparktui demo, without it")
    if words[:1] == ["leave"]:
        from sparktui.demo.wire import leave

        leave(home)
        return Prepared(home, None, ("the simulated cluster's process has ended; its state is kept",))
    if fresh or first_start:
        from sparktui.demo.wire import leave

        leave(home)
        home.forget()
    home.make(with_settings=not first_start)
    if words[:1] == ["fault"]:
        if len(words) != 3:
            raise UsageError("a fault needs a node and a kind", fix=f"kinds: {', '.join(FAULTS)}")
        set_fault(home, words[1], words[2])
        return Prepared(home, None, _faults_now(home))
    if words[:1] == ["mend"]:
        mend(home, words[1] if len(words) > 1 else None)
        return Prepared(home, None, _faults_now(home))
    # The product's parser reads the rest; the settings are the demo's.
    return Prepared(home, [*words, "--env-file", str(home.env_file)] if words else [])


def _faults_now(home: DemoHome) -> tuple[str, ...]:
    rows = [f"{node}: {FAULTS[kind]}" for node, kinds in read_faults(home).items() for kind in sorted(kinds)]
    return tuple(rows) or ("no fault on any node",)
