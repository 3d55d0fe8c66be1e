"""From a file's text to checked settings. The only reader of .env; of the environment only HOME and HF_TOKEN."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sparktui.cluster.profile import PROFILES, Profile, infer_profile, named_profile, profile_for
from sparktui.envfile import EnvFile, Problem, Severity, decode_env, parse_env
from sparktui.errors import SettingsError, UsageError
from sparktui.settings.model import SECRET_NAMES, SETTINGS, Settings, default_text
from sparktui.settings.names import ALIASES, ELSEWHERE, ENGINE_PREFIXES, NO_EFFECT, nearest, numbered
from sparktui.settings.problems import SettingsRefused
from sparktui.settings.rules import problems_of

Fit = Callable[[Settings], Sequence[Problem]]
"""A check of more than the settings themselves, such as the memory sheet's."""
PATHS = (
    "MODEL_DIR",
    "COMMON_MODEL",
    "WORKER_MODEL_DIR",
    "ENGRAM_DIR",
    "WORKER_DIR",
    "WORKER_ENGRAM_DIR",
    "SSH_IDENTITY",
    "NCCL_HOST_DIR",
    "NCCL_WORKER_DIR",
)
"""Settings whose leading `~` is the head's home even where quotes kept bash from expanding it."""


def default_env_path(profile: str | None, folder: Path) -> Path:
    """The env file of a profile: `.env` for three Sparks (and without a profile), `.env.tp4` for four."""
    return folder / _named(profile or "three").env_file


def load_settings(
    env_path: Path,
    *,
    profile: str | None = None,
    cli_overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    fit: Fit | None = None,
) -> Settings:
    """Read, check and return the settings. Never executes the file.

    Args:
        env_path: the file; its folder holds state and logs.
        profile: `three`, `four`, `four-ring`, or None for what the file's own values say.
        cli_overrides: setting name to text; they win over the file.
        environment: the process's, of which HOME and HF_TOKEN count.
        fit: one more check that needs the whole settings.

    Raises:
        SettingsError: the file is absent, or anything in it is wrong (all problems in one go).
        UsageError: no such profile.
    """
    try:
        data = env_path.read_bytes()
        mode = env_path.stat().st_mode
    except FileNotFoundError:
        example = (_named(profile) if profile else profile_for(3)).example_file
        raise SettingsError(
            f"there is no {env_path}", fix=f"cp -n {example} {env_path.name}, then write your addresses into it"
        ) from None
    except OSError as error:
        raise SettingsError(f"{env_path} cannot be read: {error.strerror}", fix=f"ls -l {env_path}") from error
    text, undecoded = decode_env(data)
    settings = parse_settings(
        text,
        env_path=env_path,
        profile=profile,
        cli_overrides=cli_overrides,
        environment=os.environ if environment is None else environment,
        fit=fit,
        earlier=undecoded,
    )
    in_file = [name for name in sorted(SECRET_NAMES) if settings.origins[name].startswith("line")]
    held = [name for name in in_file if getattr(settings, name.lower()) is not None]
    if not held or not mode & 0o077:
        return settings
    reason = f"other users of this machine can read {env_path}, which holds {held[0]}: chmod 600 {env_path}"
    readable = Problem(0, reason, name=held[0], severity=Severity.WARNING)
    return settings.model_copy(update={"notices": (*settings.notices, readable)})


