"""The error tree. Every error raised on purpose says what went wrong, where, and what to do next.

SparktuiError
├── UsageError              the command line is wrong; nothing was touched
├── SettingsError           the .env is wrong or impossible; nothing was touched
├── NodeUnreachable         no TCP, no login, a dead connection
│   ├── HostKeyUnknown      nobody has confirmed this host's key yet
│   └── HostKeyChanged      the key differs from the one on file: refused
├── DeadlineExceeded        a call did not answer in the time it was given
├── RemoteCommandFailed     it ran on the node and failed; the exit status is kept
├── DockerUnavailable       the node's Docker Engine cannot be used (absent, no permission)
├── StepFailed              a step stopped; what is done stays done
└── LockHeld                another run is changing this cluster
"""

from __future__ import annotations

from typing import ClassVar


class SparktuiError(Exception):
    """Root of everything raised on purpose.

    Args:
        what: the cause, one sentence, without the node's name.
        fix: the next step for the user; empty where none is known.
        node: the node's name (`head`, `worker1`, …) or None where no node is involved.
    """

    exit_status: ClassVar[int] = 1

    def __init__(self, what: str, *, fix: str = "", node: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.node = node

    def __str__(self) -> str:
        return f"{self.node}: {self.what}" if self.node else self.what

    def lines(self) -> list[str]:
        """Cause and node on the first line, the next step on the second."""
        return [str(self), *([f"  next: {self.fix}"] if self.fix else [])]


class UsageError(SparktuiError):
    exit_status = 2


class SettingsError(SparktuiError):
    exit_status = 2


class NodeUnreachable(SparktuiError):
    exit_status = 3


class HostKeyUnknown(NodeUnreachable):
    """The host's key is in no known_hosts file.

    Attributes:
        known_hosts_line: the line that would trust it, ready to append.
        fingerprint: `SHA256:…` as ssh-keygen prints it.
    """

    def __init__(self, what: str, *, known_hosts_line: str, fingerprint: str, fix: str, node: str) -> None:
        super().__init__(what, fix=fix, node=node)
        self.known_hosts_line = known_hosts_line
        self.fingerprint = fingerprint


class HostKeyChanged(NodeUnreachable):
    pass


class DeadlineExceeded(SparktuiError):
    exit_status = 3


class RemoteCommandFailed(SparktuiError):
    """A command ran on a node and failed.

    Attributes:
        exit_status_remote: the command's own status, negative for a signal.
        stderr: what it printed there, unfiltered.
    """

    def __init__(
        self, what: str, *, exit_status_remote: int, stderr: str = "", fix: str = "", node: str | None = None
    ) -> None:
        super().__init__(what, fix=fix, node=node)
        self.exit_status_remote = exit_status_remote
        self.stderr = stderr


class DockerUnavailable(SparktuiError):
    pass


class StepFailed(SparktuiError):
    pass


class LockHeld(SparktuiError):
    pass
