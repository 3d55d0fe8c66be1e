"""The device side of the Engram lookup with the engine's torch on a machine without a GPU. What only a GPU shows is
benchmarks/gpu/engram_lookup.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.test_verify import engine_python
from tests.overlay.test_row_store_build import built

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]
CASES = Path(__file__).with_name("row_lookup_cases.py")


def test_every_case_holds(tiny_model: Path, tmp_path: Path) -> None:
    done = engine_python("-B", str(CASES), str(built().library), str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 7
    assert not {case: problem for case, problem in found.items() if problem}