def parse_settings(
    text: str,
    *,
    env_path: Path,
    profile: str | None = None,
    cli_overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    fit: Fit | None = None,
    earlier: Sequence[Problem] = (),
) -> Settings:
    """`load_settings` for a text in hand; touches no file."""
    environment = environment or {}
    home = environment.get("HOME") or _home()
    # HOME alone: any other variable in a value would make the file mean something else in another terminal.
    file = parse_env(text, {"HOME": home})
    problems = [*earlier, *file.problems]
    lines = dict(file.lines)
    values, origins = _file_values(file, problems, lines)
    for name, value in (cli_overrides or {}).items():
        if name not in SETTINGS:
            problems.append(_unknown(name, 0, Severity.ERROR))
            continue
        values[name], origins[name] = value, "command line"
        lines.pop(name, None)
    if environment.get("HF_TOKEN") and not values.get("HF_TOKEN"):
        values["HF_TOKEN"], origins["HF_TOKEN"] = environment["HF_TOKEN"], "environment"
    chosen = _choose_profile(profile, values, lines, problems)
    given = dict(values)
    for name in SETTINGS:
        if name not in values:
            values[name] = _default(name, chosen, home)
            origins[name] = f"profile {chosen.name}"
    _derive(values, given, origins, home)
    for name in PATHS:
        if values[name] == "~" or values[name].startswith("~/"):
            values[name] = home + values[name][1:]
    problems += _without_effect(file, values.get("EXTRA_CONTAINER_ENV", ""))
    broken = {each.name for each in file.broken if each.name}
    fields: dict[str, Any] = {name.lower(): value for name, value in values.items() if name in SETTINGS}
    problems += _choice_problems(values, lines, broken)
    where = str(env_path)
    identity: dict[str, Any] = {"profile": chosen, "env_path": env_path.absolute(), "home": Path(home)}
    try:
        settings = Settings(**fields, **identity, origins=origins)
    except ValidationError as error:
        found = _type_problems(error, values, lines)
        found = [each for each in found if not origins[each.name].startswith("the same as")]
        problems += [each for each in found if each.name not in broken]
        # The rules look at the rest as well, so that everything is said at once.
        wrong = {str(each["loc"][0]) for each in error.errors()}
        broken |= {name.upper() for name in wrong}
        defaults = {name: _default(name.upper(), chosen, home) for name in wrong}
        settings = Settings(**{**fields, **defaults}, **identity, origins=origins)
    problems += [each for each in problems_of(settings, lines) if each.name not in broken]
    if fit is not None and not _errors(problems):
        problems += [replace(each, line=each.line or lines.get(each.name, 0)) for each in fit(settings)]
    if _errors(problems):
        raise _refused(problems, where)
    return settings.model_copy(update={"notices": tuple(_hide(each) for each in problems)})


def _home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        raise SettingsError(f"HOME is not set, and user {os.getuid()} has no home", fix="export HOME=/path") from None


def _named(profile: str) -> Profile:
    found = named_profile(profile)
    if found is None:
        raise UsageError(f"no profile is called {profile}", fix=f"one of {', '.join(PROFILES)}")
    return found


def _file_values(
    file: EnvFile, problems: list[Problem], lines: dict[str, int]
) -> tuple[dict[str, str], dict[str, str]]:
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    known = frozenset(SETTINGS)
    listed: dict[str, dict[int, str]] = {}
    used = {name for each in file.assignments for name in each.uses}
    for name, value in file.values.items():
        line = lines[name]
        target = ALIASES.get(name, name)
        if target in known:
            if target == name or target not in file.values:
                values[target], origins[target], lines[target] = value, f"line {line}", line
        elif (member := numbered(name)) is not None:
            listed.setdefault(member[0], {})[member[1]] = value
            lines.setdefault(member[0], line)
        elif name in ELSEWHERE:
            problems.append(
                Problem(line, f"{name} is not read: {ELSEWHERE[name]}", name=name, severity=Severity.WARNING)
            )
        elif name not in used and name not in NO_EFFECT:
            problems.append(_unknown(name, line, Severity.WARNING))
    for target, members in listed.items():
        if target in values:
            continue
        if sorted(members) != list(range(1, len(members) + 1)):
            problems.append(
                Problem(
                    lines[target], f"{target} is numbered 1, 2, … without a gap; here {sorted(members)}", name=target
                )
            )
        values[target] = " ".join(members[key] for key in sorted(members))
        origins[target] = f"line {lines[target]}"
    return values, origins


def _unknown(name: str, line: int, severity: Severity) -> Problem:
    close = nearest(name, frozenset(SETTINGS))
    hint = f": did you mean {close}?" if close else " and has no effect"
    if not close and name.startswith(ENGINE_PREFIXES):
        hint += ": a variable for the engine goes into EXTRA_CONTAINER_ENV"
    return Problem(line, f"{name} is not a setting{hint}", name=name, severity=severity)


def _without_effect(file: EnvFile, container_environment: str) -> list[Problem]:
    """One line for all settings of the recipe that nothing here acts on, on their own line or passed through."""
    passed = {word.partition("=")[0] for word in container_environment.split()}
    nothing_acts_on = NO_EFFECT - SETTINGS.keys()
    found = [name for name in file.values if name in nothing_acts_on]
    found += sorted((passed & nothing_acts_on) - set(found))
    if not found:
        return []
    line = file.lines.get(found[0], file.lines.get("EXTRA_CONTAINER_ENV", 0))
    return [Problem(line, f"known, no effect here: {', '.join(found)}", severity=Severity.INFO)]


