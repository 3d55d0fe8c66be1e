"""Where the image from the lock is kept between runs: an Engine's data, named by all that decides its big layer."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import shutil
from collections.abc import Iterator

from sparktui.shipped import shipped
from tests.engine.engine_env import cache_dir
from tests.testbed.images import registry_cache

PREFIX = "image-from-lock-"
NEEDED_BYTES = 30 * 10**9
"""The wheels, their unpacked files, and the copy that a commit of the layer makes."""
AFTER_THE_LOCK = "# Programs for the weights' exporter"
"""Where the Dockerfile's part ends that decides the lock's layer."""


def cache_key(base_recipe: str) -> str:
    overlay = shipped("overlay")
    digest = hashlib.sha256(f"{registry_cache().name}\0{base_recipe}\0".encode())
    for name in ("engine-aarch64.lock", "engine-x86_64.lock", "build/bring_to_lock.py"):
        digest.update((overlay / name).read_bytes())
    head, found, _ = (overlay / "Dockerfile").read_text(encoding="utf-8").partition(AFTER_THE_LOCK)
    assert found and "bring_to_lock.py" in head, "the Dockerfile's parts moved"
    digest.update(head.encode())
    return digest.hexdigest()[:12]


class LockImageCache:
    """One folder in the cache. `data` is the Engine's data root; `is_warm` says that the lock's layer is in it."""

    def __init__(self, base_recipe: str) -> None:
        self.folder = cache_dir() / f"{PREFIX}{cache_key(base_recipe)}"
        self.data = self.folder / "docker"
        self._marker = self.folder / ".complete"

    @property
    def is_warm(self) -> bool:
        return self._marker.exists()

    @property
    def has_room(self) -> bool:
        cache_dir().mkdir(parents=True, exist_ok=True)
        return self.is_warm or shutil.disk_usage(cache_dir()).free >= NEEDED_BYTES

    def complete(self) -> None:
        self._marker.touch()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """For one user at a time; folders of other keys are removed."""
        cache_dir().mkdir(parents=True, exist_ok=True)
        with (cache_dir() / ".image-from-lock.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for old in cache_dir().glob(f"{PREFIX}*"):
                if old != self.folder:
                    shutil.rmtree(old)
            yield
