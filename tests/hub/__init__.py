"""A local hub: `from tests.hub import Hub, Faults`, or `python -m tests.hub --dir DIR`."""

from tests.hub.repository import make_repository
from tests.hub.server import DEFAULT_PREFIX, DEFAULT_REPO, Faults, Hub

__all__ = ["DEFAULT_PREFIX", "DEFAULT_REPO", "Faults", "Hub", "make_repository"]
