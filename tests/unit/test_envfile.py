"""The .env syntax: bash's values without bash, every problem with its line, and saves that lose nothing."""

from __future__ import annotations

import os
import shutil
import stat
import string
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sparktui.envfile import Severity, decode_env, fixed_text, parse_env, quoted, save, updated_text
from sparktui.errors import SettingsError

BASH = shutil.which("bash")
HOME = "/home/spark"
needs_bash = pytest.mark.skipif(BASH is None, reason="bash is missing")
by_bash = settings(
    max_examples=int(os.environ.get("BASH_EXAMPLES", "100")), deadline=None, suppress_health_check=list(HealthCheck)
)


def bash_values(text: str) -> dict[str, str]:
    """What bash makes of the file, in an empty folder and without a single command to find."""
    assert BASH is not None
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "f").write_bytes(text.encode())
        done = subprocess.run(
            [BASH, "--norc", "--noprofile", "-c", "set -a; . ./f; PATH=/usr/bin:/bin; exec env -0"],
            cwd=folder,
            env={"HOME": HOME, "PATH": "/nonexistent", "LC_ALL": "C.UTF-8"},
            capture_output=True,
            timeout=20,
            check=True,
        )
        assert [each.name for each in Path(folder).iterdir()] == ["f"], "the file was more than assignments"
    pairs = (entry.partition(b"=") for entry in done.stdout.split(b"\0") if entry)
    return {name.decode(): value.decode() for name, _, value in pairs}


NAMES = st.sampled_from(["A", "B", "C_1", "HEAD_IP", "EXTRA_SGLANG_ARGS", "lower", "_x"])
# Control characters are refused, surrogates are no text.
CHARACTERS = st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\u200b\u2028\u2029\ufeff")
ANY_TEXT = st.text(st.one_of(st.sampled_from("ab/.:~#$={}!*?[]%'\"\\ \t-&;|<>()`"), CHARACTERS), max_size=12)
BARE = st.text(st.sampled_from(string.ascii_letters + string.digits + "._/:@%+,=-{}!*?[]^é"), min_size=1, max_size=8)
PIECES = st.one_of(
    BARE.filter(lambda text: "~" not in text),
    st.text(CHARACTERS.filter(lambda c: c != "'"), max_size=8).map(lambda text: f"'{text}'"),
    st.text(CHARACTERS.filter(lambda c: c not in '"\\$`'), max_size=8).map(lambda text: f'"{text}"'),
    st.sampled_from(['"\\$x"', '"\\\\"', '"\\""', '"\\`"', '"\\q"', "\\ ", "\\'", '\\"', "\\$", "\\#", "\\\\", "a#b"]),
    NAMES.map(lambda name: f"${{{name}}}"),
    NAMES.map(lambda name: f'"${name}"'),
    st.sampled_from(["$HOME/x", "${HOME}", '"$HOME"', "'$HOME'", ":~/y", '"~"', '"a$"', "\\\n", "'two\nlines'"]),
)
VALUES = st.tuples(
    st.sampled_from(["", "", "~/"]), st.lists(PIECES, max_size=4), st.sampled_from(["", "", ":~", "$"])
).map(lambda parts: parts[0] + "".join(parts[1]) + parts[2])
LINES = st.one_of(
    st.tuples(
        st.sampled_from(["", "", "  ", "\t"]), NAMES, VALUES, st.sampled_from(["", "", " ", " # note 'x", "\t#"])
    ).map(lambda parts: f"{parts[0]}{parts[1]}={parts[2]}{parts[3]}"),
    st.tuples(NAMES, VALUES.filter(lambda value: "{" not in value.replace("${", ""))).map(
        lambda parts: f"export {parts[0]}={parts[1]}"
    ),
    st.sampled_from(["", "# a comment with 'one quote", "   ", "#A=1"]),
)
PLAIN_FILES = st.lists(LINES, max_size=7).map(lambda lines: "\n".join(lines) + "\n")


@needs_bash
@by_bash
@given(PLAIN_FILES)
def test_values_of_the_plain_subset_equal_what_bash_gives(text: str) -> None:
    read = parse_env(text, {"HOME": HOME})
    unread = [each for each in read.errors if "again on line" not in each.reason]
    assert not unread, unread
    from_bash = bash_values(text)
    assert read.values == {name: from_bash[name] for name in read.values}


@needs_bash
@by_bash
@given(
    st.sampled_from(["A=", "export A=", "B=b\nA=", "A=a\nexport B="]),
    st.text("AB=b'\"\\$`~#:{},;|&()[]*?!./1 \t\n", max_size=14),
)
def test_whatever_is_read_without_an_error_is_what_bash_gives(start: str, rest: str) -> None:
    text = f"{start}{rest}\n"
    read = parse_env(text, {"HOME": HOME})
    assume(not read.broken)
    from_bash = bash_values(text)
    assert read.values == {name: from_bash[name] for name in read.values}


@needs_bash
@by_bash
@given(ANY_TEXT)
def test_a_quoted_value_comes_back_from_bash_and_from_us(value: str) -> None:
    text = f"A={quoted(value)}\n"
    assert bash_values(text)["A"] == value
    read = parse_env(text)
    assert read.values == {"A": value}
    assert not read.problems


