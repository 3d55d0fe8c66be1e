"""The real engine's Engram classes and weight loaders with the adapter, against themselves without it: bit for bit.

One process of the engine's Python answers for all tests (`engram_cases.py`); it runs for half a minute.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.engine import engine_env
from tests.overlay.row_store_library import built

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    environment = os.environ | engine_env.machine_environment(1, engine_env.engine_dir())
    environment |= {"PYTHONPATH": f"{ROOT / 'overlay'}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"SPARK_ROW_STORE": str(built().library), "DSV41_IO_THREADS": "32"}
    done = subprocess.run(
        [str(engine_env.engine_python()), "-m", "tests.engine.engram_cases", str(tmp_path_factory.mktemp("engram"))],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.mark.parametrize("tp", [1, 3, 4])
def test_every_ranks_rows_are_the_engines_own_bit_for_bit(found: dict[str, Any], tp: int) -> None:
    """Random ids and adversarial ones: every boundary of a column or rank and its neighbours, one row many times."""
    assert sum(found["rows of the tables"]) > 190_000
    assert found[f"rows at TP {tp}"] == ""


def test_prefill_decode_and_verify_through_hasher_and_layers_are_the_engines_own(found: dict[str, Any]) -> None:
    assert found["prefill, decode and verify through hasher and layers"] == ""


def test_a_lookup_is_started_after_the_hash_and_taken_by_its_layer_once(found: dict[str, Any]) -> None:
    """Two layers of 24 columns; each is asked twice: the second answer is no longer the one that was started."""
    asked = [24 * tokens for tokens in (26, 2, 6) for _ in range(4)]
    assert found["ids of lookups"] == found["ids of lookups without starting early"] == asked
    assert found["started before the first layer asks"] == {"early": [2, 2, 2], "late": [0, 0, 0]}


def test_other_ids_than_those_started_get_a_lookup_of_their_own(found: dict[str, Any]) -> None:
    assert found["a part of the tokens"] == ""


def test_the_module_has_no_memory_for_a_table(found: dict[str, Any]) -> None:
    assert set(found["memory of the module"]) == {0}
    small = ["k_weight 256", "q_weight 256", "wkv.weight 2359296"]
    assert found["parameters ours"] == sorted(small * 2)
    assert len(found["parameters stock"]) == len(small) * 2 + 4


@pytest.mark.parametrize("kind", ["threads", "one by one", "without mmap"])
def test_the_loaders_give_all_tensors_but_the_tables(found: dict[str, Any], kind: str) -> None:
    assert found["the engine as it comes reads the tables"] == ""
    assert found[f"loader {kind}"] == ""


def test_no_loader_takes_or_reads_ahead_a_table(found: dict[str, Any]) -> None:
    assert found["tables taken by a loader"] == []
    assert 0 < found["largest file read whole"] < 10_000
    assert found["read ahead into the page cache"] == ["model-00003-of-00003.safetensors"]


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("missing", "engram-l1-r0of3.bin is missing: this rank's rows are not packed. Next: `sparktui pack`"),
        ("another rank's", "does not match this engine and checkpoint: rank 1, wanted 0"),
        ("another revision's", "checkpoint revision 1bae0e1c0ffee, wanted 2222222"),
        (
            "tables in memory",
            "ENGRAM_HOST_TABLE=1 asks for Engram tables in memory. Next: remove it",
        ),
        ("this revision, shortened", "nothing was refused"),
    ],
)
def test_a_model_is_not_made_without_its_rows(found: dict[str, Any], case: str, said: str) -> None:
    assert said in found[case]


def test_the_checkpoints_own_rows_stand_in_and_it_is_said(found: dict[str, Any]) -> None:
    assert found["rows of the checkpoint"] == ""
    said = found["what the fallback says"]
    assert said.count("[spark] WARNING DSV41_ENGRAM_FALLBACK=checkpoint: ") == said.count("packed=False") == 3


@pytest.mark.parametrize(
    ("case", "status", "said"),
    [
        ("a corrupt page", -6, "wrong checksum"),
        ("an id that is none", -6, "is outside the table of"),
        ("a row that changed between two reads, compared", 71, "first that of id 15, does not match a second read"),
        ("equal reads, compared", 0, ""),
        ("an id that is none, in the host function", 71, "id -1 is outside the table"),
    ],
)
def test_a_wrong_row_ends_the_process(found: dict[str, Any], case: str, status: int, said: str) -> None:
    assert found[case].startswith(f"exit {status}: ") and said in found[case]
