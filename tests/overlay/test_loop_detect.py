"""The loop detectors: what is a loop, what is none, and that both ends of a burst see the same."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from spark_overlay.loop_detect import MAX_PERIOD, PATIENCE, Loop, LoopDetector, LoopRules
from spark_overlay.token_bytes import token_bytes

RULES = LoopRules()


def found(tokens: Sequence[int], rules: LoopRules = RULES) -> Loop | None:
    return LoopDetector(rules).feed(tokens)


def period_of(tokens: Sequence[int]) -> int:
    return next(size for size in range(1, len(tokens) + 1) if tokens[size:] == tokens[:-size])


def first_by_force(tokens: Sequence[int], rules: LoopRules) -> int | None:
    """Where a loop first stands, by trying all of them: a piece of `ngram` tokens and more `repeats` times, or a
    shorter one as long as a piece of `ngram` tokens takes for `PATIENCE` times as many.
    """
    patient = PATIENCE * rules.repeats * rules.ngram
    for end in range(1, len(tokens) + 1):
        for length in range(rules.ngram, min(MAX_PERIOD, end // rules.repeats) + 1):
            whole = tokens[end - length * rules.repeats : end]
            if whole[length:] == whole[:-length] and period_of(whole) >= rules.ngram:
                return end
        if end >= patient and period_of(tokens[end - patient : end]) < rules.ngram:
            return end
    return None


@given(
    st.lists(st.integers(0, 2), max_size=60), st.lists(st.integers(0, 2), min_size=1, max_size=9), st.integers(0, 60)
)
@settings(max_examples=400, deadline=None)
def test_a_repeated_piece_is_found_where_trying_everything_finds_it_or_at_most_one_copy_later(
    before: list[int], piece: list[int], copies: int
) -> None:
    rules = LoopRules(identical=0, ngram=4, repeats=3, line_repeats=0)
    tokens = [*before, *piece * copies, 9]
    expected, loop = first_by_force(tokens, rules), found(tokens, rules)
    if expected is None:
        assert loop is None
    elif loop is not None:
        assert loop.end >= expected
        said = re.fullmatch(r"a piece of (\d+) tokens came (\d+) times in a row", loop.what)
        assert said
        length, times = int(said[1]), int(said[2])
        assert loop.keep == loop.end - (times - 1) * length
        parts = [tokens[loop.keep + k * length - length : loop.keep + k * length] for k in range(times)]
        assert parts.count(parts[0]) == times
    else:
        # Missed only when it ended before one more copy of it was there.
        longer = [*before, *piece * (copies + 2 * PATIENCE * 4 * 3), 9]
        assert found(longer, rules) is not None


def test_three_copies_are_no_loop_and_the_fourth_is() -> None:
    for length in (32, 33, 100, 256, 257, 500, 1023, 1024):
        piece = list(range(1000, 1000 + length))
        assert found([*range(500), *piece * 3, 7]) is None
        loop = found([*range(500), *piece * 4])
        assert loop is not None and (loop.detector, loop.end, loop.keep) == ("ngram", 500 + 4 * length, 500 + length)


def test_a_longer_piece_than_the_longest_is_not_seen() -> None:
    assert found(list(range(MAX_PERIOD + 1)) * 6) is None


def test_a_short_piece_is_a_loop_once_it_fills_512_tokens() -> None:
    for piece in ([1, 2], [1, 2, 3, 4, 5, 6, 7, 8]):
        assert found([9, *piece * (510 // len(piece))]) is None
        loop = found([9, *piece * (600 // len(piece))])
        assert loop is not None and (loop.detector, loop.end, loop.keep) == ("ngram", 1 + 512, 1 + 32)
        assert loop.what == "a piece of 32 tokens came 16 times in a row"
    loop = found([9, *range(20)] + [*range(20)] * 40)
    assert loop is not None and (loop.end - loop.keep + 40, loop.keep) == (520, 41)


def test_a_piece_with_a_repetition_inside_is_found_too() -> None:
    inner = list(range(100, 140))
    piece = [*inner, *inner, *range(200, 230)]
    loop = found([*range(50), *piece * 8])
    assert loop is not None and loop.detector == "ngram"


def test_sixty_four_equal_tokens_are_a_loop_and_sixty_three_are_none() -> None:
    assert found([5] * 63 + [6]) is None
    loop = found([1, 2, 3] + [5] * 64)
    assert loop is not None and (loop.detector, loop.keep, loop.end) == ("identical", 4, 67)


def test_the_same_loop_is_found_however_many_tokens_come_at_once() -> None:
    tokens = [*range(300), *list(range(1000, 1040)) * 6]
    at_once = found(tokens)
    for step in (1, 2, 6, 7):
        detector, loop = LoopDetector(RULES), None
        for start in range(0, len(tokens), step):
            loop = loop or detector.feed(tokens[start : start + step])
        assert loop == at_once


class Letters:
    """A byte-level vocabulary in which a token is one byte."""

    def convert_ids_to_tokens(self, ids: int) -> str | None:
        table = {value: key for key, value in _table().items()}
        return table[ids] if ids < 256 else None


def _table() -> dict[str, int]:
    from spark_overlay.token_bytes import _byte_of_character

    return _byte_of_character()


def lines_of(text: str) -> Loop | None:
    rules = LoopRules(identical=0, ngram=0)
    return LoopDetector(rules, token_bytes(Letters())).feed(text.encode())


def test_eight_equal_lines_of_sixteen_characters_are_a_loop_also_with_split_characters() -> None:
    line = "größer als früher\n"
    assert lines_of("intro\n" + line * 7) is None
    loop = lines_of("intro\n" + line * 8)
    assert loop is not None and loop.detector == "lines"
    assert loop.keep == len(("intro\n" + line).encode())
    assert "größer" in loop.what


def test_lines_of_mostly_marks_are_a_loop_after_four_times_as_many() -> None:
    row = "| - | - | - | - |\n"
    assert lines_of("intro\n" + row * 31) is None
    loop = lines_of("intro\n" + row * 32)
    assert loop is not None and loop.what == "the line '| - | - | - | - |' came 32 times in a row"
    assert loop.keep == len("intro\n" + row)
    assert lines_of("| total 0.00 | 0.00 |\n" * 8) is not None, "half of these are letters and digits"


def test_short_lines_blank_lines_and_changing_lines_are_no_loop() -> None:
    assert lines_of("},\n" * 200) is None
    assert lines_of("\n" * 200) is None
    assert lines_of("".join(f"| row {n} | a value that is long |\n" for n in range(200))) is None
    assert lines_of(("one line of the refrain, sung again\n" * 3 + "a verse between them\n") * 40) is None


def test_token_bytes_gives_all_bytes_back_and_a_special_token_its_own_text() -> None:
    piece = token_bytes(Letters())
    assert b"".join(piece(n) for n in range(256)) == bytes(range(256))
    assert piece(4000) == b""

    class Special:
        def convert_ids_to_tokens(self, ids: int) -> str | None:
            return "<｜User｜>"

    assert token_bytes(Special())(1) == "<｜User｜>".encode()
