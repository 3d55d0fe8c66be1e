"""What padding adds to a rank's weights, from the tensors' own sizes: a rank's part less an exact share of the file's.

Sizes: the checkpoint's config.json (hidden 5120, 64 heads of 512, 8 output groups, q_lora 1280, o_lora 1024, 40 layers
and 3 draft stages, experts of 2304 in MXFP4) and the dtypes that SGLang 0.5.23 holds them in.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

LAYERS, DRAFT_STAGES = 40, 3
HIDDEN, HEADS, HEAD_COLUMNS, GROUPS = 5120, 64, 512, 8
Q_RANK, O_RANK = 1280, 1024
EXPERT_COLUMNS, DRAFT_EXPERTS = 2304, 128
LEAST_HEADS = 16
HEADS_PER_GROUP = HEADS // GROUPS
KERNEL_STEP = 128
"""The FP8 kernel takes a product's inner size in this multiple."""
FP8_BYTES = 1 + Fraction(1, 32 * 32)
"""A value and its part of one E8M0 scale a block of 32 x 32."""
BF16_BYTES, FP32_BYTES = 2, 4
MXFP4_BYTES = Fraction(1, 2) + Fraction(1, 32)


@dataclass(frozen=True, slots=True)
class Padded:
    """One kind of tensor on one rank, all layers together; bytes.

    Attributes:
        rank_bytes: what the rank holds.
        share_bytes: an exact share of the checkpoint's own values.
    """

    name: str
    rank_bytes: Fraction
    share_bytes: Fraction

    @property
    def added_bytes(self) -> Fraction:
        return self.rank_bytes - self.share_bytes


def heads_a_rank(ranks: int) -> int:
    """Query heads on each rank: a share where heads and groups divide, else the next power of two from 16."""
    if HEADS % ranks == 0 and GROUPS % ranks == 0:
        return HEADS // ranks
    wanted = LEAST_HEADS
    while wanted * ranks < HEADS:
        wanted *= 2
    return wanted


def padded_tensors(ranks: int, expert_groups: int) -> tuple[Padded, ...]:
    """Every tensor that padding may make larger on a rank; where nothing is padded, both its figures are equal.

    Args:
        expert_groups: EP_SIZE, a divisor of `ranks`.
    """
    attentions = LAYERS + DRAFT_STAGES
    heads = heads_a_rank(ranks)
    groups, share = Fraction(heads, HEADS_PER_GROUP), Fraction(HEADS, ranks)
    share_groups = share / HEADS_PER_GROUP
    of_a_head: tuple[tuple[str, Fraction], ...] = (
        ("wq_b", HEAD_COLUMNS * Q_RANK * FP8_BYTES),
        # SGLang makes BF16 of the file's FP8 when it loads wo_a; one group's heads by O_RANK
        ("wo_a", Fraction(HEAD_COLUMNS * O_RANK * BF16_BYTES)),
        ("attn_sink", Fraction(FP32_BYTES)),
    )
    found = [Padded(name, attentions * heads * size, attentions * share * size) for name, size in of_a_head]
    of_a_group = HIDDEN * O_RANK * FP8_BYTES
    found.append(Padded("wo_b", attentions * groups * of_a_group, attentions * share_groups * of_a_group))
    inner = Fraction(EXPERT_COLUMNS, ranks)
    padded_inner = -(-inner // KERNEL_STEP) * KERNEL_STEP
    of_a_column = attentions * HIDDEN * FP8_BYTES
    found.append(Padded("shared expert's w2", padded_inner * of_a_column, inner * of_a_column))
    expert = 3 * HIDDEN * EXPERT_COLUMNS * MXFP4_BYTES
    experts = -(-DRAFT_EXPERTS // expert_groups) * expert_groups
    a_rank = DRAFT_STAGES * expert / ranks
    found.append(Padded("draft experts", experts * a_rank, DRAFT_EXPERTS * a_rank))
    return tuple(found)


def padding_bytes(ranks: int, expert_groups: int) -> int:
    """What padding adds to each rank's weights."""
    return round(sum((each.added_bytes for each in padded_tensors(ranks, expert_groups)), Fraction()))
