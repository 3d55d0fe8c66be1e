"""doctor's script itself, run by real shells on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sparktui.cluster.node import Node
from sparktui.readings.sections import sections
from sparktui.remote.local import LocalLink
from sparktui.steps.checkpoint_probe import read_folder
from sparktui.steps.doctor_checks import probe
from sparktui.steps.doctor_checks.probe import ProbeAnswer, probe_script, read_probe
from tests.hub import make_repository

HEAD = Node("head", 0, "10.0.0.1")
SHELLS = [shell for shell in (["/bin/sh"], ["bash", "--posix"], ["busybox", "sh"]) if shutil.which(shell[0])]
ALWAYS = ("uname", "id", "meminfo", "minfree", "df.model", "df.engram", "df.docker", "checkpoint", "engram", "caches")


def values(tmp_path: Path, model: Path | None = None) -> dict[str, str]:
    return {
        "MODEL_DIR": str(model or tmp_path / "absent/deep/DeepSeek-V4.1-Flash-1017"),
        "ENGRAM_DIR": str(tmp_path / "engram"),
        "DOCKER_DIR": str(tmp_path / "docker"),
    }


async def ask(tmp_path: Path, model: Path | None = None) -> ProbeAnswer:
    link = LocalLink(HEAD)
    answer = await link.script(probe_script(), deadline_seconds=30.0, values=values(tmp_path, model))
    assert answer.ok, answer.stderr
    return read_probe(answer.stdout)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_every_posix_shell_reads_the_script(shell: list[str], tmp_path: Path) -> None:
    text = "".join(f"{name}='{value}'\n" for name, value in values(tmp_path).items()) + probe_script()
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch), "LC_ALL": "C"}
    done = subprocess.run(shell, input=text, capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    answer = read_probe(done.stdout)
    assert {name: answer.status(name) for name in ALWAYS} == dict.fromkeys(ALWAYS, 0)
    assert list(scratch.iterdir()) == [], "the scratch folder is removed"


async def test_a_folder_is_read_by_name_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = make_repository(tmp_path / 'it\'s a "folder" $(touch pwned) -1017')
    (model / ".sparktui/partial").mkdir(parents=True)
    (model / ".sparktui/partial/late.safetensors.partial").write_bytes(b"12345")
    (model / ".cache").mkdir()
    (model / ".cache/left-over").write_bytes(b"x")
    (model / "linked.json").symlink_to(model / "config.json")
    reading = read_folder((await ask(tmp_path, model)).parts)
    assert reading.state == "present"
    assert reading.parts == {"late.safetensors": 5}
    assert reading.files["linked.json"] == reading.files["config.json"] == (model / "config.json").stat().st_size
    assert ".cache/left-over" not in reading.files
    assert len(reading.index_shards) == 3
    assert not names_in(tmp_path) & {"pwned"}, "a value is never run"


def names_in(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


async def test_u48_a_part_that_hangs_is_reported_and_the_rest_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("df", "nvidia-smi"):
        # As with a dead NFS server: it ignores being asked to end.
        (tools / name).write_text("#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setattr(probe, "PART_SECONDS", 1)
    answer = await ask(tmp_path)
    assert answer.hung("df.model")
    assert answer.hung("gpu")
    assert answer.text("df.model") is None
    assert answer.text("meminfo")
    assert answer.text("uname")


async def test_what_is_absent_is_absent_not_empty(tmp_path: Path) -> None:
    answer = await ask(tmp_path)
    assert read_folder(answer.parts).state == "absent"
    assert read_folder(sections("nothing came")).state is None
    assert ProbeAnswer().text("uname") is None
    assert not ProbeAnswer().hung("uname")
