"""Small .env texts and how the tests of the settings read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktui.settings import Settings, SettingsRefused, parse_settings

ROOT = Path(__file__).parents[2]
ENV = Path("/srv/checkout/.env")
HOME = {"HOME": "/home/spark"}
THREE_SPARKS = "HEAD_IP=10.0.0.1\nWORKER_IPS='10.0.0.2 10.0.0.3'\n"
FOUR_SPARKS = "HEAD_IP=10.0.0.1\nWORKER_IPS='10.0.0.2 10.0.0.3 10.0.0.4'\n"
RING = FOUR_SPARKS + "NCCL_SWITCHLESS_RING=1\nNCCL_HOST_DIR=~/nccl-2.30.7\n"


def read(text: str, **more: object) -> Settings:
    return parse_settings(text, env_path=ENV, **{"environment": HOME, **more})  # type: ignore[arg-type]


def refusal(text: str, **more: object) -> SettingsRefused:
    with pytest.raises(SettingsRefused) as caught:
        read(text, **more)
    return caught.value