@pytest.mark.parametrize(
    ("line", "says", "fixed"),
    [
        ("EXTRA_SGLANG_ARGS=--a 1 --b 2", "needs quotes", "EXTRA_SGLANG_ARGS='--a 1 --b 2'"),
        ("EXTRA_SGLANG_ARGS=--a 1 --b 2  # why", "needs quotes", "EXTRA_SGLANG_ARGS='--a 1 --b 2'  # why"),
        ("EXTRA_SGLANG_ARGS=--m '{\"n\":1}' -x", "needs quotes", "EXTRA_SGLANG_ARGS='--m '\\''{\"n\":1}'\\'' -x'"),
        ("A=$(touch /tmp/x)", "not run", "A='$(touch /tmp/x)'"),
        ('A="$(id)"', "not run", "A='$(id)'"),
        ("A=`id`", "backticks", "A='`id`'"),
        ("A=$((1+2))", "arithmetic", "A='$((1+2))'"),
        ("A=(x y)", "array", "A='x y'"),
        ("A[0]=x", "array", "# A[0]=x"),
        ("A+=x", "appending", "A=${A}x"),
        ("A = x", "before the equals", "A=x"),
        ("A= x", "after the equals", "A=x"),
        ("A=x;", "semicolon", "A=x"),
        ("A=x; B=y", "one setting a line", "A=x\nB=y"),
        ("A=x B=y", "one setting a line", "A=x\nB=y"),
        ("A=http://h/?a=1&b=2", "background", "A='http://h/?a=1&b=2'"),
        ("A='x", "never closed", "A=x"),
        ("A=\"it's", "never closed", 'A="it\'s"'),
        ("A=~bob/x", "write the path", "A='~bob/x'"),
        ("A=${B:-x}", "plain name", "A='${B:-x}'"),
        ("A=$1", "shell itself", "A='$1'"),
        ("A=$'x\\n'", "something else", None),
        ("rm -rf /", "never run", "# rm -rf /"),
        ("source other.env", "never run", "# source other.env"),
        ("export A", "sets no value", "# export A"),
        ("export A={a,b}", "brace", "A='{a,b}'"),
        ("UID=0", "shell itself", "# UID=0"),
        ("A=a\u200bb", "U+200B", ""),
    ],
)
def test_u101_each_problem_has_its_line_a_reason_and_a_fixed_line(line: str, says: str, fixed: str | None) -> None:
    read = parse_env(f"# first\n{line}\nLAST=1\n", {"HOME": HOME})
    (problem,) = read.errors
    assert problem.line == 2
    assert says in problem.reason
    assert fixed is None or problem.fixed == fixed
    assert read.values == {"LAST": "1"}
    if problem.fixed:
        assert not parse_env(fixed_text(read.text, read.problems), {"HOME": HOME}).errors


def test_u101_windows_line_ends_and_a_byte_order_mark_are_told_and_do_no_harm() -> None:
    read = parse_env("\ufeffHEAD_IP=10.0.0.1\r\n# x\r\nWORKER_IPS='10.0.0.2 10.0.0.3'\r\n")
    assert read.values == {"HEAD_IP": "10.0.0.1", "WORKER_IPS": "10.0.0.2 10.0.0.3"}
    told = [(each.line, each.severity, each.fixed) for each in read.problems]
    assert told == [(1, Severity.WARNING, "HEAD_IP=10.0.0.1"), (1, Severity.WARNING, "HEAD_IP=10.0.0.1")]
    assert "byte-order mark" in read.problems[0].reason
    assert "Windows line end (and on 2 more)" in read.problems[1].reason


def test_u101_a_name_set_twice_is_an_error_when_the_values_differ() -> None:
    read = parse_env("A=1\nB=2\nA=3\nB=2\nC=x\nC=$C:y\n")
    assert read.values == {"A": "3", "B": "2", "C": "x:y"}
    assert [(each.line, each.severity, each.fixed) for each in read.problems] == [
        (1, Severity.ERROR, "# A=1"),
        (2, Severity.WARNING, "# B=2"),
    ]
    assert "line 3" in read.problems[0].reason


def test_a_name_that_is_not_set_before_is_empty_as_in_bash_and_told() -> None:
    read = parse_env("A=x$LATER\nLATER=1\n", {"HOME": HOME})
    assert read.values["A"] == "x"
    assert [(each.line, each.severity) for each in read.problems] == [(1, Severity.WARNING)]


def test_bytes_that_are_no_text_are_told_with_their_line() -> None:
    text, problems = decode_env(b"A=1\nB=\xff\n")
    assert [each.line for each in problems] == [2]
    assert text.startswith("A=1\n")


@given(st.text(max_size=60))
def test_reading_never_fails_and_a_fixed_line_never_has_an_error(text: str) -> None:
    read = parse_env(text, {"HOME": HOME})
    for problem in read.errors:
        if problem.fixed:
            again = [each for each in parse_env(problem.fixed, {"HOME": HOME}).errors if "again on" not in each.reason]
            assert not again


