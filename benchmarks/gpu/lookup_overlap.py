"""How long a lookup keeps the GPU waiting: milliseconds that stay visible behind about 10 ms of matrix products, with
the lookup on a side stream (started before them) and in line (after them), in a captured graph and eager.

A step is timed by two events on the stream, with new ids before each. In each repeat every variant runs once after
another, so that clocks that drift hit all. Visible = a step's time less the median of the same step without a lookup.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from lookup_checks import DEVICE, Layer, Seen, capture, on_device
from spark_overlay.row_lookup import dequantise

WORK_MS = 10.0
TOKENS = (6, 96)
ROWS_A_TOKEN = 8
"""Of this rank, at TP3."""
REPEATS = 60


@dataclass(frozen=True, slots=True)
class Visible:
    """One case. `store_ms` is the row store called by the CPU, `alone_ms` the whole lookup without other work,
    `none_owned_ms` one that reads nothing.
    """

    tokens: int
    rows: int
    how: str
    work_ms: float
    store_ms: float
    alone_ms: float
    alone_p90_ms: float
    none_owned_ms: float
    side_ms: float
    side_p90_ms: float
    in_line_ms: float
    in_line_p90_ms: float


def step_ms(step: Callable[[], Any]) -> float:
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    before.record()
    step()
    after.record()
    torch.cuda.synchronize()
    return float(before.elapsed_time(after))


def store_ms(layer: Layer, batches: np.ndarray) -> float:
    """Median of the store's own time for such batches, int64 [batches, ids]."""
    out = np.zeros((batches.shape[1], 264), dtype=np.uint8)
    took = []
    for ids in batches:
        began = time.perf_counter()
        layer.store.lookup(ids, out)
        took.append(time.perf_counter() - began)
    return 1000 * float(np.median(took))


def calibrated_work() -> tuple[Callable[[], None], int]:
    """Matrix products that take about WORK_MS, and their number."""
    left = torch.randn(4096, 4096, device=DEVICE, dtype=torch.bfloat16)
    right, out = torch.randn_like(left), torch.empty_like(left)

    def products(count: int) -> None:
        for _ in range(count):
            torch.mm(left, right, out=out)

    for _ in range(5):
        products(50)  # the clocks rise
    each = min(step_ms(lambda: products(50)) for _ in range(5)) / 50
    count = max(1, round(WORK_MS / each))
    return lambda: products(count), count


def measure(layer: Layer, tokens: int, how: str, work: Callable[[], None], repeats: int) -> Visible:
    rows = tokens * ROWS_A_TOKEN
    dice = np.random.default_rng(tokens)
    pool = on_device(layer.table.draw(dice, repeats * 4 * rows).reshape(repeats * 4, tokens, ROWS_A_TOKEN))
    others = on_device(np.zeros((tokens, ROWS_A_TOKEN), dtype=np.int64))
    ids = pool[0].clone()
    beside, plain = layer.lookup(True), layer.lookup(False)
    resident = [tensor.view(torch.uint8).clone() for tensor in plain.rows(ids)]

    def side() -> Any:
        pending = beside.start(ids)
        work()
        return dequantise(*beside.finish(pending))

    def in_line() -> Any:
        work()
        return dequantise(*plain.rows(ids))

    def without() -> Any:
        work()
        return dequantise(*resident)

    def alone() -> Any:
        return dequantise(*plain.rows(ids))

    variants: dict[str, Callable[[], Any]] = {"without": without, "side": side, "in line": in_line, "alone": alone}
    kept = []
    if how == "graph":
        for name, function in list(variants.items()):
            graph, found = capture(function)
            kept.append((graph, found))
            variants[name] = graph.replay
    took: dict[str, list[float]] = {name: [] for name in variants}
    used = 0
    for turn in range(repeats + 5):
        for name, step in variants.items():
            ids.copy_(pool[used % len(pool)])
            used += 1
            milliseconds = step_ms(step)
            if turn >= 5:
                took[name].append(milliseconds)
    ids.copy_(others)
    nothing = float(np.median([step_ms(variants["alone"]) for _ in range(20)]))
    base = float(np.median(took["without"]))
    store = store_ms(layer, pool.reshape(len(pool), rows).cpu().numpy()[:30])

    def of(name: str, less: float, quantile: float) -> float:
        return round(float(np.quantile(took[name], quantile)) - less, 4)

    return Visible(
        tokens, rows, how, round(base, 4), round(store, 4), of("alone", 0, 0.5), of("alone", 0, 0.9), round(nothing, 4),
        of("side", base, 0.5), of("side", base, 0.9), of("in line", base, 0.5), of("in line", base, 0.9),
    )  # fmt: skip


def overlap(layer: Layer, repeats: int = REPEATS) -> Seen:
    work, products = calibrated_work()
    cases = [measure(layer, tokens, how, work, repeats) for tokens in TOKENS for how in ("graph", "eager")]
    return {"repeats": repeats, "products": products, "cases": [asdict(case) for case in cases]}


def table_lines(seen: Seen) -> list[str]:
    lines = [
        f"{'tokens':>6}{'rows':>6}  {'how':7}{'work ms':>9}{'store':>9}{'lookup alone':>20}{'no row owned':>14}"
        f"{'visible, side stream':>24}{'visible, in line':>22}",
        f"{'':30}{'median':>9}{'median / p90':>20}{'median':>14}{'median / p90':>24}{'median / p90':>22}",
    ]
    for case in seen["cases"]:
        alone = f"{case['alone_ms']:.3f} / {case['alone_p90_ms']:.3f}"
        side = f"{case['side_ms']:.3f} / {case['side_p90_ms']:.3f}"
        in_line = f"{case['in_line_ms']:.3f} / {case['in_line_p90_ms']:.3f}"
        lines.append(
            f"{case['tokens']:>6}{case['rows']:>6}  {case['how']:7}{case['work_ms']:>9.3f}{case['store_ms']:>9.3f}"
            f"{alone:>20}{case['none_owned_ms']:>14.3f}{side:>24}{in_line:>22}"
        )
    return lines
