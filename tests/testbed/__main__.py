"""By hand: `python -m tests.testbed up [--nodes 4] [--fabric ring]`, `down`, `run spk1 -- COMMAND…`, `env`."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.testbed import slots
from tests.testbed.cluster import Testbed
from tests.testbed.node import TestbedError
from tests.testbed.requirements import missing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.testbed", description=__doc__)
    parser.add_argument("--slot", type=int, choices=slots.SLOTS, help="which testbed, when there are several")
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="bring it up and print its .env")
    up.add_argument("--nodes", type=int, default=3)
    up.add_argument("--fabric", choices=("triangle", "ring", "switch"))
    up.add_argument("--unknown-hosts", action="store_true", help="the head does not know the workers' host keys")
    verbs.add_parser("down", help="remove every trace of it (also after a crash)")
    verbs.add_parser("abandoned", help="remove testbeds whose test run is dead")
    verbs.add_parser("env", help="print the .env again")
    run = verbs.add_parser("run", help="run a command in a node")
    run.add_argument("node")
    run.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    try:
        return {"up": bring_up, "down": take_down, "abandoned": abandoned, "env": show_env, "run": enter}[asked.verb](
            asked
        )
    except (TestbedError, slots.SlotTaken, ValueError) as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1


def bring_up(asked: argparse.Namespace) -> int:
    if lacking := missing():
        raise TestbedError(f"this machine lacks {', '.join(lacking)}")
    if asked.slot is None and (up := slots.by_hand()):
        raise TestbedError(f"one is up in slot {up[0]} (`down` removes it); --slot N makes another")
    started = time.monotonic()
    testbed = Testbed(
        asked.nodes, asked.fabric, slot=asked.slot, known_hosts=not asked.unknown_hosts, by_hand=True
    ).up()
    path, took = testbed.write_env(), time.monotonic() - started
    print(
        f"# {len(testbed.nodes)} simulated Sparks ({testbed.plan.kind}, slot {testbed.slot}) in {took:.1f} s", end="; "
    )
    print(f"on the head: {path}\n{testbed.env_text()}", end="")
    return 0


def take_down(asked: argparse.Namespace) -> int:
    for slot in slots.by_hand() if asked.slot is None else [asked.slot]:
        slots.remove(slot)
    return 0


def the_slot(asked: argparse.Namespace) -> int:
    """The slot that was named, or the only one that was brought up by hand."""
    up = slots.by_hand() if asked.slot is None else [asked.slot]
    if len(up) != 1:
        raise TestbedError(f"{len(up) or 'no'} testbeds are up by hand" + ("; name one with --slot" if up else ""))
    return int(up[0])


def abandoned(asked: argparse.Namespace) -> int:
    for slot in slots.remove_abandoned():
        print(f"removed the testbed of a dead test run in slot {slot}")
    return 0


def show_env(asked: argparse.Namespace) -> int:
    print(Testbed.attach(the_slot(asked)).env_text(), end="")
    return 0


def enter(asked: argparse.Namespace) -> int:
    testbed = Testbed.attach(the_slot(asked))
    node = next((node for node in testbed.nodes if node.name == asked.node), None)
    if node is None:
        raise TestbedError(f"no node {asked.node}; there are {', '.join(node.name for node in testbed.nodes)}")
    command = asked.command[1:] if asked.command[:1] == ["--"] else asked.command
    argv = node.enter_argv(command or ["/bin/bash", "-l"])
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    sys.exit(main())
