"""A person's terminal on a simulated Spark: tmux inside the node's namespaces shows a program, keys are pressed."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.testbed.node import SimulatedSpark

SOCKET = "/run/person.tmux"
LOOK_SECONDS = 0.3
CARD_TAKES_KEYS = "left right: choose"
"""The last line of a question's card says so when it takes keys; one that has just opened drops them."""
CAPTURES = "SPARKTUI_CAPTURES"
"""Names a folder that screens worth keeping are written to; unset, they are not."""


class Terminal:
    """One window on the node; programs are started in it one after the other. Ends with the block."""

    def __init__(self, node: SimulatedSpark, *, environment: Mapping[str, str], cwd: str) -> None:
        self._node, self._environment, self._cwd = node, dict(environment), cwd
        self._saved = 0

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server", check=False)

    def start(self, argv: Sequence[str], *, columns: int, rows: int) -> None:
        """In a new window of this size; the one before is closed."""
        self._tmux("kill-server", check=False)
        # Without remain-on-exit the last screen and the exit status would go with the program.
        chain = ["set-option", "-g", "remain-on-exit", "on", ";", "set-option", "-g", "history-limit", "0", ";"]
        size = ["-x", str(columns), "-y", str(rows)]
        self._tmux("start-server", ";", *chain, "new-session", "-d", *size, "-c", self._cwd, "--", *argv)

    def _tmux(self, *words: str, check: bool = True) -> str:
        argv = ["tmux", "-S", SOCKET, "-f", "/dev/null", *words]
        return self._node.run(argv, env=self._environment, cwd=self._cwd, check=check).stdout

    def _of_pane(self, name: str) -> str:
        return self._tmux("display-message", "-p", f"#{{{name}}}").strip()

    @property
    def pid(self) -> int:
        """The program's, as the node numbers it."""
        return int(self._of_pane("pane_pid"))

    def screen(self) -> str:
        """What is drawn now, without colours."""
        return self._tmux("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        """By tmux's names: Enter, Left, Escape, or the letter."""
        self._tmux("send-keys", *keys)

    def press_and_see(self, key: str, *, seconds: float) -> None:
        """Press one key and wait until its effect, be it a colour, is there and stays: the next key finds its place."""
        before = last = self._drawn()
        self.press(key)
        end = time.monotonic() + seconds
        while (now := self._drawn()) == before or now != last:
            assert time.monotonic() < end, f"{key} did nothing in {seconds:g} s; on the screen:\n{self.screen()}"
            last = now
            time.sleep(0.15)

    def _drawn(self) -> str:
        return self._tmux("capture-pane", "-p", "-e")

    def paste(self, text: str) -> None:
        """As a terminal does it, several lines in one go."""
        self._tmux("set-buffer", text, ";", "paste-buffer", "-p")

    def kill(self) -> None:
        """kill -9 of the program alone."""
        self._node.run(["kill", "-9", str(self.pid)])
        self._ended(20)

    def status(self, *, seconds: float) -> int:
        """The program's exit status, waited for."""
        self._ended(seconds)
        end = time.monotonic() + seconds
        # tmux sees the terminal closed before it has waited for the program, and at times (3.3a) never waits for it:
        # the end of a second child makes it look at all of them.
        while not (said := self._of_pane("pane_dead_status")):
            signal = self._of_pane("pane_dead_signal")
            assert not signal, f"the program was ended by signal {signal}"
            assert time.monotonic() < end, f"tmux never said its exit status; on the screen:\n{self.screen()}"
            self._tmux("run-shell", "true")
            time.sleep(0.1)
        return int(said)

    def _ended(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._of_pane("pane_dead") != "1":
            assert time.monotonic() < end, f"it did not end in {seconds:g} s; on the screen:\n{self.screen()}"
            time.sleep(0.1)

    def wait(self, what: str, seen: Callable[[str], bool], *, seconds: float) -> str:
        """A screen that `seen` accepts, after one more look: the first may be half drawn. `what` names it."""
        end = time.monotonic() + seconds
        while True:
            screen = self.screen()
            if seen(screen):
                time.sleep(LOOK_SECONDS)
                settled = self.screen()
                return settled if seen(settled) else screen
            gone = self._of_pane("pane_dead") == "1"
            assert not gone, f"the program ended before {what}; on the screen:\n{screen}"
            assert time.monotonic() < end, f"{what}: not seen in {seconds:g} s; on the screen:\n{screen}"
            time.sleep(LOOK_SECONDS)

    def keep(self, name: str, screen: str | None = None) -> None:
        """Write a screen (the present one) where SPARKTUI_CAPTURES says, numbered in the order of the story."""
        folder = os.environ.get(CAPTURES)
        if folder:
            self._saved += 1
            path = Path(folder) / f"{self._saved:02}-{name}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.screen() if screen is None else screen)


def rail(screen: str) -> dict[str, str]:
    """Step name to its state's word, as the wizard's left column shows them."""
    verbs = "doctor|download|build|share|pack|serve|smoke"
    return dict(re.findall(rf"^.\S ({verbs}) +([a-z]+)\b", screen, re.MULTILINE))


def enter_line(screen: str) -> str:
    """What the wizard says that enter does; empty where it is not on the screen."""
    found = re.search(r"^ enter: (.*?)(?:   .*)?$", screen, re.MULTILINE)
    return found.group(1).strip() if found else ""


def booting(screen: str) -> dict[str, str]:
    """Node name to how far its rank's boot is, as the boot pane's lines say it."""
    return {name: text.strip() for name, text in re.findall(r"\brank \d (head|worker\d) +([^│\n]+)", screen)}


__all__ = ["CARD_TAKES_KEYS", "Terminal", "booting", "enter_line", "rail"]
