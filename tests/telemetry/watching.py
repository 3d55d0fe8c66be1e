"""Run on a simulated head: `python -m tests.telemetry.watching ENV_FILE` prints each picture as a JSON line."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path


async def main(env_file: str) -> None:
    from sparktui.remote.fleet_calls import open_links
    from sparktui.settings import load_settings
    from sparktui.telemetry.of_settings import fleet_of

    settings = load_settings(Path(env_file))
    fleet = fleet_of(settings, open_links(settings))
    async for snapshot in fleet.snapshots():
        print(json.dumps(asdict(snapshot)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
