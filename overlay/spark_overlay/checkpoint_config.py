"""A checkpoint's config.json, with the fields of its text model where the engine has them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

THIS_MODEL = frozenset({"deepseek_v4", "deepseek_v41"})
"""`model_type` of the checkpoints that the adapters for the model itself are for."""


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The parsed file with the fields of its `text_config` at the top."""
    text = config.get("text_config")
    return {**(text if isinstance(text, Mapping) else {}), **config}


def read(folder: Path) -> dict[str, Any] | None:
    """The parsed file as it is; None where it cannot be read."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) else None


def fields(folder: Path) -> dict[str, Any]:
    """`flat` of the folder's file; empty where it cannot be read."""
    return flat(read(folder) or {})


def folder_of_engine() -> Path:
    """The folder that the engine of this process loads from."""
    from sglang.srt.runtime_context import get_model

    try:
        return Path(get_model().model_path)
    except (ValueError, AttributeError):
        return Path(os.environ.get("MODEL_PATH", ""))


def of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """`fields` of the checkpoint that a container's environment names."""
    return fields(Path(environment.get("MODEL_PATH", "")))


def not_for_this_model(environment: Mapping[str, str]) -> str:
    """Of an adapter for this model alone: why the container has no use for it; '' where it has."""
    return why_another_model(of_environment(environment))


def why_another_model(fields: Mapping[str, Any]) -> str:
    """`the model is a llama` for a checkpoint of another model; '' for this one, and where that cannot be seen."""
    kind = fields.get("model_type")
    return "" if not fields or kind in THIS_MODEL else f"the model is a {kind}"
