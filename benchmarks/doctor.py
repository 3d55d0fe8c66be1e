"""doctor on all nodes against the slowest node alone: the ratio that has to stay at or below 1.2.

    python benchmarks/doctor.py --env-file .env [--rounds 5] [--json]

Run it on the head (or, on the testbed, inside it: `python -m tests.testbed run spk1 -- …`). Each round connects anew.
The figure is the median over the rounds of: time on all nodes / time of the slowest node alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sparktui.errors import SparktuiError
from sparktui.events import Question, State
from sparktui.remote.fleet_calls import open_links
from sparktui.settings import Settings, load_settings
from sparktui.steps.doctor import Doctor
from sparktui.steps.step import Context

REACH = 1.2


async def _nobody(question: Question) -> str:
    raise SparktuiError(f"doctor asked {question.question}")


async def seconds_of(settings: Settings, only: str | None) -> float:
    """One doctor from fresh connections; failed checks count, they take as long."""
    links = open_links(settings)
    try:
        began = time.monotonic()
        inspection = await Doctor().inspect(Context(settings, links, _nobody, only_node=only))
        took = time.monotonic() - began
        dead = [each for each in inspection.findings if each.check == "ssh.login" and each.state is not State.OK]
        if dead:
            raise SystemExit(f"no figure: {dead[0].node}: {dead[0].what}")
        return took
    finally:
        for link in links:
            await link.aclose()


async def measure(settings: Settings, rounds: int) -> dict[str, object]:
    ratios, everywhere, alone = [], [], {node.name: list[float]() for node in settings.nodes}
    for _ in range(rounds):
        for name, times in alone.items():
            times.append(await seconds_of(settings, name))
        everywhere.append(await seconds_of(settings, None))
        ratios.append(everywhere[-1] / max(times[-1] for times in alone.values()))
    return {
        "ratio": round(statistics.median(ratios), 3),
        "reach": REACH,
        "all_nodes_seconds": round(statistics.median(everywhere), 3),
        "alone_seconds": {name: round(statistics.median(times), 3) for name, times in alone.items()},
        "rounds": rounds,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-file", type=Path, default=Path(".env"))
    parser.add_argument("--profile", default=None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = asyncio.run(measure(load_settings(given.env_file, profile=given.profile), given.rounds))
    if given.json:
        print(json.dumps(found))
    else:
        print(f"doctor on all nodes: {found['all_nodes_seconds']} s; alone: {found['alone_seconds']}")
        print(f"ratio {found['ratio']} (reach: at most {REACH})")
    return 0 if float(str(found["ratio"])) <= REACH else 1


if __name__ == "__main__":
    sys.exit(main())
