"""Requests that make the tiny model go in circles, or on and on. Imports nothing: the engine's Python reads it too."""

from __future__ import annotations

MODEL = "tiny"
HELLO = [{"role": "user", "content": "hello"}]
PIECE = "水火土金木日月星山川海空"
"""Twelve characters of three tokens each in the tiny vocabulary: a repeated piece whose tokens cannot differ."""
SCHEMA = {
    "type": "object",
    "properties": {"rows": {"type": "string", "pattern": f"^({PIECE}){{40}}$"}},
    "required": ["rows"],
    "additionalProperties": False,
}
LONG = "".join(chr(0x4E00 + 7 * number) for number in range(120))
"""No loop, and some 360 tokens of the tiny vocabulary."""
LONG_SCHEMA = {
    "type": "object",
    "properties": {"rows": {"type": "string", "pattern": f"^{LONG}$"}},
    "required": ["rows"],
    "additionalProperties": False,
}
