"""The env file that the answers make: the shipped example with the changed lines, and what the settings say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparktui.cluster.profile import PROFILES
from sparktui.envfile import Problem
from sparktui.ui.first_start.draft import Draft
from sparktui.ui.first_start.proposals import Proposal, split_hosts
from sparktui.ui.first_start.secret_answers import why_no_key

if TYPE_CHECKING:
    from sparktui.settings import Settings

PAGE_OF = {
    "HEAD_IP": "sparks",
    "WORKER_HOSTS": "sparks",
    "NNODES": "sparks",
    "WORKER_USER": "ssh",
    "SSH_IDENTITY": "ssh",
    "WORKER_IPS": "network",
    "NCCL_SOCKET_IFNAME": "network",
    "GLOO_SOCKET_IFNAME": "network",
    "FABRIC_IFACE": "network",
    "NCCL_IB_HCA": "network",
    "NCCL_HOST_DIR": "network",
    "WORKER_FABRIC_IPS": "network",
    "NFS_SERVER_IPS": "network",
    "CONTEXT_LENGTH": "watch",
    "API_KEY": "keys",
    "HF_TOKEN": "keys",
}
"""Setting to the group that asks for it."""


def owner_of(problem: Problem, changes: Mapping[str, str]) -> str:
    """The group that a problem belongs to, or ''. Addresses are missing because nobody named the workers."""
    if problem.name == "WORKER_IPS" and not changes.get("WORKER_HOSTS"):
        return "sparks"
    if problem.name == "WORKER_HOSTS" and not changes.get("WORKER_IPS"):
        return "network"  # they are counted against addresses that nobody has said yet
    return PAGE_OF.get(problem.name, "")


def target_path(env_file: Path, asked_profile: str | None, profile: str) -> Path:
    """Where it is saved: as given, but a profile's own file where another profile was chosen than the name says."""
    if profile != (asked_profile or "three") and env_file.name in {each.env_file for each in PROFILES.values()}:
        return env_file.with_name(PROFILES[profile].env_file)
    return env_file


def values_of(draft: Draft, proposed: Mapping[str, Proposal]) -> dict[str, str]:
    """Each question's answer: what was typed, else what is proposed; lists with single blanks."""
    values = {name: draft.answers.get(name, proposal.value).strip() for name, proposal in proposed.items()}
    for name in ("WORKER_HOSTS", "WORKER_IPS", "WORKER_FABRIC_IPS", "NFS_SERVER_IPS"):
        if name in values:
            values[name] = " ".join(split_hosts(values[name]))
    if "NCCL_IB_HCA" in values:
        values["NCCL_IB_HCA"] = ",".join(split_hosts(values["NCCL_IB_HCA"]))
    if "NCCL_SOCKET_IFNAME" in values:
        values["GLOO_SOCKET_IFNAME"] = values["NCCL_SOCKET_IFNAME"]
    return values


def unattended_window(draft: Draft) -> int | None:
    """The window that is written where nobody watches; None where the profile's own stays."""
    return PROFILES[draft.profile].unattended_context_tokens if draft.unattended else None


@dataclass(frozen=True, slots=True)
class Made:
    """The file's text and what is wrong with it.

    Attributes:
        changes: the lines that differ from the example, by setting.
        settings: None while there are errors.
    """

    text: str
    template: str
    changes: Mapping[str, str]
    problems: tuple[Problem, ...]
    settings: Settings | None = None

    def problem_of(self, name: str) -> Problem | None:
        return next((each for each in self.problems if each.name == name), None)


def make(
    draft: Draft,
    proposed: Mapping[str, Proposal],
    secret_values: Mapping[str, str],
    path: Path,
    environment: Mapping[str, str],
) -> Made:
    """Build the text and check it as the real loader does. Imports pydantic: call it in a thread."""
    from sparktui.engine.fitting import fit_problems
    from sparktui.envfile import parse_env, updated_text
    from sparktui.errors import SettingsError
    from sparktui.settings import SettingsRefused, example_text, parse_settings

    profile = PROFILES[draft.profile]
    template = example_text(profile)
    wanted = values_of(draft, proposed)
    window = unattended_window(draft)
    if window is not None:
        wanted["CONTEXT_LENGTH"] = str(window)
    wanted |= {name: value for name, value in secret_values.items() if value}
    written = parse_env(template, {"HOME": "$HOME"}).values
    changes = {name: value for name, value in wanted.items() if written.get(name) != value}
    try:
        text = updated_text(template, changes)
    except SettingsError as error:
        name = next((each for each in changes if each in error.what), "")
        return Made(template, template, changes, (Problem(0, error.what, name=name),))
    except ValueError as error:
        return Made(template, template, changes, (Problem(0, str(error)),))
    missing = why_no_key(draft, secret_values)
    try:
        settings = parse_settings(text, env_path=path, profile=draft.profile, environment=environment, fit=fit_problems)
    except SettingsRefused as refused:
        return Made(text, template, changes, _with_key(refused.problems, missing))
    if missing:
        return Made(text, template, changes, _with_key(settings.notices, missing))
    return Made(text, template, changes, settings.notices, settings)


def _with_key(problems: Sequence[Problem], missing: str) -> tuple[Problem, ...]:
    """The file alone may go without a key; the choice of an own one may not."""
    if not missing:
        return tuple(problems)
    return (*(each for each in problems if each.name != "API_KEY"), Problem(0, missing, name="API_KEY"))


def save(path: Path, made: Made) -> None:
    """Write the file, 0600, atomically.

    Raises:
        SettingsError: there is one already, or it cannot be written.
    """
    from sparktui.envfile import save as save_file
    from sparktui.errors import SettingsError
    from sparktui.settings import SETTINGS

    if path.exists():
        raise SettingsError(
            f"there is a {path} already; it was not touched",
            fix="leave with ctrl+q and start again to use it, or move it away and save here again",
        )
    # Every setting counts as private: the file is 0600 whether it holds a key or not yet.
    save_file(path, dict(made.changes), secret_names=SETTINGS.keys(), template=made.template)
