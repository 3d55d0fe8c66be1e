"""The loop detectors: what is a loop, what is none, and that both ends of a burst see the same."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from spark_overlay.loop_detect import MAX_PERIOD, Loop, LoopDetector, LoopRules
from spark_overlay.token_bytes import token_bytes

RULES = LoopRules()


def found(tokens: Sequence[int], rules: LoopRules = RULES) -> Loop | None:
    return LoopDetector(rules).feed(tokens)


def first_by_force(tokens: Sequence[int], rules: LoopRules) -> int | None:
    """Where a piece of `ngram`..MAX_PERIOD tokens first stands `repeats` times in a row, by trying all of them."""
    for end in range(1, len(tokens) + 1):
        for length in range(rules.ngram, MAX_PERIOD + 1):
            whole = length * rules.repeats
            if whole > end:
                break
            piece = tokens[end - length : end]
            if all(tokens[end - (k + 1) * length : end - k * length] == piece for k in range(rules.repeats)):
                return end
    return None


@given(st.lists(st.integers(0, 2), max_size=60), st.lists(st.integers(0, 2), min_size=1, max_size=9), st.integers(0, 9))
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
        length = (loop.end - loop.keep) // (rules.repeats - 1)
        parts = [tokens[loop.keep + k * length - length : loop.keep + k * length] for k in range(rules.repeats)]
        assert parts.count(parts[0]) == rules.repeats
    else:
        # Missed only when it ended before one more copy of it was there.
        longer = [*before, *piece * (copies + 2 * 4), 9]
        assert found(longer, rules) is not None


def test_three_copies_are_no_loop_and_the_fourth_is() -> None:
    for length in (32, 33, 100, 255, 256):
        piece = list(range(1000, 1000 + length))
        assert found([*range(500), *piece * 3, 7]) is None
        loop = found([*range(500), *piece * 4])
        assert loop is not None and (loop.detector, loop.end, loop.keep) == ("ngram", 500 + 4 * length, 500 + length)


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
