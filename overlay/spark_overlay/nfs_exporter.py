"""The weights' exporter: `python3 -u -S -m spark_overlay.entry nfs`, in the foreground, until stopped.

Environment: NFS_CLIENTS (addresses, networks), NFS_SERVER (kernel or ganesha), NFS_PORT (2049), NFS_EXPORT (/export),
STATE_PATH (/state). Prints `[spark] NFS READY port=2049 server=kernel` once an NFSv4 NULL call is answered. Kernel: one
server lives in a kernel's network namespace and outlives a killed container, so STATE_PATH/nfs-exporter.json remembers
that it is ours in this boot; a foreign one is left alone and refused. Exit status: 0 stopped · 1 it failed · 2 the
environment was refused.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_overlay.nfs_exports import client_list, ganesha_config, kernel_exports
from spark_overlay.nfs_null import null_call
from spark_overlay.supervisor import Supervisor

NFSD = Path("/proc/fs/nfsd")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
KERNEL_THREADS = 16
GRACE_SECONDS = 30
"""No file can be opened so long after a start. The kernel's own 90 s are as long as a worker's look may take; a lease
of the same length lets every client come back within it."""
COMMAND_SECONDS = 60.0
READY_SECONDS = 60.0


class ExportError(Exception):
    """The export cannot be made: `what` is wrong, `fix` says what to do."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Plan:
    """What to export, to whom, how."""

    server: str
    folder: str
    clients: tuple[str, ...]
    port: int
    state: Path


def say(text: str) -> None:
    print(f"[spark] {text}", flush=True)


def plan_of(environment: Mapping[str, str]) -> Plan:
    """Raises ExportError."""
    server = environment.get("NFS_SERVER", "").strip() or "kernel"
    folder = environment.get("NFS_EXPORT", "").strip() or "/export"
    if server not in ("kernel", "ganesha"):
        raise ExportError(f"NFS_SERVER={server} is neither kernel nor ganesha", "correct NFS_SERVER")
    if not Path(folder).is_dir() or any(mark in folder for mark in " \t\n;{}#\"'"):
        raise ExportError(f"{folder} is no folder that can be exported", "mount the checkpoint there")
    try:
        clients = client_list(environment.get("NFS_CLIENTS", ""))
        port = int(environment.get("NFS_PORT", "").strip() or 2049)
    except ValueError as error:
        raise ExportError(str(error), "list the workers' fabric addresses in NFS_CLIENTS") from error
    return Plan(server, folder, clients, port, Path(environment.get("STATE_PATH") or "/state"))


def _command(*argv: str) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_SECONDS, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise ExportError(f"{argv[0]} is not in this image", "build the image with NFS=kernel or both") from None
    except subprocess.TimeoutExpired:
        raise ExportError(f"{argv[0]} did not end in {COMMAND_SECONDS:g} s", "look at the host's kernel log") from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-300:]
        raise ExportError(f"{' '.join(argv)} failed: {said}", "load the nfsd module on the host: modprobe nfsd")


def _announce_when_ready(plan: Plan, started: float) -> str | None:
    """One look at the server. None while waiting; 'ready' when it answers; another text when the time is over."""
    try:
        null_call("127.0.0.1", plan.port, 2.0)
    except (OSError, ValueError) as error:
        if time.monotonic() - started > READY_SECONDS:
            return f"no NFSv4 answer on port {plan.port} within {READY_SECONDS:g} s: {error}"
        return None
    say(f"NFS READY port={plan.port} server={plan.server} clients={','.join(plan.clients)}")
    return "ready"


