"""`verify --source-allowed` on an engine whose import fails: only the missing GPU driver is excused."""

from __future__ import annotations

import pytest
from spark_overlay import verify as verifying
from spark_overlay.adapter import Adapter, HookPoint, Kind, Process
from spark_overlay.verify import verify

TARGET = "engine.module.function"
ADAPTER = Adapter(
    name="one", problem="", settings=(), hooks=(HookPoint(TARGET, Kind.AROUND, "(self)", Process.SERVER),),
    engines=("9",), remove_when="", off=lambda values: "", functions=lambda values: {},
)  # fmt: skip


def wrapped(cause: str) -> ImportError:
    """As a package's own loader tells of it."""
    error = ImportError("[kernels] CRITICAL: no library of ours could be loaded")
    error.__cause__ = OSError(cause)
    return error


@pytest.mark.parametrize(
    ("error", "excused"),
    [
        (ImportError("libcuda.so.1: cannot open shared object file: No such file or directory"), True),
        (RuntimeError("Found no NVIDIA driver on your system."), True),
        (RuntimeError("0 active drivers ([]). There should only be one."), True),
        (wrapped("libcuda.so.1: cannot open shared object file"), True),
        (ModuleNotFoundError("No module named 'flashinfer'"), False),
        (ImportError("libcudart.so.13: cannot open shared object file: No such file or directory"), False),
        (ImportError("cannot import name 'x' from 'torch'"), False),
        (OSError("undefined symbol: _ZN3c104cuda"), False),
        (RuntimeError("operator torchvision::nms does not exist"), False),
        (wrapped("undefined symbol: _ZN3c104cuda"), False),
    ],
)
def test_only_a_missing_driver_is_excused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, excused: bool
) -> None:
    def fails(target: str) -> str:
        raise error

    monkeypatch.setattr(verifying, "engine_version", lambda: "9")
    monkeypatch.setattr(verifying.arming, "signature_now", fails)
    monkeypatch.setattr(verifying.signatures, "in_source", lambda target: "(self)")
    assert verify((ADAPTER,), {}, source_allowed=True) == (0 if excused else 1)
    said = capsys.readouterr().out
    assert ("hook points compared with the source only" in said) is excused
    assert ("[spark] ERROR the engine cannot be imported here: " in said) is not excused
    assert verify((ADAPTER,), {}) == 1, "nothing is excused where nobody allowed it"
