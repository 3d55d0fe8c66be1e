"""Debian's stock kernel, unpacked and not installed, with an initramfs that boots into the host's own files.

The guest sees the host's root read-only over 9p, under a tmpfs that takes every write: each program installed here runs
there, and nothing that the guest does reaches this machine.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.images import cache_dir
from tests.testbed.requirements import SEARCH

RECIPE = 1
META_PACKAGE = "linux-image-amd64"
# What must be there before the root is; everything else is loaded from it by modprobe.
EARLY_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
INIT = """\
#!/bin/busybox sh
set -e
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
while read -r module; do /bin/busybox insmod "/modules/$module"; done </modules/order
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro root /lower
/bin/busybox mount -t tmpfs -o size=600m tmpfs /over
/bin/busybox mkdir /over/upper /over/work
/bin/busybox mount -t overlay -o lowerdir=/lower,upperdir=/over/upper,workdir=/over/work overlay /new
start=$(/bin/busybox sed -n 's/.*guest_init=\\([^ ]*\\).*/\\1/p' /proc/cmdline)
/bin/busybox umount /proc /dev
exec /bin/busybox switch_root /new /bin/sh "$start"
"""


@dataclass(frozen=True, slots=True)
class GuestKernel:
    """Paths on the host; `modules` is the folder to bind over the guest's /lib/modules."""

    image: Path
    initramfs: Path
    modules: Path


def ensure_kernel() -> GuestKernel:
    """Download and unpack it once (some seconds; concurrent callers wait for one).

    Raises:
        subprocess.CalledProcessError: no Debian mirror, or the package did not unpack.
    """
    final = cache_dir() / f"guest-kernel-{RECIPE}"
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / ".guest-kernel.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not final.is_dir():
            work = cache_dir() / f".{final.name}.partial"
            shutil.rmtree(work, ignore_errors=True)
            (work / "deb").mkdir(parents=True)
            _unpack(work)
            work.rename(final)
    modules = final / "root/lib/modules"
    return GuestKernel(next(final.glob("root/boot/vmlinuz-*")), final / "initramfs", modules)


def _unpack(work: Path) -> None:
    depends = _output(["apt-cache", "depends", META_PACKAGE])
    package = re.search(r"Depends: (linux-image-\S+)", depends)
    if package is None:
        subprocess.run(["apt-get", "update", "--quiet", "--quiet"], check=True, timeout=300, stdin=subprocess.DEVNULL)
        package = re.search(r"Depends: (linux-image-\S+)", _output(["apt-cache", "depends", META_PACKAGE]))
    assert package is not None, f"{META_PACKAGE} names no kernel"
    subprocess.run(
        ["apt-get", "--quiet", "--quiet", "-o", "APT::Sandbox::User=root", "download", package[1]],
        check=True, cwd=work / "deb", timeout=600, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    archive = next((work / "deb").glob("*.deb"))
    subprocess.run(["dpkg-deb", "-x", str(archive), str(work / "root")], check=True, timeout=300)
    shutil.rmtree(work / "deb")
    release = next((work / "root/lib/modules").iterdir())
    depmod = shutil.which("depmod", path=SEARCH) or "depmod"
    subprocess.run([depmod, "-b", str(work / "root"), release.name], check=True, timeout=120)
    (work / "initramfs").write_bytes(initramfs(release))


def initramfs(release: Path) -> bytes:
    """A newc archive: busybox, the early modules in load order, /init."""
    files: dict[str, tuple[int, bytes]] = {
        name: (0o040755, b"") for name in ("bin", "dev", "proc", "lower", "over", "new", "modules")
    }
    files["bin/busybox"] = (0o100755, Path(shutil.which("busybox") or "/bin/busybox").read_bytes())
    order = load_order((release / "modules.dep").read_text(), EARLY_MODULES)
    for each in order:
        files[f"modules/{Path(each).name}"] = (0o100644, (release / each).read_bytes())
    files["modules/order"] = (0o100644, "".join(f"{Path(each).name}\n" for each in order).encode())
    files["init"] = (0o100755, INIT.encode())
    entries = [_newc(number, name, mode, data) for number, (name, (mode, data)) in enumerate(files.items(), 1)]
    return b"".join(entries) + _newc(0, "TRAILER!!!", 0, b"")


def load_order(dependencies: str, wanted: tuple[str, ...]) -> list[str]:
    """Module files in an order that insmod accepts. `dependencies` is modules.dep; what is built in is left out."""
    needs = {}
    for line in dependencies.splitlines():
        path, _, rest = line.partition(":")
        needs[path] = rest.split()
    by_name = {Path(path).name.split(".")[0].replace("-", "_"): path for path in needs}
    order: list[str] = []
    for name in wanted:
        if name in by_name:
            # depmod names the nearest need first
            order += [path for path in [*reversed(needs[by_name[name]]), by_name[name]] if path not in order]
    return order


def _newc(number: int, name: str, mode: int, data: bytes) -> bytes:
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0)
    head = b"070701" + b"".join(b"%08X" % field for field in (*fields, len(name) + 1, 0)) + name.encode() + b"\0"
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def _output(argv: list[str]) -> str:
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60).stdout
