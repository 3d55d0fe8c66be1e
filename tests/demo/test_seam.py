"""The demo differs from the product only below the links: nothing else knows it, and it takes what the product asks."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import sparktui
from sparktui.cluster.node import Node
from sparktui.demo.home import DemoHome
from sparktui.demo.link import DemoLink
from sparktui.demo.scripts import UnknownOnDemo, script_name
from sparktui.remote.link import NodeLink
from sparktui.runs import identity
from sparktui.runs.process import main

PACKAGE = Path(sparktui.__file__).parent


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_nothing_but_the_command_line_imports_the_demo() -> None:
    knowing = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "demo" not in path.relative_to(PACKAGE).parts
        and any(name == "sparktui.demo" or name.startswith("sparktui.demo.") for name in imported(path))
    }
    assert knowing == {"cli.py"}


def test_a_demo_link_is_a_link() -> None:
    assert isinstance(DemoLink(Node("head", 0, "192.168.20.11"), DemoHome(Path("/nowhere"))), NodeLink)


async def test_a_script_that_nobody_knows_fails_and_names_itself() -> None:
    with pytest.raises(UnknownOnDemo, match="echo something new"):
        script_name("echo something new\n")
    link = DemoLink(Node("worker1", 1, "192.168.20.12"), DemoHome(Path("/nowhere")))
    with pytest.raises(UnknownOnDemo, match="echo something new"):
        await link.script("echo something new\n", deadline_seconds=1)
    with pytest.raises(UnknownOnDemo, match="rsync"):
        async with link.pipe(["rsync", "-a"]):
            pass


def test_the_demo_process_is_the_products_own_with_other_parts() -> None:
    text = (PACKAGE / "demo" / "process.py").read_text()
    assert "main(given=demo_parts())" in text
    assert main.__module__ == "sparktui.runs.process"


def test_the_command_line_starts_without_loading_the_demo() -> None:
    code = "import sys, sparktui.cli; print([name for name in sys.modules if name.startswith('sparktui.demo')])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_a_process_is_known_for_ever_also_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_PROC", Path("/nonexistent"))
    sleeping = subprocess.Popen(["sleep", "60"])
    try:
        ticks = identity.started_ticks(sleeping.pid)
        assert ticks is not None
        process = identity.Identity(sleeping.pid, ticks, identity.boot_id())
        assert process.alive
        assert not identity.Identity(sleeping.pid, ticks - 100, identity.boot_id()).alive
        monkeypatch.delattr(os, "pidfd_open", raising=False)
        assert process.signal(signal.SIGTERM)
        assert sleeping.wait(timeout=10) == -signal.SIGTERM
        assert not process.alive
        assert not process.signal(signal.SIGTERM)
    finally:
        sleeping.kill()
        sleeping.wait()
