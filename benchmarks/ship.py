"""ship of an image against `docker save | docker load` without ssh, on the testbed, in the same run.

    python benchmarks/ship.py [--mib 256] [--rounds 3] [--json]

Run it as root on a machine that can hold a testbed (tests/testbed). It brings three simulated Sparks up, makes an
image of random bytes on the head, and measures in every round: save and load between two Engines of this machine
through a pipe; our ship to one worker; our ship to both; our ship when both have it. Ratios are medians over the
rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))
IMAGE = "sparktui-ship-benchmark:1"
ONE_REACH, MANY_REACH = 0.7, 1.3


async def inside(env_file: Path, workers: int) -> dict[str, Any]:
    """On the head: one ship to the first `workers` workers; links are open before the clock starts."""
    from sparktui.events import NodeOutcome, Outcome
    from sparktui.remote import images
    from sparktui.remote.fleet_calls import open_links
    from sparktui.settings import load_settings
    from sparktui.steps.ship import ship

    settings = load_settings(env_file, profile=None)
    links = open_links(settings)
    try:
        for link in links:
            await images.look(link, IMAGE)
        began, sent = time.monotonic(), 0
        lacking = []
        here = await images.look(links[0], IMAGE)
        for link in links[1 : workers + 1]:
            there = await images.look(link, IMAGE)
            if there is None or here is None or there.content != here.content:
                lacking.append(link)
        async for event in ship(links[0], lacking, IMAGE, settings.state_dir / "spool") if lacking else _nothing():
            if isinstance(event, NodeOutcome):
                if event.outcome is not Outcome.DONE:
                    raise SystemExit(f"no figure: {event.node}: {event.text}")
                sent += int((re.search(r"([0-9]+) bytes sent", event.text) or ["", "0"])[1])
        return {"seconds": time.monotonic() - began, "bytes": sent}
    finally:
        for link in links:
            await link.aclose()


async def _nothing() -> Any:
    for each in ():
        yield each


def measure(mib: int, rounds: int) -> dict[str, Any]:
    from tests.testbed import Testbed

    with Testbed(3, engine=False) as bed:
        env = bed.write_env(".env.ship")
        docker = ["docker", "--host"]
        sockets = [f"unix://{node.path('/run/docker.sock')}" for node in bed.nodes]
        folder = bed.head.path("/home/spark/ship")
        folder.mkdir()
        with (folder / "payload").open("wb") as file, Path("/dev/urandom").open("rb") as noise:
            for _ in range(mib):
                file.write(noise.read(1 << 20))
        (folder / "Dockerfile").write_text("FROM scratch\nCOPY payload /payload\n")
        bed.head.docker("build", "--tag", IMAGE, "/home/spark/ship", timeout=600)

        def clear() -> None:
            for node in bed.workers:
                node.docker("rmi", "--force", IMAGE, check=False)

        def plain() -> float:
            clear()
            began = time.monotonic()
            with subprocess.Popen([*docker, sockets[0], "save", IMAGE], stdout=subprocess.PIPE) as save:
                loaded = [*docker, sockets[1], "load", "--quiet"]
                subprocess.run(loaded, stdin=save.stdout, check=True, stdout=subprocess.DEVNULL)
            return time.monotonic() - began

        def ours(workers: int, *, cleared: bool = True) -> dict[str, Any]:
            if cleared:
                clear()
            argv = [sys.executable, str(Path(__file__).resolve()), "--inside", env, "--workers", str(workers)]
            return dict(json.loads(bed.head.run(argv, timeout=900).stdout.splitlines()[-1]))

        plain()  # warm: the page cache holds the image for everybody
        table = []
        for _ in range(rounds):
            row = {"plain": plain(), "one": ours(1)["seconds"], "both": ours(2)["seconds"]}
            again = ours(2, cleared=False)
            table.append(row | {"unchanged_bytes": again["bytes"], "unchanged": again["seconds"]})
    median = {key: round(statistics.median(row[key] for row in table), 2) for key in table[0]}
    return median | {
        "mib": mib,
        "rounds": rounds,
        "of_plain": round(statistics.median(row["plain"] / row["one"] for row in table), 3),
        "both_of_one": round(statistics.median(row["both"] / row["one"] for row in table), 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        print(json.dumps(asyncio.run(inside(given.inside, given.workers))))
        return 0
    found = measure(given.mib, given.rounds)
    if given.json:
        print(json.dumps(found))
    else:
        print(f"{found['mib']} MiB, {found['rounds']} rounds, medians")
        print(f"docker save | docker load   {found['plain']:>8} s")
        print(f"ship to one worker          {found['one']:>8} s   {found['of_plain']} of it (reach: {ONE_REACH})")
        print(f"ship to two workers         {found['both']:>8} s   {found['both_of_one']} of one (reach: {MANY_REACH})")
        print(f"ship when nothing changed   {found['unchanged']:>8} s   {found['unchanged_bytes']} bytes sent")
    good = found["of_plain"] >= ONE_REACH and found["both_of_one"] <= MANY_REACH and not found["unchanged_bytes"]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
