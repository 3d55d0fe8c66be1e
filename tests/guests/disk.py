"""The guests' Docker data as a disk: our image, from the real Dockerfile on the testbed's Debian, without an engine.

The exporter's programs come from overlay/build/install_nfs.sh, run for real against a Debian mirror, and are cached.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.testbed import images

PROJECT = Path(__file__).resolve().parents[2]
OVERLAY = PROJECT / "overlay"
INSTALL = OVERLAY / "build/install_nfs.sh"
IMAGE = "dsv41-guest:local"
RECIPE = 1
DISK_BYTES = 3 << 30


def overlay_key() -> str:
    """Changes with any file of overlay/ that enters the image."""
    total = hashlib.sha256(f"{RECIPE} {base_key()}".encode())
    for path in sorted(OVERLAY.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            total.update(f"{path.relative_to(OVERLAY)}\0".encode() + path.read_bytes())
    return total.hexdigest()[:12]


def base_key() -> str:
    return hashlib.sha256(f"{images.registry_cache().name}".encode() + INSTALL.read_bytes()).hexdigest()[:12]


def ensure_disk() -> Path:
    """An ext4 file with a Docker data folder in it that knows IMAGE; half a minute when overlay/ changed.

    Raises:
        subprocess.CalledProcessError: the build failed; its last lines are in the error's output.
    """
    registry = images.ensure_registry_cache()
    final = images.cache_dir() / f"guest-disk-{overlay_key()}.ext4"
    with (images.cache_dir() / ".guest-disk.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if final.exists():
            return final
        with tempfile.TemporaryDirectory(prefix="guest-disk-", dir="/var/tmp") as name:
            work = Path(name)
            with _dockerd(work) as docker:
                _load_base(docker, registry, work)
                _docker(docker, "build", "--network=host", "--tag", IMAGE,
                        *("--build-arg", "BASE=guest-base:1", "--build-arg", "BRING_TO_LOCK=never"),
                        *("--build-arg", "NFS=both"), str(OVERLAY))  # fmt: skip
            made = work / "disk.ext4"
            with made.open("wb") as file:
                file.truncate(DISK_BYTES)
            argv = ["mkfs.ext4", "-q", "-O", "^has_journal", "-d", str(work / "data"), str(made)]
            subprocess.run(argv, check=True, timeout=300, capture_output=True)
            for old in images.cache_dir().glob("guest-disk-*.ext4"):
                old.unlink()
            beside = final.with_suffix(".partial")
            subprocess.run(["cp", "--sparse=always", str(made), str(beside)], check=True, timeout=300)
            beside.rename(final)
    return final


def _load_base(docker: list[str], registry: Path, work: Path) -> None:
    saved = images.cache_dir() / f"guest-base-{base_key()}.tar"
    if saved.exists():
        _docker(docker, "load", "--input", str(saved))
        return
    context = work / "base"
    context.mkdir()
    shutil.copy(INSTALL, context)
    with images.serve_on_host(registry, work) as url:
        tag = f"{url.removeprefix('http://')}/{images.SGLANG[0]}:{images.SGLANG[1]}"
        text = f"FROM {tag}\nCOPY install_nfs.sh /install_nfs.sh\nRUN sh /install_nfs.sh both\n"
        (context / "Dockerfile").write_text(text)
        _docker(docker, "build", "--network=host", "--tag", "guest-base:1", str(context))
    for old in images.cache_dir().glob("guest-base-*.tar"):
        old.unlink()
    _docker(docker, "save", "--output", str(saved.with_suffix(".partial")), "guest-base:1")
    saved.with_suffix(".partial").rename(saved)


def _docker(docker: list[str], *argv: str) -> None:
    # The classic builder, as sparktui uses it.
    subprocess.run(
        [*docker, *argv], check=True, timeout=600, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
    )  # fmt: skip


@contextlib.contextmanager
def _dockerd(work: Path) -> Iterator[list[str]]:
    socket = work / "docker.sock"
    log = (work / "dockerd.log").open("wb")
    daemon = subprocess.Popen(
        ["dockerd", "--data-root", str(work / "data"), "--exec-root", str(work / "exec"),
         "--pidfile", str(work / "docker.pid"), "-H", f"unix://{socket}",
         "--bridge=none", "--iptables=false", "--ip6tables=false", "--storage-driver=overlay2"],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
    )  # fmt: skip
    docker = ["docker", "-H", f"unix://{socket}"]
    try:
        end = time.monotonic() + 60
        while subprocess.run([*docker, "version"], capture_output=True, check=False, timeout=30).returncode:
            if daemon.poll() is not None or time.monotonic() > end:
                raise RuntimeError((work / "dockerd.log").read_text()[-2000:])
            time.sleep(0.2)
        yield docker
    finally:
        daemon.terminate()
        daemon.wait(timeout=60)
        for line in Path("/proc/mounts").read_text().splitlines():
            if (mounted := line.split()[1]).startswith(f"{work}/"):
                subprocess.run(["umount", mounted], check=False, capture_output=True, timeout=30)