def _supervise(plan: Plan, argv: list[str]) -> int:
    started = time.monotonic()
    state: list[str] = []

    def tick() -> str | None:
        if not state:
            found = _announce_when_ready(plan, started)
            if found:
                state.append(found)
        return state[0] if state and state[0] != "ready" else None

    daemon = Supervisor(argv, dict(os.environ), grace_seconds=10)
    code = daemon.run(tick)
    asked = bool(daemon.stopped_by) and (not state or daemon.stopped_by != state[0])
    code = 0 if asked else code or 1
    why = f" after {daemon.stopped_by}" if daemon.stopped_by else ""
    say(f"NFS exporter ended{why}, code={code}")
    return code


def _program(name: str, fix: str) -> str:
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/bin")
    if path is None:
        raise ExportError(f"{name} is not in this image", fix)
    return path


def serve_ganesha(plan: Plan) -> int:
    """nfs-ganesha in the foreground. Raises ExportError."""
    program = _program("ganesha.nfsd", "build the image with NFS=ganesha or both")
    with tempfile.TemporaryDirectory(prefix="spark-nfs-") as folder:
        recovery = Path(folder) / "recovery"
        recovery.mkdir()
        config = Path(folder) / "ganesha.conf"
        config.write_text(ganesha_config(plan.folder, plan.clients, plan.port, str(recovery)))
        argv = [program, "-F", "-f", str(config), "-L", "STDERR", "-N", "NIV_MAJ", "-p", f"{folder}/ganesha.pid"]
        return _supervise(plan, argv)


def _running_threads() -> int:
    try:
        return int((NFSD / "threads").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def _claim(plan: Plan) -> None:
    """Refuses a foreign kernel server; notes that this boot's is ours."""
    note = plan.state / "nfs-exporter.json"
    boot = BOOT_ID.read_text().strip()
    try:
        ours = json.loads(note.read_text()).get("boot_id") == boot
    except (OSError, ValueError, AttributeError):
        ours = False
    if _running_threads() and not ours:
        raise ExportError(
            "an NFS server that is not ours already runs in this host's kernel",
            "stop it (systemctl stop nfs-server), or set NFS_SHARE=0 and copy the weights",
        )
    plan.state.mkdir(parents=True, exist_ok=True)
    beside = note.with_name(f"{note.name}.new")
    beside.write_text(json.dumps({"v": 1, "boot_id": boot}))
    beside.replace(note)


def serve_kernel(plan: Plan) -> int:
    """The kernel's server, with rpc.mountd in the foreground. Raises ExportError."""
    mountd = _program("rpc.mountd", "build the image with NFS=kernel or both")
    nfsd = _program("rpc.nfsd", "build the image with NFS=kernel or both")
    exportfs = _program("exportfs", "build the image with NFS=kernel or both")
    if not (NFSD / "threads").exists():
        _command("mount", "-t", "nfsd", "nfsd", str(NFSD))
    _claim(plan)
    Path("/var/lib/nfs").mkdir(parents=True, exist_ok=True)
    for name in ("etab", "rmtab"):
        (Path("/var/lib/nfs") / name).touch()
    Path("/etc/exports").write_text(kernel_exports(plan.folder, plan.clients))
    try:
        _command(exportfs, "-ra")
        grace = ("--lease-time", str(GRACE_SECONDS), "--grace-time", str(GRACE_SECONDS))
        _command(nfsd, "-N", "3", *grace, "--port", str(plan.port), str(KERNEL_THREADS))
        return _supervise(plan, [mountd, "--foreground", "--no-nfs-version", "3"])
    finally:
        for argv in ((nfsd, "0"), (exportfs, "-au")):
            try:
                _command(*argv)
            except ExportError as error:
                say(f"WARNING {error.what}")


def main() -> int:
    try:
        plan = plan_of(os.environ)
    except ExportError as error:
        say(f"ERROR NFS {error.what}. Next: {error.fix}.")
        return 2
    try:
        return serve_ganesha(plan) if plan.server == "ganesha" else serve_kernel(plan)
    except ExportError as error:
        say(f"ERROR NFS {error.what}. Next: {error.fix}.")
        return 1


if __name__ == "__main__":
    sys.exit(main())
