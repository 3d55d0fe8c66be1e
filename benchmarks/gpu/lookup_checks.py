"""Right rows: eager, in captured graphs, in pieces, and a read that fails. Each check returns what it saw, as data, and
raises AssertionError at the first wrong value.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import packed_table
import torch
from packed_table import Table, differences, expected_values
from spark_overlay.layer_rows import LayerRows
from spark_overlay.row_lookup import Pending, RowLookup, dequantise, own_stream
from spark_overlay.row_store import Options, RowStore, load

DEVICE = torch.device("cuda", 0)
GRAPH_SIZES = (6, 48, 192, 768)
REPLAYS = 24
Seen = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Layer:
    table: Table
    store: RowStore

    def lookup(self, side_stream: bool | torch.cuda.Stream, max_ids: int = 16384, **more: int) -> RowLookup:
        return RowLookup(self.store, device=DEVICE, max_ids=max_ids, side_stream=side_stream, **more)


def capture(function: Callable[[], Any], pool: Any = None, mode: str = "global") -> tuple[Any, Any]:
    """The captured graph and what `function` returned in it (the tensors that a replay fills)."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, capture_error_mode=mode):
        found = function()
    return graph, found


def on_device(ids: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(ids)).to(DEVICE)


def compare(table: Table, ids: np.ndarray, weight: torch.Tensor, scale: torch.Tensor, what: str) -> int:
    """Rows byte for byte, and their values; returns the number of values."""
    rows = table.rows(ids.reshape(-1))
    found = torch.cat((weight.view(torch.uint8), scale.view(torch.uint8)), -1).cpu().reshape(-1, 264).numpy()
    assert np.array_equal(found, rows), f"{what}: {int((found != rows).any(1).sum())} of {len(rows)} rows are wrong"
    compare_values(rows, dequantise(weight, scale), what)
    return rows.size


def whole(weight: torch.Tensor, scale: torch.Tensor) -> list[torch.Tensor]:
    """Bytes of the weights, of the scales, and the values."""
    return [weight.view(torch.uint8), scale.view(torch.uint8), dequantise(weight, scale)]


def compare_values(rows: np.ndarray, values: torch.Tensor, what: str) -> None:
    wrong = differences(values, expected_values(rows))
    assert wrong == 0, f"{what}: {wrong} of {values.numel()} values are wrong"


def eager(layers: list[Layer]) -> Seen:
    """Ids on the GPU -> ... -> values, one call after another, with a side stream and without."""
    dice = np.random.default_rng(1)
    values = cases = 0
    for side in (True, False):
        for layer in layers:
            lookup = layer.lookup(side)
            for count in (1, 6, 48, 192, 768, 5000):
                for kind, ids in layer.table.kinds(dice, count).items():
                    what = f"eager, side stream {side}, {count} ids, {kind}"
                    weight, scale = lookup.rows(on_device(ids))
                    values += compare(layer.table, ids, weight, scale, what)
                    cases += 1
            columns = layer.table.draw(dice, 96 * 24, own_only=False).reshape(96, 24)
            weight, scale = lookup.rows(on_device(columns)[:, 8:16])
            assert weight.shape == (96, 8, 256) and scale.shape == (96, 8, 8), (weight.shape, scale.shape)
            values += compare(layer.table, columns[:, 8:16], weight, scale, "eager, a slice of columns")
            empty = dequantise(*lookup.rows(torch.empty((0, 8), dtype=torch.int64, device=DEVICE)))
            assert empty.shape == (0, 8, 256), empty.shape
            cases += 2
    return {"cases": cases, "values": values}


