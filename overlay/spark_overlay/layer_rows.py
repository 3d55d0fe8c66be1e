"""One Engram layer's lookups in the engine: started right after the hash, taken by the layer that they are for.

A started lookup belongs to the very tensor of ids that it was started with: same memory, shape and strides. A layer
that comes with another one (a part of the tokens, gathered ids) gets a lookup of its own. On a GPU the same calls are
recorded into a captured graph, where what was started has to be finished in the same capture.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_overlay.row_lookup import Pending, RowLookup, dequantise

if TYPE_CHECKING:
    import torch

MAX_IDS = 16384
"""Ids that go through pinned memory at a time: 680 tokens of 24 columns; a larger batch goes in parts."""
DIFFERENT = 71


@dataclass(slots=True)
class _Started:
    ids: torch.Tensor
    pending: Pending
    captured: bool

    def is_for(self, ids: torch.Tensor) -> bool:
        mine = self.ids
        return (mine.data_ptr(), mine.shape, mine.stride()) == (ids.data_ptr(), ids.shape, ids.stride())


class LayerRows:
    """The rows of one layer for this rank. `name` stands in messages.

    With `check` each lookup is compared with a second one that is waited for; a difference ends the process.
    """

    def __init__(self, rows: Any, device: torch.device, *, name: str, check: bool) -> None:
        self.device = device
        self._rows, self._name, self._check = rows, name, check
        self._lookup: RowLookup | None = None
        self._started: _Started | None = None

    def ready(self, stream: torch.cuda.Stream | None) -> None:
        """Make what lookups need, pinned memory on a GPU, before a graph is captured. `stream`: theirs, or None for
        the current one.
        """
        if self._lookup is None:
            self._lookup = RowLookup(
                self._rows, device=self.device, max_ids=MAX_IDS, side_stream=False if stream is None else stream
            )

    def start(self, ids: torch.Tensor) -> None:
        """`ids`: int64, any shape; kept until they are asked for."""
        lookup, captured = self._made(), _is_capturing(ids)
        self._drop(captured)
        self._started = _Started(ids, lookup.start(ids), captured)

    def values(self, ids: torch.Tensor) -> torch.Tensor:
        """bfloat16 [*ids.shape, weights of a row]: zeros where another rank has the row."""
        lookup, captured, started = self._made(), _is_capturing(ids), self._started
        if started is not None and started.captured == captured and started.is_for(ids):
            self._started = None
            weight, scale = lookup.finish(started.pending)
        else:
            self._drop(captured)
            weight, scale = lookup.rows(ids)
        if self._check:
            self._compare(ids, weight, scale, captured)
        return dequantise(weight, scale)

    def _made(self) -> RowLookup:
        if self._lookup is None:
            self.ready(None)
            assert self._lookup is not None
        return self._lookup

    def _drop(self, captured: bool) -> None:
        """Nobody took what was started. In a capture its stream has to come back to the one that is captured."""
        started, self._started = self._started, None
        if started is not None and started.captured and captured:
            self._made().finish(started.pending)

    def _compare(self, ids: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, captured: bool) -> None:
        import torch

        again = self._made().rows(ids)
        same = torch.ones(ids.shape, dtype=torch.bool, device=ids.device)
        for first, second in zip((weight, scale), again, strict=True):
            same &= (first.view(torch.uint8) == second.view(torch.uint8)).all(dim=-1)
        if captured:
            # The only end that a captured graph has: an assertion on the device, which the next synchronisation meets.
            torch._assert_async(same.all())
            return
        if not bool(same.all()):
            wrong = ids[~same].flatten()
            print(
                f"[spark] ERROR Engram check ({self._name}): {wrong.numel()} of {ids.numel()} rows, first that of id "
                f"{int(wrong[0])}, does not match a second read; this engine process ends here",
                file=sys.stderr,
                flush=True,
            )
            os._exit(DIFFERENT)


def _is_capturing(ids: torch.Tensor) -> bool:
    import torch

    return ids.is_cuda and torch.cuda.is_current_stream_capturing()
