"""The steps that a served model takes, on the tiny one: prefill short, long and with a picture, decode, verify, draft.

Each gives logits, whole vocabulary, fp32. Requests are numbered from 1: slot 0 is the engine's padding.
"""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.managers.mm_schedule import init_mm_embedding_cache
from sglang.srt.managers.schedule_batch import Modality, MultimodalDataItem, MultimodalInputs
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.model_executor.forward_context import ForwardContext, forward_context
from sglang.srt.models.dspark import gather_and_crop_vocab

from tests.engine.v41.attention import LENGTH, Backend, DraftBackend
from tests.engine.v41.layout import TINY
from tests.engine.v41.ranks import Models

VERIFY_TOKENS = TINY.draft_block + 1
PROMPTS = {1: 12, 2: 26, 3: 12, 4: 26, 5: 150}
"""Tokens of each request's prompt. 3 and 4 are 1 and 2 again, 4 with a picture; 5 is longer than the window of 128."""
PICTURE = (10, 17)
"""First and last token of the picture: 6 x 6 patches are 2 x 2 after the aligner, with start, line ends and end."""
STEPS = ("prefill", "picture", "long prefill", "decode", "verify", "draft")


def words(request: int, start: int, count: int) -> list[int]:
    """The tokens of a request from `start`; requests 3 and 4 say what 1 and 2 say."""
    dice = torch.Generator().manual_seed(request - 2 if request in (3, 4) else request)
    return torch.randint(3, TINY.image_token, (LENGTH,), generator=dice).tolist()[start : start + count]


class Served:
    """The two models with their keys and what has been said so far."""

    def __init__(self, models: Models) -> None:
        self.models = models
        config = models.config
        sources, latest = {}, {"kv": 0, "index": 0}
        for layer in range(config.num_hidden_layers):
            for kind, ids in (("kv", config.kv_source_layer_ids), ("index", config.index_source_layer_ids)):
                latest[kind] = layer if layer in ids else latest[kind]
            sources[layer] = (latest["kv"], latest["index"])
        sizes = config.head_dim, config.index_head_dim, config.sliding_window
        self.target_backend, self.draft_backend = Backend(*sizes, sources), DraftBackend(*sizes, {})
        self.lengths: dict[int, int] = {}
        models.draft.attach_shared_modules(
            embed_tokens=models.target.get_input_embeddings(), lm_head=models.target.lm_head
        )
        models.target.set_dspark_layers_to_capture(list(config.dspark_target_layer_ids))
        init_mm_embedding_cache(1 << 20)

    def batch(self, mode: ForwardMode, rows: dict[int, list[int]], picture: Any = None) -> ForwardBatch:
        """`rows`: request -> its new tokens."""
        lens = [len(tokens) for tokens in rows.values()]
        before = [self.lengths.get(request, 0) for request in rows]
        positions = torch.cat([torch.arange(start, start + n) for start, n in zip(before, lens, strict=True)])
        requests = torch.tensor(list(rows))
        extend = mode is ForwardMode.EXTEND
        tokens = torch.tensor([token for row in rows.values() for token in row])
        batch = ForwardBatch(
            forward_mode=mode, batch_size=len(rows), input_ids=tokens,
            req_pool_indices=requests, seq_lens=torch.tensor(before) + torch.tensor(lens),
            out_cache_loc=requests.repeat_interleave(torch.tensor(lens)) * LENGTH + positions,
            seq_lens_sum=sum(before) + sum(lens), positions=positions, capture_hidden_mode=CaptureHiddenMode.FULL,
        )  # fmt: skip
        batch.extend_seq_lens, batch.extend_seq_lens_cpu = torch.tensor(lens), lens
        if extend:
            batch.extend_prefix_lens, batch.extend_prefix_lens_cpu = torch.tensor(before), before
            batch.extend_start_loc = torch.tensor(lens).cumsum(0) - torch.tensor(lens)
            batch.extend_num_tokens, batch.extend_logprob_start_lens_cpu = sum(lens), lens
            batch.mm_inputs = [picture if request == 4 else None for request in rows] if picture else None
        if mode is ForwardMode.TARGET_VERIFY:
            batch.spec_info = SimpleNamespace(draft_token_num=lens[0])
        return batch

    def target(self, mode: ForwardMode, rows: dict[int, list[int]], picture: Any = None) -> torch.Tensor:
        """Logits of the last token a request, in verify of each; hands the hidden states to the draft, as the worker
        does.
        """
        batch = self.batch(mode, rows, picture)
        with forward_context(ForwardContext(attn_backend=self.target_backend)), torch.no_grad():
            out = self.models.target(batch.input_ids, batch.positions, batch)
            self.models.draft.write_target_hidden_kv(
                main_hidden=out.hidden_states, swa_loc=batch.out_cache_loc, positions=batch.positions,
                pool=self.draft_backend.token_to_kv_pool,
            )  # fmt: skip
        for request, tokens in rows.items():
            self.lengths[request] = self.lengths.get(request, 0) + len(tokens)
        return out.next_token_logits.float().clone()

    def draft(self, anchors: dict[int, int]) -> torch.Tensor:
        """Logits [requests, block, vocabulary] of one block with the Markov head's bias, drafted greedily."""
        model = self.models.draft
        block = TINY.draft_block
        rows = {request: [anchor] + [TINY.noise_token] * (block - 1) for request, anchor in anchors.items()}
        batch = self.batch(ForwardMode.TARGET_VERIFY, rows)
        with forward_context(ForwardContext(attn_backend=self.draft_backend)), torch.no_grad():
            hidden = model(batch.input_ids, batch.positions, batch).hidden_states
            base = gather_and_crop_vocab(model.compute_base_logits(hidden)[0], model.lm_head)
            base = base.float().view(len(rows), block, -1)
            previous, steps = torch.tensor(list(anchors.values())), []
            for step in range(block):
                bias, _ = model.markov_head.step_bias(previous, hidden_states=None, state=None)
                # The last rank's bias ends with the vocabulary, its logits with the padding behind it.
                width = model.lm_head.num_embeddings_per_partition
                bias = torch.nn.functional.pad(bias.float(), (0, width - bias.shape[-1]))
                steps.append(base[:, step] + gather_and_crop_vocab(bias, model.lm_head))
                previous = steps[-1].argmax(-1)
        return torch.stack(steps, dim=1)


