"""Run by the engine's Python: the engine's own Engram classes and weight loaders, first as they come, then with the
adapter in place. `engram_cases.py FOLDER` prints one JSON object, case -> what was found; '' is what a case wants.

What ends a process is tried in a forked child of this one: an import of the engine costs six seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import json
import os
import shutil
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.layers import engram
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.model_loader import loader, weight_utils
from sglang.srt.runtime_context import SpawnRanks, publish, reset_context
from sglang.srt.server_args import ServerArgs
from spark_overlay import arming, checkpoint_config, packed_rows
from spark_overlay import engram as packer
from spark_overlay.adapter import Process
from spark_overlay.adapters import engram_rows
from spark_overlay.crc32c import crc32c
from spark_overlay.engram_file import CRC_OFFSET, HEADER_BYTES, PAGE_BYTES, file_name
from tokenizers import Tokenizer, models

from tests.overlay.checkpoints import HEAD_DIM, write_checkpoint

VOCABULARY = 4001
"""Some 98,000 rows a table."""
REVISION = "1bae0e1c0ffee"
SIZES = (1, 3, 4)
HIDDEN, COPIES = 64, 2
FOUND: dict[str, Any] = {}
BEFORE_LAYERS: list[Callable[[], int]] = []
BEFORE_LAYERS_SAW: list[int] = []


def on_rank(checkpoint: Path, rank: int, tp: int) -> None:
    reset_context()
    # A path that is none: the folder has no config of a whole model, which ServerArgs would read.
    arguments = ServerArgs(model_path="dummy", tp_size=tp, device="cpu")
    publish(arguments, role="test", ranks=SpawnRanks(world_rank=rank, dp_rank=None))
    checkpoint_config.folder_of_engine = lambda: checkpoint


def table_of(checkpoint: Path, layout: Any, index: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One whole table, by the bytes that write_checkpoint wrote."""
    path = sorted(checkpoint.glob("model-*.safetensors"))[index]
    raw = path.read_bytes()
    start, rows = 8 + struct.unpack("<Q", raw[:8])[0], layout.num_embeddings[index]
    weight = torch.frombuffer(bytearray(raw[start : start + rows * HEAD_DIM]), dtype=torch.uint8)
    scale = torch.frombuffer(bytearray(raw[start + rows * HEAD_DIM :]), dtype=torch.uint8)
    return (
        weight.view(torch.float8_e4m3fn).view(rows, HEAD_DIM),
        scale.view(torch.float8_e8m0fnu).view(rows, HEAD_DIM // 32),
    )


def some_ids(layout: Any, index: int, tp: int) -> dict[str, torch.Tensor]:
    """Random and adversarial ids: every boundary and its neighbours, one id many times, one column, nothing."""
    rows, bounds = layout.num_embeddings[index], layout.column_bounds(index)
    dice = torch.Generator().manual_seed(tp)
    edges = {0, rows - 1}
    for rank in range(tp):
        edges |= set(engram.shard_range(rows, bounds, rank, tp))
    edges |= set(bounds)
    near = sorted({min(rows - 1, max(0, each + step)) for each in edges for step in (-1, 0, 1)})
    token = torch.stack([torch.randint(bounds[c], bounds[c + 1], (40,), generator=dice) for c in range(24)], dim=1)
    return {
        "random": torch.randint(0, rows, (301, 24), generator=dice),
        "edges": torch.tensor(near),
        "one row": torch.full((96, 24), rows // 2),
        "token": token,
        "view of a larger tensor": torch.stack([token, token.flip(0)], dim=1)[:, 1],
        "nothing": torch.empty((0, 24), dtype=torch.int64),
    }


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Bit for bit; a NaN is a NaN."""
    if (left.dtype, right.dtype, left.shape) != (torch.bfloat16, torch.bfloat16, right.shape):
        return False
    equal = left.contiguous().view(torch.int16) == right.contiguous().view(torch.int16)
    return bool((equal | (left.isnan() & right.isnan())).all())


def embedding(layout: Any, index: int) -> Any:
    return engram.EngramEmbedding(
        layout.num_embeddings[index], layout.head_dim, layout.layer_ids[index], layout.column_bounds(index)
    )


class Stock:
    """What the engine computes with its tables in memory, before anything was changed."""

    def __init__(self, checkpoint: Path, tame: Path, layout: Any) -> None:
        self.rows: dict[tuple[int, int, int, str], torch.Tensor] = {}
        tables = [table_of(checkpoint, layout, index) for index in range(len(layout.layer_ids))]
        for tp in SIZES:
            for rank in range(tp):
                on_rank(checkpoint, rank, tp)
                for index, (weight, scale) in enumerate(tables):
                    module = embedding(layout, index)
                    module.weight.weight_loader(module.weight, weight)
                    module.scale.weight_loader(module.scale, scale)
                    for name, ids in some_ids(layout, index, tp).items():
                        self.rows[tp, rank, index, name] = module._owned_rows(ids)
        on_rank(tame, 0, 1)
        self.forward = forwards(layout, [table_of(tame, layout, index) for index in range(len(layout.layer_ids))])
        self.loaded: dict[str, dict[str, str]] = {}


def hasher_of(layout: Any) -> Any:
    words = {f"w{number}": number for number in range(500)}
    backend = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer = type("Words", (), {"backend_tokenizer": backend, "__len__": lambda self: len(words)})()
    made = engram.EngramHasher(layout, tokenizer, 2, 500)
    made.init_history(8, "cpu")
    return made


def batches() -> Iterator[tuple[torch.Tensor, Any]]:
    """A prefill of two prompts, a decode step, and a verification of three tokens a request."""
    dice = torch.Generator().manual_seed(5)

    def batch(mode: ForwardMode, count: int, positions: torch.Tensor, **more: Any) -> tuple[torch.Tensor, Any]:
        base = {"engram_history": None, "engram_staged_rows": None, "spec_info": None}
        base |= {"extend_seq_lens_cpu": None, "out_cache_loc": torch.arange(1, count + 1)}
        base |= {"forward_mode": mode, "positions": positions, "req_pool_indices": torch.tensor([1, 2])}
        return torch.randint(0, 500, (count,), generator=dice), SimpleNamespace(**(base | more))

    lens, starts = torch.tensor([17, 9]), torch.tensor([0, 17])
    yield batch(
        ForwardMode.EXTEND, 26, torch.cat([torch.arange(17), torch.arange(9)]),
        extend_seq_lens=lens, extend_start_loc=starts, extend_seq_lens_cpu=[17, 9],
    )  # fmt: skip
    yield batch(ForwardMode.DECODE, 2, torch.tensor([17, 9]))
    yield batch(
        ForwardMode.TARGET_VERIFY, 6, torch.tensor([18, 19, 20, 10, 11, 12]),
        spec_info=SimpleNamespace(draft_token_num=3),
    )  # fmt: skip


def forwards(layout: Any, tables: list[tuple[torch.Tensor, torch.Tensor]] | None) -> list[torch.Tensor]:
    """The layers' outputs over the batches, as DeepseekV4Model calls hasher and layers; tables None: the adapter's."""
    torch.manual_seed(3)
    config = SimpleNamespace(rms_norm_eps=1e-6, hidden_size=HIDDEN, hc_mult=COPIES)
    with torch.no_grad():
        layers = [engram.Engram(config, layer, layout) for layer in layout.layer_ids]
        for layer in layers:
            torch.nn.init.normal_(layer.wkv.weight, std=0.01)
            if tables is not None:
                weight, scale = tables[layer.layer_hash_index]
                layer.embed.weight.weight_loader(layer.embed.weight, weight)
                layer.embed.scale.weight_loader(layer.embed.scale, scale)
            layer.embed.finish_load(label="a test's")
        hasher = hasher_of(layout)
        results = []
        for input_ids, batch in batches():
            ids = hasher(input_ids, batch)
            BEFORE_LAYERS_SAW.extend(count() for count in BEFORE_LAYERS)
            x = torch.randn(len(input_ids), COPIES, HIDDEN)
            for layer in layers:
                own = ids[:, layer.layer_hash_index]
                results.append(layer.embed_rows(own, batch, False))
                x = layer(x, own, batch, input_ids=input_ids)
            results.append(x)
    FOUND[f"parameters {'stock' if tables else 'ours'}"] = sorted(
        f"{name} {parameter.nbytes}" for layer in layers for name, parameter in layer.named_parameters()
    )
    return results


# -- loaders ----------------------------------------------------------------------------------------------------------


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy()).hexdigest()


def loaded(checkpoint: Path) -> dict[str, dict[str, str]]:
    """Every way that the default loader reads a folder: name -> a digest of the tensor's bytes."""
    found: dict[str, dict[str, str]] = {}
    for kind, extra in (("threads", {}), ("one by one", {"enable_multithread_load": False})):
        config = LoadConfig(load_format="safetensors", model_loader_extra_config=extra)
        source = loader.DefaultModelLoader.Source(str(checkpoint), None)
        tensors = loader.DefaultModelLoader(config)._get_weights_iterator(source)
        found[kind] = {name: digest(tensor) for name, tensor in tensors}
    return found


def loaded_whole(checkpoint: Path) -> dict[str, str]:
    """The reader that takes whole files into memory; by itself it knows no type for a table's scales."""
    files = sorted(map(str, checkpoint.glob("*.safetensors")))
    tensors = weight_utils.safetensors_weights_iterator(files, disable_mmap=True)
    return {name: digest(tensor) for name, tensor in tensors}


class Spy:
    """Sees which tensors are taken out of which file, and which files are read whole."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.whole_bytes = 0
        self._open, self._load = safetensors.safe_open, safetensors.torch.load

    def __enter__(self) -> Spy:
        spy = self

        class Opened:
            def __init__(self, *arguments: Any, **named: Any) -> None:
                self._file = spy._open(*arguments, **named)

            def __enter__(self) -> Opened:
                self._file.__enter__()
                return self

            def __exit__(self, *error: Any) -> None:
                self._file.__exit__(*error)

            def keys(self) -> Any:
                return self._file.keys()

            def get_tensor(self, name: str) -> torch.Tensor:
                spy.taken.append(name)
                return self._file.get_tensor(name)

        def load(data: bytes) -> Any:
            spy.whole_bytes = max(spy.whole_bytes, len(data))
            return spy._load(data)

        safetensors.safe_open, safetensors.torch.load = Opened, load
        return self

    def __exit__(self, *_: Any) -> None:
        safetensors.safe_open, safetensors.torch.load = self._open, self._load


def loader_cases(checkpoint: Path, stock: Stock) -> None:
    with Spy() as spy:
        ours = loaded(checkpoint) | {"without mmap": loaded_whole(checkpoint)}
    tables = {name for name in stock.loaded["threads"] if ".engram.embed." in name}
    FOUND["the engine as it comes reads the tables"] = "" if len(tables) == 4 else str(tables)
    wanted = {name: value for name, value in stock.loaded["threads"].items() if name not in tables}
    for kind, names in ours.items():
        FOUND[f"loader {kind}"] = "" if names == wanted and len(wanted) == 5 else f"{names} not {wanted}"
    FOUND["tables taken by a loader"] = sorted(set(spy.taken) & tables)
    FOUND["largest file read whole"] = spy.whole_bytes
    read: list[str] = []
    original = weight_utils._prefetch_checkpoint_file
    weight_utils._prefetch_checkpoint_file = lambda path, cancel=None: read.append(Path(path).name)
    try:
        files = sorted(map(str, checkpoint.glob("*.safetensors")))
        weight_utils._prefetch_all_checkpoints(files).wait(30)
    finally:
        weight_utils._prefetch_checkpoint_file = original
    FOUND["read ahead into the page cache"] = sorted(read)


# -- rows -------------------------------------------------------------------------------------------------------------


def pack(checkpoint: Path, out: Path, rank: int, tp: int, revision: str = REVISION) -> None:
    words = ["pack", "--source", str(checkpoint), "--out", str(out), "--rank", str(rank), "--tp", str(tp)]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        status = packer.main([*words, "--revision", revision])
    assert status == 0, said.getvalue()


def row_cases(checkpoint: Path, layout: Any, stock: Stock) -> None:
    for tp in SIZES:
        different = []
        for rank in range(tp):
            on_rank(checkpoint, rank, tp)
            for index in range(len(layout.layer_ids)):
                module = embedding(layout, index)
                module.finish_load(label="a test's")
                for name, ids in some_ids(layout, index, tp).items():
                    if not same(module._owned_rows(ids), stock.rows[tp, rank, index, name]):
                        different.append(f"rank {rank} table {index} {name}")
                FOUND.setdefault("memory of the module", []).append(
                    sum(each.nbytes for each in (*module.parameters(), *module.buffers()))
                )
        FOUND[f"rows at TP {tp}"] = ", ".join(different)


def forward_cases(tame: Path, checkpoint: Path, layout: Any, stock: Stock) -> None:
    on_rank(tame, 0, 1)
    asked: list[int] = []
    original = packed_rows.RowStore.lookup_at

    def counted(self: Any, ids: int, count: int, out: int) -> None:
        asked.append(count)
        original(self, ids, count, out)

    packed_rows.RowStore.lookup_at = counted
    BEFORE_LAYERS.append(lambda: len(asked))
    started = {}
    try:
        for early in (1, 0):
            arm(DSV41_ENGRAM_PREFETCH=str(early))
            with changed(DSV41_PACKED_DIR=str(tame / "packed")):
                ours, seen = forwards(layout, None), BEFORE_LAYERS_SAW.copy()
            BEFORE_LAYERS_SAW.clear()
            equal = [same(left, right) for left, right in zip(stock.forward, ours, strict=True)]
            finite = [bool(each.isfinite().all()) and bool(each.any()) for each in ours]
            name = "prefill, decode and verify through hasher and layers"
            good = all(equal) and all(finite)
            FOUND[name] = FOUND.get(name, "") or ("" if good else f"early {early}: {equal} {finite}")
            FOUND["ids of lookups" if early else "ids of lookups without starting early"] = asked.copy()
            # Four lookups a batch in all: how many had been done when its first layer asked.
            started["early" if early else "late"] = [count - 4 * batch for batch, count in enumerate(seen)]
            asked.clear()
    finally:
        packed_rows.RowStore.lookup_at = original
        BEFORE_LAYERS.clear()
    FOUND["started before the first layer asks"] = started
    arm()
    on_rank(checkpoint, 0, 1)
    module = embedding(layout, 0)
    ids = some_ids(layout, 0, 1)["random"]
    getattr(module, engram_rows.HELD).start(ids)
    part, whole = module._owned_rows(ids[5:9]), module._owned_rows(ids)
    right = same(whole, stock.rows[1, 0, 0, "random"]) and same(part, whole[5:9])
    FOUND["a part of the tokens"] = "" if right else "different rows"


def refused(name: str, checkpoint: Path, layout: Any, rank: int = 0, tp: int = 3, **environment: str) -> None:
    """The text with which a layer of the model cannot be made."""
    on_rank(checkpoint, rank, tp)
    said = io.StringIO()
    with changed(**environment), contextlib.redirect_stdout(said):
        try:
            embedding(layout, 0)
            FOUND[name] = "nothing was refused"
        except packed_rows.RowsError as error:
            FOUND[name] = str(error)
            if f"[spark] ERROR {error}" not in said.getvalue():
                FOUND[name] = f"not said: {error}"


@contextlib.contextmanager
def changed(**environment: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def refusal_cases(folder: Path, checkpoint: Path, layout: Any, packed: Path) -> None:
    """All kinds of wrong files are in tests/overlay/test_packed_rows.py; here no model is made without its own."""
    place = folder / "wrong"
    place.mkdir()
    refused("missing", checkpoint, layout, DSV41_PACKED_DIR=str(place))
    shutil.copy(packed / file_name(layout.layer_ids[0], 1, 3), place / file_name(layout.layer_ids[0], 0, 3))
    refused("another rank's", checkpoint, layout, DSV41_PACKED_DIR=str(place))
    refused("another revision's", checkpoint, layout, HF_REVISION="2222222")
    refused("tables in memory", checkpoint, layout, SGLANG_ENABLE_DSV41_ENGRAM_HOST_TABLE="1")
    # The beginning of the commit, as it may stand in the settings.
    refused("this revision, shortened", checkpoint, layout, HF_REVISION=REVISION[:7])


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0] ^ 4
        file.seek(offset)
        file.write(bytes([byte]))


def other_row(path: Path, page: int) -> None:
    """Another row in place of a page's first, with a right checksum: what only a comparison can find."""
    with path.open("r+b") as file:
        file.seek(HEADER_BYTES + page * PAGE_BYTES)
        data = bytearray(file.read(PAGE_BYTES))
        data[:HEAD_DIM] = bytes(byte ^ 1 for byte in data[:HEAD_DIM])
        data[CRC_OFFSET:] = struct.pack("<I", crc32c(bytes(data[:CRC_OFFSET])))
        file.seek(HEADER_BYTES + page * PAGE_BYTES)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def ending_cases(folder: Path, checkpoint: Path, layout: Any, packed: Path) -> None:
    place = folder / "ends"
    place.mkdir()
    path = place / file_name(layout.layer_ids[0], 0, 3)
    on_rank(checkpoint, 0, 3)
    ids = torch.arange(0, 96).view(4, 24)

    def case(name: str, run: Callable[[Any], None], **settings: str) -> None:
        shutil.copy(packed / path.name, path)

        def child() -> None:
            with changed(DSV41_PACKED_DIR=str(place)):
                arm(**settings)
                module = embedding(layout, 0)
                module.finish_load(label="a test's")
                run(module)

        FOUND[name] = in_child(folder, child)

    def corrupt(module: Any) -> None:
        flip(path, HEADER_BYTES + 2 * PAGE_BYTES + 100)
        module._owned_rows(ids)

    def changed_meanwhile(module: Any) -> None:
        rows = getattr(module, engram_rows.HELD)
        rows.start(ids)
        other_row(path, 1)
        module._owned_rows(ids)

    case("a corrupt page", corrupt)
    case("an id that is none", lambda module: module._owned_rows(torch.tensor([layout.num_embeddings[0]])))
    case("a row that changed between two reads, compared", changed_meanwhile, DSV41_ENGRAM_PREFETCH_CHECK="1")
    case("equal reads, compared", lambda module: module._owned_rows(ids), DSV41_ENGRAM_PREFETCH_CHECK="1")


def in_child(folder: Path, run: Callable[[], None]) -> str:
    """`exit STATUS: what it wrote to standard error`; 0 when it came to its end."""
    log = folder / "child.log"
    child = os.fork()
    if child == 0:
        with log.open("wb") as out:
            os.dup2(out.fileno(), 2)
            os.dup2(out.fileno(), 1)
        try:
            run()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(9)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"exit {status}: {log.read_text(errors='replace')[-1500:]}"


def fallback_cases(folder: Path, checkpoint: Path, layout: Any, stock: Stock) -> None:
    said = io.StringIO()
    different = []
    with changed(DSV41_PACKED_DIR=str(folder / "nothing-packed"), DSV41_ENGRAM_FALLBACK="checkpoint"):
        for rank in range(3):
            on_rank(checkpoint, rank, 3)
            with contextlib.redirect_stdout(said):
                module = embedding(layout, 1)
            module.finish_load(label="a test's")
            for name, ids in some_ids(layout, 1, 3).items():
                if not same(module._owned_rows(ids), stock.rows[3, rank, 1, name]):
                    different.append(f"rank {rank} {name}")
            if not by_host_function(module, some_ids(layout, 1, 3)["random"], stock.rows[3, rank, 1, "random"]):
                different.append(f"rank {rank} by its host function")
    FOUND["rows of the checkpoint"] = ", ".join(different)
    FOUND["what the fallback says"] = said.getvalue()

    def none() -> None:
        with changed(DSV41_PACKED_DIR=str(folder / "nothing-packed"), DSV41_ENGRAM_FALLBACK="checkpoint"):
            module = embedding(layout, 1)
            by_host_function(module, torch.tensor([-1]), torch.zeros(1))

    FOUND["an id that is none, in the host function"] = in_child(folder, none)


def by_host_function(module: Any, ids: torch.Tensor, wanted: torch.Tensor) -> bool:
    """As the driver calls it: on another thread, with the address of a request and nothing else."""
    rows = getattr(module, engram_rows.HELD)._rows
    asked = ids.flatten().contiguous()
    out = torch.full((asked.numel(), rows.info.row_bytes), 7, dtype=torch.uint8)
    request = rows.request(asked.data_ptr(), asked.numel(), out.data_ptr())
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(rows.host_function)
    thread = threading.Thread(target=function, args=(ctypes.addressof(request),))
    thread.start()
    thread.join(60)
    weight = out[:, :HEAD_DIM].contiguous().view(torch.float8_e4m3fn).float().unflatten(-1, (-1, 32))
    scale = out[:, HEAD_DIM:].contiguous().view(torch.float8_e8m0fnu).float().unsqueeze(-1)
    values = (weight * scale).flatten(-2).to(torch.bfloat16)
    return request.status == 0 and same(values, wanted.reshape(-1, HEAD_DIM))


def arm(**settings: str) -> None:
    """The adapter with these settings, on the engine as it comes."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    for hook in engram_rows.ADAPTER.hooks:
        take_off(hook.target)
    HookRegistry.reset()
    values = arming.values_of([engram_rows.ADAPTER], settings)
    [stated] = arming.arm([engram_rows.ADAPTER], values, [Process.SCHEDULER])
    assert stated.state == "armed", stated


def take_off(target: str) -> None:
    from spark_overlay import signatures

    holder, name, function = signatures.find(target)
    plain = getattr(function, "__wrapped__", None)
    if plain is not None:
        setattr(holder, name, plain)
        if holder is weight_utils and getattr(loader, name, None) is function:
            setattr(loader, name, plain)


def add_small_tensors(checkpoint: Path) -> None:
    """As in the real files: a table shares its file with the layer's small tensors; one more file has none."""
    for number, path in enumerate(sorted(checkpoint.glob("model-*.safetensors"))):
        raw = path.read_bytes()
        length = struct.unpack("<Q", raw[:8])[0]
        entries, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
        small = np.arange(256 + number, dtype=np.float32).tobytes()
        entries[f"layers.{number}.engram.q_weight"] = {
            "dtype": "F32", "shape": [256 + number], "data_offsets": [len(data), len(data) + len(small)],
        }  # fmt: skip
        header = json.dumps(entries).encode()
        path.write_bytes(struct.pack("<Q", len(header)) + header + data + small)
    plain = {f"layers.{number}.ffn.w1.weight": torch.full((64,), float(number)) for number in range(3)}
    safetensors.torch.save_file(plain, checkpoint / "model-00003-of-00003.safetensors")
    index = json.loads((checkpoint / "model.safetensors.index.json").read_text())
    names = sorted(path.name for path in checkpoint.glob("model-*.safetensors"))
    for number, name in enumerate(names[:2]):
        index["weight_map"][f"layers.{number}.engram.q_weight"] = name
    index["weight_map"] |= dict.fromkeys(plain, names[2])
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))


