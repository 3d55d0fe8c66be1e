"""How one setting is declared: its meaning, unit, range and default per profile, once, readable as data."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """What is known of a setting besides its type.

    Attributes:
        group: the heading it stands under, in the example files and on the settings screen.
        meaning: what it does and what limits it.
        defaults: the text as a file would hold it, keyed `three`, `four`, `ring`; `$HOME` stands for the head's home.
        unit: empty for a name, a path or a switch.
        low, high: both ends allowed; None where open.
        in_examples: whether the example files show it.
    """

    group: str
    meaning: str
    defaults: Mapping[str, str]
    unit: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    secret: bool = False
    in_examples: bool = True


class Group(BaseModel):
    """A part of the settings; only the whole is ever made, so a part needs no validator of its own."""

    model_config = ConfigDict(defer_build=True)


def setting(
    group: str,
    meaning: str,
    default: str,
    *,
    four: str | None = None,
    ring: str | None = None,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    secret: bool = False,
    in_examples: bool = True,
) -> Any:
    """Declare a setting of the model. `default` is three Sparks'; `four` follows it, `ring` follows `four`."""
    four_default = default if four is None else four
    info = SettingInfo(
        group=group,
        meaning=meaning,
        defaults={"three": default, "four": four_default, "ring": four_default if ring is None else ring},
        unit=unit,
        low=low,
        high=high,
        choices=choices,
        secret=secret,
        in_examples=in_examples,
    )
    # The loader always gives every value, so that each default goes through the same parsing as a file's text.
    return Field(ge=low, le=high, json_schema_extra={"setting": info})  # type: ignore[dict-item]


NO_KEY = frozenset({"", "none", "off", "dummy", "0"})
"""Values of API_KEY (in any case) that mean: no key."""


def _switch(value: object) -> object:
    if isinstance(value, str):
        if value in ("0", "1", ""):
            return value == "1"
        raise ValueError("write 1 (on) or 0 (off)")
    return value


def _whole(value: object) -> object:
    if isinstance(value, str):
        if re.fullmatch(r"-?[0-9]{1,18}", value):
            return int(value)
        raise ValueError("write a whole number, digits only")
    return value


def _number(value: object) -> object:
    if isinstance(value, str):
        if re.fullmatch(r"-?[0-9]{1,12}(\.[0-9]{1,12})?", value):
            return float(value)
        raise ValueError("write a number such as 0.95")
    return value


def _words(value: object) -> object:
    return tuple(value.split()) if isinstance(value, str) else value


def _arguments(value: object) -> object:
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError as error:
            raise ValueError("a quote inside the value is not closed") from error
    return value


def _comma_words(value: object) -> object:
    return tuple(re.findall(r"[^\s,]+", value)) if isinstance(value, str) else value


def _secret(value: object) -> object:
    return None if isinstance(value, str) and not value else value


def _api_key(value: object) -> object:
    if isinstance(value, str):
        return None if value.strip().lower() in NO_KEY else value
    return value


def _address(value: str) -> str:
    if not value:
        return value
    try:
        ip_address(value)
    except ValueError:
        raise ValueError("not an IP address") from None
    return value


def _addresses(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        try:
            ip_address(value)
        except ValueError:
            raise ValueError(f"{value} is not an IP address") from None
    return values


SIZE = re.compile(r"(?P<amount>[0-9]{1,9})(?P<unit>[bkmgt]?)(?:i?b)?", re.IGNORECASE)


def size_bytes(text: str) -> int:
    """A size as Docker writes it (`32g`, `512m`, `1024`): bytes, with 1024 as the step.

    Raises:
        ValueError: it is no size.
    """
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("write a size such as 32g")
    return int(match["amount"]) << (10 * "bkmgt".index(match["unit"].lower() or "b"))


def _size(value: str) -> str:
    size_bytes(value)
    return value


def _verify_cap(value: str) -> str:
    if not re.fullmatch(r"off|0|conf:0\.(?!0+$)[0-9]{1,3}", value.strip().lower()):
        raise ValueError("write off, or conf:T with T from 0.001 to 0.999, such as conf:0.1")
    return value


Switch = Annotated[bool, BeforeValidator(_switch)]
Whole = Annotated[int, BeforeValidator(_whole)]
Number = Annotated[float, BeforeValidator(_number)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Arguments = Annotated[tuple[str, ...], BeforeValidator(_arguments)]
CommaWords = Annotated[tuple[str, ...], BeforeValidator(_comma_words)]
Address = Annotated[str, AfterValidator(_address)]
Addresses = Annotated[tuple[str, ...], BeforeValidator(_words), AfterValidator(_addresses)]
Secret = Annotated[SecretStr | None, BeforeValidator(_secret)]
ApiKey = Annotated[SecretStr | None, BeforeValidator(_api_key)]
Size = Annotated[str, AfterValidator(_size)]
VerifyCap = Annotated[str, AfterValidator(_verify_cap)]


def masked(secret: str) -> str:
    """Six dots and the last two characters; dots alone where two characters would be too much of it."""
    return "•" * 6 + (secret[-2:] if len(secret) > 4 else "")


def mask_secrets(text: str, secrets: tuple[str, ...]) -> str:
    """`text` with every secret replaced, also where it stands quoted for a shell or escaped for JSON."""
    spellings: dict[str, str] = {}
    for secret in secrets:
        for spelling in (secret, shlex.quote(secret), json.dumps(secret)[1:-1]):
            spellings[spelling] = masked(secret)
    for spelling in sorted(spellings, key=len, reverse=True):
        text = text.replace(spelling, spellings[spelling])
    return text
