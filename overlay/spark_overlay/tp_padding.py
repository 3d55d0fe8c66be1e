"""Heads, output groups and draft experts for a number of ranks that does not divide them: the rule, and the tensors.

A rank's heads are rounded up to a power of two, from 16: the attention kernels have no other width. A group keeps its
heads (eight of this model's 64), so padded groups are whole: their heads' queries, their columns of the output
projection and their rows of it are zero. Padded draft experts are zero too, and their router's bias never wins.
What is padded stands behind what is there, so the last ranks hold the padding and the first none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

LEAST_HEADS = 16
NEVER_CHOSEN = -1e30
"""A padded expert's router bias: finite, since the engine adds it to a score."""
OVERRIDES = {"num_attention_heads": "heads", "o_groups": "groups", "dspark_n_routed_experts": "draft_experts"}
"""config.json's names of the sizes, as `--json-model-override-args` takes them."""
_HEAD_TENSOR = re.compile(r"(?:layers|mtp)\.\d+\.attn\.(?:attn_sink|(?P<part>wq_b|wo_a|wo_b)\.(?P<kind>weight|scale))")
_GATE = re.compile(r"mtp\.\d+\.ffn\.gate\.(?P<kind>weight|bias)")
_FIRST_EXPERT = re.compile(r"(?P<before>mtp\.\d+\.ffn\.experts\.)0(?P<after>\.w[123]\.(?P<kind>weight|scale))")


class PaddingError(ValueError):
    """The model and the checkpoint do not meet: `what` is wrong, `fix` says what to do."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}. Next: {fix}.")
        self.what, self.fix = what, fix


@dataclass(frozen=True, slots=True)
class Sizes:
    """What has to divide: attention heads and output groups by TP_SIZE, the draft's experts by EP_SIZE."""

    heads: int = 64
    groups: int = 8
    draft_experts: int = 128

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Sizes:
        """Of config.json's fields (see `checkpoint_config.flat`); this model's own where one is missing."""
        return cls(**{size: int(fields[name]) for name, size in OVERRIDES.items() if fields.get(name)})

    def padded(self, tp: int, ep: int) -> Sizes:
        """The sizes for `tp` ranks in `ep` expert groups: themselves where they divide."""
        heads, groups = self.heads, self.groups
        if heads % tp or groups % tp:
            a_rank = LEAST_HEADS
            while a_rank * tp < heads:
                a_rank *= 2
            heads, groups = a_rank * tp, a_rank * tp * groups // heads
        return Sizes(heads, groups, -(-self.draft_experts // ep) * ep)

    def overrides(self, real: Sizes) -> dict[str, int]:
        """The fields of config.json that differ from those of `real`."""
        return {
            name: getattr(self, size) for name, size in OVERRIDES.items() if getattr(self, size) != getattr(real, size)
        }

    def said(self, real: Sizes) -> str:
        """`64 heads padded to 96, 8 groups to 12`; what divides is left out."""
        names = {"heads": "heads", "groups": "groups", "draft_experts": "draft experts"}
        changed = [(name, getattr(real, size), getattr(self, size)) for size, name in names.items()]
        return ", ".join(f"{was} {name} padded to {now}" for name, was, now in changed if was != now)


@dataclass(slots=True)
class Padded:
    """Counts of one load: tensors that passed as they are, tensors that were padded or made, and the block scales of
    1.0 and the bytes that this added to the checkpoint's tensors.
    """

    untouched: int = 0
    tensors: int = 0
    unit_scales: int = 0
    added_bytes: int = 0


def pad(
    weights: Iterable[tuple[str, Any]], real: Sizes, wanted: Sizes, counts: Padded, of: str = ""
) -> Iterator[tuple[str, Any]]:
    """The checkpoint's (name, tensor) with the tensors of `wanted` sizes; all others are handed on, never copied.

    Args:
        weights: raw names; tensors of any device, `meta` too.
        of: only names that begin so; each model is given the other's tensors too.

    Raises:
        PaddingError: a tensor is not of the sizes in `real`.
    """
    for name, tensor in weights:
        padded = _padded(name, tensor, real, wanted, counts) if name.startswith(of) else tensor
        if padded is tensor:
            counts.untouched += 1
        else:
            counts.tensors += 1
            counts.added_bytes += padded.nbytes - tensor.nbytes
        yield name, padded
        if name.startswith(of) and (first := _FIRST_EXPERT.fullmatch(name)):
            for expert in range(real.draft_experts, wanted.draft_experts):
                made = _filler(tensor, tensor.shape, first["kind"], counts)
                counts.tensors += 1
                counts.added_bytes += made.nbytes
                yield f"{first['before']}{expert}{first['after']}", made


def _padded(name: str, tensor: Any, real: Sizes, wanted: Sizes, counts: Padded) -> Any:
    if found := _HEAD_TENSOR.fullmatch(name):
        of_groups = found["part"] in ("wo_a", "wo_b")
        was, now = (real.groups, wanted.groups) if of_groups else (real.heads, wanted.heads)
        return _longer(name, tensor, int(found["part"] == "wo_b"), was, now, found["kind"], counts)
    if found := _GATE.fullmatch(name):
        return _longer(name, tensor, 0, real.draft_experts, wanted.draft_experts, found["kind"], counts)
    return tensor


def _longer(name: str, tensor: Any, axis: int, was: int, now: int, kind: str | None, counts: Padded) -> Any:
    """`tensor`, whose `axis` is `was` equal parts, with `now` of them; the new ones are of no effect."""
    if now == was:
        return tensor
    if tensor.ndim <= axis or tensor.shape[axis] % was:
        raise PaddingError(
            f"{name} has the shape {list(tensor.shape)}, which is not {was} equal parts along axis {axis}",
            "compare config.json with the checkpoint's own",
        )
    import torch

    shape = list(tensor.shape)
    shape[axis] = shape[axis] // was * (now - was)
    filler = _filler(tensor, shape, kind, counts)
    if tensor.dtype.itemsize > 1:
        return torch.cat([tensor, filler], dim=axis)
    # Of one byte: torch concatenates no float8 on every device.
    joined = torch.cat([tensor.view(torch.uint8), filler.view(torch.uint8)], dim=axis)
    return joined.view(tensor.dtype)


def _filler(tensor: Any, shape: Any, kind: str | None, counts: Padded) -> Any:
    """Zeros; block scales of exactly 1.0 (a zero scale is no power of two, and NaN or denormal in e8m0); the bias of a
    router that never wins.
    """
    import torch

    if kind == "scale":
        if tensor.dtype is torch.uint8:  # e8m0 under its bytes' type: 127 is 2**0
            made = torch.full(shape, 127, dtype=torch.uint8, device=tensor.device)
        else:
            made = torch.ones(shape, dtype=torch.float32, device=tensor.device).to(tensor.dtype)
        counts.unit_scales += made.numel()
        return made
    if kind == "bias":
        return torch.full(shape, NEVER_CHOSEN, dtype=tensor.dtype, device=tensor.device)
    if tensor.dtype.itemsize > 1:
        return torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)
    return torch.zeros(shape, dtype=torch.uint8, device=tensor.device).view(tensor.dtype)
