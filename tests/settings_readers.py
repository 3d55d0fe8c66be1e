"""Follows each setting to the code that acts on it. Being handed on, shown, checked or counted in a sheet is not that.

Three places act: sparktui itself (its steps, its containers), the overlay in the container, and the programs there that
read the environment themselves. `tests/engine/test_settings_readers.py` looks for the last ones in the programs.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sparktui.engine.environment import PASSED_ON
from sparktui.settings import SETTINGS

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "sparktui" / "settings" / "model.py"
PROFILE = ROOT / "sparktui" / "cluster" / "profile.py"
HANDS_ON = ROOT / "sparktui" / "engine" / "environment.py"
NOT_ACTING = ("settings/", "ui/", "demo/", "engine/fitting.py", "envfile/")
"""Below sparktui/: what checks, shows or only counts a value."""
READING_CALLS = frozenset({"get", "getenv", "text", "number", "needed", "fraction", "switch", "_seconds"})
WORDS_OF_ERRORS = frozenset({"_next_step", "pack_command"})
PROGRAMS: Mapping[str, tuple[str, str]] = {
    "GLOO_SOCKET_IFNAME": ("Gloo, in PyTorch", "torch/lib/libtorch_cpu.so"),
    "PYTORCH_CUDA_ALLOC_CONF": ("PyTorch", "torch/lib/libc10.so"),
    "SGLANG_DSV41_REASONING_EFFORT": ("SGLang", "sglang/srt/entrypoints/openai/serving_deepseek_recipe.py"),
    "SGLANG_FLASHINFER_MOE_FUSED_FINALIZE": ("SGLang", "sglang/srt/layers/moe/moe_runner/flashinfer_cutlass.py"),
    **{
        f"NCCL_{name}": ("NCCL", "nvidia/nccl/lib/libnccl.so.2")
        for name in (
            "SOCKET_IFNAME", "IB_HCA", "NET", "IB_DISABLE", "P2P_DISABLE", "SHM_DISABLE", "BUFFSIZE", "LL128_BUFFSIZE",
            "PROTO", "MAX_NCHANNELS", "DEBUG", "DEBUG_SUBSYS", "IB_GID_INDEX",
        )
    },
}  # fmt: skip
"""A variable's program, and the file below site-packages in which that program names it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is acted on: `file` below the checkout, the function around it ('' at the top), the line's text."""

    file: str
    function: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Read:
    name: str
    place: Place


def handed_on() -> dict[str, set[str]]:
    """Each setting's variables in the engine's container: its own name, or what engine_environment makes of it."""
    found: dict[str, set[str]] = defaultdict(set)
    for field in PASSED_ON:
        found[field.upper()].add(field.upper())
    for variable, value in _handed_pairs():
        for each in ast.walk(value):
            if isinstance(each, ast.Attribute) and _is_settings(each.value, HANDS_ON):
                found[each.attr.upper()].add(variable)
    # The GID index is the node's, or the setting's where it is pinned; the revision is the download's record.
    found["NCCL_IB_GID_INDEX"].add("NCCL_IB_GID_INDEX")
    found["HF_REVISION"].add("HF_REVISION")
    return found


@cache
def _handed_pairs() -> tuple[tuple[str, ast.expr], ...]:
    """Variables that engine_environment writes by name, and the expressions of their values."""
    found: list[tuple[ast.expr | None, ast.expr]] = []
    for node in ast.walk(_tree(HANDS_ON)):
        if isinstance(node, ast.Dict):
            found += zip(node.keys, node.values, strict=True)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            found.append((node.targets[0].slice, node.value))
    return tuple(
        (str(key.value), value) for key, value in found if isinstance(key, ast.Constant) and isinstance(key.value, str)
    )


def places(setting: str) -> list[Place]:
    """The code that acts on a setting, the overlay's first. Programs (see PROGRAMS) are not among it.

    For what goes to every rank under its own name only the container's side counts.
    """
    variables = handed_on().get(setting, set())
    theirs = [read.place for read in overlay_reads() if read.name in variables]
    return theirs if setting.lower() in PASSED_ON else [*theirs, *_acting(setting.lower(), frozenset())]


def programs(setting: str) -> list[tuple[str, str]]:
    return sorted({PROGRAMS[name] for name in handed_on().get(setting, set()) if name in PROGRAMS})


def unread() -> list[str]:
    """Settings that nothing acts on."""
    return [name for name in SETTINGS if not places(name) and not programs(name)]


def page() -> str:
    """docs/settings.md."""
    lines = [
        "# Which code acts on each setting",
        "",
        "`tests/unit/test_settings_readers.py` makes this page (`SPARKTUI_UPDATE_GOLDEN=1` writes it) and fails for a",
        "setting that nothing acts on. A check, a screen, the memory sheet and the hand-over to the container do not",
        "count. What each setting means: `.env.example`. With line numbers: `python -m tests.settings_readers`.",
        "",
        "| setting | where | what it does with it |",
        "| --- | --- | --- |",
    ]
    for name in SETTINGS:
        found = places(name)
        rows = [(f"{each.file}, `{each.function}`" if each.function else each.file, each.text) for each in found[:1]]
        if not rows:
            rows = [(f"{program}: {file}", "") for program, file in programs(name)]
        if not rows:
            lines.append(f"| `{name}` | nothing | |")
        for where, text in rows:
            shown = text if len(text) <= 100 else f"{text[:99]}…"
            code = f"`{shown.replace('|', chr(92) + '|')}`" if shown else "reads the variable itself"
            lines.append(f"| `{name}` | {where} | {code} |")
    return "\n".join(lines) + "\n"


def _acting(field: str, seen: frozenset[str]) -> Iterator[Place]:
    """Reads of settings.FIELD in code that acts; those in a property of the model count where the property is read."""
    for read in _own_reads():
        if read.name != field:
            continue
        if read.place.file != _relative(MODEL):
            yield read.place
        elif read.place.function not in seen:
            yield from _acting(read.place.function, seen | {read.place.function})


@cache
def _own_reads() -> tuple[Read, ...]:
    found: list[Read] = []
    only_handed = {id(each) for _, value in _handed_pairs() for each in ast.walk(value)}
    for path in sorted((ROOT / "sparktui").rglob("*.py")):
        below = path.relative_to(ROOT / "sparktui").as_posix()
        if below.startswith(NOT_ACTING) and path != MODEL:
            continue
        for node, function in _with_function(_tree(path)):
            if isinstance(node, ast.Attribute) and _is_settings(node.value, path) and id(node) not in only_handed:
                found.append(Read(node.attr, _place(path, function, node)))
            elif path == PROFILE and isinstance(node, ast.Call):
                found += [Read(name.lower(), _place(path, function, node)) for name in _first_words(node)]
    return tuple(found)


@cache
def overlay_reads() -> tuple[Read, ...]:
    """Every read of a variable by the overlay: a look-up in the environment, or a look-up of an adapter's value."""
    paths = sorted((ROOT / "overlay" / "spark_overlay").rglob("*.py"))
    constants = {path.stem: _constants(_tree(path)) for path in paths}
    found: list[Read] = []
    for path in paths:
        tree, known = _tree(path), dict(constants[path.stem])
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                theirs = constants.get(node.module.rpartition(".")[2], {})
                known |= {
                    alias.asname or alias.name: theirs[alias.name] for alias in node.names if alias.name in theirs
                }
        for node, function in _with_function(tree):
            if function in WORDS_OF_ERRORS:
                continue
            asked: list[ast.expr] = []
            if isinstance(node, ast.Call) and _called(node) in READING_CALLS:
                asked = node.args[:2]
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                asked = [node.slice]
            elif isinstance(node, ast.comprehension) and isinstance(node.iter, ast.Tuple):
                asked = list(node.iter.elts)
            for each in asked:
                name = _named(each, known)
                if name:
                    found.append(Read(name, _place(path, function, each)))
    return tuple(found)


