"""What this machine lacks for the testbed, by name, so that a skipped test says it."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

from tests.testbed.images import cache_dir

# program -> the Debian package that brings it
PROGRAMS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "tini": "tini",
    "ip": "iproute2",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "docker": "docker.io",
    "dockerd": "docker.io",
    "runc": "runc",
    "docker-registry": "docker-registry",
    "debootstrap": "debootstrap",
    "busybox": "busybox-static",
    "g++": "g++",
}
SEARCH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"


@functools.cache
def missing() -> tuple[str, ...]:
    """Empty when a testbed can run here."""
    if os.geteuid() != 0:
        return ("root",)
    lacking = [
        f"{program} (Debian package {package})"
        for program, package in PROGRAMS.items()
        if not shutil.which(program, path=SEARCH)
    ]
    if lacking:
        return tuple(lacking)
    trial = (
        "mount -t proc proc /proc && mount -t sysfs sysfs /mnt && "
        "ip link add trial0 type veth peer name trial1 && ip link add trial2 type bridge"
    )
    probe = subprocess.run(
        ["unshare", "--fork", "--pid", "--mount", "--net", "--uts", "--ipc", "/bin/sh", "-c", trial],
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    return (
        () if probe.returncode == 0 else (f"namespaces with mounts, veth and bridges ({probe.stderr.strip()[-200:]})",)
    )


ENGINE_BYTES = 20 << 30


def missing_engine() -> tuple[str, ...]:
    """Empty when the cached SGLang environment is there; otherwise what to do, or that the disk is too small for it."""
    engine = cache_dir() / "engine-0.5.23"
    if (engine / "bin/python3").exists():
        return ()
    folder = next(path for path in (engine, *engine.parents) if path.exists())
    if shutil.disk_usage(folder).free < ENGINE_BYTES:
        return (f"disk too small for the engine: {folder} has less than {ENGINE_BYTES >> 30} GiB free",)
    return ("the cached engine (make it with tests/engine/install_engine.sh)",)
