"""Makes the image's package importable here, without leaving byte code in the build context."""

from __future__ import annotations

import sys
from pathlib import Path

OVERLAY = Path(__file__).resolve().parents[2] / "overlay"

sys.dont_write_bytecode = True
if str(OVERLAY) not in sys.path:
    sys.path.insert(0, str(OVERLAY))
