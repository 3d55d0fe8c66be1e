"""Engram rows come from this rank's packed files on NVMe, while the layers before theirs are computed.

The engine's module keeps its code for ranges, reduction and shapes; it gets no table. What is read, and from where,
is `packed_rows`; when, is `layer_rows`; what the weight loaders leave out, is `weight_files`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from spark_overlay import checkpoint_config, row_store, weight_files
from spark_overlay.adapter import Adapter, HookPoint, Kind, Process
from spark_overlay.packed_rows import RowsError, Wanted, fallback, open_rows
from spark_overlay.switches import Switch, Values

ROWS = Switch("SPARK_ENGRAM_ROWS", 1, "1 reads Engram rows from packed files, 0 loads the whole tables into memory")
PREFETCH = Switch("DSV41_ENGRAM_PREFETCH", 1, "1 looks rows up right after the hash, on a stream of their own")
CHECK = Switch("DSV41_ENGRAM_PREFETCH_CHECK", 0, "1 compares each lookup with a second one and ends at a difference")
HELD = "spark_rows"
"""The attribute of the engine's module that holds its LayerRows."""
_ENGRAM = "sglang.srt.layers.engram"
_EMBEDDING = f"{_ENGRAM}.EngramEmbedding.__init__"
_OWNED = f"{_ENGRAM}.EngramEmbedding._owned_rows"
_LOADED = f"{_ENGRAM}.EngramEmbedding.finish_load"
_LAYER = f"{_ENGRAM}.Engram.__init__"
_HASHED = f"{_ENGRAM}.EngramHasher.forward"
_WEIGHTS = "sglang.srt.model_loader.weight_utils"
_ITERATORS = {
    f"{_WEIGHTS}.safetensors_weights_iterator": "(hf_weights_files, disable_mmap=False, prefetch=False, "
    "prefetch_num_threads=4, drop_cache_after_load=False)",
    f"{_WEIGHTS}.buffered_multi_thread_safetensors_weights_iterator": "(hf_weights_files, max_workers, "
    "disable_mmap=False, prefetch=False, prefetch_num_threads=4, drop_cache_after_load=False)",
    f"{_WEIGHTS}.fastsafetensors_weights_iterator": "(hf_weights_files, enable_gds=True, drop_cache_after_load=False)",
}
_PREFETCHED = f"{_WEIGHTS}._prefetch_all_checkpoints"


def not_needed(environment: Mapping[str, str]) -> str:
    """Why the model at MODEL_PATH has no rows to look up; '' where it has, or where that cannot be seen."""
    fields = checkpoint_config.of_environment(environment)
    if other := checkpoint_config.why_another_model(fields):
        return other
    return "" if not fields or fields.get("engram_layer_ids") else "the model has no Engram layer"


def _functions(values: Values) -> dict[str, Callable[..., Any]]:
    import torch
    from sglang.srt.layers import engram

    early, check = bool(values[PREFETCH.name]), bool(values[CHECK.name])
    layers: dict[int, Any] = {}  # by place in the hash, of the one model of this process
    streams: list[Any] = []

    def embedding(
        original: Callable[..., Any],
        embed: Any,
        num_embeddings: int,
        dim: int,
        layer_id: int,
        column_bounds: tuple[int, ...],
    ) -> None:
        device = torch.empty(0).device
        try:
            _refuse_tables_in_memory(engram.envs)
            # The engine sets all its fields, and its two tables have no memory.
            with torch.device("meta"):
                original(embed, num_embeddings, dim, layer_id, column_bounds)
            del embed.weight, embed.scale
            wanted = Wanted(
                layer=layer_id, rank=engram.get_parallel().tp_rank, tp=embed.tp_size, row_lo=embed.row_start,
                row_hi=embed.row_start + embed.rows, bounds=tuple(column_bounds), weight_bytes=dim,
                checkpoint=checkpoint_config.folder_of_engine(),
            )  # fmt: skip
            setattr(embed, HELD, _opened(wanted, device, check))
        except RowsError as error:
            print(f"[spark] ERROR {error}", flush=True)
            raise

    def layer(result: None, module: Any, *_: Any, **__: Any) -> None:
        layers[module.layer_hash_index] = getattr(module.embed, HELD)

    def loaded(result: None, embed: Any, *_: Any, **__: Any) -> None:
        rows = getattr(embed, HELD)
        if early and not streams and rows.device.type == "cuda":
            # One for all layers: they are read in the order in which they are needed. Not one of torch's pool, which
            # could be a stream that the engine works on.
            from spark_overlay.row_lookup import own_stream

            streams.append(own_stream(rows.device))
        rows.ready(streams[0] if streams else None)

    def owned(embed: Any, indices: Any) -> Any:
        return getattr(embed, HELD).values(indices)

    def hashed(hash_ids: Any, hasher: Any, input_ids: Any, forward_batch: Any) -> None:
        if not early or not hash_ids.shape[0] or forward_batch.forward_mode.is_idle():
            return
        # Here the layers come with other tensors: copied out of a graph's break, or gathered over ranks.
        parallel = engram.get_parallel()
        if engram.is_in_breakable_cuda_graph() or parallel.attn_cp_size > 1 or parallel.attn_dp_size > 1:
            return
        for place, rows in layers.items():
            rows.start(hash_ids[:, place])

    iterators = dict.fromkeys(_ITERATORS, _without_tables)
    points = {_EMBEDDING: embedding, _LAYER: layer, _LOADED: loaded, _OWNED: owned, _HASHED: hashed}
    return {**points, **iterators, _PREFETCHED: _prefetched_without_tables}


