"""A .env file: read without running it (syntax), put right (fixes), written without losing anything (writing)."""

from sparktui.envfile.fixes import fixed_text, quoted
from sparktui.envfile.lines import EnvFile, Problem, Severity
from sparktui.envfile.syntax import decode_env, parse_env
from sparktui.envfile.writing import save, updated_text

__all__ = [
    "EnvFile",
    "Problem",
    "Severity",
    "decode_env",
    "fixed_text",
    "parse_env",
    "quoted",
    "save",
    "updated_text",
]