def make_tame(checkpoint: Path, layout: Any) -> None:
    """No NaN and scales near one, so that a layer's output says something."""
    for index, path in enumerate(sorted(checkpoint.glob("model-*.safetensors"))):
        data = bytearray(path.read_bytes())
        start = 8 + struct.unpack("<Q", data[:8])[0]
        middle = start + layout.num_embeddings[index] * HEAD_DIM
        weight, scale = (np.frombuffer(data, np.uint8)[part] for part in (slice(start, middle), slice(middle, None)))
        weight[(weight & 0x7F) == 0x7F] ^= 1
        scale[:] = 118 + scale % 12
        path.write_bytes(data)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.bfloat16)  # as the loader does while it makes a model
    checkpoint, packed = folder / "checkpoint", folder / "packed"
    write_checkpoint(checkpoint, VOCABULARY)
    config = json.loads((checkpoint / "config.json").read_text())["text_config"]
    layout = engram.EngramLayout.from_config(SimpleNamespace(**config))
    for tp in SIZES:
        for rank in range(tp):
            pack(checkpoint, packed, rank, tp)
    tame = folder / "tame"
    write_checkpoint(tame, VOCABULARY, seed=3)
    make_tame(tame, layout)
    pack(tame, tame / "packed", 0, 1)
    stock_checkpoint = folder / "loaded"
    shutil.copytree(checkpoint, stock_checkpoint)
    add_small_tensors(stock_checkpoint)
    stock = Stock(checkpoint, tame, layout)
    on_rank(stock_checkpoint, 0, 1)
    stock.loaded = loaded(stock_checkpoint)
    FOUND["rows of the tables"] = list(layout.num_embeddings)
    os.environ["DSV41_PACKED_DIR"] = str(packed)
    arm()
    row_cases(checkpoint, layout, stock)
    forward_cases(tame, checkpoint, layout, stock)
    on_rank(stock_checkpoint, 0, 1)
    loader_cases(stock_checkpoint, stock)
    refusal_cases(folder, checkpoint, layout, packed)
    fallback_cases(folder, checkpoint, layout, stock)
    ending_cases(folder, checkpoint, layout, packed)
    print(json.dumps(FOUND))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
