"""The engine's own answer to "which rows has which rank", beside our derivation of it.

`import sglang.srt.layers.engram` takes 16 s of a core and 1.2 GB of memory, four times what packing may take, and CUDA
builds want a driver, which the packing container has not. So EngramLayout and shard_range are taken out of that file,
with the definitions and imports that they name, and nothing else of the engine is imported. A test compares the result
with the imported classes.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from spark_overlay.checkpoint_config import flat
from spark_overlay.engram_layout import EngramLayout, LayoutError, shard_range

WANTED = ("EngramLayout", "shard_range")
_PLACE = ("srt", "layers", "engram.py")


def agree(config: Mapping[str, Any], layout: EngramLayout, tp: int) -> str:
    """Who said which rows belong to whom, in words: the engine of this Python, or without one this program.

    Raises:
        LayoutError: the engine's ranges are not ours; the text has both.
    """
    try:
        version, theirs = _engine()
    except _NoEngine as missing:
        return f"row ranges by this program's own derivation: {missing}"
    try:
        drawn = theirs["EngramLayout"].from_config(SimpleNamespace(**flat(config)))
        for index, (layer, bounds) in enumerate(zip(layout.layer_ids, layout.bounds, strict=True)):
            columns = tuple(drawn.column_bounds(index))
            if columns != bounds:
                raise LayoutError(
                    f"layer {layer}: sglang {version} draws other columns: {_first_difference(columns, bounds)}"
                )
            for rank in range(tp):
                found, ours = theirs["shard_range"](bounds[-1], columns, rank, tp), shard_range(bounds, rank, tp)
                if tuple(found) != (ours.lo, ours.hi):
                    raise LayoutError(
                        f"layer {layer}: sglang {version} gives rank {rank} of {tp} the rows "
                        f"[{found[0]}, {found[1]}), this program derives [{ours.lo}, {ours.hi})"
                    )
    except LayoutError:
        raise
    except Exception as error:
        raise LayoutError(
            f"sglang {version} refuses this config.json's Engram fields: {type(error).__name__}: {error}"
        ) from error
    return f"row ranges by sglang {version}'s own shard_range"


class _NoEngine(Exception):
    """There is none here, or what is wanted of it cannot be had."""


def _engine() -> tuple[str, dict[str, Any]]:
    found = importlib.util.find_spec("sglang")
    if found is None or not found.submodule_search_locations:
        raise _NoEngine("no sglang in this Python")
    path = next((each for each in (Path(p, *_PLACE) for p in found.submodule_search_locations) if each.is_file()), None)
    try:
        version = importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        version = "of unknown version"
    if path is None:
        raise _NoEngine(f"sglang {version} has no {'/'.join(_PLACE)}")
    try:
        return version, definitions(path.read_text(encoding="utf-8"), WANTED)
    except Exception as error:
        raise _NoEngine(f"sglang {version}'s cannot be used: {type(error).__name__}: {error}") from error


def definitions(source: str, names: tuple[str, ...]) -> dict[str, Any]:
    """`names` of a module and what they need of it, executed; the rest of the module is not.

    Raises KeyError for a name that the module lacks, and whatever its code raises.
    """
    defined: dict[str, ast.stmt] = {}
    for node in ast.parse(source).body:
        for name in _binds(node):
            defined[name] = node
    needed: set[ast.stmt] = set()
    waiting = [defined[name] for name in names]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += [defined[name] for name in _uses(node) if name in defined]
    body: list[ast.stmt] = [ast.ImportFrom("__future__", [ast.alias("annotations")], 0)]
    body += sorted(needed, key=lambda node: node.lineno)
    found: dict[str, Any] = {"__name__": "spark_overlay_engine_ranges"}
    exec(compile(ast.fix_missing_locations(ast.Module(body, [])), "sglang/srt/layers/engram.py", "exec"), found)
    return {name: found[name] for name in names}


def _binds(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Import(names=aliases):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in aliases)
        case ast.ImportFrom(module=module, names=aliases) if module != "__future__":
            yield from (alias.asname or alias.name for alias in aliases)


def _uses(node: ast.AST) -> Iterator[str]:
    """Names in `node`; those of annotations are no need, they are never evaluated."""
    if isinstance(node, ast.Name):
        yield node.id
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _uses(child)


def _first_difference(theirs: tuple[int, ...], ours: tuple[int, ...]) -> str:
    if len(theirs) != len(ours):
        return f"{len(theirs) - 1}, not {len(ours) - 1}"
    at = next(place for place, pair in enumerate(zip(theirs, ours, strict=True)) if pair[0] != pair[1])
    return f"bound {at} is {theirs[at]}, not {ours[at]}"
