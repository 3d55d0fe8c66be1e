"""A simulated cluster as a user has it before the first `up`: settings written, a hub to download from, nothing built.

Weights: NFS_SHARE=0 here (this kernel has no NFS); the workers' own copies are laid there, the head downloads its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparktui.envfile.fixes import quoted
from tests.engine import engine_env
from tests.hub.server import Hub
from tests.testbed import Testbed

PROJECT = Path(__file__).resolve().parents[2]
PORT = 8888


class Spine:
    """A testbed, its hub, and sparktui on its head.

    Attributes:
        env_file: the settings' path as the head sees it.
        recipe: the folder that holds it, with state and logs.
    """

    def __init__(self, testbed: Testbed, hub: Hub, env_file: str) -> None:
        self.testbed, self.hub, self.env_file = testbed, hub, env_file
        self.recipe = str(Path(env_file).parent)

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "sparktui", *words, "--env-file", self.env_file]

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"}

    def sparktui(self, *words: str, timeout: float = 900.0) -> subprocess.CompletedProcess[str]:
        """Run a verb on the head as its user would."""
        return self.testbed.head.run(
            self.argv(*words), env=self.environment, cwd=self.recipe, timeout=timeout, check=False
        )

    def events(self, *words: str, timeout: float = 900.0) -> tuple[int, list[dict[str, object]]]:
        """A verb with --json: its exit status and the events."""
        done = self.sparktui(*words, "--json", timeout=timeout)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def popen(self, *words: str) -> subprocess.Popen[str]:
        return self.testbed.head.popen(
            self.argv(*words),
            env=self.environment,
            cwd=self.recipe,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def runs(self) -> list[Path]:
        """The run folders, oldest first, as the host sees them."""
        names = ("state", "state-tp4")
        found = [
            p for name in names for p in self.testbed.head.path(f"{self.recipe}/{name}/runs").glob("*/request.json")
        ]
        return sorted((path.parent for path in found), key=lambda path: path.stat().st_mtime)

    def engines(self) -> dict[str, str]:
        """Node name to the engine container's id, where one runs."""
        found = {}
        for node in self.testbed.nodes:
            ids = node.docker("ps", "--quiet", "--no-trunc", "--filter", "name=^/dsv41-(head|worker)$").split()
            if ids:
                found[node.name] = ids[0]
        return found


@contextmanager
def spine(testbed: Testbed, model: Path, *, env_name: str | None = None, **changed: str) -> Iterator[Spine]:
    """Lay the settings, the workers' copies and the hub; `changed` are settings that win."""
    for node in testbed.nodes:
        node.set_runtime(binds=engine_env.binds(), environment=engine_env.machine_environment(len(testbed.nodes)))
    _lay_copies(testbed, model)
    with Hub(model, address=f"{testbed.subnet}.254") as hub:
        values = testbed.env(**engine_env.env_file() | {"HF_ENDPOINT": hub.url} | changed)
        name = env_name or (".env.tp4" if len(testbed.nodes) == 4 else ".env")
        path = f"{Path(testbed.write_env(name)).parent}/{name}"
        text = "".join(f"{key}={quoted(value)}\n" for key, value in values.items())
        testbed.head.write_file(path, text, mode=0o600)
        yield Spine(testbed, hub, path)


def _lay_copies(testbed: Testbed, model: Path) -> None:
    target = testbed.env()["WORKER_MODEL_DIR"]
    for node in testbed.workers:
        folder = node.path(target)
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(model, folder, copy_function=_copy)


def _copy(source: str, target: str) -> str:
    """A hard link where the file system allows it: the copies are only read."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
