"""Faults that a padding could have, planted into the loaded parameters of every rank and taken away again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from tests.engine.v41.layout import BLOCK, TINY
from tests.engine.v41.padding_checks import _behind, attentions
from tests.engine.v41.ranks import Models

Change = tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]


@dataclass(frozen=True)
class Fault:
    """`seen`: `logits` or `tensors`, the check that has to catch it. `changes` gives a rank's parameters with what they
    become.
    """

    name: str
    seen: str
    changes: Callable[[Models], Iterator[Change]]


def _rolled(axis: int, part: str) -> Callable[[Models], Iterator[Change]]:
    """The groups of a rank's shard, each in the next one's place."""

    def changes(models: Models) -> Iterator[Change]:
        for _, attention in attentions(models):
            yield getattr(attention, part).weight, lambda t: _roll(t, TINY.o_lora, axis)

    return changes


def _roll(t: torch.Tensor, by: int, axis: int) -> torch.Tensor:
    if t.dtype.itemsize > 1:
        return t.roll(by, axis)
    return t.view(torch.uint8).roll(by, axis).view(t.dtype)


def _sinks(models: Models) -> Iterator[Change]:
    for _, attention in attentions(models):
        yield attention.attn_sink, lambda t: t.roll(1)


def _engram(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Models], Iterator[Change]]:
    def changes(models: Models) -> Iterator[Change]:
        for number in TINY.engram_layers:
            yield models.target.model.layers[number].engram.embed.weight, change

    return changes


def _gate_bias(value: float) -> Callable[[Models], Iterator[Change]]:
    def changes(models: Models) -> Iterator[Change]:
        for stage in models.draft.stages:
            bias = stage.mlp.gate.e_score_correction_bias
            yield bias[TINY.draft_experts :], lambda t: torch.full_like(t, value)

    return changes


def _padding(part: str, fill: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Models], Iterator[Change]]:
    """The padding of one tensor of each attention."""

    def changes(models: Models) -> Iterator[Change]:
        for _, attention in attentions(models):
            heads = _behind(TINY.heads, attention.n_local_heads, models.rank) * attention.head_dim
            lora = _behind(TINY.groups, attention.n_local_groups, models.rank) * attention.o_lora_rank
            yield (
                {
                    "attn_sink": lambda a=attention: a.attn_sink[TINY.heads :],
                    "wq_b": lambda a=attention, n=heads: a.wq_b.weight[n:],
                    "wq_b.scale": lambda a=attention, n=heads: a.wq_b.weight_scale_inv[n // BLOCK :],
                    "wo_a": lambda a=attention, n=lora: a.wo_a.weight[n:],
                    "wo_b": lambda a=attention, n=lora: a.wo_b.weight[:, n:],
                    "wo_b.scale": lambda a=attention, n=lora: a.wo_b.weight_scale_inv[:, n // BLOCK :],
                }[part](),
                fill,
            )

    return changes


def _garbage(t: torch.Tensor) -> torch.Tensor:
    dice = torch.Generator().manual_seed(9)
    return torch.randn(t.shape, generator=dice).to(t.dtype)


def _both(*all_changes: Callable[[Models], Iterator[Change]]) -> Callable[[Models], Iterator[Change]]:
    def changes(models: Models) -> Iterator[Change]:
        for each in all_changes:
            yield from each(models)

    return changes


def _expert(models: Models) -> Iterator[Change]:
    for stage in models.draft.stages:
        experts = stage.mlp.experts
        if experts.w13_weight.shape[0] * (models.rank + 1) > TINY.draft_experts:
            yield experts.w13_weight[-1:], lambda t: torch.full_like(t, 0x22)


SMALLEST_SCALE = 2.0**-127
"""What an e8m0 scale of 0 becomes in fp32: the format has no zero."""


def _constant(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: torch.full_like(t, value)


FAULTS: tuple[Fault, ...] = (
    Fault("groups of wo_b in another order", "logits", _rolled(1, "wo_b")),
    Fault("groups of wo_a in another order", "logits", _rolled(0, "wo_a")),
    Fault("attention sinks shifted by a head", "logits", _sinks),
    Fault("Engram rows zero", "logits", _engram(torch.zeros_like)),
    Fault("Engram rows shifted by one", "logits", _engram(lambda t: _roll(t, 1, 0))),
    Fault("router bias of the padded draft expert +10", "logits", _gate_bias(10.0)),
    Fault("scale of padded wq_b NaN", "logits", _padding("wq_b.scale", _constant(float("nan")))),
    Fault(
        "garbage in padded wq_b, wo_a and wo_b", "logits",
        _both(*(_padding(part, _garbage) for part in ("wq_b", "wo_a", "wo_b"))),
    ),
    Fault("garbage in padded wq_b alone", "tensors", _padding("wq_b", _garbage)),
    Fault("garbage in padded wo_a alone", "tensors", _padding("wo_a", _garbage)),
    Fault("garbage in padded wo_b alone", "tensors", _padding("wo_b", _garbage)),
    Fault("garbage in padded sinks alone", "tensors", _padding("attn_sink", _garbage)),
    Fault("scale of padded wq_b 0", "tensors", _padding("wq_b.scale", _constant(SMALLEST_SCALE))),
    Fault("scale of padded wo_b 0", "tensors", _padding("wo_b.scale", _constant(SMALLEST_SCALE))),
    Fault("router bias of the padded draft expert 0", "tensors", _gate_bias(0.0)),
    Fault("garbage in the padded draft expert", "tensors", _expert),
)  # fmt: skip


@contextmanager
def planted(fault: Fault, models: Models) -> Iterator[None]:
    """The fault in this rank's models, until the end of the block."""
    before = []
    for part, change in fault.changes(models):
        before.append((part, part.detach().clone()))
        _put(part, change(part.detach().clone()))
    _forget_sinks(models)
    try:
        yield
    finally:
        for part, values in reversed(before):
            _put(part, values)
        _forget_sinks(models)


def _put(part: torch.Tensor, values: torch.Tensor) -> None:
    with torch.no_grad():
        part.data.copy_(values)


def _forget_sinks(models: Models) -> None:
    """Each attention keeps its rank's sinks from the first forward on."""
    for _, attention in attentions(models):
        attention._attn_sink_local = None


def caught(before: dict[str, Any], after: dict[str, Any]) -> float:
    """The largest difference of logits in any step; NaN where one is."""
    largest = [float((before[step] - after[step]).abs().max()) for step in before]
    return float("nan") if any(each != each for each in largest) else max(largest)
