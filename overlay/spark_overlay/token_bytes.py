"""The bytes of one token of a byte-level tokenizer, without decoding a text: a token may end inside a character."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Vocabulary(Protocol):
    def convert_ids_to_tokens(self, ids: int) -> str | None: ...


def _byte_of_character() -> dict[str, int]:
    """The printable stand-ins by which byte-level BPE writes all 256 bytes: printable Latin-1 stands for itself, the
    others follow from U+0100 on, in order.
    """
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(own)]
    return {chr(byte): byte for byte in own} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


class _Pieces(dict[int, bytes]):
    """Token id -> bytes, each asked for once; a plain look-up from then on."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self._byte_of = _byte_of_character()

    def __missing__(self, token: int) -> bytes:
        text = self._vocabulary.convert_ids_to_tokens(token) or ""
        try:
            found = bytes(self._byte_of[character] for character in text)
        except KeyError:
            found = text.encode("utf-8", "replace")
        self[token] = found
        return found


def token_bytes(vocabulary: Vocabulary) -> Callable[[int], bytes]:
    """A function from token id to bytes. A special token is its own text; an unknown id is b""."""
    return _Pieces(vocabulary).__getitem__
