"""A small attention backend and key pool for the tests, in place of the engine's paged ones.

A request's position p has the slot `request * LENGTH + p`, in every layer. A query sees the last `window` positions of
its own request, the compressed latents that the layer's indexer chose, and the sink. It follows the source of SGLang's
backend and was not compared with it: it shows equality over ranks, not correctness.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from sglang.srt.layers.attention.dsv4.dsv41_sparse import rope_tail, token_req_indices
from sglang.srt.mem_cache.deepseek_v4_memory_pool import DeepSeekV4TokenToKVPool

LENGTH, REQUESTS = 192, 8


class Pool(DeepSeekV4TokenToKVPool):
    """Keys by layer and slot, fp32. The engine asks for the class; none of its buffers is made."""

    uniform_fp8 = False
    request_window = None

    def __init__(self, head_dim: int, index_dim: int) -> None:
        slots = REQUESTS * LENGTH
        self.window_keys = defaultdict(lambda: torch.zeros(slots, head_dim))
        self.latents = defaultdict(lambda: torch.zeros(slots, head_dim))
        self.index_keys = defaultdict(lambda: torch.zeros(slots, index_dim))
        self.projected = defaultdict(lambda: torch.zeros(2, slots, head_dim))

    def set_swa_key_buffer_radix_fused_norm_rope(
        self, layer_id: int, swa_loc: Any, kv: Any, kv_weight: Any, eps: float, freqs_cis: Any, positions: Any
    ) -> None:
        """The norm, then RoPE on the last features, then the slot."""
        kv = kv.float()
        normed = kv * torch.rsqrt(kv.square().mean(-1, keepdim=True) + eps) * kv_weight.float()
        freqs = freqs_cis[positions]
        self.window_keys[layer_id][swa_loc.long()] = rope_tail(normed, freqs, 2 * freqs.shape[-1])


class Backend:
    """What the model asks of its attention backend. One for the target and one for the draft."""

    forward_metadata = None

    def __init__(self, head_dim: int, index_dim: int, window: int, sources: dict[int, tuple[int, int]]) -> None:
        """`sources`: layer -> the layers whose latents it reads and whose choice it follows."""
        self.token_to_kv_pool = Pool(head_dim, index_dim)
        self.window, self.sources = window, sources
        self.chosen: dict[int, torch.Tensor] = {}

    def get_swa_out_cache_loc(self, forward_batch: Any) -> torch.Tensor:
        return forward_batch.out_cache_loc

    def forward_low_ratio_sources(
        self, *, layer: Any, x: torch.Tensor, q_lora: torch.Tensor, positions: torch.Tensor, forward_batch: Any
    ) -> None:
        requests = token_req_indices(forward_batch, num_tokens=positions.shape[0])
        if layer.compressor is not None:
            self._compress(layer, x, requests, positions)
        if layer.indexer is not None:
            self.chosen[layer.layer_id] = self._choose(layer, x, q_lora, requests, positions)

    def _compress(self, layer: Any, x: torch.Tensor, requests: torch.Tensor, positions: torch.Tensor) -> None:
        """A latent a position (ratio 1), or one a whole pair, kept at its number in the request."""
        pool, number = self.token_to_kv_pool, layer.layer_id
        kept = pool.projected[number]
        kv, score = layer.compressor.project(x)
        here = requests * LENGTH + positions
        kept[0][here] = kv.float()
        if layer.compress_ratio == 1:
            group, slots, pooled = positions, here, kv.float()
        else:
            kept[1][here] = score.float()
            last = positions % 2 == 1
            here, group = here[last], positions[last] - 1
            slots = requests[last] * LENGTH + group // 2
            pair = torch.stack([here - 1, here], dim=1)
            pooled = layer.compressor.pool_pairs(kept[0][pair], kept[1][pair])
        if not slots.numel():
            return
        latent, freqs = layer.compressor.finish(pooled), layer.freqs_cis[group]
        if layer.indexer is not None and layer.indexer.owns_k:
            pool.index_keys[number][slots] = layer.indexer.index_keys(latent, freqs).float()
        pool.latents[number][slots] = rope_tail(latent, freqs, layer.rope_head_dim).float()

    def _choose(self, layer: Any, x: Any, q_lora: Any, requests: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """bool [T, LENGTH]: the `index_topk` latents of each query among those that are whole at its position."""
        queries = layer.indexer.queries(q_lora, layer.freqs_cis, positions).float()
        weights = layer.indexer.head_weights(x).float()
        keys = self.token_to_kv_pool.index_keys[self.sources[layer.layer_id][0]].view(REQUESTS, LENGTH, -1)
        chosen = torch.zeros(positions.shape[0], LENGTH, dtype=torch.bool)
        for row in range(positions.shape[0]):
            count = (int(positions[row]) + 1) // layer.compress_ratio
            if count:
                one = slice(row, row + 1)
                scores = layer.indexer.scores(queries[one], keys[requests[row], :count], weights[one])
                chosen[row, scores[0].topk(min(layer.indexer.index_topk, count)).indices] = True
        return chosen

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: Any, forward_batch: Any, compress_ratio: int,
        attn_sink: torch.Tensor, save_kv_cache: bool = True,
    ) -> torch.Tensor:  # fmt: skip
        """q [T, heads (padded or not), D] to the same shape; keys are values."""
        assert not save_kv_cache and q.shape[1] == attn_sink.shape[0], (q.shape, attn_sink.shape)
        positions = forward_batch.positions
        requests = token_req_indices(forward_batch, num_tokens=positions.shape[0])
        places = torch.arange(LENGTH)
        seen = (places <= self._newest(forward_batch, positions)[:, None]) & (
            places > (positions - self.window)[:, None]
        )
        number = layer.layer_id
        keys = self.token_to_kv_pool.window_keys[number].view(REQUESTS, LENGTH, -1)
        if compress_ratio:
            latents_of, choice_of = self.sources[number]
            latents = self.token_to_kv_pool.latents[latents_of].view(REQUESTS, LENGTH, -1)
            keys, seen = torch.cat([keys, latents], dim=1), torch.cat([seen, self.chosen[choice_of]], dim=1)
        out = torch.empty_like(q)
        for request in requests.unique().tolist():
            rows = (requests == request).nonzero(as_tuple=True)[0]
            logits = torch.einsum("thd,kd->thk", q[rows].float(), keys[request]) * layer.scaling
            logits = logits.masked_fill(~seen[rows, None], float("-inf"))
            sink = attn_sink.float().view(1, -1, 1).expand(len(rows), -1, 1)
            shares = torch.cat([logits, sink], dim=-1).softmax(-1)[..., :-1]
            out[rows] = torch.einsum("thk,kd->thd", shares, keys[request]).to(q.dtype)
        return out

    def _newest(self, forward_batch: Any, positions: torch.Tensor) -> torch.Tensor:
        """The last position that each query sees: its own."""
        return positions


class DraftBackend(Backend):
    """Within a draft block every token sees the whole block."""

    def _newest(self, forward_batch: Any, positions: torch.Tensor) -> torch.Tensor:
        block = forward_batch.spec_info.draft_token_num
        return positions.view(-1, block).amax(1).repeat_interleave(block)
