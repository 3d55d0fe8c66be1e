"""How the index is reached goes along into a build; folders, constraints and wheels of this machine do not."""

from __future__ import annotations

from pathlib import Path

from tests.engine import pip_settings

CONFIG = """:env:.default-timeout='180'
global.cert='{cert}'
global.constraint='/etc/constraints.txt'
global.default-timeout='15'
global.extra-index-url='file:///srv/simple https://wheels.example/simple'
global.find-links='/srv/wheels'
global.index-url='https://global.example/simple'
install.index-url='https://install.example/simple'
"""


def test_the_nearest_setting_wins_and_only_the_way_to_the_index_goes_along(tmp_path: Path) -> None:
    cert = tmp_path / "it's a bundle.crt"
    cert.touch()
    options = pip_settings.parse_config(CONFIG.replace("'{cert}'", repr(str(cert))))
    assert pip_settings.environment(options) == {
        "PIP_INDEX_URL": "https://install.example/simple",
        "PIP_EXTRA_INDEX_URL": "https://wheels.example/simple",
        "PIP_CERT": str(cert),
        "PIP_DEFAULT_TIMEOUT": "180",
    }
    assert pip_settings.binds(options) == [{"source": str(cert), "target": str(cert), "read_only": True}]


def test_a_machine_that_says_nothing_adds_nothing() -> None:
    assert (pip_settings.environment({}), pip_settings.binds({})) == ({}, [])
