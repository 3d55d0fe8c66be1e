"""What a DeepSeek-V4.1 checkpoint holds: one table of tensor names with shape, kind and meaning.

Names are those that both `load_weights` of SGLang 0.5.23 read. Standard library only, so that headers can be made and
checked without torch. `FP8`, `FP4` and `TABLE` stand for two tensors: `.weight` and its `.scale`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

BLOCK = 32
"""Side of an FP8 block and length of an MXFP4 or Engram run that share one e8m0 scale."""
BYTES = {"BF16": 2, "F32": 4, "I8": 1, "F8_E4M3": 1, "F8_E8M0": 1}


@dataclass(frozen=True)
class Sizes:
    """The counts that decide a checkpoint. `ratios` has one a layer, then one a draft stage (0)."""

    layers: int
    hidden: int
    heads: int
    head_dim: int
    rope_dim: int
    q_lora: int
    groups: int
    o_lora: int
    vocabulary: int
    experts: int
    experts_per_token: int
    intermediate: int
    ratios: tuple[int, ...]
    kv_sources: tuple[int, ...]
    index_sources: tuple[int, ...]
    index_heads: int
    index_dim: int
    index_topk: int
    engram_layers: tuple[int, ...]
    engram_vocabulary: int
    compressed_vocabulary: int
    engram_heads: int
    engram_head_dim: int
    ngram: int
    stages: int
    draft_targets: tuple[int, ...]
    draft_experts: int
    draft_experts_per_token: int
    draft_block: int
    markov_rank: int
    noise_token: int
    image_token: int
    vision_layers: int
    vision_dim: int
    vision_heads: int
    vision_inter: int
    streams: int = 4
    patch: int = 14
    downsample: int = 3
    window: int = 128

    @property
    def mix(self) -> int:
        """Rows of a hyper-connection: pre, post and the streams' mixture."""
        return (2 + self.streams) * self.streams

    @property
    def columns(self) -> int:
        return (self.ngram - 1) * self.engram_heads


TINY = Sizes(
    layers=6, hidden=128, heads=64, head_dim=64, rope_dim=32, q_lora=64, groups=8, o_lora=32, vocabulary=640,
    experts=24, experts_per_token=4, intermediate=384, ratios=(0, 0, 2, 2, 1, 1, 0, 0, 0), kv_sources=(2, 4),
    index_sources=(2, 4, 5), index_heads=4, index_dim=64, index_topk=16, engram_layers=(1, 2), engram_vocabulary=211,
    compressed_vocabulary=480, engram_heads=8, engram_head_dim=256, ngram=4, stages=3, draft_targets=(3, 4, 5),
    draft_experts=128, draft_experts_per_token=3, draft_block=5, markov_rank=32, noise_token=639, image_token=638,
    vision_layers=2, vision_dim=64, vision_heads=2, vision_inter=96,
)  # fmt: skip
REAL = Sizes(
    layers=40, hidden=5120, heads=64, head_dim=512, rope_dim=64, q_lora=1280, groups=8, o_lora=1024, vocabulary=129280,
    experts=384, experts_per_token=6, intermediate=2304, ratios=(0, 0, *[2] * 18, *[1] * 20, 0, 0, 0),
    kv_sources=(2, 8, 14, 20), index_sources=(2, 8, 14, 20, 24, 28, 32, 36), index_heads=32, index_dim=128,
    index_topk=512, engram_layers=(1, 14), engram_vocabulary=16_000_000, compressed_vocabulary=99092, engram_heads=8,
    engram_head_dim=256, ngram=4, stages=3, draft_targets=(37, 38, 39), draft_experts=128, draft_experts_per_token=3,
    draft_block=5, markov_rank=256, noise_token=128799, image_token=129264, vision_layers=32, vision_dim=1024,
    vision_heads=16, vision_inter=2816,
)  # fmt: skip
"""As published. Its tensors are 475.24 GiB; with headers, index and tokenizer the publisher's folder is 475.26 GiB."""


