"""The simulated cluster as a whole: machines, what the settings say of them, what is broken, what is kept in a file."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparktui.demo.faults import DISK_FULL, SLOW, read_faults
from sparktui.demo.home import DemoHome, speed, write_plain
from sparktui.demo.machine import DISK_BYTES, DISK_USED_BYTES, FULL_DISK_LEFT_BYTES, GIB, Container, Machine
from sparktui.demo.programs import Play, play
from sparktui.remote import checkpoint_folder

STATE_VERSION = 1
SLOWER = 2.5
_BASE_CACHE_GIB = {0: 6.1, 1: 4.4, 2: 21.3}
"""The third node has read something large before: doctor's one warning."""
_SETTLE_SECONDS = 5.0
"""Time that nobody looked at counts for so long at most."""


@dataclass
class World:
    """Everything that the process of the cluster knows.

    Attributes:
        config: what the settings say of this cluster, sent by whoever opens its links.
    """

    home: DemoHome
    speed: float = field(default_factory=speed)
    machines: dict[str, Machine] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    requests_running: int = 0
    _faults: dict[str, frozenset[str]] = field(default_factory=dict)
    _faults_seen: float = -1.0
    _settled_at: float = field(default_factory=time.time)
    _plays: dict[str, tuple[object, Play]] = field(default_factory=dict)

    # -- machines and faults ------------------------------------------------------------------------------------

    def machine(self, name: str) -> Machine:
        if name not in self.machines:
            rank = 0 if name == "head" else int(name.removeprefix("worker"))
            cache = _BASE_CACHE_GIB.get(rank, 5.0) * GIB
            self.machines[name] = Machine(name, rank, cache_bytes=cache)
        return self.machines[name]

    @property
    def head(self) -> Machine:
        return self.machine("head")

    @property
    def ranks(self) -> list[Machine]:
        """The machines of the configured cluster, in rank order."""
        return [self.machine(str(each["name"])) for each in self.config.get("nodes", [])]

    def faults(self, name: str) -> frozenset[str]:
        try:
            seen = self.home.faults_file.stat().st_mtime
        except OSError:
            seen = 0.0
        if seen != self._faults_seen:
            self._faults, self._faults_seen = read_faults(self.home), seen
        return self._faults.get(name, frozenset())

    def pause(self, seconds: float, name: str = "") -> float:
        """Simulated seconds as real ones."""
        return seconds / self.speed * (SLOWER if name and SLOW in self.faults(name) else 1.0)

    # -- time ---------------------------------------------------------------------------------------------------

    def play(self, machine: Machine, container: Container) -> Play:
        """What the container does; computed anew only when something that decides it has changed."""
        state: tuple[object, ...] = (container.started_at, container.finished_at, len(container.extra))
        if container.is_engine:
            others = (each for one in self.ranks for each in one.containers.values() if each.is_engine)
            state += tuple((each.id, each.started_at, each.finished_at, each.slow) for each in others)
        elif container.role != "nfs":
            return play(self, machine, container)
        known = self._plays.get(container.id)
        if known is None or known[0] != state:
            self._plays[container.id] = known = (state, play(self, machine, container))
        return known[1]

    def refresh(self, machine: Machine, now: float | None = None) -> None:
        """Containers whose program has ended by now are ended."""
        at = time.time() if now is None else now
        for container in list(machine.containers.values()):
            if not container.running:
                continue
            told = self.play(machine, container)
            self._count_rows(machine, container, told, at)
            if told.ends_at is not None and told.ends_at <= at:
                container.end(told.ends_at, told.exit_code)
                if container.role == "pack" and told.exit_code == 0:
                    machine.packed.update(told.rows)
                self.save()

    def stop(self, machine: Machine, container: Container, exit_code: int = 0) -> None:
        now = time.time()
        self.refresh(machine, now)
        container.end(now, exit_code)
        self.save()

    def _count_rows(self, machine: Machine, container: Container, told: Play, at: float) -> None:
        if container.role == "pack" and told.rows:
            for name, size in told.rows_at(at).items():
                machine.packed[name] = max(machine.packed.get(name, 0), size)

    def settle(self) -> None:
        """Move counters and page cache on to now, by what goes on now."""
        now = time.time()
        passed = min(max(now - self._settled_at, 0.0), _SETTLE_SECONDS)
        self._settled_at = now
        for machine in self.machines.values():
            self.refresh(machine, now)
        for machine in self.ranks:
            self._traffic(machine, passed, now)

    def _traffic(self, machine: Machine, passed: float, now: float) -> None:
        engine = machine.engine()
        collective = 0.0
        if engine is not None:
            told = self.play(machine, engine)
            collective = told.traffic_at(now) + (96e6 * min(self.requests_running, 4) if told.is_up(now) else 0.0)
            read = told.reading_at(now)
            machine.cache_bytes += read * passed * 0.05
            machine.disk_read += (read if machine.is_head else 0.0) * passed
            self._over_nfs(machine, read * passed)
        packer = machine.running("pack")
        if packer is not None:
            rate = self.play(machine, packer).reading_at(now)
            machine.cache_bytes += rate * passed * 0.4
            machine.disk_read += rate * passed
            self._over_nfs(machine, rate * passed)
        for device in self.config.get("devices", []):
            # Path A carries what the settings name; both ends see the same bytes.
            machine.sent[device] = machine.sent.get(device, 4.2e9) + collective * passed * 0.998
            machine.received[device] = machine.received.get(device, 4.2e9) + collective * passed

    def _over_nfs(self, machine: Machine, amount: float) -> None:
        if not machine.is_head:
            machine.network_received += amount
            self.head.network_sent += amount
            self.head.disk_read += amount

    # -- what is on the head's disk for real -----------------------------------------------------------------

    def checkpoint(self) -> tuple[dict[str, int], dict[str, int]]:
        """Sizes of the head's checkpoint: whole files and parts."""
        sizes = checkpoint_folder.scan(self.home.model_dir)
        return sizes.final_bytes, sizes.partial_bytes

    def disk_left(self, machine: Machine) -> int:
        if DISK_FULL in self.faults(machine.name):
            return FULL_DISK_LEFT_BYTES
        used = DISK_USED_BYTES + sum(int(each["Size"]) for each in machine.images.values())
        used += sum(machine.packed.values())
        if machine.is_head:
            whole, parts = self.checkpoint()
            used += sum(whole.values()) + sum(parts.values())
        return max(DISK_BYTES - used, 0)

    def sheet(self, rank: int) -> Mapping[str, float]:
        """GiB of the rank's memory by item: weights, adapters, kv, graphs, nccl, system."""
        sheets = self.config.get("sheets", {})
        found: Mapping[str, float] = sheets.get(str(rank)) or {
            "weights": 101.0,
            "adapters": 3.5,
            "kv": 1.5,
            "graphs": 0.6,
            "nccl": 0.3,
            "system": 8.7,
        }
        return found

    # -- keeping ------------------------------------------------------------------------------------------------

    def save(self) -> None:
        if not self.home.root.is_dir():
            return
        machines = {name: each.to_plain() for name, each in self.machines.items()}
        write_plain(self.home.state_file, {"v": STATE_VERSION, "config": self.config, "machines": machines})

    @classmethod
    def load(cls, home: DemoHome) -> World:
        """What an earlier process kept; a file that cannot be read is an empty cluster."""
        world = cls(home)
        try:
            said = json.loads(home.state_file.read_bytes())
            if said["v"] == STATE_VERSION:
                world.config = dict(said["config"])
                world.machines = {name: Machine.from_plain(each) for name, each in said["machines"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            world.config, world.machines = {}, {}
        return world
