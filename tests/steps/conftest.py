"""The packer's own tests make checkpoints and look at packed files; the steps' tests do too."""

from tests.overlay.conftest import OVERLAY

__all__ = ["OVERLAY"]
