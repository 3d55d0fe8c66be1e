"""The few CUDA runtime calls that torch does not offer, by ctypes through the libcudart that torch itself loaded.

Torch must be imported first. Every status is checked. Memory and streams made here are never given back: a captured
graph may hold an address.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_LIBRARY = re.compile(r"libcudart[-.\w]*\.so\b[.\d]*$")
_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2
_PORTABLE = 1
"""cudaHostAllocPortable: pinned for every context of the process."""
_NON_BLOCKING = 1
"""cudaStreamNonBlocking: does not wait for the legacy default stream, as torch's own streams."""
_RELAXED = 2
"""cudaStreamCaptureModeRelaxed: this thread may allocate while some stream is captured."""


class CudaError(RuntimeError):
    """A CUDA call that failed: its name, the runtime's text and number."""


def loaded_library(maps: str) -> str | None:
    """The path of libcudart in the text of /proc/<pid>/maps, None if there is none.

    Other wheels bring copies with a hash in their names; the plain name is the one of torch.
    """
    found = {fields[5] for line in maps.splitlines() if len(fields := line.split(maxsplit=5)) == 6}
    names = sorted(path for path in found if _LIBRARY.search(path.rpartition("/")[2]))
    plain = [path for path in names if path.rpartition("/")[2].startswith("libcudart.so")]
    return next(iter(plain or names), None)


class CudaRuntime:
    """Streams are `torch.cuda.Stream.cuda_stream` numbers; memory is given by address. Raises CudaError."""

    def __init__(self) -> None:
        path = loaded_library(Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace"))
        if path is None:
            raise CudaError("no libcudart is loaded in this process: is this torch built for CUDA?")
        self.path = path
        library = ctypes.CDLL(path)
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        self._text = library.cudaGetErrorString
        self._text.restype, self._text.argtypes = ctypes.c_char_p, (number,)
        self._host_alloc = self._typed(library, "cudaHostAlloc", pointer, size, ctypes.c_uint)
        self._copy = self._typed(library, "cudaMemcpyAsync", pointer, pointer, size, number, pointer)
        self._launch = self._typed(library, "cudaLaunchHostFunc", pointer, pointer, pointer)
        self._create = self._typed(library, "cudaStreamCreateWithFlags", pointer, ctypes.c_uint)
        self._exchange = self._typed(library, "cudaThreadExchangeStreamCaptureMode", pointer)

    @staticmethod
    def _typed(library: ctypes.CDLL, name: str, *arguments: Any) -> Any:
        function = getattr(library, name)
        function.restype, function.argtypes = ctypes.c_int, arguments
        return function

    def _check(self, status: int, what: str) -> None:
        if status:
            text = (self._text(status) or b"no text").decode("utf-8", "replace")
            raise CudaError(f"{what}: {text} (CUDA error {status})")

    @contextmanager
    def _allocation_allowed(self) -> Iterator[None]:
        mode = ctypes.c_int(_RELAXED)
        self._check(self._exchange(ctypes.byref(mode)), "cudaThreadExchangeStreamCaptureMode")
        try:
            yield
        finally:
            self._check(self._exchange(ctypes.byref(mode)), "cudaThreadExchangeStreamCaptureMode")

    def host_alloc(self, count: int) -> int:
        """Address of `count` pinned bytes that stay for good; allowed while a stream is captured."""
        address = ctypes.c_void_p()
        with self._allocation_allowed():
            self._check(
                self._host_alloc(ctypes.byref(address), count, _PORTABLE), f"cudaHostAlloc of {count} pinned bytes"
            )
        return address.value or 0

    def new_stream(self) -> int:
        """A stream of the current device that nobody else has; torch hands its 32 out in turn, again and again."""
        stream = ctypes.c_void_p()
        self._check(self._create(ctypes.byref(stream), _NON_BLOCKING), "cudaStreamCreateWithFlags")
        return stream.value or 0

    def to_host(self, target: int, source: int, count: int, stream: int) -> None:
        self._check(self._copy(target, source, count, _DEVICE_TO_HOST, stream), "cudaMemcpyAsync to the host")

    def to_device(self, target: int, source: int, count: int, stream: int) -> None:
        self._check(self._copy(target, source, count, _HOST_TO_DEVICE, stream), "cudaMemcpyAsync to the device")

    def launch_host_function(self, stream: int, function: int, argument: int) -> None:
        """`function(argument)` runs on a thread of the driver, in the stream's order; it must make no CUDA call."""
        self._check(self._launch(stream, function, argument), "cudaLaunchHostFunc")
