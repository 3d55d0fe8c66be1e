"""Base images for the simulated Sparks, kept in a cache: made once without a Docker Engine, served by a real registry.

`lmsysorg/sglang:v0.5.23` is a Debian with python3 and what SGLang's CPU wheels load (its engine is bind-mounted at
/opt/sglang); `tiny:latest` is busybox. Both are schema-2 images with real digests.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import socket
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

PACKAGES = (
    "python3,python3-numpy,python3-venv,ca-certificates,libnuma1,libgomp1,iproute2,procps,"
    "nfs-ganesha,nfs-ganesha-vfs,libnfs-utils"
)
SUITE = "bookworm"
RECIPE = 3
SGLANG = ("lmsysorg/sglang", "v0.5.23")
TINY = ("tiny", "latest")
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}
_APPLETS = "sh cat echo sleep ls true false env id mount ps kill test mkdir rm df head tail grep date seq wc md5sum nc"


def cache_dir() -> Path:
    return Path(os.environ.get("SPARKTUI_CACHE", "/var/cache/sparktui"))


def registry_cache() -> Path:
    """The folder that a registry serves; its name holds everything that decides its content."""
    key = hashlib.sha256(f"{RECIPE} {SUITE} {PACKAGES} {_APPLETS} {platform.machine()}".encode()).hexdigest()[:12]
    return cache_dir() / f"testbed-registry-{key}"


def ensure_registry_cache() -> Path:
    """Make the cached images if they are not there (about a minute; concurrent callers wait for one).

    Raises:
        subprocess.CalledProcessError: debootstrap failed (no Debian mirror).
    """
    final = registry_cache()
    if final.is_dir():
        return final
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / ".testbed-images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if final.is_dir():
            return final
        work = cache_dir() / f".{final.name}.partial"
        shutil.rmtree(work, ignore_errors=True)
        (work / "store").mkdir(parents=True)
        with serve_on_host(work / "store", work) as url:
            push_image(url, *TINY, _tiny_rootfs(), environment=["PATH=/bin"], command=["/bin/sh"])
            with _debian_rootfs(work).open("rb") as layer:
                push_image(
                    url, *SGLANG, layer,
                    environment=["PATH=/opt/sglang/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                    command=["/bin/bash"],
                )  # fmt: skip
        (work / "store").rename(final)
        shutil.rmtree(work)
    return final


def registry_config(store: Path, address: str) -> str:
    """docker-registry's configuration: a folder, an address, nothing else."""
    return (
        f"version: 0.1\nlog:\n  level: warn\nstorage:\n  filesystem:\n    rootdirectory: {store}\n"
        f"  delete:\n    enabled: true\nhttp:\n  addr: {address}\n"
    )


@contextlib.contextmanager
def serve_on_host(store: Path, work: Path) -> Iterator[str]:
    """A registry on a free loopback port while the images are made."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = work / "registry.yml"
    config.write_text(registry_config(store, f"127.0.0.1:{port}"))
    process = subprocess.Popen(
        ["docker-registry", "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_answering(url)
        yield url
    finally:
        process.terminate()
        process.wait()


def wait_answering(url: str, deadline_seconds: float = 60.0) -> None:
    deadline = time.monotonic() + deadline_seconds
    while True:
        try:
            with _direct.open(f"{url}/v2/", timeout=5):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def push_image(url: str, name: str, tag: str, layer: IO[bytes], *, environment: list[str], command: list[str]) -> str:
    """Push a one-layer image by the registry's own API and return its digest."""
    diff, packed = hashlib.sha256(), io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0) as squeezed:
        while chunk := layer.read(1 << 20):
            diff.update(chunk)
            squeezed.write(chunk)
    config = json.dumps(
        {
            "architecture": _ARCHITECTURE.get(platform.machine(), platform.machine()),
            "os": "linux",
            "created": "2026-01-01T00:00:00Z",
            "config": {"Env": environment, "Cmd": command, "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff.hexdigest()}"]},
            "history": [{"created": "2026-01-01T00:00:00Z", "created_by": "testbed"}],
        }
    ).encode()
    described: list[dict[str, Any]] = []
    kinds = ("application/vnd.docker.container.image.v1+json", "application/vnd.docker.image.rootfs.diff.tar.gzip")
    for kind, blob in zip(kinds, (config, packed.getvalue()), strict=True):
        digest = "sha256:" + hashlib.sha256(blob).hexdigest()
        where = _call("POST", f"{url}/v2/{name}/blobs/uploads/", b"").headers["Location"]
        where = where if where.startswith("http") else url + where
        _call("PUT", f"{where}{'&' if '?' in where else '?'}digest={digest}", blob, "application/octet-stream")
        described.append({"mediaType": kind, "size": len(blob), "digest": digest})
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "config": described[0], "layers": described[1:]}
    return str(
        _call("PUT", f"{url}/v2/{name}/manifests/{tag}", json.dumps(manifest).encode(), kind).headers[
            "Docker-Content-Digest"
        ]
    )


_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _call(method: str, url: str, body: bytes, kind: str = "application/octet-stream") -> Any:
    request = urllib.request.Request(url, data=body, method=method, headers={"Content-Type": kind})
    with _direct.open(request, timeout=120) as answer:
        answer.read()
        return answer


def _tiny_rootfs() -> IO[bytes]:
    busybox = Path(shutil.which("busybox") or "/bin/busybox").read_bytes()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("bin", "proc", "sys", "dev", "etc", "run"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        program = tarfile.TarInfo("bin/busybox")
        program.size, program.mode = len(busybox), 0o755
        tar.addfile(program, io.BytesIO(busybox))
        for applet in _APPLETS.split():
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    out.seek(0)
    return out


def _debian_rootfs(work: Path) -> Path:
    root, packed = work / "rootfs", work / "rootfs.tar"
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root)],
        check=True, stdout=(work / "debootstrap.log").open("wb"), stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL, timeout=900,
    )  # fmt: skip
    for waste in ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(root / waste, ignore_errors=True)
    (root / "opt/sglang").mkdir(parents=True)
    (root / "var/cache/apt/archives/partial").mkdir(parents=True)
    (root / "var/lib/apt/lists/partial").mkdir(parents=True)
    subprocess.run(
        ["tar", "-C", str(root), "--numeric-owner", "--exclude=./dev/*", "-cf", str(packed), "."],
        check=True,
        timeout=300,
    )
    shutil.rmtree(root)
    return packed
