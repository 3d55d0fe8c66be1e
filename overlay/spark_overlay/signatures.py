"""The parameters of a function in one normal form, from the function itself or from its source unimported."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any


class NoTarget(Exception):
    """The dotted path leads nowhere; the text says where it ends."""


def of(function: Callable[..., Any]) -> str:
    """`(self, new_accepted_len=1)`: names, kinds and defaults; annotations are left out, they change for nothing."""
    parameters = [
        each.replace(annotation=inspect.Parameter.empty) for each in inspect.signature(function).parameters.values()
    ]
    return str(inspect.Signature(parameters))


def find(target: str) -> tuple[Any, str, Callable[..., Any]]:
    """The holder of the attribute, the attribute's name and the plain function behind it. Imports what it has to.

    Raises:
        NoTarget: a part is missing.
        ImportError: the engine cannot be imported on this machine.
    """
    holder_path, _, name = target.rpartition(".")
    try:
        holder = pkgutil.resolve_name(holder_path)
    except AttributeError as error:
        raise NoTarget(str(error)) from error
    except ModuleNotFoundError as error:
        # The module itself, or something that it imports? Only the first is a missing target.
        if error.name and (holder_path == error.name or holder_path.startswith(f"{error.name}.")):
            raise NoTarget(str(error)) from error
        raise
    raw = vars(holder).get(name) if isinstance(holder, type) else None
    found = getattr(holder, name, None)
    if found is None:
        raise NoTarget(f"{holder_path} has no attribute {name!r}")
    function = getattr(raw, "__func__", None) or (raw if raw is not None else found)
    function = getattr(function, "wrapped", function)  # pydantic keeps a validator's function in a proxy
    return holder, name, getattr(function, "__func__", function)


def in_source(target: str) -> str:
    """The same by reading the source: for a machine on which the engine's own imports fail.

    Raises:
        NoTarget: no such module, class or function.
    """
    parts = target.split(".")
    for end in range(len(parts) - 1, 0, -1):
        path = _source(parts[:end])
        if path is not None:
            return _signature(path, parts[end:], target)
    raise NoTarget(f"there is no module for {target}")


def _source(parts: list[str]) -> Path | None:
    """The module's file, found without importing anything but the top package's place."""
    top = importlib.util.find_spec(parts[0])
    if top is None or not top.submodule_search_locations:
        return None
    for root in top.submodule_search_locations:
        base = Path(root).joinpath(*parts[1:])
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return path
    return None


def _signature(path: Path, names: list[str], target: str) -> str:
    body: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    node: ast.AST | None = None
    for name in names:
        node = next(
            (
                each
                for each in body
                if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and each.name == name
            ),
            None,
        )
        if node is None:
            raise NoTarget(f"{path.name} has no {name!r} for {target}")
        body = getattr(node, "body", [])
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        raise NoTarget(f"{target} is no function")
    plain = node.args
    for each in (*plain.posonlyargs, *plain.args, *plain.kwonlyargs, plain.vararg, plain.kwarg):
        if each is not None:
            each.annotation = None
    return f"({ast.unparse(plain)})"
