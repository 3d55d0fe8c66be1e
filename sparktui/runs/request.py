"""What a run is asked to do, and where its files are."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sparktui.errors import UsageError
from sparktui.runs.identity import Identity

SECRET_NAMES = frozenset({"API_KEY", "HF_TOKEN", "WORKER_PASS"})
_RUN_ID = re.compile(r"\d{8}T\d{9}Z-[a-z0-9-]+")
"""UTC to the millisecond first, so that names sort by age; later than every earlier one, whatever the clock says."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Everything the run's process is told; holds no secret (those are read from the env file there).

    Attributes:
        env_file: absolute path.
        profile: as given on the command line; None = what the env file says.
        overrides: settings that the command line replaces, by environment name.
        yes: questions are answered with their own `assume_yes`.
        unattended: nobody can be asked; a question fails the step and names itself.
        forced: verbs that run even where `inspect()` says done.
    """

    env_file: str
    verbs: tuple[str, ...]
    profile: str | None = None
    overrides: dict[str, str] = field(default_factory=dict)
    yes: bool = False
    unattended: bool = False
    only_node: str | None = None
    forced: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The verb a person typed: `up` for the chain."""
        return self.verbs[0] if len(self.verbs) == 1 else "up"


def runs_folder(state_dir: Path) -> Path:
    return state_dir / "runs"


def run_folders(state_dir: Path) -> list[Path]:
    """All runs that are kept, oldest first."""
    try:
        names = [entry.name for entry in os.scandir(runs_folder(state_dir)) if _RUN_ID.fullmatch(entry.name)]
    except FileNotFoundError:
        return []
    return [runs_folder(state_dir) / name for name in sorted(names)]


def make_run_folder(state_dir: Path, request: RunRequest) -> Path:
    """A new folder (0700) with the request in it.

    Raises:
        UsageError: a secret was given as an override.
    """
    for name in sorted(request.overrides):
        if name.upper() in SECRET_NAMES:
            raise UsageError(f"{name} is not taken from the command line", fix=f"put {name}=… into {request.env_file}")
    runs_folder(state_dir).mkdir(parents=True, exist_ok=True)
    earlier = run_folders(state_dir)
    now = datetime.now(UTC)
    if earlier:
        # Names are the order: a clock that was set back must not put a new run before an older one.
        now = max(now, _made_at(earlier[-1].name) + timedelta(milliseconds=1))
    stamp = f"{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03}Z"
    run_dir = runs_folder(state_dir) / f"{stamp}-{request.title}-{secrets.token_hex(2)}"
    run_dir.mkdir(mode=0o700)
    try:
        write_json(run_dir / "request.json", asdict(request))
    except OSError as error:
        shutil.rmtree(run_dir, ignore_errors=True)
        error.filename = error.filename or str(run_dir)
        raise
    return run_dir


def _made_at(name: str) -> datetime:
    try:
        return datetime.strptime(f"{name[:18]}000+0000", "%Y%m%dT%H%M%S%f%z")
    except ValueError:  # digits that are no date
        return datetime.min.replace(tzinfo=UTC)


def read_request(run_dir: Path) -> RunRequest:
    """The request of a run; a name that this version does not know is left out.

    Raises:
        UsageError: there is none, or it cannot be read.
    """
    try:
        plain = json.loads((run_dir / "request.json").read_bytes())
        known = {name: plain[name] for name in RunRequest.__dataclass_fields__ if name in plain}
        known |= {name: tuple(known[name]) for name in ("verbs", "forced") if name in known}
        return RunRequest(**known)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{run_dir} holds no request that can be read: {error}") from error


def write_process(run_dir: Path, process: Identity) -> None:
    write_json(run_dir / "process.json", asdict(process))


def read_process(run_dir: Path) -> Identity | None:
    """The run's process; None before it began."""
    try:
        plain = json.loads((run_dir / "process.json").read_bytes())
        return Identity(int(plain["pid"]), int(plain["started_ticks"]), str(plain["boot_id"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_json(path: Path, plain: object) -> None:
    """Write beside, fsync, rename; 0600 from the first byte on."""
    beside = path.with_name(path.name + ".new")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(plain, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
