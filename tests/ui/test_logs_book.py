"""Rows, bounded book, pattern and first error: what the logs screen is made of, without a screen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktui.engine.signature_table import SIGNATURES
from sparktui.telemetry.rank_log_stream import LogBatch, RankLine
from sparktui.ui.logs.book import LogBook
from sparktui.ui.logs.intake import Intake
from sparktui.ui.logs.lines import _SIGNATURE_HINTS, LogRow, Severity, clean, severity_of, suspicious
from sparktui.ui.logs.pattern import Pattern, PatternRefused
from tests.unit.test_signatures import CASES


def rows(count: int, *, start: int = 0, ranks: int = 3) -> list[LogRow]:
    return [LogRow(each % ranks, f"worker{each % ranks}", f"line {each}") for each in range(start, start + count)]


def shown(book: LogBook) -> list[str]:
    return [row.text for _, row in book.shown_between(0, book.count)]


# rows


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ("plain", ("plain",)),
        ("", ()),
        ("   ", ()),
        ("\x1b[31mred\x1b[0m text", ("red text",)),
        ("a\tb", ("a   b",)),
        ("bell\x07 and \x00nul", ("bell and nul",)),
        (" 10%|#  | 1/10\r 20%|## | 2/10\r100%|###| 10/10", ("100%|###| 10/10",)),
        ("100%|#| 9/9 [00:01, 9.9it/s]weights loaded", ("100%|#| 9/9 [00:01, 9.9it/s]", "weights loaded")),
        ("right\u202eto left", ("rightto left",)),
    ],
)
def test_a_line_is_cleaned_of_what_steers_a_terminal(raw: str, meant: tuple[str, ...]) -> None:
    assert clean(raw) == meant


@given(st.text(max_size=300))
def test_whatever_a_node_says_only_printable_text_is_kept(raw: str) -> None:
    assert all(text.isprintable() and text.strip() for text in clean(raw))


def test_a_huge_line_is_cut_before_it_costs_anything() -> None:
    assert len(clean("x" * 10_000_000)[0]) == 4_000
    assert sum(map(len, clean("\t" * 10_000_000 + "end"))) <= 8 * 4_000


@pytest.mark.parametrize(("id_", "text"), [(case[0], case[1]) for case in CASES])
def test_every_known_failure_is_marked_as_an_error(id_: str, text: str) -> None:
    assert suspicious([text]) == [0], "a hint of this signature is missing"
    assert severity_of(text) is Severity.ERROR


def test_every_signature_has_hints() -> None:
    assert {signature.id for signature in SIGNATURES} == set(_SIGNATURE_HINTS)


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("[2026-11-29 18:36:02 TP1] Decode batch. #running-req: 4, cuda graph: True", Severity.PLAIN),
        ("[2026-11-29 18:36:02 TP1] WARNING: slow", Severity.WARN),
        ("UserWarning: something", Severity.WARN),
        ("[2026-11-29 18:36:02 TP1] Scheduler hit an exception: Traceback (most recent call last):", Severity.ERROR),
        ("ValueError: bad", Severity.ERROR),
        ("[2026-11-29 18:36:02] server_args=ServerArgs(watchdog_timeout=300, x='CUDA out of memory')", Severity.PLAIN),
        ("FlashInfer autotune: per-rank caches disagree", Severity.PLAIN),
        ("the error rate is 0", Severity.PLAIN),
    ],
)
def test_severity(text: str, severity: Severity) -> None:
    assert severity_of(text) is severity


# book


def test_the_book_keeps_the_newest_rows_only() -> None:
    book = LogBook(rows=100)
    for start in range(0, 1000, 50):
        book.append(rows(50, start=start))
    assert book.end == 1000 and 80 <= book.count <= 100
    assert shown(book) == [f"line {each}" for each in range(book.first, 1000)]
    assert book.row(book.first - 1) is None and book.row(1000) is None


def test_long_lines_are_bounded_by_their_characters() -> None:
    book = LogBook(rows=40, characters=50_000)
    book.append([LogRow(0, "head", "x" * 4000) for _ in range(500)])
    assert 5 <= book.count <= 12


@given(
    st.lists(st.integers(1, 40), max_size=12),
    st.sampled_from([None, 0, 1]),
    st.sampled_from(["", "7", "line 1"]),
    st.booleans(),
)
def test_what_is_shown_is_what_a_plain_filter_would_leave(
    batches: list[int], rank: int | None, words: str, only: bool
) -> None:
    """However rows come and go, before the choice or after it."""
    book = LogBook(rows=64)
    pattern = Pattern.of(words, regex=False)
    book.append(rows(30))
    book.choose(rank=rank, pattern=pattern, only_matches=only)
    at = 30
    for count in batches:
        book.append(rows(count, start=at))
        at += count
        while not book.advance():
            pass
    book.advance()
    kept = [f"line {each}" for each in range(book.first, at) if rank is None or each % 3 == rank]
    matching = [text for text in kept if words in text]
    assert at - 64 <= book.first <= max(0, at - 50)
    assert shown(book) == (matching if words and only else kept)
    assert book.matches == (len(matching) if words else 0)


def test_a_search_that_takes_long_is_done_in_slices() -> None:
    book = LogBook()
    book.append(rows(5000))
    book.choose(rank=None, pattern=Pattern.of("line", regex=False), only_matches=True)
    assert not book.advance(0.0)
    assert 0 < book.matches < 5000
    while not book.advance(1.0):
        pass
    assert book.matches == 5000


def test_matches_are_walked_in_both_directions() -> None:
    book = LogBook()
    book.append(rows(30))
    book.choose(rank=None, pattern=Pattern.of("9", regex=False), only_matches=False)
    book.advance(1.0)
    assert book.match_from(0, 1) == 9 and book.match_from(9, 1) == 19
    assert book.match_from(19, -1) == 9 and book.match_from(9, -1) is None and book.match_from(29, 1) is None


# pattern


@pytest.mark.parametrize("text", ["(", "[a", "*", "(a+)+b", "(x*)*", "a{2,1}", "(?P<a>x)(?P<a>y)", ".*.*.*.*.*x"])
def test_a_regex_that_is_wrong_or_endless_is_refused_in_words(text: str) -> None:
    with pytest.raises(PatternRefused, match=r"regex|slow"):
        Pattern.of(text, regex=True)


def test_words_are_taken_as_they_are_and_capitals_count_only_when_typed() -> None:
    words = Pattern.of("(nccl", regex=False)
    assert words is not None and words.matches("x (NCCL error)")
    capital = Pattern.of("NCCL", regex=False)
    assert capital is not None and not capital.matches("nccl")
    assert Pattern.of("", regex=True) is None


# first error


def said(intake: Intake, *lines: tuple[str, str], dropped: int = 0, at: float = 0.0) -> None:
    ranks = {"head": 0, "worker1": 1, "worker2": 2}
    batch = LogBatch(tuple(RankLine(node, ranks[node], text, at) for node, text in lines), dropped)
    for _ in intake.take(batch):
        pass


def test_the_first_error_is_the_traceback_that_began_first_with_its_cause_and_next_step() -> None:
    intake = Intake(LogBook())
    said(intake, ("head", "[2026-11-29 18:41:09 TP0] [rank0]: connection closed by peer [10.0.0.2]:3123"))
    first = intake.errors.found
    assert first is not None and first.consequence and first.row.node == "head"
    said(
        intake,
        ("worker1", "[2026-11-29 18:41:02 TP1] Scheduler hit an exception: Traceback (most recent call last):"),
        ("worker1", '  File "x.py", line 3, in f'),
        ("worker1", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
    )
    first = intake.errors.found
    assert first is not None and not first.consequence
    assert first.row.text.endswith("Traceback (most recent call last):")
    assert first.cause == "the GPU ran out of memory" and "CHUNKED_PREFILL_SIZE" in first.fix


def test_a_rank_whose_log_came_later_but_failed_earlier_is_the_first() -> None:
    intake = Intake(LogBook())
    said(intake, ("head", "[2026-11-29 18:41:09 TP0] RuntimeError: unhandled system error, NCCL"))
    said(intake, ("worker2", "[2026-11-29 18:40:01 TP2] OSError: No space left on device"))
    assert intake.errors.found is not None and intake.errors.found.row.node == "worker2"


def test_an_exception_before_the_rank_came_up_ended_nothing() -> None:
    intake = Intake(LogBook())
    said(intake, ("head", "Traceback (most recent call last):"), ("head", "KeyError: 'x'"))
    assert intake.errors.found is not None and intake.errors.found.cause == "KeyError: 'x'"
    said(intake, ("head", "The server is fired up and ready to roll!"))
    assert intake.errors.found is None


def test_lines_of_a_batch_stand_in_the_order_of_the_engines_clock() -> None:
    intake = Intake(LogBook())
    said(
        intake,
        ("head", "[2026-11-29 18:00:02 TP0] b"),
        ("head", "its second line"),
        ("worker1", "[2026-11-29 18:00:01 TP1] a"),
    )
    assert [text[-1] for text in shown(intake.book)] == ["a", "b", "e"]


def test_dropped_lines_are_said_once_where_they_are_missing() -> None:
    intake = Intake(LogBook())
    said(intake, ("head", "one"))
    said(intake, ("head", "two"), dropped=1234)
    said(intake, ("head", "three"), dropped=1234)
    assert shown(intake.book)[1].startswith("1,234 lines dropped") and intake.book.count == 4