def in_flight(layers: list[Layer]) -> Seen:
    """Several lookups started before any is finished: two layers, and one layer four times, finished backwards; one
    layer from one stream to the next; lookups that are never finished.
    """
    dice = np.random.default_rng(2)
    values = 0
    shared = torch.cuda.Stream()
    for side in (True, False, shared):
        lookups = [layer.lookup(side) for layer in layers]
        started: list[tuple[Layer, RowLookup, np.ndarray, Pending]] = []
        for turn in range(4):
            for layer, lookup in zip(layers, lookups, strict=True):
                ids = layer.table.draw(dice, 300 + turn, own_only=False)
                started.append((layer, lookup, ids, lookup.start(on_device(ids))))
        for layer, lookup, ids, pending in reversed(started):
            weight, scale = lookup.finish(pending)
            values += compare(layer.table, ids, weight, scale, f"in flight, side stream {side}")
        # From one stream to the next without a finish between: the pinned buffer is shared.
        kept = []
        streams = [torch.cuda.Stream() for _ in range(3)]
        for turn in range(12):
            ids = layers[0].table.draw(dice, 200 + turn)
            with torch.cuda.stream(streams[turn % 3]):
                kept.append((ids, lookups[0].rows(on_device(ids))))
        torch.cuda.synchronize()
        for ids, (weight, scale) in kept:
            values += compare(layers[0].table, ids, weight, scale, f"streams in turn, side stream {side}")
        # Dropped, a lookup must not write into memory that others have by then.
        wanted = on_device(layers[0].table.draw(dice, 700))
        others = []
        for _ in range(50):
            lookups[0].start(wanted.clone())
            others.append(torch.full((700, 264), 0x5A, dtype=torch.uint8, device=DEVICE))
        torch.cuda.synchronize()
        assert all(bool((each == 0x5A).all()) for each in others), f"a dropped lookup wrote, side stream {side}"
    return {"values": values}


def graphs(layers: list[Layer]) -> Seen:
    """Two layers a graph, all sizes captured in one memory pool, then replayed in turn with new ids and no
    synchronisation between, with eager lookups of the same objects among them.
    """
    seen: Seen = {"sizes": list(GRAPH_SIZES), "replays": 0, "values": 0, "modes": []}
    dice = np.random.default_rng(3)
    square = torch.randn(2048, 2048, device=DEVICE, dtype=torch.bfloat16)
    for name, mode in (("own", "global"), ("shared", "thread_local"), ("none", "relaxed")):
        side: bool | torch.cuda.Stream = {"own": True, "shared": torch.cuda.Stream(), "none": False}[name]
        lookups = [layer.lookup(side) for layer in layers]
        captured, pool = [], torch.cuda.graph_pool_handle()
        for size in GRAPH_SIZES:
            places = [
                torch.full((size,), layer.table.header.row_lo, dtype=torch.int64, device=DEVICE) for layer in layers
            ]

            def forward(places: list[torch.Tensor] = places, lookups: list[RowLookup] = lookups) -> Any:
                pending = [lookup.start(place) for lookup, place in zip(lookups, places, strict=True)]
                work = square @ square
                rows = [lookup.finish(one) for lookup, one in zip(lookups, pending, strict=True)]
                return work, [whole(*each) for each in rows]

            graph, (_, found) = capture(forward, pool, mode)
            captured.append((graph, places, found))
        kinds = list(layers[0].table.kinds(dice, 1))
        plan = []
        for turn in range(REPLAYS):
            for index in dice.permutation(len(GRAPH_SIZES)):
                kind = kinds[turn % len(kinds)]
                ids = [layer.table.kinds(dice, GRAPH_SIZES[index])[kind] for layer in layers]
                extra = layers[0].table.draw(dice, 500)
                plan.append((captured[index], ids, [on_device(one) for one in ids], extra, on_device(extra)))
        kept = []
        for number, ((graph, places, found), ids, new, extra, new_extra) in enumerate(plan):
            for place, one in zip(places, new, strict=True):
                place.copy_(one)
            graph.replay()
            kept.append((ids, [[tensor.clone() for tensor in each] for each in found]))
            if number % 3 == 0:
                kept.append(([extra], [whole(*lookups[0].rows(new_extra))]))
            seen["replays"] += 1
        torch.cuda.synchronize()
        for ids, found in kept:
            for layer, one, (weight, scale, values) in zip(layers, ids, found, strict=False):
                what = f"graph, side stream {name}, capture mode {mode}, {len(one)} ids"
                seen["values"] += compare(layer.table, one, weight, scale, what)
                compare_values(layer.table.rows(one), values, what)
        seen["modes"].append(f"side stream {name}, capture mode {mode}")
    return seen


