from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparktui.readings.sections import pairs, sections


def test_text_before_the_first_header_is_no_section() -> None:
    assert sections("banner\n@uname\nLinux spark\n@df\na\nb\n") == {"uname": "Linux spark\n", "df": "a\nb\n"}


def test_an_empty_section_is_there_and_a_missing_one_is_not() -> None:
    found = sections("@smi\n@df\nx\n")
    assert found["smi"] == ""
    assert "docker" not in found


def test_an_address_or_a_mail_sign_in_a_text_starts_no_section() -> None:
    assert sections("@log\nuser@host\n@ not a name\n  @indented\n")["log"] == "user@host\n@ not a name\n  @indented\n"


def test_carriage_returns_do_not_hide_a_header() -> None:
    assert sections("@a\r\n1\r\n@b\r\n2")["b"] == "2\n"


def test_pairs_keep_tabs_of_the_value() -> None:
    assert pairs("a\t1\nnoise\nb\tx\ty\n") == {"a": "1", "b": "x\ty"}


@given(st.text())
def test_any_text_gives_sections_and_pairs(text: str) -> None:
    assert all(value == "" or value.endswith("\n") for value in sections(text).values())
    assert all(pairs(text))
