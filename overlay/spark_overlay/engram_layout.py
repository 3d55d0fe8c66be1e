"""Which rows of an Engram table belong to which rank: SGLang 0.5.23's own rule, in plain Python.

A table has one column (a contiguous run of rows) for each n-gram order and hash head; a column's length is a prime. The
primes are drawn upwards from `engram_vocab_size - 1`, none used twice, in the order layer, n-gram order, head. The sums
must equal the config's `engram_num_embeddings`. Source: `sglang/srt/layers/engram.py` (EngramLayout, shard_range); a
test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_overlay.checkpoint_config import flat

SCALE_BLOCK = 32
"""Weights that share one scale byte."""


class LayoutError(ValueError):
    """The checkpoint's Engram fields contradict each other or are missing."""


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows [lo, hi) of a table, made of the columns [column_lo, column_hi) or, when by_columns is False, of equal
    parts.
    """

    lo: int
    hi: int
    column_lo: int
    column_hi: int
    by_columns: bool

    @property
    def rows(self) -> int:
        return self.hi - self.lo


@dataclass(frozen=True, slots=True)
class EngramLayout:
    """The Engram tables of a checkpoint. `bounds[i]` are layer `layer_ids[i]`'s column bounds, first 0, last its row
    count.
    """

    layer_ids: tuple[int, ...]
    bounds: tuple[tuple[int, ...], ...]
    head_dim: int

    @property
    def weight_bytes(self) -> int:
        return self.head_dim

    @property
    def scale_bytes(self) -> int:
        return self.head_dim // SCALE_BLOCK

    @property
    def row_bytes(self) -> int:
        return self.weight_bytes + self.scale_bytes


def _is_prime(number: int) -> bool:
    if number < 4:
        return number > 1
    if number % 2 == 0:
        return False
    # These seven bases decide every number below 2^64 / 54 (Jaeschke), far above any vocabulary.
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd //= 2
        twos += 1
    for base in (2, 3, 5, 7, 11, 13, 17):
        if base % number == 0:
            continue
        value = pow(base, odd, number)
        if value in (1, number - 1):
            continue
        for _ in range(twos - 1):
            value = value * value % number
            if value == number - 1:
                break
        else:
            return False
    return True


def layout_from_config(config: Mapping[str, Any]) -> EngramLayout | None:
    """The layout from a parsed config.json (fields at its top or under `text_config`); None without an Engram layer.

    Raises LayoutError when the prime sums differ from `engram_num_embeddings`.
    """
    fields = flat(config)
    layer_ids = tuple(int(layer) for layer in fields.get("engram_layer_ids") or ())
    if not layer_ids:
        return None
    try:
        orders = int(fields["engram_max_ngram_size"]) - 1
        heads = int(fields["engram_n_heads"])
        vocab = int(fields["engram_vocab_size"])
        head_dim = int(fields["engram_head_dim"])
        expected = tuple(int(rows) for rows in fields["engram_num_embeddings"])
    except (KeyError, TypeError, ValueError) as error:
        raise LayoutError(f"config.json: an Engram field is missing or no number: {error}") from error
    if head_dim % SCALE_BLOCK:
        raise LayoutError(f"config.json: engram_head_dim {head_dim} is no multiple of {SCALE_BLOCK}")
    if len(expected) != len(layer_ids):
        raise LayoutError("config.json: engram_num_embeddings and engram_layer_ids differ in length")
    used: set[int] = set()
    bounds = []
    for _ in layer_ids:
        layer_bounds = [0]
        for _ in range(orders):
            number = vocab - 1
            for _ in range(heads):
                number += 1
                while number in used or not _is_prime(number):
                    number += 1
                used.add(number)
                layer_bounds.append(layer_bounds[-1] + number)
        bounds.append(tuple(layer_bounds))
    for layer, rows, found in zip(layer_ids, expected, bounds, strict=True):
        if found[-1] != rows:
            raise LayoutError(
                f"config.json: layer {layer} has engram_num_embeddings {rows}, its primes add up to {found[-1]}"
            )
    return EngramLayout(layer_ids, tuple(bounds), head_dim)


def shard_range(bounds: tuple[int, ...], rank: int, tp: int) -> RowRange:
    """Rank `rank`'s rows of `tp`: whole columns when the column count divides by `tp`, else equal parts of the rows."""
    if not 0 <= rank < tp:
        raise LayoutError(f"rank {rank} is not one of {tp}")
    columns = len(bounds) - 1
    rows = bounds[-1]
    if columns % tp == 0:
        each = columns // tp
        return RowRange(bounds[rank * each], bounds[(rank + 1) * each], rank * each, (rank + 1) * each, True)
    return RowRange(rows * rank // tp, rows * (rank + 1) // tp, 0, columns, False)