def in_the_engine(layers: list[Layer]) -> Seen:
    """As the adapter does it: all layers started right after the hash, from one tensor of ids [tokens, layers, 24],
    each taken by its layer; with early starts and without, compared with a second read and not; eager, and captured
    graphs of several sizes replayed with new ids. A layer may come with a part of the tokens, or not at all.
    """
    dice = np.random.default_rng(6)
    square = torch.randn(2048, 2048, device=DEVICE, dtype=torch.bfloat16)
    seen: Seen = {"eager": 0, "replays": 0, "values": 0}

    def drawn(tokens: int) -> np.ndarray:
        columns = [layer.table.draw(dice, tokens * 24, own_only=False).reshape(tokens, 24) for layer in layers]
        return np.stack(columns, axis=1)

    for early in (True, False):
        for check in (False, True):
            rows = [LayerRows(layer.store, DEVICE, name=f"layer {n}", check=check) for n, layer in enumerate(layers)]
            stream = own_stream(DEVICE) if early else None
            for each in rows:
                each.ready(stream)

            def forward(ids: torch.Tensor, rows: list[LayerRows] = rows, early: bool = early) -> list[torch.Tensor]:
                if early:
                    for place, each in enumerate(rows):
                        each.start(ids[:, place])
                square @ square
                return [each.values(ids[:, place]) for place, each in enumerate(rows)]

            what = f"in the engine, early {early}, check {check}"
            for tokens in (1, 6, 96, 1500):
                ids = drawn(tokens)
                for place, values in enumerate(forward(on_device(ids))):
                    compare_values(layers[place].table.rows(ids[:, place].reshape(-1)), values, f"{what}, {tokens}")
                    seen["values"] += values.numel()
                # The second half of the tokens only, then a layer that never asks.
                new = on_device(ids)
                if early:
                    rows[0].start(new[:, 0])
                    rows[1].start(new[:, 1])
                half = rows[0].values(new[tokens // 2 :, 0])
                compare_values(layers[0].table.rows(ids[tokens // 2 :, 0].reshape(-1)), half, f"{what}, a part")
                seen["eager"] += 2
            graphs, pool = [], torch.cuda.graph_pool_handle()
            for tokens in (6, 12, 24):
                place = on_device(drawn(tokens))
                graph, found = capture(lambda place=place, forward=forward: forward(place), pool)
                graphs.append((tokens, place, graph, found))
            for turn in range(REPLAYS):
                tokens, place, graph, found = graphs[turn % len(graphs)]
                ids = drawn(tokens)
                place.copy_(on_device(ids))
                graph.replay()
                for number, values in enumerate(found):
                    wanted = layers[number].table.rows(ids[:, number].reshape(-1))
                    compare_values(wanted, values, f"{what}, captured, {tokens} tokens")
                    seen["values"] += values.numel()
                seen["replays"] += 1
    return seen


def growth(layers: list[Layer]) -> Seen:
    """Nothing reserved for captures: pinned memory grows while a stream is captured, in each mode; pieces, too."""
    dice = np.random.default_rng(4)
    layer, grown = layers[0], {}
    for mode in ("global", "thread_local", "relaxed"):
        lookup = layer.lookup(True, max_ids=1024, captured_ids=0)
        before = lookup.pinned_bytes
        place = torch.full((20_000,), layer.table.header.row_lo, dtype=torch.int64, device=DEVICE)
        graph, (weight, scale) = capture(lambda lookup=lookup, place=place: lookup.rows(place), None, mode)
        grown[mode] = lookup.pinned_bytes - before
        assert grown[mode] > 0, grown
        # A graph may outlive the object that it was captured with.
        del lookup
        gc.collect()
        for _ in range(3):
            ids = layer.table.draw(dice, 20_000, own_only=False)
            place.copy_(on_device(ids))
            graph.replay()
            compare(layer.table, ids, weight, scale, f"grown in capture mode {mode}")
    return {"bytes_by_mode": grown}


def chunk(layers: list[Layer], tokens: int = 8192) -> Seen:
    """A prefill chunk: 8 ids a token, in pieces of 16,384."""
    dice = np.random.default_rng(5)
    layer = layers[0]
    lookup = layer.lookup(True)
    took = []
    for _ in range(3):
        ids = layer.table.draw(dice, tokens * 8).reshape(tokens, 8)
        place = on_device(ids)
        torch.cuda.synchronize()
        began = time.perf_counter()
        weight, scale = lookup.rows(place)
        torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
        compare(layer.table, ids, weight, scale, "a chunk in pieces")
    milliseconds = [round(1000 * each, 2) for each in took]
    pieces = -(-tokens * 8 // lookup.max_ids)
    return {"ids": tokens * 8, "pieces": pieces, "ms": milliseconds, "rows_per_s": round(tokens * 8 / min(took))}


def engine_kernel(path: Path | None) -> Seen:
    """Every weight byte with every scale byte, beside the engine's own Triton gather, bit for bit."""
    if path is None:
        return {"not run": "no --engine-kernel FILE (sglang/kernels/ops/embeddings/engram_gather.py)"}
    spec = importlib.util.spec_from_file_location("engram_gather", path)
    assert spec and spec.loader, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = torch.zeros(256, 264, dtype=torch.uint8, device=DEVICE)
    rows[:, :256] = torch.arange(256, dtype=torch.uint8, device=DEVICE)
    rows[:, 256:] = torch.arange(256, dtype=torch.uint8, device=DEVICE)[:, None]
    weight, scale = rows[:, :256], rows[:, 256:]
    plain_weight, plain_scale = weight.contiguous(), scale.contiguous()
    out = torch.empty(256, 256, dtype=torch.bfloat16, device=DEVICE)
    module.engram_gather(
        plain_weight.data_ptr(), plain_scale.data_ptr(), torch.arange(256, device=DEVICE), out, 256, 32, 0, 256
    )
    ours = dequantise(weight.view(torch.float8_e4m3fn), scale.view(torch.float8_e8m0fnu))
    other = ours.view(torch.int16) != out.view(torch.int16)
    not_nan = other & ~(ours.isnan() & out.isnan())
    assert not int(not_nan.sum()), f"{int(not_nan.sum())} of 65536 values differ from the engine's kernel"
    return {"values": 65536, "bits that differ in NaNs": int(other.sum())}


def no_cuda_call(library: Path) -> Seen:
    """The host function is machine code of the row store's library. What that library can call is what it links to and
    what it imports: neither CUDA, nor a way to find a function by name at run time.
    """
    needed = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True, timeout=60)
    imports = subprocess.run(["nm", "-D", "-u", str(library)], capture_output=True, text=True, check=True, timeout=60)
    libraries = sorted(line.split("[")[1].rstrip("]") for line in needed.stdout.splitlines() if "(NEEDED)" in line)
    names = sorted({line.split()[-1].split("@")[0] for line in imports.stdout.splitlines() if line.strip()})
    bad = [name for name in names if name.startswith(("cu", "cuda", "dlopen", "dlsym", "dlvsym", "Py", "_Py"))]
    assert libraries and names, (libraries, names)
    assert not bad and not any("cuda" in name for name in libraries), (bad, libraries)
    return {"links to": libraries, "imports": len(names), "of them CUDA, Python or dlsym": 0}


def fail_in_child(script: Path, folder: Path, library: Path) -> Seen:
    """A page with a flipped bit, eager and in a graph, each in a process of its own, which must end by itself."""
    table = packed_table.make(folder, 1, 32, seed=9)
    wanted = packed_table.damage(table, 1234)
    arguments = ["--child-file", str(table.path), "--child-id", str(wanted), "--child-library", str(library)]
    children = {
        how: subprocess.Popen(
            [sys.executable, str(script), *arguments, "--child", how], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )
        for how in ("eager", "graph")
    }  # fmt: skip
    seen: Seen = {}
    for how, child in children.items():
        try:
            out, error = child.communicate(timeout=90)
        except subprocess.TimeoutExpired:
            child.kill()
            out, error = child.communicate()
            error += "\n(still running after 90 s)"
        text = [line for line in error.splitlines() if "wrong checksum" in line]
        seen[how] = {"returncode": child.returncode, "said": text}
        assert child.returncode == -signal.SIGABRT, (how, child.returncode, out[-500:], error[-1500:])
        assert "good row read" in out and "went on" not in out, (how, out[-500:])
        assert len(text) == 1 and f"offset {4096 * 1235} (page 1234)" in text[0], (how, error[-1500:])
    return seen


def child(how: str, path: Path, wanted: int, library: Path) -> int:
    """In the child: a good row first, then one of the damaged page."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    store = RowStore(path, options=Options(strict=True), library=load(library))
    lookup = RowLookup(store, device=DEVICE, max_ids=64, side_stream=True)
    place = torch.full((6,), wanted - 15, dtype=torch.int64, device=DEVICE)
    step: Callable[[], Any] = lambda: lookup.rows(place)  # noqa: E731
    if how == "graph":
        graph, _ = capture(step)
        step = graph.replay
    step()
    torch.cuda.synchronize()
    print("good row read", flush=True)
    place[3] = wanted
    step()
    torch.cuda.synchronize()
    print("went on after a failed read", flush=True)
    return os.EX_OK