def _choose_profile(
    asked: str | None, values: dict[str, str], lines: dict[str, int], problems: list[Problem]
) -> Profile:
    inferred = infer_profile(values)
    if asked is None:
        return inferred
    named = _named(asked)
    # `four` names the count; the file that both four-Spark profiles share says whether it is the ring.
    if named.name == "four" and inferred.is_ring and inferred.nnodes == named.nnodes:
        return inferred
    if inferred.nnodes != named.nnodes and {"NNODES", "TP_SIZE"} & values.keys():
        name = "NNODES" if "NNODES" in values else "TP_SIZE"
        problems.append(
            Problem(
                lines.get(name, 0),
                f"{name}={values[name]}, but profile {asked} is {named.nnodes} Sparks: another --profile or --env-file",
                name=name,
            )
        )
    if named.is_ring and values.get("NCCL_SWITCHLESS_RING", "1") != "1":
        problems.append(
            Problem(
                lines.get("NCCL_SWITCHLESS_RING", 0),
                f"profile {asked} is the ring, and the file says NCCL_SWITCHLESS_RING=0",
                "NCCL_SWITCHLESS_RING=1",
                "NCCL_SWITCHLESS_RING",
            )
        )
    return named


def _default(name: str, profile: Profile, home: str) -> str:
    return default_text(name, profile).replace("$HOME", home)


def _derive(values: dict[str, str], given: dict[str, str], origins: dict[str, str], home: str) -> None:
    """Values that follow from others where the file gives none; each says so in `origins`."""
    user = values["WORKER_USER"]
    if user and "WORKER_DIR" not in given:
        folder = values["WORKER_DIR"].rsplit("/", 1)[1]
        workers_home = "/root" if user == "root" else f"/home/{user}"
        if workers_home != home:
            values["WORKER_DIR"] = f"{workers_home}/{folder}"
            origins["WORKER_DIR"] = f"guessed from WORKER_USER={user}"
    if "HEAD_MEM_FRACTION_STATIC" not in given and "MEM_FRACTION_STATIC" in given:
        values["HEAD_MEM_FRACTION_STATIC"] = values["MEM_FRACTION_STATIC"]
        origins["HEAD_MEM_FRACTION_STATIC"] = "the same as MEM_FRACTION_STATIC"


def _choice_problems(values: Mapping[str, str], lines: Mapping[str, int], broken: set[str]) -> list[Problem]:
    found = []
    for name, info in SETTINGS.items():
        if info.choices and values[name] not in info.choices and name not in broken:
            allowed = ", ".join(choice or "nothing" for choice in info.choices)
            found.append(Problem(lines.get(name, 0), f"{name}={values[name]} is not one of: {allowed}", name=name))
    return found


def _type_problems(error: ValidationError, values: Mapping[str, str], lines: Mapping[str, int]) -> list[Problem]:
    found = []
    for detail in error.errors():
        name = str(detail["loc"][0]).upper()
        info = SETTINGS[name]
        shown = "its value" if name in SECRET_NAMES else f"{name}={values[name]}"
        if detail["type"] in ("greater_than_equal", "less_than_equal"):
            unit = f" {info.unit}" if info.unit else ""
            reason = f"{shown} is outside {info.low:.10g} to {info.high:.10g}{unit}"
        else:
            told = detail.get("ctx", {}).get("error")
            reason = f"{shown}: {told}" if told else f"{shown} cannot be read: {detail['msg']}"
        found.append(Problem(lines.get(name, 0), reason, name=name))
    return found


def _errors(problems: Sequence[Problem]) -> list[Problem]:
    return [each for each in problems if each.severity is Severity.ERROR]


def _refused(problems: Sequence[Problem], where: str) -> SettingsRefused:
    return SettingsRefused(sorted((_hide(each) for each in _errors(problems)), key=lambda each: each.line), where)


def _hide(problem: Problem) -> Problem:
    """The problem without a fixed line that would show a secret."""
    if problem.name in SECRET_NAMES and problem.fixed:
        return replace(problem, fixed=f"{problem.name}='…'")
    if any(name in problem.fixed for name in SECRET_NAMES):
        return replace(problem, fixed="")
    return problem