@dataclass(frozen=True)
class Entry:
    """One tensor of a header. `dtype` is safetensors' word."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        count = BYTES[self.dtype]
        for size in self.shape:
            count *= size
        return count


Shape = Callable[[Sizes], tuple[int, ...]]
Where = Callable[[Sizes], Iterator[str]]


def _once(s: Sizes) -> Iterator[str]:
    yield ""


def _layers(s: Sizes) -> Iterator[str]:
    return (f"layers.{n}." for n in range(s.layers))


def _stages(s: Sizes) -> Iterator[str]:
    return (f"mtp.{n}." for n in range(s.stages))


def _blocks(s: Sizes) -> Iterator[str]:
    yield from _layers(s)
    yield from _stages(s)


def _experts(s: Sizes) -> Iterator[str]:
    for prefix in _layers(s):
        yield from (f"{prefix}ffn.experts.{n}." for n in range(s.experts))
    for prefix in _stages(s):
        yield from (f"{prefix}ffn.experts.{n}." for n in range(s.draft_experts))


def _some(field: str, keep: Callable[[Sizes, int], bool] = lambda s, n: True) -> Where:
    return lambda s: (f"layers.{n}." for n in getattr(s, field) if keep(s, n))


def _tower(s: Sizes) -> Iterator[str]:
    return (f"vision.blocks.{n}." for n in range(s.vision_layers))


def _vision(s: Sizes) -> Iterator[str]:
    return iter([""] if s.vision_layers else [])


def _vl_blocks(s: Sizes) -> Iterator[str]:
    return _blocks(s) if s.vision_layers else iter([])


@dataclass(frozen=True)
class Row:
    """One line of the table: `where` gives the prefixes, `name` what follows them."""

    where: Where
    name: str
    kind: str
    """`BF16`, `F32`, or one of FP8 (32x32 blocks), FP4 (two values a byte, low nibble first), TABLE (Engram rows)."""
    shape: Shape
    meaning: str


FP8, FP4, TABLE = "FP8", "FP4", "TABLE"
ROWS: tuple[Row, ...] = (
    Row(_once, "embed.weight", "BF16", lambda s: (s.vocabulary, s.hidden), "token embedding"),
    Row(_once, "head.weight", "BF16", lambda s: (s.vocabulary, s.hidden), "output head"),
    Row(_once, "norm.weight", "BF16", lambda s: (s.hidden,), "norm before the head"),
    Row(_blocks, "attn_norm.weight", "BF16", lambda s: (s.hidden,), "norm before attention"),
    Row(_blocks, "ffn_norm.weight", "BF16", lambda s: (s.hidden,), "norm before the experts"),
    Row(_blocks, "hc_attn_fn", "F32", lambda s: (s.mix, s.streams * s.hidden), "hyper-connection of attention"),
    Row(_blocks, "hc_attn_base", "F32", lambda s: (s.mix,), "its offset"),
    Row(_blocks, "hc_attn_scale", "F32", lambda s: (3,), "its three gains: pre, post, mixture"),
    Row(_blocks, "hc_ffn_fn", "F32", lambda s: (s.mix, s.streams * s.hidden), "hyper-connection of the experts"),
    Row(_blocks, "hc_ffn_base", "F32", lambda s: (s.mix,), "its offset"),
    Row(_blocks, "hc_ffn_scale", "F32", lambda s: (3,), "its three gains"),
    Row(_blocks, "attn.wq_a", FP8, lambda s: (s.q_lora, s.hidden), "query, down"),
    Row(_blocks, "attn.q_norm.weight", "BF16", lambda s: (s.q_lora,), "norm of the query's latent"),
    Row(_blocks, "attn.wq_b", FP8, lambda s: (s.heads * s.head_dim, s.q_lora), "query, up: a head's rows together"),
    Row(_blocks, "attn.wkv", FP8, lambda s: (s.head_dim, s.hidden), "the one key and value head"),
    Row(_blocks, "attn.kv_norm.weight", "BF16", lambda s: (s.head_dim,), "its norm"),
    Row(_blocks, "attn.attn_sink", "F32", lambda s: (s.heads,), "one logit a head that takes attention and gives none"),
    Row(
        _blocks, "attn.wo_a", FP8, lambda s: (s.groups * s.o_lora, s.heads * s.head_dim // s.groups),
        "output, down: a group's rows read that group's heads",
    ),
    Row(_blocks, "attn.wo_b", FP8, lambda s: (s.hidden, s.groups * s.o_lora), "output, up"),
    Row(
        _some("kv_sources"), "attn.compressor.wkv.weight", "BF16", lambda s: (s.head_dim, s.hidden),
        "latent of a group",
    ),
    Row(
        _some("kv_sources", lambda s, n: s.ratios[n] > 1), "attn.compressor.wgate.weight", "BF16",
        lambda s: (s.head_dim, s.hidden), "weights of a group's tokens in it",
    ),
    Row(_some("kv_sources"), "attn.compressor.norm.weight", "BF16", lambda s: (s.head_dim,), "norm of the latent"),
    Row(
        _some("index_sources"), "attn.indexer.wq_b", FP8, lambda s: (s.index_heads * s.index_dim, s.q_lora),
        "index query",
    ),
    Row(
        _some("index_sources"), "attn.indexer.weights_proj.weight", "BF16", lambda s: (s.index_heads, s.hidden),
        "weight of each index head",
    ),
    Row(
        _some("index_sources", lambda s, n: n in s.kv_sources),
        "attn.indexer.wk.weight", "BF16", lambda s: (s.index_dim, s.head_dim), "index key of a latent",
    ),
    Row(
        _some("index_sources", lambda s, n: n in s.kv_sources),
        "attn.indexer.k_norm.weight", "BF16", lambda s: (s.index_dim,), "its norm",
    ),
    Row(_layers, "ffn.gate.weight", "BF16", lambda s: (s.experts, s.hidden), "router"),
    Row(_layers, "ffn.gate.bias", "F32", lambda s: (s.experts,), "what choosing adds to a score"),
    Row(_stages, "ffn.gate.weight", "BF16", lambda s: (s.draft_experts, s.hidden), "router of a draft stage"),
    Row(_stages, "ffn.gate.bias", "F32", lambda s: (s.draft_experts,), "what choosing adds to a score"),
    Row(
        lambda s: _layers(s) if s.vision_layers else iter([]), "ffn.gate.bias_vl", "F32", lambda s: (s.experts,),
        "the same for tokens of a picture",
    ),
    Row(
        lambda s: _stages(s) if s.vision_layers else iter([]),
        "ffn.gate.bias_vl", "F32", lambda s: (s.draft_experts,), "the same; the draft leaves it out",
    ),
    Row(_experts, "w1", FP4, lambda s: (s.intermediate, s.hidden), "gate of a routed expert"),
    Row(_experts, "w2", FP4, lambda s: (s.hidden, s.intermediate), "down of a routed expert"),
    Row(_experts, "w3", FP4, lambda s: (s.intermediate, s.hidden), "up of a routed expert"),
    Row(_blocks, "ffn.shared_experts.w1", FP8, lambda s: (s.intermediate, s.hidden), "gate of the shared expert"),
    Row(_blocks, "ffn.shared_experts.w2", FP8, lambda s: (s.hidden, s.intermediate), "down of the shared expert"),
    Row(_blocks, "ffn.shared_experts.w3", FP8, lambda s: (s.intermediate, s.hidden), "up of the shared expert"),
    Row(
        _some("engram_layers"), "engram.embed", TABLE, lambda s: (0, s.engram_head_dim),
        "hash table: 24 columns, each as many rows as its prime",
    ),
    Row(
        _some("engram_layers"),
        "engram.wkv", FP8, lambda s: (s.hidden * (s.streams + 1), s.columns * s.engram_head_dim),
        "keys a stream and the value",
    ),
    Row(
        _some("engram_layers"), "engram.q_weight", "BF16", lambda s: (s.streams, s.hidden),
        "norm weight of the gate's query",
    ),
    Row(
        _some("engram_layers"), "engram.k_weight", "BF16", lambda s: (s.streams, s.hidden),
        "norm weight of the gate's key",
    ),
    Row(
        lambda s: iter(["mtp.0."]), "main_proj", FP8, lambda s: (s.hidden, len(s.draft_targets) * s.hidden),
        "what the target's layers hand to the draft",
    ),
    Row(lambda s: iter(["mtp.0."]), "main_norm.weight", "BF16", lambda s: (s.hidden,), "its norm"),
    Row(
        lambda s: iter([f"mtp.{s.stages - 1}."]), "norm.weight", "BF16", lambda s: (s.hidden,),
        "norm before the shared head",
    ),
    Row(
        lambda s: iter([f"mtp.{s.stages - 1}."]),
        "markov_head.embed.weight", "BF16", lambda s: (s.vocabulary, s.markov_rank), "Markov head: the token before",
    ),
    Row(
        lambda s: iter([f"mtp.{s.stages - 1}."]),
        "markov_head.head.weight", "BF16", lambda s: (s.vocabulary, s.markov_rank), "Markov head: what follows it",
    ),
    Row(
        lambda s: iter([f"mtp.{s.stages - 1}."]),
        "confidence_head.proj.weight", "F32", lambda s: (1, s.hidden + s.markov_rank), "how sure a drafted token is",
    ),
    Row(_vision, "vision.patch_embed.proj.weight", "BF16", lambda s: (s.vision_dim, 3 * s.patch**2), "patches"),
    Row(_vision, "vision.patch_embed.proj.bias", "BF16", lambda s: (s.vision_dim,), ""),
    Row(_tower, "norm1.weight", "BF16", lambda s: (s.vision_dim,), "norm before attention"),
    Row(_tower, "attn.wqkv.weight", "BF16", lambda s: (3 * s.vision_dim, s.vision_dim), "query, key, value"),
    Row(_tower, "attn.wqkv.bias", "BF16", lambda s: (3 * s.vision_dim,), ""),
    Row(_tower, "attn.wo.weight", "BF16", lambda s: (s.vision_dim, s.vision_dim), "output"),
    Row(_tower, "attn.wo.bias", "BF16", lambda s: (s.vision_dim,), ""),
    Row(_tower, "norm2.weight", "BF16", lambda s: (s.vision_dim,), "norm before the MLP"),
    Row(_tower, "mlp.w1.weight", "BF16", lambda s: (2 * s.vision_inter, s.vision_dim), "gate and up"),
    Row(_tower, "mlp.w2.weight", "BF16", lambda s: (s.vision_dim, s.vision_inter), "down"),
    Row(_vision, "vision.norm.weight", "BF16", lambda s: (s.vision_dim,), "norm after the tower"),
    Row(
        _vision, "aligner.w1.weight", "BF16", lambda s: (s.hidden, s.vision_dim * s.downsample**2),
        "picture to text, 3x3 patches in one",
    ),
    Row(_vision, "aligner.w1.bias", "BF16", lambda s: (s.hidden,), ""),
    Row(_vision, "aligner.w2.weight", "BF16", lambda s: (s.hidden, s.hidden), ""),
    Row(_vision, "aligner.w2.bias", "BF16", lambda s: (s.hidden,), ""),
    Row(_vision, "image_start", "BF16", lambda s: (s.hidden,), "embedding before a picture"),
    Row(_vision, "image_end", "BF16", lambda s: (s.hidden,), "embedding after it"),
    Row(_vision, "image_newline", "BF16", lambda s: (s.hidden,), "embedding after a line of it"),
)  # fmt: skip


def engram_rows(s: Sizes) -> list[int]:
    """Rows of each table: 24 primes, ascending over both layers without a repeat, each n-gram order from the start."""
    used: set[int] = set()
    rows = []
    for _ in s.engram_layers:
        total = 0
        for _ in range(s.ngram - 1):
            number = s.engram_vocabulary - 1
            for _ in range(s.engram_heads):
                number += 1
                while number in used or any(number % factor == 0 for factor in range(2, int(number**0.5) + 1)):
                    number += 1
                used.add(number)
                total += number
        rows.append(total)
    return rows


def _entries(row: Row, s: Sizes, prefix: str) -> Iterator[tuple[str, Entry]]:
    shape = row.shape(s)
    name = prefix + row.name
    if row.kind == TABLE:
        shape = (engram_rows(s)[s.engram_layers.index(int(prefix.split(".")[1]))], shape[1])
    if row.kind not in (FP8, FP4, TABLE):
        yield name, Entry(row.kind, shape)
        return
    rows, columns = shape
    weight = Entry("I8", (rows, columns // 2)) if row.kind == FP4 else Entry("F8_E4M3", shape)
    yield f"{name}.weight", weight
    yield f"{name}.scale", Entry("F8_E8M0", (-(-rows // BLOCK) if row.kind == FP8 else rows, -(-columns // BLOCK)))


def tensors(s: Sizes = TINY) -> dict[str, Entry]:
    """Every tensor of a checkpoint by name, in the table's order."""
    return {name: entry for row in ROWS for prefix in row.where(s) for name, entry in _entries(row, s, prefix)}
