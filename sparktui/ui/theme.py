"""The colours: one calm dark theme, and one in the terminal's own 16 names. No other file names a colour."""

from __future__ import annotations

from textual.theme import Theme

SPARK = Theme(
    name="sparktui",
    primary="#7aa2c8",
    secondary="#8f9fb3",
    accent="#76b900",
    success="#8fc46b",
    warning="#e0b155",
    error="#f07a70",
    foreground="#d7dde4",
    background="#12161b",
    surface="#181d24",
    panel="#202730",
    dark=True,
    variables={
        "border": "#3a4552",
        "quiet": "#98a4b2",
        "held": "#7aa2c8",
        "processes": "#b495d6",
        "cache": "#5f6f80",
        "free": "#3a4552",
        "simulated": "#e0b155",
    },
)

NAMED = Theme(
    name="sparktui-named",
    primary="ansi_bright_blue",
    secondary="ansi_cyan",
    accent="ansi_green",
    success="ansi_green",
    warning="ansi_yellow",
    error="ansi_bright_red",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    ansi=True,
    dark=True,
    luminosity_spread=0.0,
    variables={
        "border": "ansi_default",
        "quiet": "ansi_default",
        "held": "ansi_bright_blue",
        "processes": "ansi_magenta",
        "cache": "ansi_cyan",
        "free": "ansi_default",
        "simulated": "ansi_yellow",
    },
)