@given(PLAIN_FILES, st.dictionaries(NAMES, ANY_TEXT, max_size=3))
def test_a_change_is_read_back_and_every_comment_keeps_its_place(text: str, changes: dict[str, str]) -> None:
    new = updated_text(text, changes)
    before, after = parse_env(text, {"HOME": HOME}), parse_env(new, {"HOME": HOME})
    assert {name: after.values[name] for name in changes} == changes
    untouched = [
        each.name
        for each in before.assignments
        if each.name not in changes and not each.uses - {"HOME"} and "~" not in text
    ]
    assert {name: after.values[name] for name in untouched if before.values[name]} == {
        name: before.values[name] for name in untouched if before.values[name]
    } or any(each.uses for each in before.assignments)
    comments = [line for line in before.text.split("\n") if line.startswith("#")]
    assert [line for line in new.split("\n") if line.startswith("#")] == comments


FILE = """# the cluster
export HEAD_IP=10.0.0.1   # LAN
  WORKER_IPS="10.0.0.2 10.0.0.3"

# A key for clients.
# API_KEY=
PORT=8888
"""


def test_a_save_changes_only_what_it_must() -> None:
    changes = {
        "HEAD_IP": "10.9.0.1",
        "WORKER_IPS": "10.9.0.2 10.9.0.3",
        "API_KEY": 'it\'s "$x"',
        "PORT": None,
        "NEW": "1",
    }
    assert updated_text(FILE, changes) == (
        "# the cluster\n"
        "export HEAD_IP=10.9.0.1   # LAN\n"
        "  WORKER_IPS='10.9.0.2 10.9.0.3'\n"
        "\n"
        "# A key for clients.\n"
        "# API_KEY=\n"
        "API_KEY='it'\\''s \"$x\"'\n"
        "# PORT=8888\n"
        "NEW=1\n"
    )


def test_a_save_puts_a_broken_line_of_its_own_right_and_leaves_a_foreign_one() -> None:
    assert updated_text("A=x y\nB=1\n", {"A": "x y"}) == "A='x y'\nB=1\n"
    assert updated_text("B='x\n", {"A": "1"}) == "B='x\nA=1\n"


def test_a_value_that_would_not_be_read_back_is_not_written() -> None:
    with pytest.raises(SettingsError, match="A cannot be written: the value holds an invisible character"):
        updated_text("A=1\n", {"A": "x\u200by"})


def test_saving_is_atomic_keeps_the_mode_and_a_backup(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text(FILE)
    path.chmod(0o640)
    backup = save(path, {"PORT": "9999"}, secret_names={"API_KEY"})
    assert backup == tmp_path / ".env.bak"
    assert backup.read_text() == FILE
    assert "PORT=9999\n" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(each.name for each in tmp_path.iterdir()) == [".env", ".env.bak"]


def test_a_file_that_holds_a_secret_becomes_private_and_so_does_its_backup(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text(FILE)
    path.chmod(0o644)
    save(path, {"API_KEY": "opensesame"}, secret_names={"API_KEY"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    save(path, {"API_KEY": ""}, secret_names={"API_KEY"})
    assert stat.S_IMODE((tmp_path / ".env.bak").stat().st_mode) == 0o600, "the backup still holds the key"


def test_a_link_stays_a_link_and_a_failed_save_leaves_everything_as_it_was(tmp_path: Path) -> None:
    real = tmp_path / "real.env"
    real.write_text("A=1\n")
    (tmp_path / ".env").symlink_to(real)
    save(tmp_path / ".env", {"A": "2"})
    assert (tmp_path / ".env").is_symlink()
    assert real.read_text() == "A=2\n"
    with pytest.raises(ValueError, match="NUL"):
        save(real, {"A": "\0"})
    with pytest.raises(SettingsError, match="cannot be written"):
        save(tmp_path / "no-folder" / ".env", {"A": "1"})
    assert real.read_text() == "A=2\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == [".env", "real.env", "real.env.bak"]


def test_a_first_save_begins_with_the_template(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    assert save(path, {"HEAD_IP": "10.0.0.9"}, template=FILE) is None
    assert path.read_text() == FILE.replace("10.0.0.1 ", "10.0.0.9 ")


@needs_bash
@pytest.mark.parametrize(
    "text",
    [
        "HO=1\nHOfoo=2\nA=$HO\\\nfoo\n",
        'HOfoo=2\nA="$HO\\\nfoo bar"\n',
        "HOME2=3\nA=$\\\nHOME2\n",
        "HO=1\nA=$HO\\\n\\\n.x\n",
        "A='x\ny'\\",
        'A="x\ny"\\',
        "A=x\\",
        "A='x'\\",
        "B='p\nq'\nA=z\\",
        "A=b\\\n\\",
        "A='x\ny'\\\nz\\",
    ],
)
def test_a_backslash_at_a_lines_end_is_what_it_is_to_bash(text: str) -> None:
    read = parse_env(text, {})
    assert not read.broken
    assert read.values["A"] == bash_values(text)["A"]
