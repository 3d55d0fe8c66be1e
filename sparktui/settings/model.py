"""The settings of one cluster: every value, typed, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, SecretStr

from sparktui.cluster.node import Node
from sparktui.cluster.profile import Profile
from sparktui.envfile import Problem
from sparktui.settings.fields import SettingInfo, mask_secrets, size_bytes
from sparktui.settings.groups_cluster import (
    FabricSettings,
    FileSettings,
    ImageSettings,
    NfsSettings,
    NodeSettings,
    SshSettings,
)
from sparktui.settings.groups_engine import (
    ApiSettings,
    BootSettings,
    CapSettings,
    EngramSettings,
    ExtraSettings,
    MemorySettings,
    SpeculationSettings,
)

POLL_SECONDS = 10
"""READY_TIMEOUT counts polls of this length."""


class Settings(
    ExtraSettings,
    BootSettings,
    CapSettings,
    SpeculationSettings,
    EngramSettings,
    MemorySettings,
    ApiSettings,
    FabricSettings,
    NfsSettings,
    ImageSettings,
    FileSettings,
    SshSettings,
    NodeSettings,
):
    """Made by `load_settings`, which checks them; a field is the setting's name in lower case.

    Paths have `~` and `$HOME` resolved for the head's user. Secrets are SecretStr or None.

    Attributes:
        origins: setting name to where its value is from: `command line`, `line 12`, `environment`, `profile three`,
            or a sentence for a value that was derived.
        notices: warnings that stop nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, defer_build=False)

    profile: Profile
    env_path: Path
    home: Path
    """The home folder of the user who runs sparktui on the head."""
    origins: Mapping[str, str] = Field(default_factory=dict, repr=False)
    notices: tuple[Problem, ...] = Field(default=(), repr=False)

    @property
    def home_dir(self) -> Path:
        """The folder of the env file; state and logs lie in it."""
        return self.env_path.parent

    @property
    def state_dir(self) -> Path:
        return self.home_dir / self.profile.state_folder

    @property
    def logs_dir(self) -> Path:
        return self.home_dir / self.profile.logs_folder

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes in rank order, head first."""
        head = Node(name="head", rank=0, address=self.head_ip)
        return (head, *(self._worker(rank) for rank in range(1, len(self.worker_ips) + 1)))

    def _worker(self, rank: int) -> Node:
        address = self.worker_ips[rank - 1]
        written = self.worker_hosts[rank - 1] if self.worker_hosts else address
        user, separator, host = written.rpartition("@")
        fabric = self.worker_fabric_ips[rank - 1] if self.worker_fabric_ips else None
        return Node(
            name=f"worker{rank}",
            rank=rank,
            address=address,
            ssh_host=host,
            ssh_user=user if separator else self.worker_user or None,
            ssh_identity=self.ssh_identity,
            fabric_address=fabric,
        )

    @property
    def shm_bytes(self) -> int:
        return size_bytes(self.shm_size)

    @property
    def speculation(self) -> bool:
        return self.spec_algo == "DSPARK"

    @property
    def ready_seconds(self) -> int:
        """How long serve waits for the ready line."""
        return self.ready_timeout * POLL_SECONDS

    @property
    def served_model(self) -> str:
        """The model id that is shown and smoked: the first of SERVED_MODEL_NAME."""
        return self.served_model_name.split(",")[0].strip()

    @property
    def container_environment(self) -> dict[str, str]:
        """EXTRA_CONTAINER_ENV as names and values."""
        return dict(pair.split("=", 1) for pair in self.extra_container_env)

    @property
    def rdma_devices(self) -> tuple[str, ...]:
        """NCCL_IB_HCA's devices, without ports and prefix signs."""
        return tuple(part.split(":")[0] for part in self.nccl_ib_hca.lstrip("^=").split(",") if part)

    @property
    def base_reference(self) -> str:
        """The base image with its digest where one is known."""
        if self.base_digest and "@" not in self.base_image:
            return f"{self.base_image}@{self.base_digest}"
        return self.base_image

    @property
    def worker_engram_path(self) -> str:
        return self.worker_engram_dir or f"{self.worker_dir}/engram"

    @property
    def worker_model_path(self) -> str:
        """With NFS_SHARE=0: the checkpoint's folder on each worker."""
        return self.worker_model_dir or self.model_dir

    @property
    def nccl_worker_path(self) -> str:
        return self.nccl_worker_dir or self.nccl_host_dir

    @property
    def nfs_allowed(self) -> tuple[str, ...]:
        """Who may mount: NFS_CLIENTS, or the workers' own addresses."""
        return self.nfs_clients or (*self.worker_ips, *self.worker_fabric_ips)

    def nfs_server_address(self, node: Node) -> str | None:
        """Where this worker mounts from, as NFS_SERVER_IPS says; None where it says nothing."""
        if not self.nfs_server_ips or node.is_head:
            return None
        return self.nfs_server_ips[node.rank - 1 if len(self.nfs_server_ips) > 1 else 0]

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret's plain value. For `mask` and for files of mode 0600, never for a screen."""
        values = (getattr(self, name.lower()) for name in SECRET_NAMES)
        return tuple(value.get_secret_value() for value in values if isinstance(value, SecretStr))

    def mask(self, text: str) -> str:
        """`text` with each secret as six dots and its last two characters."""
        return mask_secrets(text, self.secrets)


def _described() -> dict[str, SettingInfo]:
    found: dict[str, SettingInfo] = {}
    # Inherited bases are read last to first, so this is the order of the groups.
    for name, field in Settings.model_fields.items():
        extra: Any = field.json_schema_extra
        if isinstance(extra, dict) and isinstance(extra.get("setting"), SettingInfo):
            found[name.upper()] = extra["setting"]
    return found


SETTINGS: Mapping[str, SettingInfo] = _described()
"""Every setting by its name in the file, in the order of the groups."""
SECRET_NAMES: frozenset[str] = frozenset(name for name, info in SETTINGS.items() if info.secret)


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting as a screen or a page shows it; `default` is the profile's."""

    name: str
    group: str
    meaning: str
    unit: str
    default: str
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    secret: bool
    in_examples: bool


def setting_rows(profile: Profile) -> tuple[SettingRow, ...]:
    """All settings with this profile's defaults, in the order of the groups."""
    return tuple(
        SettingRow(
            name=name,
            group=info.group,
            meaning=info.meaning,
            unit=info.unit,
            default=default_text(name, profile),
            low=info.low,
            high=info.high,
            choices=info.choices,
            secret=info.secret,
            in_examples=info.in_examples,
        )
        for name, info in SETTINGS.items()
    )


def default_text(name: str, profile: Profile) -> str:
    """A setting's default as a file would hold it. Counts of Sparks without a column of their own follow NNODES."""
    if name in ("NNODES", "TP_SIZE") or (name == "EP_SIZE" and profile.defaults != "three"):
        return str(profile.nnodes)
    return SETTINGS[name].defaults[profile.defaults]
