"""The mask on Python's log records: it hides the key and never gets in the way of the code that logs."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
from spark_overlay.key_file import mask_log_records

KEY = "sk-spark-'7d1f\"42"


@pytest.fixture
def printed() -> Iterator[io.StringIO]:
    """What a handler prints of the records of the logger `masked`."""
    make, out = logging.getLogRecordFactory(), io.StringIO()
    handler, logger = logging.StreamHandler(out), logging.getLogger("masked")
    logger.addHandler(handler)
    logger.propagate = False
    mask_log_records(KEY)
    yield out
    logging.setLogRecordFactory(make)
    logger.removeHandler(handler)


def test_a_message_and_its_arguments_are_masked(printed: io.StringIO) -> None:
    logging.getLogger("masked").warning("arguments %s and %s", {"api_key": KEY}, f"Bearer {KEY}")
    assert printed.getvalue() == "arguments {'api_key': '••••••42'} and Bearer ••••••42\n"


def test_an_exceptions_text_is_masked_too(printed: io.StringIO) -> None:
    try:
        raise ConnectionError(f"refused: Bearer {KEY}")
    except ConnectionError:
        logging.getLogger("masked").exception("no answer")
    assert "ConnectionError: refused: Bearer ••••••42" in printed.getvalue()
    assert printed.getvalue().startswith("no answer\nTraceback (most recent call last):")
    assert KEY not in printed.getvalue()


class Sore:
    """Raises what no logging code reckons with."""

    def __str__(self) -> str:
        raise LookupError(KEY)

    __repr__ = __str__


class SoreError(Exception):
    def __str__(self) -> str:
        raise LookupError(KEY)


def test_what_cannot_be_formatted_raises_nothing_and_passes_nothing(
    printed: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("masked")
    logger.warning("%s of " + KEY, Sore())
    logger.warning(KEY + " %d", KEY)
    logger.warning(KEY + " %s %s", 1)
    try:
        raise SoreError
    except SoreError:
        logger.exception("an error")
    lines = printed.getvalue().splitlines()
    said = "[a log record that cannot be formatted: {}]"
    assert lines[:4] == [*(said.format(name) for name in ("LookupError", "TypeError", "TypeError")), "an error"]
    assert lines[-1].endswith("SoreError: <exception str() failed>")
    assert KEY not in printed.getvalue() + "".join(capsys.readouterr())
