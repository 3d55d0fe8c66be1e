"""The device side of the Engram lookup: ids on the GPU -> pinned memory -> row store -> pinned memory -> GPU.

    lookup = RowLookup(store, device=torch.device("cuda", 0), max_ids=16384, side_stream=True)
    pending = lookup.start(ids)                 # right after the hash
    ...                                         # the layers before this one
    weight, scale = lookup.finish(pending)
    values = dequantise(weight, scale)          # zeros where another rank has the row

The same calls work eager and inside a captured CUDA graph, which replays with new ids: the copies and the host
function (row_store.h's rs_host_lookup: C++, no Python, no CUDA call) become nodes with fixed addresses.

- Pinned memory, requests and streams are made by the constructor. Device tensors come from torch's allocator, so a
  result stays right for as long as it is kept.
- A captured call gets pinned memory and a request of its own, never used by another call: graphs may be replayed while
  others or eager calls run. What `captured_ids` reserves for them grows by itself if it does not suffice.
- Eager calls share one buffer. They follow each other on one stream, or wait for the last one's event.
- Pinned memory and requests are never freed, and the store must not be closed while a graph may be replayed.
- On a device the store must be strict: a host function cannot raise, so a read that fails ends the process.
- One thread at a time may call.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_overlay.cuda_runtime import CudaRuntime
from spark_overlay.row_store import Request, RowStore

if TYPE_CHECKING:
    import torch

_ALIGNMENT = 256
_LEAST_GROWTH_BYTES = 4 << 20


class _PinnedMemory:
    """Pieces of pinned memory, handed out and never taken back."""

    def __init__(self, runtime: CudaRuntime, first_bytes: int) -> None:
        self._runtime = runtime
        self._next = runtime.host_alloc(first_bytes)
        self._end = self._next + first_bytes
        self.total_bytes = first_bytes

    def take(self, count: int) -> int:
        """An aligned address; allowed while a stream is captured."""
        needed = -(-count // _ALIGNMENT) * _ALIGNMENT
        if self._end - self._next < needed:
            grown = max(needed, _LEAST_GROWTH_BYTES)
            self._next = self._runtime.host_alloc(grown)
            self._end = self._next + grown
            self.total_bytes += grown
        address = self._next
        self._next += needed
        return address


@dataclass(frozen=True, slots=True)
class _Site:
    """Where one call's ids, rows and request lie in pinned memory."""

    ids: int
    rows: int
    request: int

    def put(self, request: Request) -> None:
        ctypes.memmove(self.request, ctypes.addressof(request), ctypes.sizeof(request))


@dataclass(slots=True)
class Pending:
    """A lookup that was started. `rows`: uint8 [ids, row_bytes] on the device, right once `done` has happened."""

    shape: torch.Size
    rows: torch.Tensor
    ids: torch.Tensor | None
    done: torch.cuda.Event | None = None
    stream: torch.cuda.Stream | None = None


class _OnGpu:
    """The way of one layer's ids to the store and of its rows back, through pinned memory."""

    def __init__(
        self,
        store: RowStore,
        device: torch.device,
        max_ids: int,
        side: torch.cuda.Stream | None,
        captured_ids: int,
        runtime: CudaRuntime,
    ) -> None:
        import torch

        self._store, self._device, self._max_ids, self._side = store, device, max_ids, side
        self._row_bytes = int(store.info.row_bytes)
        self._runtime, self._function = runtime, store.host_function
        an_id, requests = 8 + self._row_bytes, ctypes.sizeof(Request) * max_ids
        self.pinned = _PinnedMemory(runtime, an_id * (max_ids + max(0, captured_ids)) + requests + 16 * _ALIGNMENT)
        take = self.pinned.take
        self._eager = _Site(take(8 * max_ids), take(self._row_bytes * max_ids), take(requests))
        # One a number of ids, written here only: several calls may be on their way to the device.
        for count in range(1, max_ids + 1):
            self._eager_site(count).put(store.request(self._eager.ids, count, self._eager.rows))
        self._fork, self._done = torch.cuda.Event(), torch.cuda.Event()

    def start(self, shape: torch.Size, flat: torch.Tensor, rows: torch.Tensor) -> Pending:
        import torch

        current = torch.cuda.current_stream(self._device)
        capturing = torch.cuda.is_current_stream_capturing()
        work = current if self._side is None else self._side
        # An event that was recorded in a capture is of no use outside, and the other way round.
        fork, done = (torch.cuda.Event(), torch.cuda.Event()) if capturing else (self._fork, self._done)
        if self._side is not None:
            fork.record(current)
            work.wait_event(fork)
            if not capturing:
                # Dropped without a finish, their memory must not be handed out before the side stream is through.
                flat.record_stream(work)
                rows.record_stream(work)
        elif not capturing:
            # The last call may have been on another stream, and still use the pinned buffer.
            work.wait_event(done)
        stream, size = work.cuda_stream, self._row_bytes
        for first in range(0, flat.numel(), self._max_ids):
            count = min(self._max_ids, flat.numel() - first)
            site = self._captured_site(count) if capturing else self._eager_site(count)
            self._runtime.to_host(site.ids, flat.data_ptr() + 8 * first, 8 * count, stream)
            self._runtime.launch_host_function(stream, self._function, site.request)
            self._runtime.to_device(rows.data_ptr() + size * first, site.rows, size * count, stream)
        if self._side is None and capturing:
            return Pending(shape, rows, flat)
        done.record(work)
        return Pending(shape, rows, flat, done if self._side is not None else None, current)

    def _eager_site(self, count: int) -> _Site:
        shared = self._eager
        return _Site(shared.ids, shared.rows, shared.request + ctypes.sizeof(Request) * (count - 1))

    def _captured_site(self, count: int) -> _Site:
        take = self.pinned.take
        site = _Site(take(8 * count), take(self._row_bytes * count), take(ctypes.sizeof(Request)))
        site.put(self._store.request(site.ids, count, site.rows))
        return site


