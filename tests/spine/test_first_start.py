"""The first start by keys, on a head without settings: real logins to real workers, one of them written wrong at first.

Ends where the wizard begins. What the chain then does is tests/spine/test_wizard.py.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparktui.settings import parse_settings
from tests.spine.cluster import PROJECT
from tests.spine.terminal import CARD_TAKES_KEYS, Terminal, enter_line, rail
from tests.testbed import Testbed
from tests.testbed.node import HOME, LAN_NETDEV

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(300)]

FOLDER = f"{HOME}/first-start"
KNOWN_HOSTS = f"{HOME}/.ssh/known_hosts"
SECONDS = 60.0
SAVE_KEYS = "enter save  n next change"
"""The key line follows the page a moment later."""


@pytest.fixture
def terminal(three_sparks: Testbed) -> Iterator[Terminal]:
    """On a head that has confirmed nobody's host key yet."""
    if not shutil.which("tmux"):
        pytest.skip("tmux (Debian package tmux)")
    head = three_sparks.head
    confirmed = head.read_file(KNOWN_HOSTS)
    head.write_file(KNOWN_HOSTS, "", mode=0o600)
    head.run(["mkdir", FOLDER])
    environment = {"PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        with Terminal(head, environment=environment, cwd=FOLDER) as made:
            yield made
    finally:
        head.write_file(KNOWN_HOSTS, confirmed, mode=0o600)
        head.run(["rm", "-rf", FOLDER])


def test_from_no_settings_to_the_wizard(three_sparks: Testbed, terminal: Terminal) -> None:
    head, (second, third) = three_sparks.head, three_sparks.workers
    terminal.start([sys.executable, "-m", "sparktui"], columns=80, rows=24)
    seen(terminal, "How many Sparks", "weights")
    terminal.keep("profile")

    terminal.press("Enter")
    seen(terminal, "Which machine is the head", head.address, "The workers' order is the rank")
    name_workers(terminal, f"{second.name}\nspk9\n")

    # One host that nobody has: said in words, with what to do.
    seen(terminal, "Can the head log in")
    confirmed(terminal, "worker1", second.host_key)
    screen = seen(terminal, f"{second.name}: works", "spk9: no login")
    terminal.keep("ssh-wrong-host", screen)
    assert "next: " in screen.partition("spk9: no login")[2], screen
    assert "head     this machine: works" in screen
    assert f"worker1  {second.name}: works" in screen
    assert "id_ed25519_shared (found by: glob)" in screen, "the key that opened the door"

    # Back, mended, and what was answered before is still there.
    terminal.press("Escape")
    screen = seen(terminal, "Which machine is the head", f"{second.name} spk9")
    name_workers(terminal, f"{second.name}, {third.name}")
    seen(terminal, "Can the head log in")
    confirmed(terminal, "worker2", third.host_key)
    screen = seen(terminal, f"{second.name}: works", f"{third.name}: works", "All nodes answer")
    terminal.keep("ssh", screen)
    terminal.press_and_see("Enter", seconds=SECONDS)
    terminal.press("Enter")

    screen = seen(terminal, "Addresses, cables and RDMA devices", f"{second.address} {third.address}", LAN_NETDEV)
    terminal.keep("network", screen)
    enter_until(terminal, "Is somebody there")
    terminal.press("Enter")
    screen = seen(terminal, "Must clients send a key?", "API_KEY ")
    key = re.search(r"API_KEY +(\S{32,})", screen)
    assert key, screen
    terminal.keep("keys", screen.replace(key[1], "(a key)"))
    enter_until(terminal, "Enter saves")

    # All the way back by escape and forward again: the file that would be saved is the same.
    before = seen(terminal, "Enter saves", SAVE_KEYS)
    terminal.keep("save", before)
    assert f"Enter saves {FOLDER}/.env" in before
    assert key[1] not in before
    for _ in range(6):
        terminal.press_and_see("Escape", seconds=SECONDS)
    seen(terminal, "How many Sparks")
    enter_until(terminal, "Enter saves")
    assert seen(terminal, "Enter saves", SAVE_KEYS) == before

    assert not head.path(f"{FOLDER}/.env").exists()
    terminal.press("Enter")
    screen = terminal.wait("the wizard", lambda s: enter_line(s).startswith("run doctor"), seconds=SECONDS)
    terminal.keep("wizard", screen)
    assert rail(screen)["doctor"] == "todo", screen
    terminal.press("q")
    assert terminal.status(seconds=SECONDS) == 0

    file = head.path(f"{FOLDER}/.env")
    assert file.stat().st_mode & 0o777 == 0o600
    settings = parse_settings(
        file.read_text(), env_path=Path(f"{FOLDER}/.env"), profile="three", environment={"HOME": HOME}
    )
    assert settings.api_key is not None and settings.api_key.get_secret_value() == key[1]
    assert settings.head_ip == head.address
    assert settings.worker_ips == (second.address, third.address)
    assert [node.ssh_host for node in settings.nodes[1:]] == [second.name, third.name]
    cables = [three_sparks.plan.between(1, worker.number) for worker in three_sparks.workers]
    assert [node.fabric_address for node in settings.nodes[1:]] == [pair[1] for pair in cables if pair]
    assert settings.context_length == 32_768
    known = head.read_file(KNOWN_HOSTS)
    assert {node.host_key.split()[1] in known for node in (second, third)} == {True}
    holding = head.run(["grep", "-rlsF", "-e", key[1], HOME, "/tmp", "/var/tmp"], check=False).stdout.split()
    assert holding == [f"{FOLDER}/.env"], "no draft, journal or log has the key"


# -- what a person does ---------------------------------------------------------------------------------------------


def seen(terminal: Terminal, *words: str) -> str:
    """The first screen that has all of these."""
    return terminal.wait(", ".join(words), lambda screen: all(word in screen for word in words), seconds=SECONDS)


def confirmed(terminal: Terminal, name: str, host_key: str) -> None:
    """The card shows the fingerprint of the worker's own key; it is trusted."""
    screen = seen(terminal, f"{name}: nobody has confirmed its host key", "SHA256:", CARD_TAKES_KEYS)
    terminal.keep(f"host-key-{name}", screen)
    terminal.press("Left", "Enter")
    terminal.wait("the card is gone", lambda s: "nobody has confirmed" not in s, seconds=SECONDS)


def name_workers(terminal: Terminal, pasted: str) -> None:
    """From the head's address on: the list is pasted in the place of what stands there."""
    terminal.press_and_see("Enter", seconds=SECONDS)
    terminal.press("End", "C-u")
    terminal.paste(pasted)
    terminal.press("Enter")


def enter_until(terminal: Terminal, word: str, *, most: int = 20) -> None:
    """Only enter, one after the other's effect, until this is on the screen."""
    for _ in range(most):
        if word in terminal.screen():
            return
        terminal.press_and_see("Enter", seconds=SECONDS)
    raise AssertionError(f"enter never came to {word!r}; on the screen:\n{terminal.screen()}")
