"""What this machine lacks for the small guests, by name, so that a skipped test says it."""

from __future__ import annotations

import functools
import platform
import shutil

from tests.testbed.requirements import SEARCH
from tests.testbed.requirements import missing as missing_for_testbed

# program -> the Debian package that brings it
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "depmod": "kmod",
    "modprobe": "kmod",
    "mkfs.ext4": "e2fsprogs",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
    "ssh": "openssh-client",
}


@functools.cache
def missing() -> tuple[str, ...]:
    """Empty when the guests can run here."""
    if platform.machine() != "x86_64":
        return (f"an x86-64 machine (this is {platform.machine()}; the guests run Debian's amd64 kernel)",)
    lacking = tuple(
        f"{program} (Debian package {package})"
        for program, package in PROGRAMS.items()
        if not shutil.which(program, path=SEARCH)
    )
    return lacking or missing_for_testbed()
