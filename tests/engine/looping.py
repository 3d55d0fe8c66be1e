"""Requests that make the tiny model go round in circles. Imports nothing: the engine's Python reads it too."""

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
