"""The example files' text, made from the settings' own declarations, so that the two never differ."""

from __future__ import annotations

import textwrap

from sparktui.cluster.profile import Profile
from sparktui.envfile import quoted
from sparktui.settings.model import SettingRow, setting_rows

WIDTH = 110
_CABLES = {"three": "three cables, each Spark to each", "four": "a RoCE switch", "ring": "a ring of four cables"}


def example_text(profile: Profile) -> str:
    """The example file of a profile: evident examples where only the owner knows, defaults everywhere else.

    Addresses are documentation addresses (RFC 5737): sparktui refuses to start with them.
    """
    command = "" if profile.name == "three" else f" --profile {profile.name}"
    lines = [
        f"# sparktui: {profile.nnodes} Sparks, joined by {_CABLES[profile.defaults]}.",
        f"#   cp -n {profile.example_file} {profile.env_file}    # then write your own addresses",
        f"#   ./run doctor{command}",
        "# 192.0.2.*, 198.51.100.*, 203.0.113.* and CHANGE-ME are examples that nothing starts with: write your own.",
        "# Read as bash would, but never run: quote a value with spaces; ~, $HOME and ${NAME} of an earlier line work.",
        "# A line that begins with # shows a default: take the # away to change it.",
    ]
    group = ""
    for row in setting_rows(profile):
        if row.group != group:
            group = row.group
            lines += ["", "", f"# ---- {group} ----"]
        lines += ["", *_comment(row), _assignment(row, profile)]
    return "\n".join(lines) + "\n"


def example_values(profile: Profile) -> dict[str, str]:
    """What stands in the example instead of a default, by setting; all of it must be replaced."""
    workers = range(2, profile.nnodes + 1)
    values = {
        "HEAD_IP": "192.0.2.1",
        "WORKER_IPS": " ".join(f"192.0.2.{number}" for number in workers),
        "WORKER_HOSTS": " ".join(f"CHANGE-ME-{number}" for number in workers),
    }
    if profile.defaults == "three":
        # Each worker has a cable of its own to the head, and each cable a network of its own.
        values["NFS_SERVER_IPS"] = "198.51.100.1 203.0.113.1"
        values["WORKER_FABRIC_IPS"] = "198.51.100.2 203.0.113.3"
    elif profile.defaults == "four":
        values["NFS_SERVER_IPS"] = "198.51.100.1"
        values["WORKER_FABRIC_IPS"] = " ".join(f"198.51.100.{number}" for number in workers)
    else:
        values["NCCL_HOST_DIR"] = "/CHANGE-ME/nccl-2.30.7"
    return values


def _comment(row: SettingRow) -> list[str]:
    facts = [row.unit] if row.unit else []
    if row.low is not None and row.high is not None:
        facts.append(f"{row.low:.10g} to {row.high:.10g}")
    if row.choices:
        facts.append("one of " + ", ".join(choice or "nothing" for choice in row.choices))
    text = row.meaning + (f" ({', '.join(facts)})" if facts else "")
    return [f"# {line}" for line in textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)]


def _assignment(row: SettingRow, profile: Profile) -> str:
    example = example_values(profile).get(row.name)
    if example is not None:
        return f"{row.name}={quoted(example)}"
    # $HOME has to stay open for bash.
    value = row.default if row.default.startswith("$HOME/") else quoted(row.default)
    return f"{'' if row.in_examples else '# '}{row.name}={value}"