def _opened(wanted: Wanted, device: Any, check: bool) -> Any:
    from spark_overlay.layer_rows import LayerRows

    layers = checkpoint_config.fields(wanted.checkpoint).get("engram_layer_ids") or (0, 1)
    rows = open_rows(wanted, os.environ, len(layers))
    return LayerRows(rows, device, name=wanted.name, check=check)


def _refuse_tables_in_memory(envs: Any) -> None:
    for name in ("SGLANG_ENABLE_DSV41_ENGRAM_HOST_TABLE", "SGLANG_OPT_DSV41_ENGRAM_PEER_SHARDS"):
        if getattr(envs, name).get():
            raise RowsError(f"{name}=1 asks for Engram tables in memory", f"remove it, or write {ROWS.name}=0")


def _without_tables(
    original: Callable[..., Any], hf_weights_files: list[str], *rest: Any, **named: Any
) -> Iterator[tuple[str, Any]]:
    plain, with_table = weight_files.parted(hf_weights_files)
    if plain:
        yield from original(plain, *rest, **named)
    yield from weight_files.other_tensors(with_table)


def _prefetched_without_tables(original: Callable[..., Any], sorted_files: list[str], *rest: Any, **named: Any) -> Any:
    return original(weight_files.parted(sorted_files)[0], *rest, **named)


def check(values: Values) -> None:
    """The library loads here, and the settings that the row store reads can be meant."""
    from sglang.srt.model_loader import loader, weight_utils

    for target in _ITERATORS:
        name = target.rpartition(".")[2]
        assert getattr(loader, name) is getattr(weight_utils, name), f"the loader has kept the engine's own {name}"
    try:
        row_store.load()
        row_store.Options.from_environment(os.environ)
        fallback(os.environ)
    except (row_store.RowStoreError, ValueError) as error:
        raise AssertionError(str(error)) from error


ADAPTER = Adapter(
    name="engram_rows",
    problem="The Engram tables are 189 GiB; SGLang keeps each rank's part in memory, where a Spark has no room for it.",
    settings=(ROWS, PREFETCH, CHECK),
    hooks=(
        HookPoint(_EMBEDDING, Kind.AROUND, "(self, num_embeddings, dim, layer_id, column_bounds)", Process.SCHEDULER),
        HookPoint(_OWNED, Kind.REPLACE, "(self, indices)", Process.SCHEDULER),
        HookPoint(_LOADED, Kind.AFTER, "(self, label)", Process.SCHEDULER),
        HookPoint(
            _LAYER,
            Kind.AFTER,
            "(self, config, layer_id, layout, quant_config=None, prefix='', *, image_token_id=None)",
            Process.SCHEDULER,
        ),
        HookPoint(_HASHED, Kind.AFTER, "(self, input_ids, forward_batch)", Process.SCHEDULER),
        *(HookPoint(target, Kind.AROUND, parameters, Process.SCHEDULER) for target, parameters in _ITERATORS.items()),
        HookPoint(_PREFETCHED, Kind.AROUND, "(sorted_files, num_threads=4)", Process.SCHEDULER),
    ),
    engines=("0.5.23",),
    remove_when="SGLang reads Engram rows from files of its own.",
    off=lambda values: "" if values[ROWS.name] else f"{ROWS.name}=0",
    not_needed=not_needed,
    functions=_functions,
    check=check,
)
