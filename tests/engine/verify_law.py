"""What a capped verification says, against the target's own distribution: 10^6 blocks, SGLang's acceptance, our cap.

Run by the engine's Python; prints one JSON object: way -> the chi-square test over every continuation of four tokens.

A vocabulary of four tokens, three drafts. Target and draft are tables: the target by all tokens before, the draft by
the last one. The confidence is the engine's own head over a Markov embedding, as the draft computes it. Logits of rows
beyond the cap are those of another table, since such a row has run through other experts. What acceptance gives is
continued from the target to four tokens.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from sglang.kernels.ops.speculative.dspark import dspark_accept
from sglang.kernels.ops.speculative.dspark.blockwise_rejection import make_rejection_noise
from sglang.srt.models.dspark import DSparkConfidenceHead
from sglang.srt.speculative.dspark_components.dspark_draft import DraftBlockResult
from sglang.srt.speculative.dspark_components.dspark_verify import accept_draft_tokens
from spark_overlay.adapters import verify_cap

from tests.engine.chain_sampling import chain

VOCABULARY, DRAFTS = 4, 3
WIDTH = DRAFTS + 1
AT_ONCE, THRESHOLD = 100_000, 0.3


@dataclass(frozen=True)
class Way:
    """One acceptance and one cap.

    Attributes:
        acceptance: `token` and `block` are the engine's two with its chain kernel, `rejection` its blockwise rejection.
        sees: which drafts position i's confidence knows: `before` i (the engine's head), `own`, i itself too, or
            `next`, also the one behind it.
        last: the token at the cap is `kept` from acceptance, or drawn `afresh` from the target.
        wrong: from which row on the logits are another table's; 0 is the first row beyond the cap.
    """

    acceptance: str
    sees: str = "before"
    last: str = "kept"
    wrong: int = 0
    blocks: int = 1_000_000


WAYS = {
    "token by token": Way("token"),
    "block verification": Way("block"),
    "blockwise rejection": Way("rejection"),
    "by the draft's own confidence, its token kept": Way("block", "own"),
    "drawn afresh, by the draft's own confidence": Way("block", "own", "afresh", blocks=3 * AT_ONCE),
    "cap by the draft behind": Way("block", "next", blocks=3 * AT_ONCE),
    "the last counted row is another's": Way("block", wrong=-1, blocks=3 * AT_ONCE),
}


class Tables:
    """Target, draft and confidence of the whole test; `dice` draws everything of a way."""

    def __init__(self) -> None:
        dice = torch.Generator().manual_seed(3)
        self.draft = torch.randn(DRAFTS, VOCABULARY, VOCABULARY, generator=dice) * 0.8
        self.features = torch.randn(DRAFTS, 6, generator=dice) * 0.5
        self.embedding = torch.randn(VOCABULARY, 5, generator=dice) * 2
        self.head = DSparkConfidenceHead(hidden_size=6, markov_rank=5, bias=False)
        torch.nn.init.normal_(self.head.proj.weight, std=0.5, generator=dice)
        self.target = [torch.randn(VOCABULARY**n, VOCABULARY, generator=dice) * 0.7 for n in range(WIDTH)]
        self.other = [torch.randn(VOCABULARY**n, VOCABULARY, generator=dice) * 0.7 for n in range(WIDTH)]

    def drafted(self, dice: torch.Generator, blocks: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens [blocks, drafts] and the logits that they were drawn from; the anchor is token 0."""
        previous, tokens, logits = torch.zeros(blocks, dtype=torch.long), [], []
        for step in range(DRAFTS):
            logits.append(self.draft[step][previous])
            previous = torch.multinomial(logits[-1].softmax(-1), 1, generator=dice).squeeze(-1)
            tokens.append(previous)
        return torch.stack(tokens, dim=1), torch.stack(logits, dim=1)

    def confidence(self, tokens: torch.Tensor, sees: str) -> torch.Tensor:
        """The engine's head; for another `sees` it is asked with the drafts moved up by as many places."""
        ahead = {"before": 0, "own": 1, "next": 2}[sees]
        moved = torch.cat([tokens[:, ahead:], tokens[:, :ahead]], dim=1)
        anchors = tokens[:, ahead - 1] if ahead else torch.zeros(len(tokens), dtype=torch.long)
        with torch.no_grad():
            return self.head.predict(
                self.features.expand(len(tokens), -1, -1), anchor_tokens=anchors, draft_tokens=moved,
                markov_head=SimpleNamespace(get_prev_embeddings=lambda each: self.embedding[each]),
            )[0]  # fmt: skip


