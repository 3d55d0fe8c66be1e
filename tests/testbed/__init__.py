"""Simulated Sparks for tests and for trying things by hand: `python -m tests.testbed up`."""

from tests.testbed.cluster import RECIPE_DIR, Testbed
from tests.testbed.node import HOME, SimulatedSpark, TestbedError

__all__ = ["HOME", "RECIPE_DIR", "SimulatedSpark", "Testbed", "TestbedError"]
