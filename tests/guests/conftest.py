"""The guests are booted once for all their tests, and only where the machine has what they need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.guests.machine import GuestCluster, guest_cluster
from tests.guests.requirements import missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lacking = missing() if any(item.get_closest_marker("guests") for item in items) else ()
    for item in items:
        if lacking and item.get_closest_marker("guests"):
            item.add_marker(pytest.mark.skip(reason=", ".join(lacking)))


@pytest.fixture(scope="module")  # one module asks for them; emulated machines that idle still cost half a core
def guests() -> Iterator[GuestCluster]:
    with guest_cluster() as cluster:
        yield cluster
