from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.remote.known_hosts import entries_of, host_pattern, trust_host_key, well_formed

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIGC9vmMaaQ4ik1gKJx9MWfl3EYHu7mBrry7c6IyD/P9I"
LINE = f"spark2 ssh-ed25519 {KEY}"


@pytest.mark.parametrize(
    "patterns, name, hit",
    [
        ("spark2", "spark2", True),
        ("Spark2", "spark2", True),
        ("a,spark2,b", "spark2", True),
        ("spark*", "spark2", True),
        ("spark?,!spark2", "spark2", False),
        ("[spark2]:2222", "[spark2]:2222", True),
        ("spark2", "[spark2]:2222", False),
        ("spark[23]", "spark2", False),
        ("|1|bad|bad", "spark2", False),
    ],
)
def test_patterns(patterns: str, name: str, hit: bool) -> None:
    found = entries_of(f"# first\n\n{patterns} ssh-ed25519 {KEY} comment\n", [name], "f")
    assert [(each.line_number, each.key_type) for each in found] == ([(3, "ssh-ed25519")] if hit else [])


def test_markers_are_kept_apart() -> None:
    text = f"@revoked {LINE}\n@cert-authority * ssh-ed25519 {KEY}\n{LINE}\n"
    assert [each.marker for each in entries_of(text, ["spark2"])] == ["revoked", "cert-authority", ""]


@pytest.mark.parametrize("host, port", [("10.0.0.2", 22), ("spark2.local", 2222)])
def test_lines_that_ssh_keygen_hashed_are_found_on_the_same_line(tmp_path: Path, host: str, port: int) -> None:
    file = tmp_path / "known"
    name = host_pattern(host, port)
    file.write_text(f"other ssh-ed25519 {KEY}\n{name} ssh-ed25519 {KEY}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True, timeout=20)
    assert host not in file.read_text()
    assert [each.line_number for each in entries_of(file.read_text(), [name])] == [2]


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    assert isinstance(entries_of(text, ["spark2"]), list)
    well_formed(text)


def test_trusting_appends_once_and_keeps_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "new" / "known_hosts"
    trust_host_key(LINE, file)
    assert file.read_text() == LINE + "\n" and file.stat().st_mode & 0o777 == 0o600
    file.write_text("old line without an end")
    file.chmod(0o644)
    trust_host_key(LINE, file)
    trust_host_key(LINE, file)
    assert file.read_text() == f"old line without an end\n{LINE}\n" and file.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in file.parent.iterdir()] == ["known_hosts"]


def test_trusting_writes_through_a_link_and_refuses_anything_but_one_line(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "known_hosts"
    real.write_text("")
    link.symlink_to(real)
    trust_host_key(LINE, link)
    assert link.is_symlink() and real.read_text() == LINE + "\n"
    for bad in ("", "spark2", f"{LINE}\n{LINE}", "@strange " + LINE):
        with pytest.raises(ValueError, match="known_hosts line"):
            trust_host_key(bad, link)