def own_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream that nobody else has: torch hands out its 32 in turn, so that two users may get the same one, and work
    that should run beside other work would follow it.
    """
    import torch

    with torch.cuda.device(device):
        torch.cuda.init()
        return torch.cuda.ExternalStream(CudaRuntime().new_stream(), device=device)


class RowLookup:
    """One layer's rows by ids that are on `device`; ids of other ranks give rows of zeros.

    `side_stream`: True reads on a stream of its own, a stream (see `own_stream`) on that one: layers that share one
    are read in the order of their starts. False reads on the current stream. `max_ids` go through pinned memory at a
    time.
    """

    def __init__(
        self,
        store: RowStore,
        *,
        device: torch.device,
        max_ids: int,
        side_stream: bool | torch.cuda.Stream,
        captured_ids: int = 16384,
    ) -> None:
        """Raises ValueError for a store that is not strict, CudaError where pinned memory cannot be had."""
        import torch

        if max_ids < 1:
            raise ValueError(f"max_ids must be at least 1, not {max_ids}")
        self.store = store
        self.device, self.max_ids = torch.device(device), max_ids
        self._weight_bytes, self._row_bytes = int(store.info.weight_bytes), int(store.info.row_bytes)
        self._gpu: _OnGpu | None = None
        if self.device.type == "cpu":
            return
        if not store.strict:
            raise ValueError("a lookup on a GPU needs a strict row store: its host function cannot raise")
        if self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        side = own_stream(self.device) if side_stream is True else None if side_stream is False else side_stream
        with torch.cuda.device(self.device):
            torch.cuda.init()
            self._gpu = _OnGpu(store, self.device, max_ids, side, captured_ids, CudaRuntime())

    @property
    def pinned_bytes(self) -> int:
        return 0 if self._gpu is None else self._gpu.pinned.total_bytes

    def start(self, ids: torch.Tensor) -> Pending:
        """`ids`: int64, any shape, on `device`, not to be changed before `finish`, which must follow on the same thread
        (in a capture: in the same one). Raises ValueError, CudaError; on a CPU also RowStoreError.
        """
        import torch

        if ids.dtype != torch.int64 or ids.device != self.device:
            raise ValueError(f"ids must be int64 on {self.device}, not {ids.dtype} on {ids.device}")
        flat = ids.reshape(-1).contiguous()
        rows = torch.empty((flat.numel(), self._row_bytes), dtype=torch.uint8, device=self.device)
        if flat.numel() and self._gpu is not None:
            with torch.cuda.device(self.device):
                return self._gpu.start(ids.shape, flat, rows)
        if flat.numel():
            self.store.lookup_at(flat.data_ptr(), flat.numel(), rows.data_ptr())
        return Pending(ids.shape, rows, None)

    def finish(self, pending: Pending) -> tuple[torch.Tensor, torch.Tensor]:
        """float8_e4m3fn [*ids.shape, weight bytes] and float8_e8m0fnu [*ids.shape, scale bytes]: two views of one
        tensor of whole rows, so neither is contiguous. From here on the current stream waits for the rows.
        """
        import torch

        if pending.done is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(pending.done)
            if current != pending.stream and not torch.cuda.is_current_stream_capturing():
                pending.rows.record_stream(current)
        pending.ids = pending.done = None
        rows = pending.rows.view(*pending.shape, self._row_bytes)
        weight, scale = rows[..., : self._weight_bytes], rows[..., self._weight_bytes :]
        return weight.view(torch.float8_e4m3fn), scale.view(torch.float8_e8m0fnu)

    def rows(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`start` and `finish` in one."""
        return self.finish(self.start(ids))


def dequantise(weight: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """[*, bytes of weight] of `dtype` (bfloat16): weight * 2**(scale - 127) a group, rounded once.

    Bit for bit what the engine's table lookup gives on the same device. The two differ in scale 255, which is a NaN on
    the CPU and infinity in the engine's GPU kernel; no checkpoint should hold it.
    """
    import torch

    wanted = torch.bfloat16 if dtype is None else dtype
    weight = weight.view(torch.float8_e4m3fn)
    if weight.is_cuda:
        # The scale is the exponent of a bfloat16; 0, which would be zero there, stands for 2**-127: bits 64.
        exponents = scale.view(torch.uint8).to(torch.int16).mul_(128).clamp_(min=64)
        factors = exponents.view(torch.bfloat16)
    else:
        factors = scale.view(torch.float8_e8m0fnu).to(torch.bfloat16)
    if wanted is not torch.bfloat16:
        values, factors = weight.to(torch.float32), factors.to(torch.float32)
    else:
        # Exact, as each has few enough bits; the product is formed in float32.
        values = weight.to(torch.bfloat16)
    grouped = values.unflatten(-1, (factors.shape[-1], -1)) * factors.unsqueeze(-1)
    return grouped.flatten(-2).to(wanted)
