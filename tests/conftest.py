"""What every test may rely on: requirements named when they are missing, skips that fail in CI, simulated Sparks."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.testbed import Testbed
from tests.testbed.requirements import missing, missing_engine

ALLOWED_SKIPS = ("disk too small for the engine", "../shared is absent")
"""Beginnings of the only reasons that may skip a test where CI=true; every other skip there is a failure."""

# An example may take as long as a busy machine makes it: no test is of time.
settings.register_profile("untimed", parent=settings(), deadline=None)
settings.load_profile("untimed")

SHARED = Path(__file__).resolve().parents[2] / "shared"

SERVERS = {"plain", "plugin", "other"}
"""Fixtures of tests/engine: servers that are started once for all modules that ask them."""

ONE_BY_ONE = {"spine", "wire"}
"""Folders whose modules never run side by side: two fleets of ranks on two cores, or accounts made at the same time."""


def skip_is_allowed(reason: str) -> bool:
    """`reason` is the text as the test gave it."""
    return os.environ.get("CI", "").lower() != "true" or reason.removeprefix("Skipped: ").startswith(ALLOWED_SKIPS)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    asking = {item.path for item in items if SERVERS & set(getattr(item, "fixturenames", ()))}
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item.path, asking)))
        lacking: tuple[str, ...] = ()
        if item.get_closest_marker("testbed") or item.get_closest_marker("engine"):
            lacking = missing()
        if not lacking and item.get_closest_marker("engine"):
            lacking = missing_engine()
        if lacking:
            item.add_marker(pytest.mark.skip(reason=", ".join(lacking)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and not skip_is_allowed(_reason(report)):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and CI=true allows none: {_reason(report)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.outcome == "skipped" and not skip_is_allowed(_reason(report)):
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped, and CI=true allows none: {_reason(report)}"
    return report


def _group(module: Path, asking: set[Path]) -> str:
    """What stays in one process with `--dist loadgroup`: a module, at least."""
    folder = module.parent.name
    if folder == "engine" and module in asking:
        return "servers"
    return folder if folder in ONE_BY_ONE else f"{folder}/{module.stem}"


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr).removeprefix("Skipped: ")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of captured and constructed readings beside the checkout."""
    if not (SHARED / "data").is_dir():
        pytest.skip("../shared is absent")
    return SHARED / "data"


@pytest.fixture(scope="session")
def three_sparks() -> Iterator[Testbed]:
    """A triangle of three, one for the whole session: leave it as it was found.

    Without an engine in its containers: each image build would load it to verify the adapters.
    """
    with Testbed(3, engine=False) as testbed:
        yield testbed


@pytest.fixture(scope="session")
def four_sparks() -> Iterator[Testbed]:
    """A ring of four, one for the whole session: leave it as it was found."""
    with Testbed(4, engine=False) as testbed:
        yield testbed


@pytest.fixture
def sparks() -> Iterator[Callable[..., Testbed]]:
    """Makes a testbed of one's own (arguments of Testbed), gone with the test: for tests that break things."""
    with ExitStack() as stack:

        def make(*args: Any, **options: Any) -> Testbed:
            return stack.enter_context(Testbed(*args, **options))

        yield make
