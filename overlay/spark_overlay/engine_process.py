"""The engine's main process: SGLang's own launcher, with the key set on the arguments instead of in argv.

Started by `spark_overlay.entry`; its arguments are those of `sglang.launch_server`. SGLang's children import this
module again under another name, so nothing happens at import.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys


def main(argv: list[str]) -> None:
    """Serves until stopped. Ends with whatever ends SGLang."""
    from spark_overlay.key_file import read_key

    key = read_key(os.environ.get("API_KEY_FILE"))
    versions = " ".join(f"{name}={_version(name)}" for name in ("sglang", "torch", "flashinfer-python"))
    print(f"[spark] engine {versions} python={sys.version.split()[0]}", flush=True)

    from sglang.srt.plugins import load_plugins

    load_plugins()
    _need_our_plugin()

    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    arguments = prepare_server_args(argv)
    if key:
        arguments.api_key = key
    try:
        run_server(arguments)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


def _need_our_plugin() -> None:
    from spark_overlay.plugin import NOT_ARMED, ran_here

    if os.getpid() not in ran_here:
        why = (
            f"SGLANG_PLUGINS={chosen}" if (chosen := os.environ.get("SGLANG_PLUGINS")) else "its entry point is missing"
        )
        print(f"[spark] ERROR SGLang did not load the plugin spark_overlay ({why}); the engine ends here", flush=True)
        sys.exit(NOT_ARMED)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"


if __name__ == "__main__":
    main(sys.argv[1:])
