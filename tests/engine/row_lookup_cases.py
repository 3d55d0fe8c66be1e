"""Run by the engine's Python, with its torch and without SGLang: `row_lookup_cases.py LIBRARY FOLDER` prints one JSON
object, case -> what was wrong ('' is right).

The way through pinned memory runs on this machine's memory: CUDA's calls are replaced by ones that copy and call at
once, or, in a capture, write down what a replay then does with the same addresses.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from spark_overlay import row_lookup
from spark_overlay.cuda_runtime import CudaError, CudaRuntime
from spark_overlay.engram_file import Header
from spark_overlay.engram_pages import build_pages
from spark_overlay.row_lookup import Pending, RowLookup, dequantise
from spark_overlay.row_store import Options, RowStore, load

ROWS, LO, HI = 4001, 1300, 2677
TABLE = np.random.default_rng(3).integers(0, 256, (ROWS, 264), dtype=np.uint8)
CPU = torch.device("cpu")


def opened(library: Path, folder: Path, *, strict: bool = True) -> RowStore:
    header = Header(
        layer=1, rank=1, tp=3, weight_bytes=256, scale_bytes=8, row_lo=LO, row_hi=HI, total_rows=ROWS, column_lo=1,
        column_hi=2, by_columns=True, revision="0" * 40, fingerprint=bytes(32), bounds=(0, LO, HI, ROWS),
    )  # fmt: skip
    path, own = folder / "rows.bin", TABLE[LO:HI]
    path.write_bytes(header.packed() + build_pages(header, 0, own[:, :256].tobytes(), own[:, 256:].tobytes()).tobytes())
    return RowStore(path, expected=header, options=Options(strict=strict, quiet=True), library=load(library))


def expected(ids: torch.Tensor) -> torch.Tensor:
    flat = ids.reshape(-1).numpy()
    rows = np.where(((flat >= LO) & (flat < HI))[:, None], TABLE[flat], 0).astype(np.uint8)
    return torch.from_numpy(rows).reshape(*ids.shape, 264)


def some_ids(seed: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, ROWS, shape, dtype=np.int64))


class Device:
    """Stands for CUDA. `log` holds what was asked of streams, in order."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.log: list[str] = []
        self.captured: list[Callable[[], None]] | None = None

    def stream(self, number: int) -> Any:
        made = mock.Mock(cuda_stream=number)
        made.wait_event = lambda event: self.log.append(f"{number} waits for {event.name}")
        return made

    def event(self) -> Any:
        made = mock.Mock()
        made.name = f"event {len(self.kept)}"
        made.record = lambda stream: self.log.append(f"{made.name} on {stream.cuda_stream}")
        self.kept.append(made)
        return made

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        cuda, main = torch.cuda, self.stream(7)
        with (
            mock.patch.object(cuda, "current_stream", lambda device=None: main),
            mock.patch.object(cuda, "is_current_stream_capturing", lambda: self.captured is not None),
            mock.patch.object(cuda, "Event", self.event),
            mock.patch.object(torch.Tensor, "record_stream", lambda tensor, stream: None),
        ):
            yield

    @contextlib.contextmanager
    def capture(self) -> Iterator[list[Callable[[], None]]]:
        self.captured = []
        try:
            yield self.captured
        finally:
            self.captured = None

    def _do(self, step: Callable[[], None], what: str) -> None:
        self.log.append(what)
        if self.captured is None:
            step()
        else:
            self.captured.append(step)

    def host_alloc(self, count: int) -> int:
        self.kept.append(ctypes.create_string_buffer(count + 256))
        return -(-ctypes.addressof(self.kept[-1]) // 256) * 256

    def to_host(self, target: int, source: int, count: int, stream: int) -> None:
        self._do(lambda: ctypes.memmove(target, source, count) and None, f"copy on {stream}")

    to_device = to_host

    def launch_host_function(self, stream: int, function: int, argument: int) -> None:
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
        self._do(lambda: call(argument), f"call on {stream}")


class Way:
    """A lookup by way of pinned memory, on `Device`."""

    def __init__(self, store: RowStore, device: Device, max_ids: int, side: Any, captured_ids: int = 64) -> None:
        self.inner = row_lookup._OnGpu(store, CPU, max_ids, side, captured_ids, device)  # type: ignore[arg-type]

    def start(self, ids: torch.Tensor) -> Pending:
        flat = ids.reshape(-1)
        return self.inner.start(ids.shape, flat, torch.full((flat.numel(), 264), 0xA5, dtype=torch.uint8))


def wrong(found: torch.Tensor, ids: torch.Tensor) -> str:
    rows = expected(ids).reshape(-1, 264)
    return "" if torch.equal(found, rows) else f"{int((found != rows).any(1).sum())} of {len(rows)} rows"


def on_the_cpu(store: RowStore) -> str:
    lookup = RowLookup(store, device=CPU, max_ids=16, side_stream=True)
    for shape in ((1,), (7, 24), (3, 1, 24), (0, 24)):
        ids = some_ids(1, *shape)
        weight, scale = lookup.finish(lookup.start(ids))
        if weight.dtype != torch.float8_e4m3fn or scale.dtype != torch.float8_e8m0fnu:
            return f"{weight.dtype} {scale.dtype}"
        found = torch.cat((weight.view(torch.uint8), scale.view(torch.uint8)), -1)
        if not torch.equal(found, expected(ids)):
            return f"shape {shape}"
    columns = some_ids(2, 50, 24)
    if not torch.equal(lookup.rows(columns[:, 8:16])[0].view(torch.uint8), expected(columns)[:, 8:16, :256]):
        return "a slice of columns"
    try:
        lookup.start(columns.int())
    except ValueError as error:
        return "" if "ids must be int64 on cpu, not torch.int32 on cpu" in str(error) else str(error)
    return "int32 ids were taken"


def every_byte_with_every_scale() -> str:
    """As the engine's lookup without a GPU computes it: EngramEmbedding._owned_rows."""
    weight = torch.arange(256, dtype=torch.uint8).repeat(256, 1).view(torch.float8_e4m3fn)
    scale = torch.arange(256, dtype=torch.uint8)[:, None].repeat(1, 8).view(torch.float8_e8m0fnu)
    exact = (weight.float().unflatten(-1, (8, 32)) * scale.float().unsqueeze(-1)).flatten(-2)
    found = dequantise(weight, scale)
    if not torch.equal(found.view(torch.int16), exact.to(torch.bfloat16).view(torch.int16)):
        return "bfloat16"
    zeros = torch.zeros(2, 264, dtype=torch.uint8)
    if int(dequantise(zeros[:, :256], zeros[:, 256:]).view(torch.int16).abs().sum()):
        return "a row of another rank is not zero"
    same = torch.equal(dequantise(weight, scale, torch.float32).nan_to_num(7), exact.nan_to_num(7))
    return "" if same else "float32"


def eager_in_pieces(store: RowStore) -> str:
    device = Device()
    with device.on():
        way = Way(store, device, 50, device.stream(9))
        before = len(device.kept)
        for count in (1, 49, 50, 51, 333):
            ids = some_ids(count, count)
            device.log.clear()
            asked = store.statistics().ids
            pending = way.start(ids)
            if problem := wrong(pending.rows, ids):
                return f"{count}: {problem}"
            if store.statistics().ids != asked + count:
                return f"{count}: the store was asked for {store.statistics().ids - asked} ids"
            pieces = -(-count // 50)
            fork, join, *steps, done = device.log
            if steps != ["copy on 9", "call on 9", "copy on 9"] * pieces or " on 7" not in fork or " on 9" not in done:
                return f"{count}: {device.log}"
            if join != f"9 waits for {fork.removesuffix(' on 7')}" or pending.done.name not in done:
                return f"{count}: {device.log}"
        return "" if len(device.kept) == before else "an eager call made something that stays"


def graphs_with_new_ids(store: RowStore) -> str:
    """Two sizes captured with one lookup and replayed in turn, eager calls between; what was reserved does not do."""
    device = Device()
    with device.on():
        way = Way(store, device, 100, device.stream(9), captured_ids=0)
        reserved = way.inner.pinned.total_bytes
        captured = []
        for size in (6, 48, 20_000):
            ids = torch.full((size,), LO)
            with device.capture() as steps:
                captured.append((ids, way.start(ids), steps))
            if not bool((captured[-1][1].rows == 0xA5).all()):
                return "a capture read"
        if way.inner.pinned.total_bytes <= reserved:
            return "20,000 ids fit into nothing"
        for turn in range(12):
            ids, pending, steps = captured[turn % 3]
            ids.copy_(some_ids(turn, len(ids)))
            eager = some_ids(100 + turn, 77)
            # An eager call between the steps of a replay, as on two streams: neither sees the other's memory.
            for number, step in enumerate(steps):
                step()
                if number < 3 and (problem := wrong(way.start(eager).rows, eager)):
                    return f"eager beside a replay: {problem}"
            if problem := wrong(pending.rows, ids):
                return f"replay {turn}: {problem}"
    return ""


def without_a_side_stream(store: RowStore) -> str:
    device = Device()
    with device.on():
        way = Way(store, device, 100, None)
        with device.capture():
            device.log.clear()
            pending = way.start(some_ids(1, 6))
        if device.log != ["copy on 7", "call on 7", "copy on 7"] or pending.done is not None:
            return f"captured: {device.log}"
        device.log.clear()
        ids = some_ids(2, 6)
        pending = way.start(ids)
        first, *steps, last = device.log
        if "7 waits for" not in first or steps != ["copy on 7", "call on 7", "copy on 7"] or " on 7" not in last:
            return f"eager: {device.log}"
        return wrong(pending.rows, ids)


def a_store_that_goes_on_is_refused(library: Path, folder: Path) -> str:
    with opened(library, folder, strict=False) as store:
        try:
            RowLookup(store, device=torch.device("cuda", 0), max_ids=16, side_stream=False)
        except ValueError as error:
            return "" if "needs a strict row store" in str(error) else str(error)
    return "it was taken"


def a_failed_cuda_call_is_named() -> str:
    """The real library, on a machine without a GPU."""
    runtime = CudaRuntime()
    for name, call in (
        ("cudaThreadExchangeStreamCaptureMode", lambda: runtime.host_alloc(4096)),
        ("cudaMemcpyAsync to the host", lambda: runtime.to_host(1, 2, 3, 0)),
        ("cudaMemcpyAsync to the device", lambda: runtime.to_device(1, 2, 3, 0)),
        ("cudaLaunchHostFunc", lambda: runtime.launch_host_function(0, 1, 2)),
        ("cudaStreamCreateWithFlags", runtime.new_stream),
    ):
        try:
            call()
        except CudaError as error:
            if not str(error).startswith(f"{name}: ") or "CUDA error" not in str(error):
                return str(error)
        else:
            return f"{name} succeeded"
    return ""


def main() -> None:
    library, folder = Path(sys.argv[1]), Path(sys.argv[2])
    found = {
        "a store that goes on is refused": a_store_that_goes_on_is_refused(library, folder),
        "a failed CUDA call is named": a_failed_cuda_call_is_named(),
        "every byte with every scale": every_byte_with_every_scale(),
    }
    with opened(library, folder) as store:
        found["on the CPU"] = on_the_cpu(store)
        found["eager in pieces"] = eager_in_pieces(store)
        found["graphs with new ids"] = graphs_with_new_ids(store)
        found["without a side stream"] = without_a_side_stream(store)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