def picture(model: Any) -> tuple[Any, list[int]]:
    """The engine's input of one picture, and request 4's tokens with its place in them."""
    dice = torch.Generator().manual_seed(41)
    patches = torch.randn(36, 3, TINY.patch, TINY.patch, generator=dice)
    item = MultimodalDataItem(
        modality=Modality.IMAGE, feature=patches, offsets=[PICTURE], model_specific_data={"n_vit_h": 6, "n_vit_w": 6}
    )
    item.set_pad_value()
    inputs = MultimodalInputs(mm_items=[item])
    inputs.im_token_id = TINY.image_token
    tokens = words(4, 0, PROMPTS[4])
    tokens[PICTURE[0] : PICTURE[1] + 1] = [TINY.image_token] * (PICTURE[1] - PICTURE[0] + 1)
    return inputs, list(model.pad_input_ids(array("q", tokens), inputs))


def all_steps(models: Models, *, long: bool = True) -> dict[str, torch.Tensor]:
    """Logits by step, from an empty cache; without `long` the request that is longer than the window is left out."""
    models.target.model.engram_hasher.history.zero_()
    served = Served(models)
    extend, found = ForwardMode.EXTEND, {}
    found["prefill"] = served.target(extend, {n: words(n, 0, PROMPTS[n]) for n in (1, 2)})
    shown, tokens = picture(models.target)
    found["picture"] = served.target(extend, {3: words(3, 0, PROMPTS[3]), 4: tokens}, shown)
    if long:
        found["long prefill"] = served.target(extend, {5: words(5, 0, PROMPTS[5])})
    going = (1, 4, 5) if long else (1, 4)
    found["decode"] = served.target(ForwardMode.DECODE, {n: words(n, PROMPTS[n], 1) for n in going})
    verify = {n: words(n, PROMPTS[n] + 1, VERIFY_TOKENS) for n in going}
    found["verify"] = served.target(ForwardMode.TARGET_VERIFY, verify)
    found["draft"] = served.draft({n: words(n, PROMPTS[n] + 1 + VERIFY_TOKENS, 1)[0] for n in going})
    return found
