"""Opens the real app on a real terminal, on scripted Sparks: `python -m tests.ui.app_on_pty FOLDER [options]`.

It goes in by the same door as the command line; only below the session everything is told what to say.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import types
from pathlib import Path
from typing import Any

ENV_TEXT = """\
HEAD_IP="10.0.0.1"
WORKER_IPS="10.0.0.2 10.0.0.3"
WORKER_HOSTS="spark2 spark3"
MODEL_DIR="/srv/DeepSeek-V4.1-Flash-1017"
API_KEY="a-long-enough-key"
"""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ascii", action="store_true")
    parser.add_argument("--no-mouse", action="store_true")
    parser.add_argument("--state", choices=("calm", "working", "failing"), default="working")
    parser.add_argument("--mode", default="wizard")
    parser.add_argument("--hang", action="store_true", help="no node, Docker or step ever answers, not even a goodbye")
    options = parser.parse_args()

    from sparktui.errors import SparktuiError
    from sparktui.runs.parts import product
    from sparktui.ui.opening import open_app
    from sparktui.ui.session import Start

    env_file = options.folder / ".env"
    if not env_file.exists():
        env_file.write_text(ENV_TEXT)
        env_file.chmod(0o600)
    sys.modules["sparktui.ui.app"] = _AppModule("sparktui.ui.app", options)
    try:
        start = Start(product(), env_file.absolute(), mode=options.mode)
        open_app(start, ascii_only=options.ascii, mouse=not options.no_mouse)
    except SparktuiError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return error.exit_status


class _AppModule(types.ModuleType):
    """Stands for the app's module until somebody wants its class: Textual is imported when the product imports it."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        super().__init__(name)
        self._options = options

    def __getattr__(self, name: str) -> Any:
        if name != "SparkApp":
            raise AttributeError(name)
        assert not any(each.startswith("textual") for each in sys.modules), "the terminal was judged too late"
        del sys.modules["sparktui.ui.app"]
        return shown_app(self._options)


def shown_app(options: argparse.Namespace) -> Any:
    from tests.ui.cluster_values import BOOTS_FAILING, BOOTS_WORKING, CALM, FAILING, WORKING
    from tests.ui.talking_ranks import AppWithLogs

    class Shown(AppWithLogs):
        def __init__(self, start: Any, terminal: Any) -> None:
            super().__init__(options.folder, terminal=terminal, mode=start.mode, prepare=self._talk)

        def _talk(self, links: tuple[Any, ...]) -> None:
            for link in links:
                link.hung = options.hang
                link.say(*(f"[2026-11-29 18:36:{each:02} TP{link.node.rank}] step {each} → 長い" for each in range(40)))
                if options.state == "failing" and link.node.rank == 1:
                    link.say("RuntimeError: CUDA out of memory", "[2026-11-29 18:37:00 TP1] WARNING: late")
                if options.hang:
                    link.aclose = _never  # type: ignore[method-assign]

        def step(self, verb: str) -> Any:
            step = super().step(verb)
            if options.hang:
                step.inspection = None
            return step

        def watch_cluster(self) -> None:  # type: ignore[override]
            self.snapshot = {"calm": CALM, "working": WORKING, "failing": FAILING}[options.state]
            self.boots = {"calm": (), "working": BOOTS_WORKING, "failing": BOOTS_FAILING}[options.state]

    async def _never() -> None:
        await asyncio.Event().wait()

    return Shown


if __name__ == "__main__":
    sys.exit(main())
