"""Rows of each rank: the real checkpoint's figures, the size on disk, and the engine's own classes as the judge."""

from __future__ import annotations

import json
import os
import subprocess
from itertools import pairwise

import pytest
from spark_overlay.engram_file import Header
from spark_overlay.engram_layout import LayoutError, layout_from_config, shard_range

from tests.engine.engine_env import engine_dir, engine_python, library_path
from tests.overlay.checkpoints import engram_config
from tests.overlay.conftest import OVERLAY

REAL = {
    "text_config": {
        "engram_layer_ids": [1, 14],
        "engram_num_embeddings": [384006168, 384016682],
        "engram_max_ngram_size": 4,
        "engram_vocab_size": 16000000,
        "engram_n_heads": 8,
        "engram_head_dim": 256,
    }
}
BORDERS = {
    (3, 1): [0, 128000880, 256002934, 384006168],
    (3, 14): [0, 128004290, 256009984, 384016682],
    (4, 1): [0, 96000564, 192001740, 288003654, 384006168],
    (4, 14): [0, 96003054, 192007016, 288011564, 384016682],
}


@pytest.mark.parametrize(("tp", "layer"), list(BORDERS))
def test_the_real_tables_split_on_columns(tp: int, layer: int) -> None:
    layout = layout_from_config(REAL)
    assert layout is not None and layout.row_bytes == 264
    bounds = layout.bounds[layout.layer_ids.index(layer)]
    assert len(bounds) == 25
    ranges = [shard_range(bounds, rank, tp) for rank in range(tp)]
    assert [part.lo for part in ranges] + [ranges[-1].hi] == BORDERS[tp, layer]
    assert all(part.by_columns and part.column_hi - part.column_lo == 24 // tp for part in ranges)


@pytest.mark.parametrize(("tp", "low_gib", "high_gib"), [(3, 65.0, 66.0), (4, 48.5, 49.0)])
def test_a_node_holds_the_size_that_the_design_names(tp: int, low_gib: float, high_gib: float) -> None:
    layout = layout_from_config(REAL)
    assert layout is not None
    for rank in range(tp):
        total = 0
        for layer, bounds in zip(layout.layer_ids, layout.bounds, strict=True):
            part = shard_range(bounds, rank, tp)
            header = Header(
                layer=layer, rank=rank, tp=tp, weight_bytes=256, scale_bytes=8, row_lo=part.lo, row_hi=part.hi,
                total_rows=bounds[-1], column_lo=part.column_lo, column_hi=part.column_hi, by_columns=True,
                revision="1bae0e1", fingerprint=bytes(32), bounds=bounds,
            )  # fmt: skip
            assert header.rows_per_page == 15 and header.number_offset == 3960
            total += header.file_bytes
        assert low_gib * 2**30 < total < high_gib * 2**30


def test_columns_that_do_not_divide_fall_back_to_equal_rows() -> None:
    layout = layout_from_config(engram_config(211))
    assert layout is not None
    bounds = layout.bounds[0]
    parts = [shard_range(bounds, rank, 5) for rank in range(5)]
    assert parts[0].lo == 0 and parts[-1].hi == bounds[-1]
    assert all(left.hi == right.lo for left, right in pairwise(parts))
    assert not parts[0].by_columns


def test_a_config_whose_primes_disagree_is_refused() -> None:
    config = engram_config(211)
    config["text_config"]["engram_num_embeddings"][0] += 1
    with pytest.raises(LayoutError, match="primes add up to"):
        layout_from_config(config)


def test_a_model_without_engram_has_no_layout() -> None:
    assert layout_from_config({"model_type": "llama"}) is None


@pytest.mark.engine
def test_the_engine_draws_the_same_columns_and_shards() -> None:
    configs = [REAL["text_config"], engram_config(211)["text_config"], engram_config(500, (0, 2, 5))["text_config"]]
    script = (
        "import json,sys,types\n"
        "from sglang.srt.layers.engram import EngramLayout, shard_range\n"
        "out=[]\n"
        "for fields in json.loads(sys.argv[1]):\n"
        "    layout=EngramLayout.from_config(types.SimpleNamespace(**fields))\n"
        "    for i in range(len(layout.layer_ids)):\n"
        "        b=layout.column_bounds(i)\n"
        "        out.append([list(b),[[list(shard_range(b[-1],b,r,tp)) for r in range(tp)] for tp in (1,2,3,4,5,8)]])\n"
        "sys.path.insert(0,sys.argv[2])\n"
        "from spark_overlay import engine_ranges, engram_layout\n"
        "ours=[engram_layout.layout_from_config(fields) for fields in json.loads(sys.argv[1])]\n"
        "said={engine_ranges.agree(fields,layout,tp) for fields,layout in zip(json.loads(sys.argv[1]),ours) "
        "for tp in (1,2,3,4,5,8)}\n"
        "print('RESULT'+json.dumps([out,sorted(said)]))\n"
    )
    environment = os.environ | {"SGLANG_USE_CPU_ENGINE": "1", "LD_LIBRARY_PATH": library_path(engine_dir())}
    done = subprocess.run(
        [str(engine_python()), "-B", "-c", script, json.dumps(configs), str(OVERLAY)],
        capture_output=True, text=True, timeout=240, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    theirs, said = json.loads(done.stdout.split("RESULT")[1])
    assert said == ["row ranges by sglang 0.5.23's own shard_range"], "taken out of the file they are the same"
    ours = []
    for fields in configs:
        layout = layout_from_config(fields)
        assert layout is not None
        for bounds in layout.bounds:
            shards = []
            for tp in (1, 2, 3, 4, 5, 8):
                parts = [shard_range(bounds, rank, tp) for rank in range(tp)]
                shards.append([[part.lo, part.hi] for part in parts])
            ours.append([list(bounds), shards])
    assert ours == theirs