def _constants(tree: ast.Module) -> dict[str, str]:
    """Module-level names that stand for a variable's: a string, or a Switch or Word with that name."""
    found = {}
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        value: ast.expr = node.value
        if isinstance(value, ast.Call) and _called(value) in ("Switch", "Word") and value.args:
            value = value.args[0]
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found[node.targets[0].id] = value.value
    return found


def _named(node: ast.expr, constants: Mapping[str, str]) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.Attribute) and node.attr == "name":
        node = node.value
    return constants.get(node.id, "") if isinstance(node, ast.Name) else ""


def _called(node: ast.Call) -> str:
    function = node.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _first_words(node: ast.Call) -> list[str]:
    return [each.value for each in node.args[:1] if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def _is_settings(node: ast.expr, path: Path) -> bool:
    last = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return last in ("settings", "_settings") or (path == MODEL and last == "self")


def _with_function(tree: ast.AST, function: str = "") -> Iterator[tuple[ast.AST, str]]:
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        yield node, inside
        yield from _with_function(node, inside)


def _place(path: Path, function: str, node: ast.AST) -> Place:
    line: int = getattr(node, "lineno", 0)
    return Place(_relative(path), function, _lines(path)[line - 1].strip(), line)


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def _lines(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8").splitlines())


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse("\n".join(_lines(path)))


if __name__ == "__main__":
    for setting in SETTINGS:
        where = [f"{each.file}:{each.line}" for each in places(setting)]
        print(f"{setting:38} {' '.join(where or [f'{p}: {f}' for p, f in programs(setting)] or ['nothing'])}")