def place(tokens: torch.Tensor, count: int) -> torch.Tensor:
    """The row of a table for the first `count` tokens."""
    row = torch.zeros(len(tokens), dtype=torch.long)
    for step in range(count):
        row = row * VOCABULARY + tokens[:, step]
    return row


def said(way: Way, tables: Tables, dice: torch.Generator, blocks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The four tokens of each block, and how many of its tokens counted."""
    tokens, draft_logits = tables.drafted(dice, blocks)
    lens = verify_cap.verify_lens(tables.confidence(tokens, way.sees), THRESHOLD)
    rows = []
    for row in range(WIDTH):
        where = place(tokens, row)
        beyond = (row >= lens + way.wrong)[:, None]
        rows.append(torch.where(beyond, tables.other[row][where], tables.target[row][where]))
    ones = torch.ones(blocks)
    sampling = SimpleNamespace(
        is_all_greedy=False,
        is_any_greedy=False,
        need_top_k_sampling=False,
        need_top_p_sampling=False,
        temperatures=ones,
    )
    length, bonus, trimmed = accept_draft_tokens(
        candidates=torch.cat([torch.zeros(blocks, 1, dtype=torch.long), tokens], dim=1),
        target_logits=torch.stack(rows, dim=1).view(-1, VOCABULARY),
        draft_block=DraftBlockResult(tokens, draft_logits, torch.zeros(blocks, dtype=torch.bool), ones, False),
        sampling_info=sampling, draft_input=None, gamma=DRAFTS, verify_num_draft_tokens=WIDTH,
        cutoff_layout=SimpleNamespace(verify_lens=lens), block_verification=way.acceptance == "block",
        rejection_noise=make_rejection_noise(int(torch.randint(1 << 30, (1,), generator=dice)), "cpu")
        if way.acceptance == "rejection" else None,
    )  # fmt: skip
    length = length.long()
    assert bool((length < lens).all()) and bool((length + trimmed.long() <= DRAFTS).all())
    full = torch.cat([tokens, tokens[:, :1]], dim=1)
    at = torch.arange(WIDTH)
    full = torch.where(at == length[:, None], bonus[:, None], full)
    known = length + 1
    if way.last == "afresh":
        # Not what the engine does: at the cap it keeps the token that acceptance gave.
        known = torch.where(trimmed > 0, length, known)
    for step in range(WIDTH):
        drawn = torch.multinomial(tables.target[step][place(full, step)].softmax(-1), 1, generator=dice).squeeze(-1)
        full[:, step] = torch.where(step < known, full[:, step], drawn)
    return full, lens


def expected(tables: Tables) -> torch.Tensor:
    """The target's probability of every four tokens, in the order of `place`."""
    chances = torch.ones(VOCABULARY**WIDTH)
    for number, tokens in enumerate(itertools.product(range(VOCABULARY), repeat=WIDTH)):
        row = torch.tensor([tokens])
        for step in range(WIDTH):
            chances[number] *= tables.target[step][place(row, step)].softmax(-1)[0, tokens[step]]
    return chances


def test(way: Way) -> dict[str, Any]:
    """Pearson's statistic with its z-score: (X - k) / sqrt(2 k) at k degrees of freedom."""
    tables, dice = Tables(), torch.Generator().manual_seed(7)
    torch.manual_seed(11)  # the engine draws its coins from the default generator
    counts, lens = torch.zeros(VOCABULARY**WIDTH), torch.zeros(WIDTH + 1, dtype=torch.long)
    for _ in range(way.blocks // AT_ONCE):
        full, capped = said(way, tables, dice, AT_ONCE)
        counts += torch.bincount(place(full, WIDTH), minlength=len(counts))
        lens += torch.bincount(capped, minlength=WIDTH + 1)
    wanted = expected(tables) * way.blocks
    assert float(wanted.min()) > 5, "cells too thin for the test"
    statistic, freedom = float(((counts - wanted) ** 2 / wanted).sum()), len(counts) - 1
    z = (statistic - freedom) / math.sqrt(2 * freedom)
    return {"blocks": way.blocks, "statistic": round(statistic, 1), "freedom": freedom, "z": round(z, 2),
            "tokens counted": lens.tolist()}  # fmt: skip


def main() -> None:
    dspark_accept.chain_speculative_sampling_triton = chain
    print(json.dumps({name: test(way) for name, way in WAYS.items()}))


if __name__ == "__main__":
    main()
