"""Which libcudart the row lookup calls: the one that torch loaded, not a copy that another wheel brought."""

from __future__ import annotations

from spark_overlay.cuda_runtime import loaded_library

LINE = "7f00d0000000-7f00d00a0000 r-xp 00001000 fe:00 1234                       {}\n"
TORCH = "/opt/engine/lib/python3.12/site-packages/nvidia/cu13/lib/libcudart.so.13"


def maps(*paths: str) -> str:
    anonymous = "7f00c0000000-7f00c0010000 rw-p 00000000 00:00 0\n"
    return anonymous + "".join(LINE.format(path) * 3 for path in paths)


def test_the_plain_name_is_taken() -> None:
    other = "/opt/engine/lib/python3.12/site-packages/torchvision.libs/libcudart.faf08d9a.so.13"
    assert loaded_library(maps("/usr/lib/libc.so.6", other, TORCH)) == TORCH
    assert loaded_library(maps(other)) == other
    assert (
        loaded_library(maps("/a path/with spaces/libcudart.so.12.4.127")) == "/a path/with spaces/libcudart.so.12.4.127"
    )


def test_nothing_else_is_taken_for_it() -> None:
    assert (
        loaded_library(maps("/usr/lib/libcuda.so.1", "/x/libcudart.so.13/notes.txt", "/x/libcudart_static.a")) is None
    )
    assert loaded_library("") is None
