"""Every text on every screen stands out from what is behind it: 4.5 to 1, from the strips as they are painted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.color import ColorTriplet
from textual.screen import ModalScreen

from tests.ui.app_in_test import screen_text, until
from tests.ui.cluster_values import BOOTS_FAILING, BOOTS_WORKING, FAILING, WORKING
from tests.ui.talking_ranks import AppWithLogs

LEAST = 4.5


def luminance(colour: ColorTriplet) -> float:
    """WCAG 2.2, relative luminance."""

    def linear(part: int) -> float:
        share = part / 255
        return share / 12.92 if share <= 0.04045 else float(((share + 0.055) / 1.055) ** 2.4)

    return 0.2126 * linear(colour.red) + 0.7152 * linear(colour.green) + 0.0722 * linear(colour.blue)


def contrast(one: ColorTriplet, other: ColorTriplet) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def offenders(app: Any) -> dict[tuple[str, str], tuple[float, str]]:
    """(foreground, background) -> contrast and a text, of what has letters or digits and is too faint."""
    found: dict[tuple[str, str], tuple[float, str]] = {}
    strips = app.screen._compositor.render_strips(app.size)
    if isinstance(app.screen, ModalScreen):  # what lies behind a card is faint on purpose
        card = app.screen.query_one(".card").region
        strips = [strips[y].crop(card.x, card.right) for y in card.line_range]
    for strip in strips:
        for text, style, _ in strip:
            if style is None or not any(each.isalnum() for each in text):
                continue
            assert style.color is not None and style.bgcolor is not None, text
            front, back = style.color.triplet, style.bgcolor.triplet
            if style.reverse:
                front, back = back, front
            assert front is not None and back is not None, text
            ratio = contrast(front, back)
            if ratio < LEAST:
                found[front.hex, back.hex] = (round(ratio, 2), text.strip()[:40])
    return found


SCREENS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "wizard": ("w", lambda text: "wizard" in text),
    "monitor": ("m", lambda text: "monitor" in text),
    "logs": ("l", lambda text: "FOLLOWING" in text),
    "help": ("question_mark", lambda text: "Leave" in text or "leave" in text),
    "talk": ("t", lambda text: "curl" in text),
    "settings": ("e", lambda text: "settings" in text),
    "smoke": ("s", lambda text: "smoke" in text.lower()),
}


@pytest.mark.parametrize("state", ["working", "failing"])
@pytest.mark.parametrize("screen", SCREENS)
async def test_text_stands_out_on_every_screen(tmp_path: Path, screen: str, state: str) -> None:
    app = AppWithLogs(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.inspections and not app.looking)
        app.snapshot = WORKING if state == "working" else FAILING
        app.boots = BOOTS_WORKING if state == "working" else BOOTS_FAILING
        for link in app.ranks:
            link.say("[2026-11-29 18:00:00 TP0] plain", "WARNING: late", "RuntimeError: CUDA out of memory")
        key, there = SCREENS[screen]
        await pilot.press(key)
        await until(pilot, lambda: there(screen_text(app)))
        await pilot.pause(0.3)
        assert not (found := offenders(app)), f"{screen}: {found}"


def test_the_measure_itself() -> None:
    assert contrast(ColorTriplet(255, 255, 255), ColorTriplet(0, 0, 0)) == pytest.approx(21)
    assert contrast(ColorTriplet(119, 119, 119), ColorTriplet(255, 255, 255)) == pytest.approx(4.48, abs=0.01)
