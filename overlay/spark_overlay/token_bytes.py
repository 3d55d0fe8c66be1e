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


def token_bytes(vocabulary: Vocabulary) -> Callable[[int], bytes]:
    """A function from token id to bytes, each looked up once. A special token is its own text; an unknown id is b""."""
    table = _byte_of_character()
    known: dict[int, bytes] = {}

    def piece(token: int) -> bytes:
        found = known.get(token)
        if found is None:
            text = vocabulary.convert_ids_to_tokens(token) or ""
            try:
                found = bytes(table[character] for character in text)
            except KeyError:
                found = text.encode("utf-8", "replace")
            known[token] = found
        return found

    return piece
