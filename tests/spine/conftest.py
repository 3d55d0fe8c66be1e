"""The spine's tests need the tiny model that the engine's tests make."""

from tests.engine.conftest import tiny_model

__all__ = ["tiny_model"]
